"""One file in every form is one file: what is read from it is the same, through every option that takes such a file."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_kit.authors.opening import open_judgements, open_release
from eval_kit.errors import UserError
from eval_kit.files import formats
from eval_kit.files.formats import read_queries
from eval_kit.files.parts import read_parts
from eval_kit.runs import training
from eval_kit.runs.reader import read_pieces

Rows = list[tuple[Any, ...]]
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}  # fmt: skip


def separated(separator: str, names: list[str], rows: Rows, end: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator=end).writerows([names, *rows] if names else rows)
    return text.getvalue()


def json_lines(names: list[str], rows: Rows, end: str) -> str:
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + end for row in rows)


def parquet(names: list[str], rows: Rows) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(rows, names, orient="row").write_parquet(file)
    return file.getvalue()


def plain(separator: str, names: list[str], rows: Rows, end: str) -> str:
    return "".join(separator.join(map(str, row)) + end for row in ([names, *rows] if names else rows))


@st.composite
def written(draw: st.DrawFn, names: list[str], rows: Rows, by_blanks: bool = False) -> tuple[str, bytes]:
    """The ending of a file's name and its bytes, in any form."""
    form = draw(st.sampled_from(["tsv", "csv", "jsonl", "parquet", *(["blanks"] if by_blanks else [])]))
    end, mark = draw(st.sampled_from(["\n", "\r\n"])), draw(st.sampled_from(["", "\ufeff"]))
    header = names if draw(st.booleans()) else []
    if form == "parquet":
        return draw(st.sampled_from([".parquet", ""])), parquet(names, rows)
    comment = draw(st.sampled_from(["", "# made by hand\n\n"])).replace("\n", end)
    if form == "jsonl":
        ending, text = draw(st.sampled_from([".jsonl", ".txt"])), json_lines(names, rows, end)
    elif form == "csv":
        ending, text = ".csv" if draw(st.booleans()) else "", separated(",", header, rows, end)
        ending = ending or (".txt" if header else ".csv")  # without a header, texts hide what divides them
    else:
        ending = draw(st.sampled_from([".tsv", ".txt", ""]))
        text = plain("\t" if form == "tsv" else draw(st.sampled_from([" ", "  \t"])), header, rows, end)
    packing = draw(st.sampled_from(sorted(PACKINGS)))
    text += draw(st.sampled_from(["", end, f" {end}"]))
    return ending + packing, PACKINGS[packing]((mark + comment + text).encode())


numbers = count()


@st.composite
def handed_over(draw: st.DrawFn, folder: Path, file: tuple[str, bytes]) -> Path:
    """The file by its name, or through a pipe that has no name."""
    ending, content = file
    if draw(st.booleans()) and not ending.startswith(".csv"):
        reading, writing = os.pipe()
        os.write(writing, content)
        os.close(writing)
        return Path(f"/dev/fd/{reading}")  # which stays open, so that no other pipe has its number
    path = folder / f"f{next(numbers)}{ending}"
    path.write_bytes(content)
    return path


IDS = ["q1", "7", "a,b", 'x"y', "d\u3000", "d\u00a0e", "d\u2028", "d\x85", "é", "#5", "Q0"]
WITH_BLANKS = [*IDS, "Foo Bar", "a  b"]
TEXTS = ["what is it", 'a "quoted", text', "a, b", "北京", "x", "1 + 1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forms")


def rows_of(*columns: st.SearchStrategy[Any]) -> st.SearchStrategy[Rows]:
    unique = {"unique_by": lambda row: row[:2]} if len(columns) > 2 else {"unique_by": lambda row: row[0]}
    return st.lists(st.tuples(*columns), min_size=1, max_size=6, **unique)


@settings(max_examples=75, deadline=None)
@given(data=st.data())
def test_judgements(folder: Path, data: st.DataObject) -> None:
    by_blanks = data.draw(st.booleans())
    ids = st.sampled_from(IDS if by_blanks else WITH_BLANKS)
    rows = data.draw(rows_of(ids, ids, st.integers(-2, 4)))
    columns, names = [(q, p, grade) for q, p, grade in rows], ["query-id", "corpus-id", "score"]
    if data.draw(st.booleans()):
        columns, names = [(q, 0, p, grade) for q, p, grade in rows], ["qid", "iteration", "docno", "rel"]
    if by_blanks and len(names) == 3:
        by_blanks = columns[0][2] >= 0  # of three, "-" and a digit are no row that blanks make certain
    path = data.draw(handed_over(folder, data.draw(written(names, columns, by_blanks))))
    expected = pl.DataFrame(rows, ["query_id", "passage_id", "relevance"], orient="row").rows()
    for judgements in (open_judgements(path), open_release(path)):
        assert judgements.qrels("test").rows() == expected


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_queries_parts_and_training_queries(folder: Path, data: st.DataObject) -> None:
    rows = data.draw(rows_of(st.sampled_from(WITH_BLANKS), st.sampled_from(TEXTS)))
    for names, read in (
        (["query_id", "text"], lambda path: read_queries(path).rows()),
        (["_id", "text"], lambda path: training.read(path).queries.rows()),
        (["qid", "part"], lambda path: read_parts(path).rows()),
    ):
        path = data.draw(handed_over(folder, data.draw(written(names, rows))))
        expected = list({text: (query, text) for query, text in reversed(rows)}.values())[::-1]
        assert sorted(read(path)) == sorted(expected if names[0] == "_id" else rows)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_runs(folder: Path, data: st.DataObject) -> None:
    by_blanks = data.draw(st.booleans())
    ids = st.sampled_from(IDS if by_blanks else WITH_BLANKS)
    rows = data.draw(rows_of(ids, ids, st.integers(-40, 40).map(lambda number: number / 8)))
    names = ["query_id", "q0", "passage_id", "rank", "score", "tag"]
    columns = [(query, "Q0", passage, rank, score, "t") for rank, (query, passage, score) in enumerate(rows)]
    path = data.draw(handed_over(folder, data.draw(written(names, columns, by_blanks))))
    found = pl.concat(read_pieces(path)).select("query_id", "passage_id", "score")
    assert found.rows() == rows
    ranked = [(query, passage, rank) for rank, (query, passage, _) in enumerate(rows, 1)]
    by_blanks = by_blanks and ranked[0][0] != "#5"  # with blanks after it, three columns may be a comment too
    ending, content = data.draw(written(["qid", "docno", "rank"], ranked, by_blanks))
    if b"PAR1" not in content[:4]:
        found = pl.concat(read_pieces(data.draw(handed_over(folder, (ending, content)))))
        assert found.select("query_id", "passage_id", "score").rows() == [(q, p, -rank) for q, p, rank in ranked]


def test_standard_input(folder: Path) -> None:
    (folder / "r.trec").write_text("q1 Q0 d1 1 2 t\nq2 Q0 d2 1 1 t\n")
    qrels = gzip.compress(b"query-id,corpus-id,score\nq1,d1,1\nq2,d2,1\n")
    (folder / "q.csv.gz").write_bytes(qrels)
    command = [sys.executable, "-m", "eval_kit", "score", "r.trec", "--measure", "RR@10", "--format", "csv"]
    by_name = subprocess.run([*command, "--qrels", "q.csv.gz"], capture_output=True, cwd=folder, check=True)
    from_input = subprocess.run([*command, "--qrels", "-"], input=qrels, capture_output=True, cwd=folder, check=True)
    assert by_name.stdout == from_input.stdout and b",1.0" in from_input.stdout


BAD = [
    (b"q1 0 d1 1\nq1 0 d1 x\n", 2),
    (b"q1 0 d1 1\n\nq2 0 d1 1\n", 2),
    (b"q1 0 d1 1\nq1 0 d1 0\n", 2),
    (b"q1 0 d1 1\nq2\t0\td 1\n", 2),
    (b"q1,d1,1\nq2,d2,1_0\n", 2),
    (b'{"query-id": "q1", "corpus-id": "d", "score": 1}\n{"query-id": "q1", "corpus-id": "a\\ud800", "score": 1}\n', 2),
    (b'{"query-id": "q1", "corpus-id": 1.0, "score": 1}\n', 1),
    (gzip.compress(b"q1 0 d1 1\n" * 9, mtime=0)[:-9], 10),
    (b"q1\xff 0 d1 1\n", 1),
]


@pytest.mark.parametrize(("content", "line"), BAD)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, content: bytes, line: int) -> None:
    (tmp_path / "q").write_bytes(content)
    with pytest.raises(UserError, match=rf"^{tmp_path}/q:{line}: "):
        open_judgements(tmp_path / "q")


def test_half_a_surrogate_is_one_sentence_with_its_line(tmp_path: Path) -> None:
    whole, half = b'{"_id": "q1", "text": "\\ud83d\\ude00"}\n', b'{"_id": "q2", "text": "\\ud83d"}\n'
    (tmp_path / "q.jsonl").write_bytes(whole)
    assert read_queries(tmp_path / "q.jsonl")["text"].to_list() == ["😀"]
    (tmp_path / "q.jsonl").write_bytes(whole + half)
    for read in (read_queries, training.read):
        with pytest.raises(UserError, match=r"q\.jsonl:2: "):
            read(tmp_path / "q.jsonl")


@pytest.mark.parametrize("blank", ["\u3000", "\u00a0", "\x85", "\u2028", "\x0b", "\x1c"])
def test_judgements_and_runs_are_divided_at_the_same_blanks(tmp_path: Path, blank: str) -> None:
    (tmp_path / "q").write_bytes(f"q1 0 d1{blank} 1\nq2\t0\tFoo Bar\t1\n".encode())
    (tmp_path / "r").write_bytes(f"q1 Q0 d1{blank} 1 2 t\nq2\tQ0\tFoo Bar\t1\t1\tt\n".encode())
    judged = open_judgements(tmp_path / "q").qrels("test")["passage_id"].to_list()
    assert judged == pl.concat(read_pieces(tmp_path / "r"))["passage_id"].to_list() == [f"d1{blank}", "Foo Bar"]


@pytest.mark.parametrize(
    "text", ["q 0 d 1\r\nq 0 e 0\n", "query-id\tcorpus-id\tscore\nq\td\t1\nq\te\t0\n", "q,d,1\nq,e,0"]
)
def test_judgements_beyond_doubt_are_read_by_columns(text, tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_judged", lambda *_: pytest.fail("read line by line"))
    path = tmp_path / "qrels"
    path.write_text(text, newline="")
    assert formats.read_judgements(path).rows() == formats.read_qrels(path).rows() == [("q", "d", 1), ("q", "e", 0)]


def test_what_would_fill_the_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Three million equal rows are a few kilobytes of Parquet; a file that holds no line is not read to its end."""
    bomb, zeros = tmp_path / "bomb.parquet", tmp_path / "zeros.tsv"
    pl.DataFrame({"query_id": "q", "passage_id": "p", "score": 1}).select(
        pl.all().repeat_by(3_000_000).explode()
    ).write_parquet(bomb)
    zeros.write_bytes(b"")
    os.truncate(zeros, 1 << 40)
    for path, why in ((bomb, "3,000,000 rows"), (zeros, "longer than")):
        with pytest.raises(UserError, match=why):
            formats.read_qrels(path)
