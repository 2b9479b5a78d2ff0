"""``croissant.json``: every table with its file, digest and columns; MLCommons' own reader; labels in other tools."""

import itertools
import json

import pandas as pd
import polars as pl
import pytest

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
    names = ["c0", "c1", "c2", "c3", "c4"]
    assert sorted(pd.read_parquet(path)["cluster"].unique()) == names
    duckdb = pytest.importorskip("duckdb", reason="duckdb is absent: it was NOT tried")
    rows = duckdb.sql(f"select distinct cluster from '{path}' order by 1").fetchall()
    assert rows == [(name,) for name in names]
