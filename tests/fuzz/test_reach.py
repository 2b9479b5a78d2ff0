"""The contract where damaged bytes do not lead: files of many pieces, memory, outputs, tables that fit, growth.

Everything here ends within :data:`SECONDS`, too.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eval_kit
from builder import release as releases
from builder.cli import app as builder
from eval_kit.errors import UserError
from eval_kit.files.faults import RunError
from eval_kit.runs.names import cells_of
from eval_kit.runs.reader import read_pieces
from tests.fuzz.contract import Swapped, fuzz, keeps_the_contract, kit, scored
from tests.fuzz.inside import small_draft
from tests.fuzz.strange import TOKENS, VALUES, texts
from tests.manifests import release_digest

SECONDS = 60
bounded = settings(fuzz, deadline=timedelta(seconds=SECONDS))
LONG_RUN = b"".join(b"%d Q0 p%d 1 %.3f t\n" % (query, rank, 1 / rank) for query in range(20) for rank in range(1, 30))
FILES = ["release/manifest.json", "release/data/length/test-00000-of-00001.parquet"]


def run_builder(folder: Path, *arguments: object, statuses: tuple[int, ...] = (0, 1, 2)) -> Any:
    """A command of the builder that keeps the contract; ``verify`` and ``diff`` may also end with 1."""
    return keeps_the_contract(partial(builder, [str(argument) for argument in arguments]), folder, statuses)


@bounded
@given(text=texts(LONG_RUN), pieces=st.integers(1, 3_000))
def test_a_file_of_many_pieces_is_the_file_of_one(folder: Path, text: bytes, pieces: int):
    """The same lines or a refusal, wherever the borders of the pieces fall."""

    def lines(piece_bytes: int) -> list[tuple[Any, ...]] | None:
        try:
            return [row for piece in read_pieces(path, piece_bytes) for row in piece.rows()]
        except RunError:
            return None

    path = folder.parent / "pieces.trec"
    path.write_bytes(text)
    assert lines(max(64, pieces)) == lines(1 << 20)


ODD_IDS = ["", " ", "1\n2", "a\tb", "\ud800", "\u202e", (1,), True]
IDS = st.sampled_from(["1", "2", 1, 2.0, np.int64(10), None, b"1", *ODD_IDS])
SCORES = st.one_of(
    st.floats(), st.integers(-(2**70), 2**70), st.sampled_from([np.float32(0.1), np.int64(0), None, "1", True, 1j, []])
)
RUNS = st.one_of(
    st.dictionaries(IDS, st.dictionaries(IDS, SCORES, max_size=3) | st.sampled_from(VALUES[:12]), max_size=3),
    st.lists(st.tuples(IDS, IDS, SCORES), max_size=4).map(
        lambda rows: {name: [row[at] for row in rows] for at, name in enumerate(("query_id", "passage_id", "score"))}
    ),
    st.sampled_from([None, 0, "", b"", [], {}, pl.DataFrame(), object(), np.zeros((2, 3)), "run\0", Path("gone")]),
)


@bounded
@given(run=RUNS, frame=st.booleans(), name=st.sampled_from(["run", "", "a/b", "x" * 300, "\n", 1]))
def test_runs_in_memory(folder: Path, run: Any, frame: bool, name: Any):
    if frame and isinstance(run, dict) and "score" in run:
        with suppress(Exception):  # what polars itself refuses never reaches the kit
            run = pl.DataFrame(run, strict=False)
    for runs in (run, {name: run}, [run]):
        with suppress(UserError):
            eval_kit.score(runs, folder / "release", allow_missing=True)
        with suppress(UserError):
            eval_kit.compare([run, run], folder / "release", allow_missing=True)
        with suppress(UserError):
            eval_kit.write_run(run, folder.parent / "written.trec")
            eval_kit.score(folder.parent / "written.trec", folder / "release", allow_missing=True)


@contextmanager
def instead_of(path: Path, kind: str) -> Iterator[None]:
    """Something that is no plain file, in the place of a file."""
    kept = path.with_name("kept-aside")
    path.rename(kept)
    try:
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind != "gone":
            path.symlink_to(path.name if kind == "loop" else kind)
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        elif path.is_symlink() or path.exists():
            path.unlink()
        kept.rename(path)


@bounded
@given(
    file=st.sampled_from(FILES),
    kind=st.sampled_from(["fifo", "folder", "gone", "loop", "/dev/zero", "/etc/passwd", "../../run.trec", "/"]),
    command=st.sampled_from(["verify", "diff", "card", "export", "describe", "lite", "audit", "score"]),
)
def test_special_files_in_a_release(folder: Path, file: str, kind: str, command: str):
    release, out = folder / "release", folder.parent / "special"
    shutil.rmtree(out, ignore_errors=True)
    with instead_of(folder / file, kind):
        if command == "score":
            scored(folder)
            return
        lite = ["--dense", "none", "--out", out]
        more = {"diff": ["--against", release], "export": ["--out", out], "lite": lite}
        name = "verify" if command == "diff" else command
        before = set(folder.rglob("*"))
        with suppress(SystemExit, UserError):
            builder([name, str(release), *map(str, more.get(command, []))], standalone_mode=False)
        assert before == set(folder.rglob("*"))
    assert not (out / "etc" / "passwd").exists()


STRANGE = st.sampled_from(
    [token.decode() for token in TOKENS if token.isascii()] + ["a b", "x\u2028y", "q\u200b", "", " ", "é" * 50]
)


@bounded
@given(ids=st.lists(STRANGE, min_size=4, max_size=4, unique=True), wordings=st.lists(STRANGE, min_size=4, max_size=4))
@pytest.mark.parametrize("where", ["query", "passage"])
def test_tables_that_satisfy_every_digest(folder: Path, where: str, ids: list[str], wordings: list[str]):
    """Whatever ids and texts a release holds, an export has as many queries, or is refused."""
    draft, work = small_draft(), folder.parent / "fits"
    shutil.rmtree(work, ignore_errors=True)
    for number, table in enumerate(draft.tables):
        frame = table.frame
        if f"{where}_id" in frame.columns:
            replaced = {f"{where}_id": ids[: frame.height], "text": wordings[: frame.height]}
        else:
            replaced = {f"{where}-id": ids} if f"{where}-id" in frame.columns else {}
        frame = frame.with_columns(pl.Series(name, values) for name, values in replaced.items())
        draft.tables[number] = releases.Table(table.config, table.split, frame, table.rule)
    try:
        releases.write(draft, work / "release")
    except UserError:
        return
    run_builder(work, "verify", work / "release")
    for kind in ("trec", "beir"):
        out = work / kind
        with suppress(SystemExit, UserError):
            builder(["export", str(work / "release"), "--format", kind, "--out", str(out)], standalone_mode=False)
            for file in out.rglob("*queries*"):
                lines = file.read_bytes().split(b"\n")[:-1]
                assert len(lines) <= 4, (kind, lines)


@bounded
@given(system=STRANGE, shift=STRANGE | st.just("topic"), part=STRANGE | st.just("c0"), seed=st.sampled_from(VALUES))
def test_names_of_grids_and_seeds(folder: Path, system: str, shift: str, part: str, seed: Any):
    name = ".".join(word.replace("/", "_").replace("\0", "_")[:60] for word in (system, shift, part))
    path = folder.parent / f"{name}.trec"
    with suppress(UserError):
        cells_of([path])
    kit(folder, "protocol", path, "--release", folder / "release", "--seed", str(seed).replace("\0", ""))


@bounded
@given(what=st.sampled_from(["test_sets", "tables", "measures", "columns", "remarks"]), times=st.integers(50, 3_000))
def test_documents_that_grow(folder: Path, what: str, times: int):
    path = folder / "release" / "manifest.json"
    manifest = json.loads(path.read_bytes())
    if what == "measures":
        manifest["test_sets"][0]["measures"] = [f"nDCG@{cutoff}" for cutoff in range(1, times)]
    elif what == "columns":
        manifest["tables"][0]["columns"] *= times
    elif what == "remarks":
        manifest["remarks"] = ["a remark"] * times
    else:
        manifest[what] *= times
    with Swapped(path, json.dumps(manifest | {"digest": release_digest(manifest)}).encode()):
        scored(folder)
        run_builder(folder, "verify", folder / "release")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "closed"),
    [
        *(("eval_kit score run.trec --release release", closed) for closed in ("1>&-", "2>&-", "0<&-", "1>/dev/full")),
        *(("builder verify release", closed) for closed in ("1>&- 2>&-", "0<&- 1>&- 2>&-", "1>/dev/full")),
        *(("eval_kit --help", closed) for closed in ("1>&-", "1>/dev/full")),
    ],
)
def test_closed_descriptors(folder: Path, command: str, closed: str):
    line = ["bash", "-c", f"{sys.executable} -m {command} {closed}"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
