"""What other tools read: ``croissant.json``, each test set's files, ``eval.yaml``, and tables' labels."""

import itertools
import json
import shutil
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
import yaml

from builder import benchmarks
from builder.benchmarks import KINDS
from builder.card import check_card, write
from builder.release import files
from eval_kit.errors import UserError
from eval_kit.files.digests import file_sha256
from eval_kit.release import Release

RAI = {
    *("dataCollection", "dataLimitations", "dataBiases", "personalSensitiveInformation", "dataUseCases"),
    "dataReleaseMaintenancePlan",
}


def test_every_table_has_its_file_and_its_columns(release: Release) -> None:
    document = json.loads((release.folder / "croissant.json").read_text())
    files = {file["@id"]: file for file in document["distribution"]}
    sets = {rows["@id"]: rows for rows in document["recordSet"]}
    assert len(files) == len(sets) == len(release.manifest.tables)
    assert {f"rai:{term}" for term in RAI} <= set(document)
    for table in release.manifest.tables:
        path = release.folder / table.path
        assert files[table.path]["sha256"] == file_sha256(path)
        fields = sets[f"{table.config}/{table.split}"]["field"]
        stored = pl.read_parquet_schema(path)
        kinds = {field["name"]: (field["dataType"], field.get("repeated", False)) for field in fields}
        assert kinds == {
            name: ("sc:Integer" if kind == pl.Int64 else "sc:Text", isinstance(kind, pl.List))
            for name, kind in stored.items()
        }


def test_mlcroissant_finds_no_fault_and_reads_the_rows(release: Release) -> None:
    croissant = pytest.importorskip("mlcroissant", reason="mlcroissant is absent: its own checks were NOT made")
    dataset = croissant.Dataset(str(release.folder / "croissant.json"))
    assert not dataset.metadata.ctx.issues.errors
    assert all("datePublished" in warning for warning in dataset.metadata.ctx.issues.warnings)
    rows = itertools.islice(dataset.records("topic/test"), 3)
    expected = release.table("topic", "test").head(3).to_dicts()
    assert [{name.rpartition("/")[2]: value.decode() for name, value in row.items()} for row in rows] == expected


def test_labels_are_names_in_tools_that_know_parquet_alone(release: Release) -> None:
    [path] = [release.folder / table.path for table in release.manifest.tables if table.key == ("topic", "test")]
    assert sorted(pd.read_parquet(path)["cluster"].unique()) == ["c0", "c1", "c2", "c3", "c4"]


def test_every_test_set_has_its_files(release: Release) -> None:
    for name, test_set in release.test_sets.items():
        queries, qrels = (pl.read_parquet(release.folder / f"benchmarks/{name}/{kind}.parquet") for kind in KINDS)
        assert queries.equals(release.queries(name)) and queries["query_id"].to_list() == test_set.queries.to_list()
        judged = release.qrels(test_set.qrels).filter(pl.col("query_id").is_in(test_set.queries.implode()))
        assert sorted(qrels.iter_rows()) == sorted(judged.iter_rows()) and qrels.height
        assert qrels.columns == ["query_id", "doc_id", "relevance"], "as ir_measures reads them"


def test_tasks_are_splits_of_the_dataset(release: Release) -> None:
    document = yaml.safe_load((release.folder / "eval.yaml").read_text(encoding="utf-8"))
    assert list(document) == ["name", "description", "evaluation_framework", "tasks"]
    for task in document["tasks"]:
        assert set(task) == {"id", "config", "split"}
        assert task["split"] in release.configs[task["config"]]
    assert {"topic_out", "topic_rel_loss", "wh_out", "length_rel_loss"} <= {task["id"] for task in document["tasks"]}


def test_what_was_changed_is_refused_and_written_again(mini_release: Release, tmp_path: Path) -> None:
    folder, manifest = tmp_path / "ms-marco-shift", mini_release.manifest
    shutil.copytree(mini_release.folder, folder)
    check_card(folder, manifest)
    assert {*benchmarks.paths(manifest)} < {*files(folder, manifest)}
    damages = {
        "benchmarks/topic.c0/qrels.parquet": lambda path: pl.read_parquet(path)[1:].write_parquet(path),
        "benchmarks/dev/queries.parquet": Path.unlink,
        "eval.yaml": lambda path: path.write_text("name: another\n"),
    }
    for name, damage in damages.items():
        damage(folder / name)
        with pytest.raises(UserError, match=f"{name}: is not that of the release; run 'python -m builder card"):
            check_card(folder, manifest)
        write(folder)
        check_card(folder, manifest)
