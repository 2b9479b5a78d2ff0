"""Figures of the pages on judges and kinds of query are those that ``bench`` wrote."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def measured(name: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def page(name: str) -> str:
    """Its text, lines joined."""
    return " ".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split("\n"))


def test_the_page_of_judges_has_the_measured_figures() -> None:
    figures, text = measured("judges"), page("judges")
    null = [figures["null"][year] for year in ("dl19", "dl20")]
    first, second = ((each["said"], each["draws"]) for each in null)
    of_both = 100 * (first[0] + second[0]) / (first[1] + second[1])
    claims = [
        f"{first[0]} of {first[1]} draws on dl19 and in {second[0]} of {second[1]} on dl20",
        f"{of_both:.1f} % of both",
    ]
    by_row: dict[tuple[Any, str], dict[bool, Any]] = {}
    for row in figures["snapshots"]:
        by_row.setdefault((row["judged first"], row["figures"]), {})[row["changed"]] = row
    for (how, which), rows in by_row.items():
        name = f"{100 * how:.0f} %" if isinstance(how, float) else how
        wrong, same = (f"{rows[changed]['wrong']} of {rows[changed]['cases']}" for changed in (True, False))
        claims.append(
            f"| {name} | {which} | {wrong} | {rows[True]['right']} | {rows[True]['median error']:.3f} | {same} |"
        )
    assert [claim for claim in claims if claim not in text] == []
    assert not any(row["wrong"] for row in figures["snapshots"] if row["figures"] == "judged in both")


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
