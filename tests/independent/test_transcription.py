"""The published cells against the papers' own text: value, decimals and, where it can be read, order."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

PUBLISHED = Path(__file__).parents[2] / "eval_kit" / "release" / "printed_tables"
TEXTS = {
    "ecir2023": "ms-marco-shift-ecir2023",
    "arxiv2022": "ms-marco-shift-arxiv2205.02870",
    "beir2021": "beir-neurips2021",
    "cikm2021": "ms-marco-chameleons-cikm2021",
    "cikm2022": "interpolation-extrapolation-cikm2022",
}
TABLES = [
    (path.stem, table["id"])
    for path in sorted(PUBLISHED.glob("*.json"))
    for table in json.loads(path.read_text(encoding="utf-8"))["tables"]
]
OUT_OF_ORDER = {"beir2021-table1", "beir2021-table2", "beir2021-table3", "beir2021-table9"}
"""Large tables, whose columns the text gives one after another in pieces."""
NUMBER = re.compile(r"(?:[-+] (?=[\d.]+%)|[-+])?(?:\d[\d,]*\.?\d*|\.\d+)")


def numbers_around(text: str, number: int) -> list[str]:
    """The numbers between the captions of the tables before and after; all of the text, where a caption is cut."""
    lines = text.splitlines()
    captions = {}
    for row, line in enumerate(lines):
        if match := re.match(r"\W{0,4}Table (\d+)[.:]", line):
            captions[int(match[1])] = row
    own = captions.get(number)
    before = max((row for row in captions.values() if own and row < own), default=0)
    after = min((row for row in captions.values() if own and row > own), default=len(lines))
    part = "\n".join(lines[before:after]).translate({ord("−"): "-", ord("–"): "-"})
    return [
        re.sub(r"^(-?)\.", r"\g<1>0.", token.lstrip("+").replace(",", "").replace(" ", ""))
        for token in NUMBER.findall(part)
    ]


def forms(cell: dict) -> set[str]:
    """How the cell may be printed: as it is or, if it is a share, in percent."""
    value, decimals = cell["value"], cell["decimals"]
    shares = {f"{100 * value:.{decimals - 2}f}"} if decimals >= 2 and abs(value) < 1 else set()
    return {f"{value:.{decimals}f}"} | shares


@pytest.mark.parametrize(("paper", "name"), TABLES)
def test_every_cell_is_in_the_papers_text(shared: Path, paper: str, name: str) -> None:
    tables = json.loads((PUBLISHED / f"{paper}.json").read_text(encoding="utf-8"))["tables"]
    table = next(table for table in tables if table["id"] == name)
    text = (shared / "papers" / f"{TEXTS[paper]}.txt").read_text(encoding="utf-8")
    numbers = numbers_around(text, int(table["table"].split()[1]))
    left, rest = Counter(numbers), iter(numbers)
    for cell in table["cells"]:
        printed = next((form for form in forms(cell) if left[form]), None)
        assert printed, cell
        left[printed] -= 1
        assert name in OUT_OF_ORDER or any(number in forms(cell) for number in rest), f"{cell}: not in this order"
