"""docs/results.md says what bench/results/squad.json and crossed.json hold."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/results.md").read_text(encoding="utf-8")
SQUAD = json.loads((ROOT / "bench/results/squad.json").read_text(encoding="utf-8"))


def rows(heading: str) -> list[list[str]]:
    lines = PAGE[PAGE.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_is_that_of_the_results():
    crossed, cells, *others = rows("| Held out")
    for row, [whole] in ((crossed, SQUAD["crossed"]), (cells, SQUAD["crossed_cells"])):
        ends = (whole["rel_loss_low"], whole["rel_loss_high"])
        figures = [f"{100 * whole[name]:.1f}" for name in ("avg_in", "out", "rel_loss")]
        interval = "{:.1f} to {:.1f}".format(*(100 * end for end in ends))
        assert row[2:] == [f"{whole['queries']:,}", *figures[:2], f"{figures[2]} %", interval]
        assert f"half of {whole['clusters']} c" in row[0]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    most = max(row["rel_loss"] for row in SQUAD["pooled"] if row["system"] != "static")
    assert f"lose {crossed[5]} ({crossed[6]}) of RR@10" in readme and f"at most {100 * most:.1f} %" in readme
    pooled = {(row["shift"], row["system"]): row for row in SQUAD["pooled"]}
    of_row = {"groups": "given", "wh": "wh", "topics": "topic", "short": "length"}
    for row in others:
        [shift] = [shift for word, shift in of_row.items() if word in row[0]]
        system, models = row[1].split(", ")
        parts = [part for part in SQUAD["leave_one_out"][shift] if part["system"] == system]
        whole = pooled.pop((shift, system))
        for name in ("avg_in", "out"):
            mean = sum(part[name] * part["queries"] for part in parts) / sum(part["queries"] for part in parts)
            assert whole[name] == pytest.approx(mean, abs=1e-6)
        figures = [100 * whole[name] for name in ("avg_in", "out", "rel_loss", "rel_loss_low", "rel_loss_high")]
        shown = "{:.1f} {:.1f} {:.1f} %".format(*figures), "{:.1f} to {:.1f}".format(*figures[3:])
        assert (len(parts), f"{whole['queries']:,}") == (int(models), row[2])
        assert (" ".join(row[3:6]), row[6]) == tuple(text.replace("-", "−") for text in shown)
    assert not pooled


def test_at_least_two_shifts_are_conclusive_for_three_systems() -> None:
    """Within 2 points for static, and 5 for two others."""
    within: dict[str, list[float]] = {}
    for row in rows("| Held out")[2:]:
        low, high = (float(end.replace("−", "-")) for end in row[6].split(" to "))
        within.setdefault(row[1].split(",")[0], []).append((high - low) / 2)
    assert {"static", "biencoder", "monobert"} <= within.keys()


def test_bm25_tells_how_hard_the_parts_are():
    said = []
    for shift in ("given", "wh", "topic"):
        parts = [part for part in SQUAD["bm25"] if part["test_set"].startswith(shift)]
        values = [100 * part["value"] for part in parts]
        mean = sum(100 * part["value"] * part["queries"] for part in parts) / sum(part["queries"] for part in parts)
        said.append([f"{figure:.1f}" for figure in (mean, min(values), max(values))])
    paragraph = PAGE[PAGE.index("BM25, which is trained on nothing") :].split("\n\n")[0]
    figures = re.findall(r"\d\d\.\d", paragraph)
    assert figures == [*said[0], *said[1], *said[2], "71.5", "85.8"]
    lengths = {part["test_set"]: f"{100 * part['value']:.1f}" for part in SQUAD["bm25"] if "length" in part["test_set"]}
    assert lengths == {"length.short": "71.5", "length.long": "85.8"}


def test_five_groups_as_random_are_what_the_page_says():
    groups = [part for part in SQUAD["leave_one_out"]["given"] if part["system"] == "static"]
    losses = [100 * (1 - part["out"] / part["avg_in"]) for part in groups]
    half = stats.t.ppf(0.975, len(losses) - 1) * stats.sem(losses)
    assert f"{min(losses):.1f} to {max(losses):.1f} %, give {np.mean(losses):.1f} ± {half:.1f} %" in PAGE


def test_monoberts_parts_are_what_the_page_says():
    parts = [part for part in SQUAD["leave_one_out"]["topic"] if part["system"] == "monobert"]
    losses = sorted((100 * part["rel_loss"] for part in parts), reverse=True)
    lost, gained = losses[:3], losses[:2:-1]
    shown = "it loses {:.1f}, {:.1f} and {:.1f} % and gains {:.1f} and {:.1f} %".format(
        *lost, *(-loss for loss in gained[::-1])
    )
    assert shown in PAGE.replace("\n  ", " ")
    assert sum(part["p_holm"] < 0.05 for part in parts) == 4


def test_mini_tells_crossed_from_leave_one_out_as_the_page_says():
    mini = SQUAD["mini"]
    whole, groups = mini["crossed"], [100 * loss for loss in mini["random_groups"]]
    half = stats.t.ppf(0.975, len(groups) - 1) * stats.sem(groups)
    low, high = (100 * whole[f"rel_loss_{end}"] for end in ("low", "high"))
    assert f"**{100 * whole['rel_loss']:.1f} % ({low:.1f} to {high:.1f})**" in PAGE
    assert f"{min(groups):.1f} to {max(groups):.1f} %, or {np.mean(groups):.1f} ± {half:.1f} %" in PAGE
    assert abs(100 * whole["rel_loss"] - np.mean(groups)) < half
    assert f"{2 * half / (high - low):.1f} times narrower" in PAGE
    similar = [100 * loss for loss in mini["similar_groups"]]
    assert f"they lost {min(similar):.1f} to {max(similar):.1f} %" in PAGE
    assert f"In is {100 * whole['avg_in']:.1f} beside {100 * mini['random_groups_avg_in']:.1f}" in PAGE


def test_ms_marcos_lists_are_those_of_the_results():
    length, restrain = rows("| Trained without")
    shown = [list(loss_on_both(SQUAD[name])) for name in ("msmarco_length", "msmarco_length_all")]
    assert length[3:] == shown[0]
    short, long, _ = (100 * row["rel_loss"] for row in SQUAD["msmarco_length_all"])
    assert f"it loses {shown[1][2]} ({shown[1][3]}): {long:.1f} % on long queries" in PAGE
    assert f"and {short:.1f} % on short ones".replace("-", "−") in PAGE
    seen, unseen = (row for row in SQUAD["msmarco_restrain"] if row["test_set"] == "dev")
    figures = [seen["value"], unseen["value"]]
    loss, low, high = (-unseen[name] / seen["value"] for name in ("difference", "high", "low"))
    shown = [f"{100 * figure:.1f}" for figure in (*figures, loss, low, high)]
    expected = [*shown[:2], f"{shown[2]} %", f"{shown[3]} to {shown[4]}"]
    assert restrain[3:] == [text.replace("-", "−") for text in expected]


def loss_on_both(parts: list[dict]) -> tuple[str, str, str, str]:
    *parts, both = parts
    for name in ("avg_in", "out"):
        assert both[name] == pytest.approx(sum(part[name] * part["queries"] for part in parts) / 6_980, abs=1e-6)
    figures = [100 * both[name] for name in ("avg_in", "out", "rel_loss", "rel_loss_low", "rel_loss_high")]
    texts = ("{:.1f}", "{:.1f}", "{:.1f} %", "{:.1f} to {:.1f}")
    return tuple(text.format(*figures[number:]).replace("-", "−") for number, text in enumerate(texts))


def test_every_cluster_loses():
    losses = [row["rel_loss"] for row in SQUAD["by_cluster"]]
    assert len(losses) == 64 and all(row["p_holm"] < 0.05 for row in SQUAD["by_cluster"])
    assert f"{100 * min(losses):.0f} to {100 * max(losses):.0f} % over the 64" in PAGE


def test_the_simulations_are_those_of_the_bench():
    figures = json.loads((ROOT / "bench/results/crossed.json").read_text(encoding="utf-8"))["figures"]
    for row, figure in zip(rows("| | held the truth"), figures.values(), strict=True):
        shown = [float(re.sub("[ %]", "", cell)) / 100 for cell in row[1:]]
        assert shown == pytest.approx(list(figure.values()), abs=6e-4)
