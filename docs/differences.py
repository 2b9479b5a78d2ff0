"""Where we differ from the papers: the short page and the long one, from one file (``python docs/differences.py``)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "docs" / "where-we-differ.json"
SHORT, LONG = ROOT / "docs" / "where-we-differ.md", ROOT / "baselines" / "configs" / "where-we-differ.md"


def options(config: str) -> dict[str, dict[str, Any]]:
    """The options of each system that a config writes, those that all neural systems share too."""
    document = json.loads((ROOT / "baselines" / "configs" / f"{config}.json").read_text(encoding="utf-8"))
    shared = document.get("neural", {})
    return {system: own if system == "bm25" else shared | own for system, own in document["systems"].items()}


def here(config: str, option: str) -> Any:
    """The value of an option such as ``biencoder.steps``; None where the config leaves it out."""
    system, _, name = option.partition(".")
    return options(config)[system].get(name)


def pages() -> dict[Path, str]:
    """The text of both pages, by path."""
    source = json.loads(SOURCE.read_text(encoding="utf-8"))
    return {path: "\n".join(lines(source)) + "\n" for path, lines in ((SHORT, _short), (LONG, _long))}


def _short(source: dict[str, Any]) -> Iterator[str]:
    """What differs, by the figures that it touches; how much is not here at all."""
    reasons: dict[str, list[str]] = {}
    for row in source["rows"]:
        if row["state"] == "differs":
            reasons.setdefault(row["compare"], []).append(row["why"])
    yield from [*source["short_above"], "", "| if you compare … | expect a difference, because … |", "|---|---|"]
    yield from (f"| {figures} | {'<br>'.join(of_figures)} |" for figures, of_figures in reasons.items())
    missing = [row for row in source["rows"] if row["state"] == "not here"]
    kinds = "pictures, example queries, what annotators labelled, and datasets that are not distributed"
    yield from ["", f"{len(missing)} parts of the papers are not here at all: {kinds}.", "", *source["short_below"]]


def _long(source: dict[str, Any]) -> Iterator[str]:
    yield from source["long_above"]
    for paper in dict.fromkeys(row["paper"] for row in source["rows"]):
        yield from ["", f"## {paper}", "", "| part | state | evidence or reason |", "|---|---|---|"]
        for row in source["rows"]:
            if row["paper"] == paper:
                held = "; ".join(f"`{one}`" for one in row.get("held", []))
                yield f"| {row['part']} | {row['state']} | {'. '.join(filter(None, (row['why'], held)))} |"
    yield from ["", "## Training recipes", "", *source["recipes_above"], ""]
    yield from ["| config | option | paper | here | why |", "|---|---|---|---|---|"]
    for row in source["recipes"]:
        stated = json.dumps(row["states"]) if "states" in row else f"*{row.get('says', 'not stated')}*"
        why = f"as in the config {row['as']}" if "as" in row else row.get("why", "")
        ours = json.dumps(here(row["config"], row["option"]))
        yield f"| {row['config']} | {row['option']} | {stated} | {ours} | {why} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
