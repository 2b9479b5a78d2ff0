"""Where we differ from the papers: the short page and the long one, from one file (``python docs/differences.py``)."""

import json
import math
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


def agrees(row: dict[str, Any]) -> bool:
    """Whether a config has what the paper states or its code has, or neither has a value."""
    found = here(row["config"], row["option"])
    values = [row[name] if name == "states" else row[name][2] for name in ("states", "code") if name in row]
    if "of" in row:
        return any(math.isclose(found, value / row["of"], abs_tol=5e-4) for value in values)
    return not values or found in values


def _source(file: str, key: str, value: Any) -> str:
    return f"`{file}` {key}: {value if isinstance(value, str) else json.dumps(value)}"


def _three(row: dict[str, Any]) -> str:
    """The paper, its code and the kit: the values of its configs, which are read, and what no option holds."""
    options = [f"`{option}` {json.dumps(here(*option.split()))}" for option in row.get("options", ())]
    code = "<br>".join(_source(*one) for one in row.get("code", ()))
    return f"{row['says']} | {code} | {'; '.join(filter(None, [*options, row.get('kit')]))}"


def _short(source: dict[str, Any]) -> Iterator[str]:
    """What differs, by the figures that it touches; how much is not here at all."""
    yield from [*source["short_above"], "", "| if you compare … | the paper | its code | here |", "|---|---|---|---|"]
    rows = [row for row in source["rows"] if row["state"] == "differs"]
    for figures in dict.fromkeys(row["compare"] for row in rows):
        for number, row in enumerate(row for row in rows if row["compare"] == figures):
            yield f"| {'' if number else f'**{figures}** '}{row['part']} | {_three(row)} |"
    missing = [f"{row['part']} ({row['why']})" for row in source["rows"] if row["state"] == "not here"]
    yield from ["", f"Not here: {'; '.join(missing)}.", "", *source["short_below"]]


def _long(source: dict[str, Any]) -> Iterator[str]:
    yield from source["long_above"]
    for paper in dict.fromkeys(row["paper"] for row in source["rows"]):
        yield from ["", f"## {paper}", "", "| part | state | evidence or reason |", "|---|---|---|"]
        for row in source["rows"]:
            if row["paper"] == paper:
                held = "; ".join(f"`{one}`" for one in row.get("held", []))
                yield f"| {row['part']} | {row['state']} | {'. '.join(filter(None, (row.get('why'), held)))} |"
    yield from ["", "## Training recipes", "", *source["recipes_above"], ""]
    yield from ["| config | option | paper | code | here |", "|---|---|---|---|---|"]
    for row in source["recipes"]:
        of = f" / {row['of']:,}" if "of" in row else ""
        stated = [*filter(None, [row.get("says")]), *([json.dumps(row["states"]) + of] if "states" in row else [])]
        code = _source(*row["code"]) + of if "code" in row else ""
        code = f"as in the config {row['as']}" if "as" in row else code
        ours = json.dumps(here(row["config"], row["option"])) + ("" if agrees(row) else " ≠")
        yield f"| {row['config']} | {row['option']} | {': '.join(stated)} | {code} | {ours} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
