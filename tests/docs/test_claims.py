"""Figures of speed on the pages are those of the JSON in ``bench/results``."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval_kit.stats.losses import spearman
from eval_kit.stats.parts import heterogeneity

ROOT = Path(__file__).parents[2]


def measured(name: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_page_of_speed_has_the_measured_figures():
    text = page("docs/speed.md")
    scoring = measured("scoring")["results"]["6.98M"]["costs"]
    bench = measured("baselines")
    dense = next(row for row in bench["synthetic"]["rows"] if row["name"] == "dense flat")
    rows = {row["name"]: row for row in bench["slice"]["rows"]}
    alone, together = dense["one_at_a_time"], dense["in_one_call"]
    bm25 = rows["BM25"]["one_at_a_time"]
    claims = [
        f"{scoring['eval_kit score']['wall_s']} s | trec_eval's library",
        f"(pytrec_eval) {scoring['pytrec_eval']['wall_s']} s, ir_measures {scoring['ir_measures']['wall_s']} s",
        f"{bench['slice']['encoding']['ours']['passages_per_second']:.0f} passages/s",
        f"{alone['ours']['ms']:.0f} ms | faiss `IndexFlatIP` {alone['peer']['ms']:.0f} ms",
        f"{together['ours']['ms']:.0f} ms a query | {together['peer']['ms']:.0f} ms",
        f"{bm25['ours']['ms']:.0f} ms | Pyserini {bm25['peer']['ms']:.0f} ms",
        f"{rows['sparse csr']['one_at_a_time']['ours']['ms']:.1f} ms",
    ]
    for figures in (bench["training"]["training"], bench["training"]["encoding"]):
        overheads = [100 * figure["overhead"]["cpu_s"] for figure in figures.values()]
        claims.append(f"{min(overheads):+.1f} to {max(overheads):+.1f} % CPU time")
    forms = measured("scoring")["forms"]["costs"]
    times = {form: cost["cpu_s"] / forms["plain"]["cpu_s"] for form, cost in forms.items()}
    second, slowest = sorted(times, key=times.__getitem__)[-2:]
    claims.append(f"A plain run takes {forms['plain']['cpu_s']} s; the slowest form of columns, {slowest}")
    claims += [f"{times[slowest]:.2f} times as long", f"at most {times[second]:.2f}\ntimes"]
    ours, in_16, in_32 = measured("encoding")["cpu_s"].values()
    claims.append(f"| {ours} s | {in_16} s in batches of 16, {in_32} s in its own of 32 (plain `encode`) |")
    start = {name: cost["cpu_s"] for name, cost in measured("scoring")["results"]["start-up"]["costs"].items()}
    peers = f"pytrec_eval {start['pytrec_eval']} s, ir_measures {start['ir_measures']} s"
    claims.append(f"| {start['eval_kit score']} s | {peers} |")
    assert start["eval_kit score"] <= 2 * start["ir_measures"]
    assert not [claim for claim in claims if claim not in text]


def test_the_page_of_speed_has_how_commands_grow():
    """Exponents follow from the costs that are kept; one above 1.1 is explained on the page."""
    text, growth = page("docs/speed.md"), measured("growth")
    above = []
    for row in growth["rows"]:
        shown = []
        for costs, start, least, key in (
            (row["cpu_s"], growth["start"][0], 0.2, "exponent"),
            (row["peak_mb"], growth["start"][1], 50, "memory_exponent"),
        ):
            steps = np.array([costs[2] - start, row["sizes"][2]]) / [costs[1] - start, row["sizes"][1]]
            found = np.log(steps[0]) / np.log(steps[1]) if costs[2] - costs[1] >= least else None
            assert row[key] == (None if found is None else pytest.approx(found, abs=0.006))
            shown.append("-" if found is None else f"{row[key]:.2f}")
        above += [each for each in shown if each != "-" and float(each) > 1.1]
        cells = [f"`{row['command']}`", row["grows"], ", ".join(f"{size:,}" for size in row["sizes"])]
        cells += [", ".join(f"{cost:.1f}" for cost in row["cpu_s"]) + " s", shown[0]]
        cells += [f"{max(row['peak_mb']):,.0f} MB", shown[1]]
        assert f"| {' | '.join(cells)} |" in text
    assert all(f"take {each}:" in text for each in above)
    assert all(each in text for each in growth["not_run"])


def test_the_page_of_the_audit_has_the_measured_threshold():
    text, encoder = " ".join(page("docs/contamination.md").split()), measured("near_duplicates")["encoders"]["trigrams"]
    cosine, precision, recall = (encoder[key] for key in ("cosine", "precision", "recall"))
    assert f"reaches {cosine:.2f}:" in text and f"precision {precision:.2f}, recall {recall:.2f}," in text
    shares = [100 * share for share in encoder["taken for duplicates"].values()]
    printed = re.findall(r"\((\d+\.\d) %(?: taken for duplicates)?\)", text.partition("precision 0.")[2])
    assert list(map(float, printed)) == pytest.approx(shares, abs=0.0501)


def test_the_page_of_generalise_has_the_figures_of_squad():
    text, figures = page("docs/generalise.md"), measured("generalise")
    left_out, trained_on = figures["squad"]["loss"], figures["squad"]["none"]
    for label, row in (("left out", left_out), ("trained on", trained_on)):
        shares = [f"{100 * row[name]:.0f} %" for name in ("degrades", "does_not", "refused")]
        assert f"| {label} | {' | '.join(shares)} |" in text
    assert f"| {100 * trained_on['holds']:.0f} % | {trained_on['rmse']:.3f} |" in text


def test_the_page_of_results_takes_parts_as_draws():
    """Over parts, of these queries, tau and F: of each shift and system, from the losses of its parts."""
    text, squad = page("docs/results.md").replace("−", "-"), measured("squad")
    for whole in squad["pooled"]:
        if whole["system"] != "static" and whole["shift"] != "given":
            continue  # the page has one row of those
        parts = [row for row in squad["leave_one_out"][whole["shift"]] if row["system"] == whole["system"]]
        losses = np.array([row["rel_loss"] for row in parts])
        errors = np.array([row["rel_loss_high"] - row["rel_loss_low"] for row in parts]) / (2 * 1.96)
        kinds = heterogeneity(losses, errors, np.array([float(row["queries"]) for row in parts]))
        assert kinds is not None
        pooled = whole["rel_loss"], whole["rel_loss_low"], whole["rel_loss_high"]
        both = (kinds.value, *kinds.interval), pooled
        cells = ["{:.1f} % ({:.1f} to {:.1f})".format(*(100 * figure for figure in row)) for row in both]
        assert f"| {' | '.join(cells)} | {100 * kinds.spread:.1f} | {kinds.q:.1f}, " in text
    pair = [row["jaccard"] for row in squad["by_cluster"]], [row["rel_loss"] for row in squad["by_cluster"]]
    for given in (None, [row["queries"] for row in squad["by_cluster"]]):
        rho = spearman(*pair, given=given)
        assert "{:.2f} ({:.2f} to {:.2f})".format(rho.value, *rho.interval) in " ".join(text.split())


def test_the_page_of_results_has_the_simulated_crossed_grids():
    kept = measured("crossed")
    cases = [kept["figures"][name] for name, (clusters, *_) in kept["cases"].items() if clusters == 64]
    held = [100 * case["covered"] for case in cases]
    false = [100 * case["p under 0.05"] for case in cases if case["p under 0.05"] < 0.5]
    text = " ".join(page("docs/results.md").split())
    assert f"held the truth in {min(held):.1f} to {max(held):.1f} %" in text
    assert f"below 0.05 in {min(false):.1f} to {max(false):.1f} % without a loss" in text


def test_the_page_of_running_it_has_the_rehearsed_hours_and_memory():
    text, stages = " ".join(page("docs/baselines.md").split()), measured("rehearsal")["1"]["stages"]
    prepared = [stages[name] for name in ("texts", "bm25 index", "negatives", "candidates")]
    hours = sum(stage["cpu_s"] for stage in prepared) / 3600
    assert f"candidates take {hours:.1f} hours" in text
    assert f"{max(stage['peak_gb'] for stage in prepared):.0f} GB of memory" in text


def test_the_page_of_beir_has_the_measured_memory():
    text = page("docs/beir.md")
    for stage in measured("beir_memory"):
        if stage["documents"] == 1_000_000 and stage["stage"] != "words":  # the kit no longer counts words
            assert f"{stage['peak_mb']:,.0f} MB" in text, stage
