"""docs/results.md says what bench/results/squad.json and crossed.json hold."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
SQUAD = json.loads((ROOT / "bench/results/squad.json").read_text(encoding="utf-8"))
LOSS = ("rel_loss", "rel_loss_low", "rel_loss_high")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8").replace("−", "-")


TEXT = page("docs/results.md")
SAID = " ".join(TEXT.split())


def rows(heading: str) -> list[list[str]]:
    lines = TEXT[TEXT.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def shown(row: dict[str, float]) -> list[str]:
    """In, out, loss and its interval, as the tables print them."""
    avg_in, out, loss, low, high = (100 * row[name] for name in ("avg_in", "out", *LOSS))
    return [f"{avg_in:.1f}", f"{out:.1f}", f"{loss:.1f} %", f"{low:.1f} to {high:.1f}"]


def is_mean_of(whole: dict[str, float], parts: list[dict[str, float]]) -> bool:
    queries = [part["queries"] for part in parts]
    means = [np.average([part[name] for part in parts], weights=queries) for name in ("avg_in", "out")]
    return [whole["avg_in"], whole["out"]] == pytest.approx(means, abs=1e-6)


def with_interval(losses: list[float]) -> tuple[str, str]:
    half = stats.t.ppf(0.975, len(losses) - 1) * stats.sem(losses)
    return f"{min(losses):.1f} to {max(losses):.1f} %", f"{np.mean(losses):.1f} ± {half:.1f} %"


def test_the_table_is_that_of_the_results():
    crossed, cells, *others = rows("| Held out")
    for row, [whole] in ((crossed, SQUAD["crossed"]), (cells, SQUAD["crossed_cells"])):
        assert row[2:] == [f"{whole['queries']:,}", *shown(whole)]
        assert f"half of {whole['clusters']} c" in row[0]
    readme = " ".join(page("README.md").split())
    most = max(row["rel_loss"] for row in SQUAD["pooled"] if row["system"] != "static")
    assert f"lose {crossed[5]} ({crossed[6]}) of RR@10" in readme and f"at most {100 * most:.1f} %" in readme
    pooled = {(row["shift"], row["system"]): row for row in SQUAD["pooled"]}
    of_row = {"groups": "given", "wh": "wh", "topics": "topic", "short": "length"}
    for row in others:
        [shift] = [shift for word, shift in of_row.items() if word in row[0]]
        system, models = row[1].split(", ")
        parts = [part for part in SQUAD["leave_one_out"][shift] if part["system"] == system]
        whole = pooled.pop((shift, system))
        assert is_mean_of(whole, parts)
        assert row[2:] == [f"{whole['queries']:,}", *shown(whole)] and len(parts) == int(models)
    assert not pooled


def test_bm25_tells_how_hard_the_parts_are():
    said = []
    for shift in ("given", "wh", "topic"):
        parts = [part for part in SQUAD["bm25"] if part["test_set"].startswith(shift)]
        values = [100 * part["value"] for part in parts]
        mean = np.average(values, weights=[part["queries"] for part in parts])
        said += [f"{figure:.1f}" for figure in (mean, min(values), max(values))]
    lengths = {part["test_set"]: f"{100 * part['value']:.1f}" for part in SQUAD["bm25"] if "length" in part["test_set"]}
    said += [lengths.pop("length.short"), lengths.pop("length.long")]
    paragraph = TEXT[TEXT.index("BM25, which is trained on nothing") :].split("\n\n")[0]
    assert re.findall(r"\d\d\.\d", paragraph) == said and not lengths


def test_losses_of_parts_are_what_the_page_says():
    static = [part for part in SQUAD["leave_one_out"]["given"] if part["system"] == "static"]
    ends, mean = with_interval([100 * (1 - part["out"] / part["avg_in"]) for part in static])
    monobert = [part for part in SQUAD["leave_one_out"]["topic"] if part["system"] == "monobert"]
    *lost, less, least = sorted((100 * part["rel_loss"] for part in monobert), reverse=True)
    by_cluster = [100 * row["rel_loss"] for row in SQUAD["by_cluster"]]
    sentences = [
        f"{ends}, give {mean}",
        "it loses {:.1f}, {:.1f} and {:.1f} % and gains {:.1f} and {:.1f} %".format(*lost, -less, -least),
        f"{min(by_cluster):.0f} to {max(by_cluster):.0f} % over the 64",
    ]
    assert not [sentence for sentence in sentences if sentence not in SAID]
    assert sum(part["p_holm"] < 0.05 for part in monobert) == 4
    assert len(by_cluster) == 64 and all(row["p_holm"] < 0.05 for row in SQUAD["by_cluster"])


def test_mini_tells_crossed_from_leave_one_out_as_the_page_says():
    mini = SQUAD["mini"]
    whole, groups, similar = (
        mini["crossed"],
        *(100 * np.array(mini[f"{kind}_groups"]) for kind in ("random", "similar")),
    )
    half = stats.t.ppf(0.975, len(groups) - 1) * stats.sem(groups)
    loss, low, high = (100 * whole[name] for name in LOSS)
    ends, mean = with_interval(groups)
    sentences = [
        f"**{loss:.1f} % ({low:.1f} to {high:.1f})**",
        f"{ends}, or {mean}",
        f"{2 * half / (high - low):.1f} times narrower",
        f"they lost {min(similar):.1f} to {max(similar):.1f} %",
        f"In is {100 * whole['avg_in']:.1f} beside {100 * mini['random_groups_avg_in']:.1f}",
    ]
    assert not [sentence for sentence in sentences if sentence not in SAID]
    assert abs(loss - np.mean(groups)) < half


def test_ms_marcos_lists_are_those_of_the_results():
    length, restrain = rows("| Trained without")
    tables: dict[str, Any] = {}
    for name in ("msmarco_length", "msmarco_length_all"):
        *parts, both = SQUAD[name]
        assert is_mean_of(both, parts) and sum(part["queries"] for part in parts) == 6_980
        tables[name] = shown(both)
    assert length[3:] == tables["msmarco_length"]
    short, long, _ = (100 * row["rel_loss"] for row in SQUAD["msmarco_length_all"])
    loss, interval = tables["msmarco_length_all"][2:]
    assert f"it loses {loss} ({interval}): {long:.1f} % on long queries" in SAID
    assert f"and {short:.1f} % on short ones" in SAID
    seen, unseen = (row for row in SQUAD["msmarco_restrain"] if row["test_set"] == "dev")
    relative = [-unseen[name] / seen["value"] for name in ("difference", "high", "low")]
    figures = {"avg_in": seen["value"], "out": unseen["value"], **dict(zip(LOSS, relative, strict=True))}
    assert restrain[3:] == shown(figures)


def test_the_simulations_are_those_of_the_bench():
    figures = json.loads((ROOT / "bench/results/crossed.json").read_text(encoding="utf-8"))["figures"]
    for row, figure in zip(rows("| | held the truth"), figures.values(), strict=True):
        cells = [float(re.sub("[ %]", "", cell)) / 100 for cell in row[1:]]
        assert cells == pytest.approx(list(figure.values()), abs=6e-4)
