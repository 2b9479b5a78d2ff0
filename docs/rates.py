"""Tables of how often the kit's claims are wrong, from ``bench/results/zoo.json``, for the pages that make them."""

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "bench/results/zoo.json"
DIRECTIVE = re.compile(r"<!-- rates: (?P<claims>[^:>]+?)(?: in (?P<cages>/.+?/))? -->")
ERRORS = 2
"""Monte Carlo errors by which a rate may exceed its nominal one before the page calls it higher."""


def filled(markdown: str) -> str:
    """The page with a table for each ``<!-- rates: CLAIM; CLAIM in /CAGES/ -->``, or with every claim's worst cages."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    markdown = markdown.replace("<!-- draws -->", f"{kept['draws']:,}").replace("<!-- worst -->", _worst(kept["rates"]))
    return DIRECTIVE.sub(lambda match: _beside(kept["rates"], match["claims"], match["cages"]), markdown)


def _beside(rates: list[dict[str, Any]], claims: str, cages: str | None) -> str:
    """Cages down, claims across: in percent of the draws in which they are printed; both sizes in one row."""
    names, pattern = claims.split("; "), re.compile((cages or "//").strip("/"))
    cells: dict[str, dict[str, list[str]]] = {}
    for row in rates:
        if row["claim"] in names and pattern.search(row["cage"]):
            cage = re.sub(r", n = (1,000|5,000)$", "", row["cage"])
            shown = f"{100 * row['wrong'] / row['printed']:.1f}" if row["printed"] else "-"
            cells.setdefault(cage, {}).setdefault(row["claim"], []).append(shown)
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for cage, each in cells.items():
        lines.append(f"| {cage} | {' | '.join(' / '.join(each.get(name, ['-'])) for name in names)} |")
    return "\n".join(lines)


def _worst(rates: list[dict[str, Any]]) -> str:
    """A row a claim: how often it may be wrong, in how many cages it was asked, and where it is wrong more often."""
    lines = ["| claim | may be wrong | cages | wrong more often in |", "|---|---:|---:|---|"]
    for claim in dict.fromkeys(row["claim"] for row in rates):
        rows = [row for row in rates if row["claim"] == claim and row["printed"]]
        more = []
        for row in rows:
            rate, nominal = row["wrong"] / row["printed"], row["nominal"]
            if nominal is not None and rate > nominal + ERRORS * (nominal * (1 - nominal) / row["printed"]) ** 0.5:
                more.append((rate, row["cage"]))
        where = "; ".join(f"{cage} ({rate:.1%})" for rate, cage in sorted(more, reverse=True)) or "none"
        nominal = rows[0]["nominal"] if rows else None
        lines.append(f"| {claim} | {'-' if nominal is None else f'{nominal:.0%}'} | {len(rows)} | {where} |")
    return "\n".join(lines)
