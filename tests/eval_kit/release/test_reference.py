"""The published tables: valid, whole, and consistent as far as the papers themselves are."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from jsonschema import ValidationError

from eval_kit.release import reference
from tests.schemas import validate

Cell = dict[str, Any]
Interval = tuple[Fraction, Fraction]

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


def value(id: str, **where: str) -> Decimal:
    """The one cell of a table that answers the description."""
    found = [cell for cell in cells(id) if all(cell.get(name) == want for name, want in where.items())]
    assert len(found) == 1, (id, where, found)
    return exact(found[0])


def interval(cell: Cell) -> Interval:
    """What the unrounded figure can have been."""
    half = Fraction(1, 2 * 10 ** cell["decimals"])
    return Fraction(exact(cell)) - half, Fraction(exact(cell)) + half


def meet(one: Interval, other: Interval) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def change(before: Interval, after: Interval) -> Interval:
    """``after / before - 1``, of positive figures."""
    return after[0] / before[1] - 1, after[1] / before[0] - 1


def negative(of: Interval) -> Interval:
    return -of[1], -of[0]


def follows(start: Cell, end: Cell, relative: Cell) -> bool:
    """Whether the printed loss or delta can come from the two printed figures."""
    moved = change(interval(start), interval(end))
    return meet(negative(moved) if relative["figure"] == "loss" else moved, interval(relative))


def relative_rows(id: str) -> Iterator[tuple[Cell, Cell, Cell]]:
    rows: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in cells(id):
        rows.setdefault(key(cell)[:-1], {})[cell["figure"]] = cell
    for row in rows.values():
        for names in (("in", "out", "loss"), ("inter", "extra", "delta")):
            if set(names) <= set(row):
                start, end, relative = (row[name] for name in names)
                yield start, end, relative


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


READ_BY_EYE = {
    "ecir2023-table2: bm25 topic.c3": "0.181",
    "ecir2023-table2: monobert topic.c1 loss": "0.102",
    "ecir2023-table3: colbert wh.wha in": "0.335",
    "ecir2023-table3: bm25 length.long": "0.185",
    "arxiv2022-table2: not-c3 topic.c1": "0.395",
    "arxiv2022-table4: colbert wh.how loss": "0.317",
    "arxiv2022-table5: colbert length dl19 nDCG@10": "0.710",
    "arxiv2022-table5: biencoder wh dev R@1000": "0.908",
    "cikm2022-table3: dl20 overlap(rel=2)": "0.46",
    "cikm2022-table5: extrapolation beir.touche-2020 spearman(nDCG@10)": "-0.410",
    "cikm2022-table6: colbert 14k R@100 delta": "0.07",
    "cikm2022-table7: reranker RR@10 extra": "0.346",
    "cikm2022-table8: bert+distill dl19+dl20 R@100 inter": "0.586",
    "cikm2022-table9: rand dev extra": "0.606",
    "cikm2021-table1: repbert RR@10 median": "0.1250",
    "cikm2021-table2: ance dev.worst.40": "0.0280",
    "cikm2021-table4: ance chameleons.pygmy.50 RR@10": "0.0354",
    "cikm2021-table5: chameleons.pygmy.30": "1.082",
    "cikm2021-table6: dev": "5.92",
    "cikm2021-table7: deepct+wordnet": "0.0569",
    "beir2021-table1: beir.signal-1m document-length": "13.93",
    "beir2021-table1: beir.quora dev-queries": "5000",
    "beir2021-table4: tas-b Hole@10": "0.318",
    "cikm2022-table1: dev.sample entity-overlap(partial)": "0.51",
    "cikm2022-table2: dl20 intent(dissimilar)": "0.41",
    "beir2021-table2: genq beir.arguana": "0.493",
    "beir2021-table2: bm25+ce beir.fever": "0.819",
    "beir2021-table3: colbert index-gb": "20",
    "beir2021-table3: bm25+ce latency-cpu-ms": "6100",
    "beir2021-table9: tas-b beir.climate-fever": "0.534",
}


def test_cells_read_by_eye() -> None:
    for described, printed in READ_BY_EYE.items():
        id, *words = re.split(":? ", described)
        [cell] = [cell for cell in cells(id) if set(words) <= set(map(str, cell.values()))]
        assert str(exact(cell)) == printed, described


def test_every_printed_loss_and_delta_follows_from_the_two_figures_beside_it() -> None:
    rows = [row for id in IDS for row in relative_rows(id)]
    assert len(rows) == 15 + 15 + 20 + 20 + 26 + 10 + 16 + 14
    for start, end, relative in rows:
        assert follows(start, end, relative), relative


def test_wins_that_the_beir_text_counts() -> None:
    """As in the text of section 5, but for docT5query: it says 11, the table has 12."""
    table: dict[tuple[str, str], Decimal] = {}
    for cell in cells("beir2021-table2"):
        if cell["figure"] == "value" and cell["test_set"] != "beir.ms-marco":
            table[cell["system"], cell["test_set"]] = exact(cell)
    sets = {name for _, name in table}
    for system, baseline, wins in (
        ("bm25+ce", "bm25", 16),
        ("colbert", "bm25", 9),
        ("tas-b", "ance", 14),
        ("tas-b", "dpr", 17),
        ("doct5query", "bm25", 12),
    ):
        assert sum(table[system, name] > table[baseline, name] for name in sets) == wins, (system, baseline)


def test_beir_table_1_counts_nfcorpus_as_its_files_do(shared: Path) -> None:
    folder = shared / "beir" / "nfcorpus"
    qrels = {
        split: [line.split("\t")[0] for line in (folder / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]]
        for split in ("train", "dev", "test")
    }
    counts = {
        "train-pairs": len(qrels["train"]),
        "dev-queries": len(set(qrels["dev"])),
        "test-queries": len(set(qrels["test"])),
        "documents": len((folder / "corpus.jsonl").read_text().splitlines()),
        "relevant": round(Decimal(len(qrels["test"])) / len(set(qrels["test"])), 1),
    }
    printed = {name: value("beir2021-table1", test_set="beir.nfcorpus", measure=name) for name in counts}
    assert counts == printed
