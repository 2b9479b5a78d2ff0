"""``load_dataset("ms-marco-shift", config)`` beside the folder, each in a process with its own ``HF_HOME``."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import clients
import polars as pl
from drafts import QUERIES, small_draft, written

from eval_kit.release import Release

LOAD_ALL = """
import json
from datasets import get_dataset_config_names, load_dataset
found = {}
for config in get_dataset_config_names("ms-marco-shift"):
    for split, rows in load_dataset("ms-marco-shift", config).items():
        streamed = load_dataset("ms-marco-shift", config, split=split, streaming=True)
        kinds = rows.features.items()
        features = {name: getattr(kind, "names", None) or str(getattr(kind, "dtype", kind)) for name, kind in kinds}
        in_turn = list(streamed)  # all of them: the process crashes at its end where a stream was left half-read
        found[f"{config}/{split}"] = {
            "rows": len(rows), "features": features, "head": rows[:3],
            "streamed": len(in_turn), "first": in_turn[0],
            "same features": streamed.features == rows.features,
        }
bare = {split: len(rows) for split, rows in load_dataset("ms-marco-shift").items()}
named = {split: len(rows) for split, rows in load_dataset("ms-marco-shift", "topic").items()}
[file] = load_dataset("ms-marco-shift", data_files="data/topic/test-*.parquet").values()
print(json.dumps([found, bare, named, sorted(set(file["cluster"]))]))
"""
LOAD_ONE = """
import json
from datasets import load_dataset
print(json.dumps(load_dataset("ms-marco-shift", "length", split="test")["text"][:]))
"""


def run(script: str, folder: Path, home: Path) -> clients.Done:
    """What a script does beside the folder ``ms-marco-shift``."""
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    return clients.run(["-c", script], environment, folder)


def printed(script: str, folder: Path, home: Path) -> Any:
    done = run(script, folder, home)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_config_and_split(mini_release: Release, tmp_path: Path) -> None:
    found, bare, named, labels = printed(LOAD_ALL, mini_release.folder.parent, tmp_path)
    assert bare == named and set(bare) == {"train", "test"}
    assert labels == ["c0", "c1", "c2", "c3", "c4"]
    tables = {f"{table.config}/{table.split}": table for table in mini_release.manifest.tables}
    assert set(found) == set(tables)
    for name, loaded in found.items():
        table, frame = tables[name], mini_release.table(*name.split("/"))
        assert loaded["rows"] == loaded["streamed"] == table.rows, name
        expected = {column.name: column.labels or column.type for column in table.columns}
        assert loaded["features"] == expected and loaded["same features"], name
        codes = frame.head(3).with_columns(
            pl.col(column.name).replace_strict(column.labels, range(len(column.labels)), return_dtype=pl.Int64)
            for column in table.columns
            if column.labels
        )
        assert loaded["head"] == codes.to_dict(as_series=False), name
        assert loaded["first"] == codes.row(0, named=True), name


def test_no_stale_rows_after_a_rebuild(tmp_path: Path) -> None:
    """The same place, the same ``HF_HOME``, the same version and row counts: only one text is new."""
    for text in ("as it was", "corrected", "as it was"):
        texts = [text, *QUERIES["text"][1:]]
        written(tmp_path / "ms-marco-shift", texts=texts)
        assert printed(LOAD_ONE, tmp_path, tmp_path / "hf") == texts


def test_wrong_number_of_rows_fails(tmp_path: Path) -> None:
    draft, file = small_draft(), "data/length/test-00000-of-00001.parquet"
    fewer = [replace(table, frame=table.frame[1:]) for table in draft.tables]
    other = written(tmp_path / "other", replace(draft, tables=fewer))
    shutil.copy(other.folder / file, written(tmp_path / "ms-marco-shift", draft).folder / file)
    done = run(LOAD_ONE, tmp_path, tmp_path / "hf")
    assert done.returncode != 0 and "NonMatchingSplitsSizesError" in done.stderr
