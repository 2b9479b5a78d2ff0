"""Figures of the page on kinds of query are those that ``bench`` wrote."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def measured(name: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def page(name: str) -> str:
    """Its text, lines joined."""
    return " ".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split("\n"))


def test_the_page_of_kinds_has_the_measured_figures() -> None:
    figures, text = measured("discover"), page("discover")
    null, crossed = figures["random signs"], figures["crossed"]
    kinds = crossed["kinds"]
    more = [kind for kind in kinds if kind["more than the rest"]]
    right = [kind for kind in more if kind["unseen by the worse"] > kind["by the better"]]
    claims = [
        f"{null['queries']:,} queries with random signs, {null['kinds']} kinds: some kind was said to lose in "
        f"{null['wrong']} of {null['draws']} draws",
        f"in {crossed['pairs']} ordered pairs of eight models, {crossed['queries']:,} queries each, {crossed['said']} "
        f"kinds are said to lose in {crossed['with a kind']} pairs, and {crossed['right']} of them "
        f"({100 * crossed['right'] / crossed['said']:.0f} %)",
        f"of the {len(more)} that lose more than other queries, {len(right)}.",
    ]
    seeds = figures["retrained"]
    samples = {6: "six"}[seeds["draws"] // seeds["pairs"]]
    none = seeds["more than the rest"] or "none"
    claims += [
        f"in {seeds['pairs']} ordered pairs, each on {samples} disjoint samples of {seeds['queries']:,} queries",
        f"some kind was said to lose in {seeds['wrong']} of {seeds['draws']} draws, and {none} more than other queries",
    ]
    for row in figures["planted"]:
        counts = " | ".join(str(row[name]) for name in ("named", "named by one half", "another"))
        claims.append(f"| {row['queries']:,} | {100 * row['loss']:.0f} % | {counts} |")
    assert [claim for claim in claims if claim not in text] == []
    assert len(kinds) == crossed["said"] == 26 and len(figures["planted"]) == 8
