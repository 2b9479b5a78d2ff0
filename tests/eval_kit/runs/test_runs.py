"""The strict reader: what it accepts, and how each kind of bad run is refused, through the command line."""

import bz2
import gzip
import lzma
import math
import os
import random
import re
import sys
import time
from itertools import product
from pathlib import Path

import polars as pl
import pytest
import zstandard
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from eval_kit import score
from eval_kit.cli import main
from eval_kit.files.endings import ENDINGS
from eval_kit.files.faults import SHOWN_FAULTS, RunError
from eval_kit.files.ids import LONGEST_ID
from eval_kit.release import Release
from eval_kit.runs import reader
from eval_kit.runs.reader import HIGHEST_RANK, LONGEST_LINE, read_pieces
from tests.beir_folders import beir_folder

GOOD = b"q Q0 p 1 1.5 tag"
UTF8_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@pytest.fixture(scope="module")
def lines(mini_release: Release) -> list[bytes]:
    """A faultless run on all of dl19, 129 lines, each query's scores descending."""
    queries = mini_release.test_sets["dl19"].queries
    return [f"{query} Q0 p{i} {i} {9.5 - i} tag".encode() for query in queries for i in (1, 2, 3)]


@pytest.fixture
def refusal(mini_release: Release, tmp_path: Path, monkeypatch, capsys):
    """What `eval_kit score` says of bad runs, after checks that hold for every refusal."""

    def refuse(*runs: Path) -> str:
        before = set(tmp_path.rglob("*"))
        written = [f"--json={tmp_path / 'scores.json'}", f"--per-query={tmp_path / 'values.tsv'}"]
        release = ["--release", str(mini_release.folder)]
        monkeypatch.setattr(sys, "argv", ["eval_kit", "score", *map(str, runs), *release, *written])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert end.value.code == 2
        assert printed.out == ""
        assert re.fullmatch(r"eval_kit: [^\n]+\n", printed.err), printed.err
        assert set(tmp_path.rglob("*")) == before
        return printed.err.removeprefix("eval_kit: ").rstrip("\n")

    return refuse


def column(place: int, value: bytes):
    """Change one field of a line."""
    return lambda line: b" ".join([*line.split()[:place], value, *line.split()[place + 1 :]])


def columns(*places: int):
    """Keep some columns of each line."""
    return lambda text: b"".join(b" ".join(line.split()[i] for i in places) + b"\n" for line in text.splitlines())


NEITHER = "expected 6 (query Q0 passage rank score tag) or 3 (query passage rank)"
BAD_FILES = {  # faults of every field and line are drawn below, beside a parser of its own
    "empty": (lambda text: b"", 1, "the file is empty"),
    "only blanks": (lambda text: b"  \n\t\n", 1, "the file is empty"),
    "only comments": (lambda text: b"# a\n#\n\n", 1, "the file is empty"),
    "a blank in an id": (lambda text: text.replace(b" p2 ", b" Geneva Durben ", 1), 2, "7 columns, expected 6"),
    "an empty line": (lambda text: text.replace(b"\n", b"\n\n", 1), 2, "the line is empty"),
    "a fault after comments": (lambda text: b"# a\n# b c\n" + text.replace(b"8.5", b"x", 1), 3, "the score 'x' is not"),
    "two byte-order marks": (lambda text: UTF8_MARK * 2 + text, 1, "a byte-order mark"),
    "byte-order mark alone": (lambda text: UTF8_MARK, 1, "the file is empty"),
    "judgements": (lambda text: b"q1 0 7 1\nq2 Q0 8 2\n", 1, "These look like judgements"),
    "4 columns with a faulty rank": (lambda text: columns(0, 2, 3, 4)(text) + b"q p 1.5 2\n", 130, "the rank '1.5' is"),
    "UTF-16": (lambda text: text.decode().encode("utf-16"), 1, "a zero byte"),
    "Latin-1": (lambda text: text.replace(b"tag", b"caf\xe9"), 1, "is not UTF-8 text"),
    "Windows line ends at first": (
        lambda text: text.replace(b"\n", b"\r\n", 100),
        101,
        "ends unlike the first line, which ends as on Windows",
    ),
    "Windows line ends later": (lambda text: text + text.replace(b"\n", b"\r\n"), 130, "a carriage return"),
    "old Mac line ends": (lambda text: text.replace(b"\n", b"\r"), 1, "a carriage return"),
    "semicolons": (lambda text: text.replace(b" ", b";"), 1, "1 column, expected"),
    "2 columns": (columns(0, 2), 1, f"2 columns, {NEITHER}"),
    "5 columns": (columns(0, 1, 2, 3, 4), 1, f"5 columns, {NEITHER}"),
    "3 columns with a score": (columns(0, 2, 4), 1, "the rank '8.5' is not a whole number"),
    "3 columns with a whole score": (lambda text: b"q p 2793\nq r 2790\n", 1, "looks like a score"),
    "3 columns with a small whole score": (lambda text: b"q p 9\nq r 5\nq s 1\n", 1, "looks like a score"),
    "3 columns with a negative score": (lambda text: b"q p -3\n", 1, "10,000,000"),
    "qrels": (lambda text: b"q 0 p 1\nq 0 r 0\n", 1, "These look like judgements"),
    "qrels of BEIR": (lambda text: b"query-id\tcorpus-id\tscore\nq\tp\t1\n", 1, "These look like judgements"),
    "MS MARCO, a passage twice": (lambda text: b"q p 1\nq p2 2\nq p2 3\n", 3, "passage p2 appears twice for query q"),
    "gzip of nothing": (lambda text: gzip.compress(b""), 1, "the file is empty"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_ends_the_command(name, lines, tmp_path, refusal):
    change, number, what = BAD_FILES[name]
    path = tmp_path / "bad.trec"
    path.write_bytes(change(b"\n".join(lines) + b"\n"))
    message = refusal(path)
    assert message.startswith(f"{path}:{number}: ")
    assert what in message
    assert "cannot be read from this line on" not in message


def test_what_is_no_file_is_refused(tmp_path, refusal, lines):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "loop").symlink_to("loop")
    for path, what in (
        (tmp_path / "absent.trec", "No such file or directory"),
        (tmp_path, f"contains no runs. Their names end in {', '.join(ENDINGS)}, packed or not"),
        (pipe, "is a pipe or device, not a file"),
        (Path("/dev/zero"), "is a pipe or device, not a file"),
        (tmp_path / "loop", "Too many levels of symbolic links"),
        (tmp_path / ("long" * 100), "File name too long"),
        (tmp_path / "absent" / "run.trec", "No such file or directory"),
    ):
        assert str(path) in refusal(path) and refusal(path).endswith(what)
    good = tmp_path / "good.trec"
    good.write_bytes(b"\n".join(lines))
    assert refusal(good, good) == f"The run {good} was given twice"
    assert str(tmp_path / "absent.trec") in refusal(good, tmp_path / "absent.trec")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(tmp_path, refusal):
    path = tmp_path / "secret.trec"
    path.write_bytes(GOOD)
    path.chmod(0)
    assert refusal(path) == f"Could not read {path}: Permission denied"


@pytest.mark.parametrize("piece_bytes", [1, 50, 1_000, 1 << 20])
def test_the_first_faults_in_words_and_the_rest_as_a_count(piece_bytes, lines, tmp_path):
    path = tmp_path / "bad.trec"
    for faults in (1, 5, 6, 40):
        bad = sorted(random.Random(faults).sample(range(2, 130), faults))
        rows = [column(4, b"x%d" % i)(line) if i in bad else line for i, line in enumerate(lines, 1)]
        path.write_bytes(b"\n".join(rows))
        frames = []
        with pytest.raises(RunError) as refused:
            frames.extend(read_pieces(path, piece_bytes))
        expected = [f"{path}:{number}: the score 'x{number}' is not a finite number" for number in bad[:SHOWN_FAULTS]]
        assert str(refused.value) == "; ".join(expected) + (f"; and {faults - 5} more" if faults > 5 else "")
        if piece_bytes == 1:  # every line its own piece: what came before the first fault is all there is
            assert sum(frame.height for frame in frames) == bad[0] - 1


def zstd_frames(text: bytes) -> bytes:
    third = len(text) // 3
    parts = text[:third], b"", text[third : 2 * third], text[2 * third :]
    return b"".join(map(zstandard.compress, parts))


ACCEPTED = {
    "no last newline": lambda text: text[:-1],
    "tabs": lambda text: text.replace(b" ", b"\t"),
    "blanks and tabs": lambda text: b"\t " + text.replace(b" Q0 ", b"\tQ0 \t  ").replace(b"\n", b" \t\n \t ", 50),
    "signs and zeros": lambda text: text.replace(b" 1 8.5", b" +0001 +8.50e0").replace(b"7.5", b"075.E-1"),
    "quotes and hashes": lambda text: text.replace(b"Q0", b'"').replace(b"tag", b"#\"'"),
    "odd blanks in a tag": lambda text: text.replace(b"tag", "a\xa0b\u2028c\x0bd\x1ce".encode()),
    "odd blanks in the first line": lambda text: text.replace(b"tag", b"a\x0bb\x0cc", 1),
    "ranks that say nothing": lambda text: re.sub(rb" \d (\S+) tag", rb" 0 \1 tag", text),
    "odd ranks": lambda text: re.sub(rb" 1 (\S+) tag", rb" None \1 tag", text).replace(b" 2 ", b" -1.0 "),
    "a huge rank": lambda text: text.replace(b" 3 ", b" " + b"9" * 5_000 + b" "),
    "a rank of words": lambda text: text.replace(b" 3 ", b" third "),
    "blanks in the tag": lambda text: text.replace(b"tag", b"my bm25, more junk at 5"),
    "blanks in a tag": lambda text: text.replace(b"tag", b"my bm25", 1),
    "ranks of a dataframe": lambda text: re.sub(rb" (\d) (\S+) tag", rb" \1.0 \2 tag", text),
    "columns padded": lambda text: text.replace(b" Q0", b"    Q0").replace(b" tag", b"     tag "),
    "columns padded beside tabs": lambda text: text.replace(b" ", b"\t").replace(b"\tQ0\t", b"  \tQ0\t "),
    "ranks of a dataframe between tabs": lambda text: text.replace(b" ", b"\t").replace(b"\t1\t", b"\t 1.0\t"),
    "empty lines at the end": lambda text: text + b"\n \n\t\n  ",
    "comments": lambda text: b"# bm25 run\n#\n\n# top 1000\n# a b c d e f\n" + text,
    "a byte-order mark": lambda text: UTF8_MARK + text,
    "a header": lambda text: b"# a\nQuery_ID Q0 docno rank score tag\n" + text,
    "ColBERT": columns(0, 2, 3, 4),
    "ColBERT with a header": lambda text: b"qid\tpid\trank\tscore\n" + columns(0, 2, 3, 4)(text).replace(b" ", b"\t"),
    "ir_metadata": lambda text: b"# ir_metadata.start\n# platform:\n#   hardware:\n# ir_metadata.end\n" + text,
    "Windows line ends": lambda text: (b"# a\n" + text + b"\n").replace(b"\n", b"\r\n"),
    "bzip2": bz2.compress,
    "xz in two streams": lambda text: lzma.compress(text[:99]) + lzma.compress(text[99:]),
    "zstd after a frame to skip": lambda text: b"\x52\x2a\x4d\x18\x03\0\0\0abc" + zstandard.compress(text),
    "gzip": gzip.compress,
    "gzip in two members": lambda text: gzip.compress(text[:99]) + gzip.compress(text[99:]) + bytes(512),
    "zstd": zstandard.compress,
    "zstd in frames": zstd_frames,
    "MS MARCO": columns(0, 2, 3),
    "MS MARCO with tabs": lambda text: columns(0, 2, 3)(text).replace(b" ", b"\t"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_another_spelling_is_the_same_run(name, lines, tmp_path):
    path = tmp_path / "run.trec"
    few = lines[:60]
    path.write_bytes(ACCEPTED[name](b"\n".join(few) + b"\n"))
    rows = []
    for line in few:
        query, _, passage, rank, value, _ = line.decode().split()
        rows.append((query, passage, -float(rank) if "MS MARCO" in name else float(value)))
    for piece_bytes in (1, 8, 60, 1 << 20):
        frame = pl.concat(read_pieces(path, piece_bytes))
        assert frame.select("query_id", "passage_id", "score").rows() == rows, piece_bytes


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted_is_read_by_columns(name, lines, tmp_path, monkeypatch):
    """Lines are read one by one only to say what is wrong with them: it takes fifty times as long."""
    monkeypatch.setattr(reader, "_line_by_line", lambda *_: pytest.fail("read line by line"))
    path = tmp_path / "run.trec"
    path.write_bytes(ACCEPTED[name](b"\n".join(lines) + b"\n"))
    assert sum(frame.height for frame in read_pieces(path)) == len(lines)


NASTY = [
    *(b"abc -NaN -Infinity 1 -1 +1 --1 1_0 1e400 -1e400 1e-400 NaN inf -0 +0 -00 0x1 1. .5 .".split()),
    *(b'1e 1e5 1E+5 +.5 1.0 1,5 " "1" # "a null NA true'.split()),
    *(b"0001 10000000 10000001 9223372036854775808 -9223372036854775809".split()),
    *(one.encode() for one in ("١", "１", "−1", "1\xa0", "\u20281", "\x0b1", "1\x0c", "\x1f", "\x85", "é", "\ufeff1")),
    *(b"0" * 60 + b"1", b"0" * 25 + b"99999999999", b"-" + b"0" * 30 + b"9", b"9" * 400, b"0." + b"3" * 400),
    *(b"x" * 5_000, b"x" * (LONGEST_ID + 1), b"", b"\0", b"\r", b"\xff", b"a\rb", b"\xc2"),
]
fields = st.sampled_from([*NASTY, b"Geneva Durben", b"None", b"x 1"]) | st.binary(max_size=4).filter(
    lambda field: b"\n" not in field
)
changes = st.dictionaries(st.integers(0, 6), fields, max_size=2)
separators = st.sampled_from([b" ", b" ", b"\t", b"  ", b" \t"])
edges = st.sampled_from([b"", b"", b"", b" ", b"\t ", b"\r", UTF8_MARK])


@st.composite
def texts(draw):
    layout = GOOD.split() if draw(st.booleans()) else [b"q", b"p", b"1"]
    rows = []
    for _ in range(draw(st.integers(1, 9))):
        row = [*layout]
        for place, field in draw(changes).items():
            row[place : place + 1] = [field]
        rows.append(
            draw(edges) + draw(separators).join(row[: draw(st.sampled_from([7, 7, 7, 7, 5, 2, 0]))]) + draw(edges)
        )
    return b"\n".join(rows) + draw(st.sampled_from([b"\n", b"\n", b"", b" ", b"\n\n"]))


def parsed(line: bytes, width: int) -> tuple[str, str, float] | None:
    """A line as the rules say, by other means than the reader's; None if it is faulty."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    row = split(text)
    if len(row) < width or (len(row) > width and width < 6) or any(mark in text for mark in "\r\0\ufeff"):
        return None
    if any(len(row[place].encode()) > LONGEST_ID for place in ((0, 2) if width == 6 else (0, 1))):
        return None
    if width == 4:
        value = number(row[3])
        is_run = re.fullmatch("[+-]?[0-9]{1,17}", row[2]) and value is not None and not math.isinf(value)
        return (row[0], row[1], value) if is_run else None
    if width == 3:
        is_rank = re.fullmatch("[+-]?[0-9]+", row[2]) and 0 <= int(row[2]) <= HIGHEST_RANK
        return (row[0], row[1], -float(row[2])) if is_rank else None
    oddities = len(row) > 6, number(row[5]) is not None
    without = row[3].lower() in ("none", "null", "na", "n/a", "nan", "?", *(f"{sign}inf" for sign in ("", "-", "+")))
    if sum(oddities) + (number(row[3]) is None and not without and bool(row[3].strip("-"))) > 1:
        return None  # the columns are shifted: an id holds a blank
    value = number(row[4])
    return None if value is None or math.isinf(value) else (row[0], row[2], value)


def split(text: str) -> list[str]:
    """The columns of a line: by tabs where these make six, or three with a rank."""
    by_tabs = [field.strip(" ") for field in text.strip(" \t").split("\t")]
    if all(by_tabs) and (len(by_tabs) == 6 or (len(by_tabs) == 3 and re.fullmatch("[+-]?[0-9]+", by_tabs[2]))):
        return by_tabs
    return [field for field in text.replace("\t", " ").split(" ") if field]


def number(text: str) -> float | None:
    """The value of a plain decimal number; infinite beyond the largest."""
    if not text.isascii() or set(text.lower()) - set("0123456789+-.e"):
        return None
    try:
        return float(text)
    except ValueError:
        return None


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "run"


@settings(max_examples=100, deadline=None)
@given(text=texts(), piece_bytes=st.sampled_from([1, 30, 1 << 20]))
@example(text=GOOD + b"\n" + GOOD.replace(b"p", b"p\0") + b"\n", piece_bytes=1 << 20)
@example(text=GOOD + b"\n" + GOOD.replace(b"p", b"caf\xe9") + b"\n", piece_bytes=1 << 20)
@example(text=GOOD + b"\n" + GOOD.replace(b"1.5", b"1_0") + b"\n", piece_bytes=1 << 20)
@example(text=GOOD + b"\n" + GOOD.replace(b"p", b"Geneva 12") + b"\nq p 1\n" + GOOD[:-4], piece_bytes=1 << 20)
@example(text=GOOD + b"\n\t", piece_bytes=1 << 20)
@example(text=GOOD + b"\n" + UTF8_MARK + GOOD + b"\n", piece_bytes=1)
@example(text=GOOD + b"\n\n" + GOOD, piece_bytes=1)
@example(text=GOOD.replace(b"1 1", b"0" * 25 + b"99999999999 1"), piece_bytes=1)
@example(text=GOOD.replace(b"p", b"p\x0b") + b"\n", piece_bytes=1)
@example(text=b"x^1 Q0 p1 1 2.5 t", piece_bytes=1)
@example(text=b"q\tQ0\tp\t1\t1.5\tt\nq\tQ0\tp\t1\t1.5\t \n", piece_bytes=1)
@example(text=b"q 0 1 2.5\nq 1 2 2\nr 0 1 x\n", piece_bytes=1)
@example(text=b"x\x01 Q0 p1 1 2.5 t", piece_bytes=1)
@example(text=GOOD + b"\n" + ZSTD_MAGIC + GOOD, piece_bytes=1)
@example(text=GOOD + b" more", piece_bytes=1)
@example(text=ZSTD_MAGIC + b" p 1\nq p\n", piece_bytes=1)
@example(text=b"q p 1\r\nq p2 2\r\nq p3 3", piece_bytes=1)
@example(text=b"q p 1\r\nq p2 2\r\nq p3 3\r", piece_bytes=1)
@example(text=b"q p 1\r\n ", piece_bytes=1)
def test_a_run_is_accepted_if_and_only_if_no_line_is_faulty(scratch, text, piece_bytes):
    scratch.write_bytes(text)
    text = text.removeprefix(UTF8_MARK)
    assume(not text.strip().startswith(b"#"))  # a comment
    all_lines = text.removesuffix(b"\n").split(b"\n") if text else []
    first = all_lines[0].removesuffix(b"\r") if text else b""
    while all_lines and not all_lines[-1].strip(b" \t\r") and b"\n" in text:
        all_lines.pop()
    width = min(len(split(first.decode("latin-1"))), 6)
    if re.match(rb"[^\n]*\r\n", text):  # lines that all end so are plain lines; any other has a fault of its own
        ended = all_lines if text.rstrip(b" \t\r").endswith(b"\n") else all_lines[:-1]
        whole = [line[:-1] if line.endswith(b"\r") else b"" for line in ended]
        all_lines = [*whole, *all_lines[len(ended) :]]
    columns = split(first.decode("latin-1"))
    assume(width != 4 or b"0" * 17 not in text)  # whether zeros before a rank that decides nothing are judged is open
    is_of_qrels = width == 4 and columns[1] in ("0", "Q0") and re.fullmatch("[+-]?[0-9]+", columns[3])
    if width not in (3, 4, 6) or is_of_qrels or text.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
        expected, bad = [], [1]  # nothing more is known of such a file
    else:
        expected = [parsed(line, width) for line in all_lines]
        bad = [number for number, row in enumerate(expected, 1) if row is None]
    try:
        rows = pl.concat(read_pieces(scratch, piece_bytes)).select("query_id", "passage_id", "score").rows()
    except RunError as refused:
        message = str(refused)
        assert "cannot be read" not in message
        named = [int(number) for number in re.findall(re.escape(str(scratch)) + r":(\d+): ", message)]
        assert named[0] == bad[0]
        assert set(named) <= set(bad)
        more = re.search(r"; and (\d+) more$", message)
        assert len(named) + (int(more[1]) if more else 0) == len(bad)
    else:
        assert not bad
        assert rows == expected


@pytest.mark.parametrize("packing", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
@pytest.mark.parametrize("blanks", [b" ", b"\t"])
def test_a_line_across_two_pieces_is_read_whole_or_refused(tmp_path, packing, blanks):
    """Blanks are the case: a line that ends in them is valid wherever it is cut."""
    path = tmp_path / "run.trec"
    for length, piece_bytes in product((LONGEST_LINE, LONGEST_LINE + 1), (1, 4_000, 5_000, 6_000, 70_000, 1 << 20)):
        rows = [b"q Q0 p%d %d %f t" % (rank, rank, -rank) for rank in range(400)]
        rows[200] += blanks * (length - len(rows[200]))
        path.write_bytes(packing(b"\n".join(rows) + b"\n"))
        if length > LONGEST_LINE:
            with pytest.raises(RunError, match=r"run.trec:201: the line is longer than 65,536 bytes"):
                list(read_pieces(path, piece_bytes))
        else:
            assert pl.concat(read_pieces(path, piece_bytes)).height == len(rows)


def test_a_gzip_header_of_megabytes_is_read_in_a_moment(tmp_path):
    packed = gzip.compress(GOOD + b"\n", mtime=0)
    path = tmp_path / "run.trec.gz"
    path.write_bytes(packed[:3] + b"\x08" + packed[4:10] + b"n" * (4 << 20) + b"\0" + packed[10:] + b"\0" * 600)
    begun = time.process_time()
    assert pl.concat(read_pieces(path)).height == 1
    assert time.process_time() - begun < 2


def test_a_run_is_opened_once(lines: list[bytes], mini_release: Release, tmp_path: Path) -> None:
    run = tmp_path / "a.trec"
    run.write_bytes(b"\n".join(lines))
    opened = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" and args[0] == str(run) else None)
    score(run, mini_release)
    assert len(opened) == 1


@pytest.mark.parametrize("piece", [reader._PIECE_BYTES, 40])
def test_lines_of_several_tags_are_ranked_together_and_that_is_said(piece: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(reader.read_pieces, "__defaults__", (piece, None, None))
    release = beir_folder(tmp_path / "two", [], {"q1": "a b"}, [("q1", "b")])
    for tags in ("AAA", "AAB", "ABB"):
        run = tmp_path / f"{tags}.trec"
        run.write_text("".join(f"q1 Q0 {name} 1 {9 - at} {tags[at]}\n" for at, name in enumerate("abc")))
        several = [note for note in score(run, release).said() if "tags (A, B)" in note]
        assert len(several) == (tags != "AAA"), tags
