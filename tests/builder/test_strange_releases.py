"""Releases from strangers: links that lead out, pipes, devices, other content than what a digest covers, growth."""

import json
import os
from pathlib import Path

import polars as pl
import pytest
from drafts import small_draft

from builder import release as releases
from builder.export import export
from builder.verify import verify
from eval_kit.errors import UserError
from eval_kit.files.formats import tab_separated
from eval_kit.release import ReleaseError, open_release
from tests.manifests import release_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    releases.write(small_draft(), tmp_path / "release")
    return tmp_path / "release"


def edited(folder: Path, change) -> None:
    """A manifest with another content and the digest of it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"digest": release_digest(manifest)}))


def test_a_table_that_is_a_pipe_and_many_measures_are_refused(folder: Path) -> None:
    table = next((folder / "data").rglob("*.parquet"))
    table.unlink()
    os.mkfifo(table)
    assert [check for check in verify(folder) if check.fault]
    with pytest.raises(ReleaseError):
        open_release(folder)
    measures = [f"P@{k}" for k in range(1, 3_001)]
    edited(folder, lambda manifest: manifest["test_sets"][0].update(measures=measures))
    with pytest.raises(ReleaseError, match=r"3,\d\d\d different measures, more than 100"):
        open_release(folder)


def test_texts_and_ids_that_would_become_others() -> None:
    """The texts of BEIR's corpora hold tabs and line breaks; no reader of lines knows quotes."""
    frame = pl.DataFrame({"query_id": ["1", "2"], "text": ["a\n999\tinjected\r\ntopic\u2028x", "plain"]})
    with pytest.warns(UserWarning, match="tabs and line breaks in 1 texts were replaced by blanks"):
        lines = list(tab_separated(frame))
    assert [line.split("\t")[0] for line in lines] == ["1", "2"]
    assert all(line.count("\t") == 1 and len(line.splitlines()) == 1 for line in lines)
    for strange in ("a b", "a\tb", "a\n9", "", " 1", "\0", "\u2028", None):
        with pytest.raises(UserError, match="cannot be written: it is empty, or holds a blank or a line break"):
            list(tab_separated(pl.DataFrame({"query_id": [strange], "text": ["a"]}, frame.schema)))
    with pytest.raises(UserError, match="1 of the 2 texts are missing, such as that of 2"):
        list(tab_separated(frame.with_columns(text=pl.Series(["a", None]))))


def test_exports_of_strange_ids_are_refused(folder: Path, tmp_path: Path) -> None:
    release = open_release(folder)
    name = next(iter(release.test_sets))
    strange = release.queries(name).with_columns(query_id=pl.col("query_id") + "\n999 Q0 x")
    for format in ("trec", "beir"):
        for queries, words in (
            (strange, "cannot be written"),
            (strange.with_columns(text=pl.lit(None, pl.String)), "have no text"),
        ):
            object.__setattr__(release, "queries", lambda test_set, queries=queries: queries)
            with pytest.raises(UserError, match=words):
                export(release, tmp_path / "out", format, [name])
    assert not list((tmp_path / "out").glob("*"))
