"""The published tables: valid, whole, and consistent as far as the papers themselves are."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from jsonschema import ValidationError

from eval_kit.release import reference
from tests.schemas import validate

Cell = dict[str, Any]

IDS = reference.ids()
FOLDER = Path(reference.__file__).parent / "printed_tables"

# Cells; the sum of their values, added up from the papers' text apart from the transcription; and the sum
# with each value times its place in the file (from 1). A digit, a sign or a cell that changes shows in the
# second, two that change places in the third, and a label that changes in the checksum of the labels.
TOTALS = {
    "arxiv2022-table2": (35, "9.671", "153.665", "8d01ce43"),
    "arxiv2022-table3": (45, "10.170", "218.651", "640a0b50"),
    "arxiv2022-table4": (45, "11.648", "267.374", "e44db98a"),
    "arxiv2022-table5": (48, "32.220", "817.448", "4d138d28"),
    "beir2021-table1": (109, "53975367.97", "2357078494.77", "51b3dba5"),
    "beir2021-table2": (199, "71.970", "6835.172", "5b32eecb"),
    "beir2021-table3": (31, "13062.6", "136958.2", "9032f82e"),
    "beir2021-table4": (27, "12.240", "213.056", "f503fcb7"),
    "beir2021-table9": (190, "107.678", "10611.404", "d7347244"),
    "cikm2021-table1": (24, "4.6766", "65.682", "e3add4c2"),
    "cikm2021-table2": (49, "4.4508", "131.2803", "0816f1be"),
    "cikm2021-table3": (15, "18781", "189294", "ffc76fd7"),
    "cikm2021-table4": (54, "4.0788", "113.1598", "ee30dbfe"),
    "cikm2021-table5": (16, "17.192", "145.978", "7f80146d"),
    "cikm2021-table6": (16, "103.87", "882.53", "348de051"),
    "cikm2021-table7": (90, "3.7183", "142.4194", "d57fe761"),
    "cikm2022-table1": (9, "3.00", "10.68", "c9d89233"),
    "cikm2022-table2": (9, "3.00", "14.61", "f370f035"),
    "cikm2022-table3": (6, "3.18", "13.03", "0f400724"),
    "cikm2022-table5": (56, "22.405", "357.171", "4c2a491b"),
    "cikm2022-table6": (78, "30.438", "1203.953", "d06f697e"),
    "cikm2022-table7": (30, "10.410", "165.896", "37bc2069"),
    "cikm2022-table8": (48, "17.511", "433.09", "531f0b58"),
    "cikm2022-table9": (42, "17.976", "409.572", "c2b9daa7"),
    "ecir2023-table2": (65, "14.674", "469.119", "d50a66a9"),
    "ecir2023-table3": (65, "15.687", "513.936", "96846c56"),
}


def cells(id: str) -> list[Cell]:
    return reference.load(id)["cells"]


def key(cell: Cell) -> tuple[str, ...]:
    return tuple(cell.get(name, "") for name in ("system", "training", "test_set", "measure", "figure"))


def exact(cell: Cell) -> Decimal:
    """The printed decimal itself, trailing zeros included."""
    return Decimal(str(cell["value"])).quantize(Decimal(1).scaleb(-cell["decimals"]))


@pytest.mark.parametrize("id", IDS)
def test_a_table_is_valid_whole_and_named_as_its_file(id: str) -> None:
    paper, _, number = id.partition("-")
    document = json.loads((FOLDER / f"{paper}.json").read_text(encoding="utf-8"))
    [table] = [table for table in document["tables"] if table["id"] == id]
    assert number == table["table"].lower().replace(" ", "")
    assert reference.load(id) == {**table, "paper": document["paper"]}
    validate("reference", reference.load(id))
    count, total, placed, labels = TOTALS[id]
    assert len(set(map(key, cells(id)))) == len(cells(id)) == count, "no cell twice"
    figures = list(map(exact, cells(id)))
    assert sum(figures) == Decimal(total)
    assert sum(place * figure for place, figure in enumerate(figures, 1)) == Decimal(placed)
    assert f"{crc32(repr(list(map(key, cells(id)))).encode()):08x}" == labels
    for cell in cells(id):
        assert exact(cell) == Decimal(str(cell["value"])), cell
        if cell["figure"] not in ("loss", "delta", "correlation") and "@" in cell["measure"]:
            assert 0 <= cell["value"] <= 1, cell


def test_what_is_no_table_is_refused() -> None:
    table = reference.load("ecir2023-table2")
    table["cells"][0]["figure"] = "avg"
    with pytest.raises(ValidationError, match="avg"):
        validate("reference", table)
    assert reference.load("ecir2023-table2") != table, "a caller's changes are its own"
    for id in ("ecir2023-table9", "../reference/ecir2023-table2", ""):
        with pytest.raises(KeyError, match="ecir2023-table2"):
            reference.load(id)
