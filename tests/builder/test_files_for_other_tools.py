"""The card's ``ir_datasets`` block and ``eval.yaml``, read by the rules that ir_datasets 2 and the Hub document."""

import shutil
from pathlib import Path
from typing import Any

import ir_measures
import polars as pl
import pytest
import yaml

from builder import benchmarks
from builder.card import check_card, write, yaml_data
from builder.release import files
from eval_kit.errors import UserError
from eval_kit.release import Release

REQUIRED = {"docs": {"doc_id"}, "queries": {"query_id"}, "qrels": {"query_id", "doc_id", "relevance"}}


@pytest.fixture(params=["mini_release", "published_release"])
def release(request: pytest.FixtureRequest) -> Release:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def table(release: Release, spec: dict[str, Any]) -> pl.DataFrame:
    """A table as version 2 reads it: a file, or a split of a config, with its columns renamed."""
    if "file" in spec:
        frame = pl.read_parquet(release.folder / spec["file"])
    else:
        frame = release.table(spec["config"], spec["split"])
    assert set(spec) <= {"entity", "file", "config", "split", "column_map"}
    frame = frame.rename(spec.get("column_map", {}))
    assert set(frame.columns) >= REQUIRED[spec["entity"]]
    return frame


def test_every_test_set_is_a_benchmark_of_the_card(release: Release) -> None:
    card = yaml_data(release.folder / "README.md")
    assert "ir-datasets" in card["tags"]
    block = card["ir_datasets"]
    assert set(block) == {"tables", "benchmarks"} and list(block["benchmarks"]) == list(release.test_sets)
    assert not any(":" in name or "/" in name for name in block["tables"]), "of version 2's own names"
    for name, benchmark in block["benchmarks"].items():
        test_set = release.test_sets[name]
        queries, qrels = (table(release, block["tables"][benchmark[kind]]) for kind in ("queries", "qrels"))
        assert queries.equals(release.queries(name)) and queries["query_id"].to_list() == test_set.queries.to_list()
        judged = release.qrels(test_set.qrels).filter(pl.col("query_id").is_in(test_set.queries.implode()))
        assert sorted(qrels.iter_rows()) == sorted(judged.iter_rows()) and qrels.height
        assert [str(ir_measures.parse_measure(measure)) for measure in benchmark["metrics"]] == benchmark["metrics"]
        if release.manifest["kind"] == "mini":
            assert table(release, block["tables"][benchmark["docs"]]).height == 3_000
        else:
            assert benchmark["docs"] == "irds:msmarco-passage"


def test_tasks_are_splits_of_the_dataset(release: Release) -> None:
    document = yaml.safe_load((release.folder / "eval.yaml").read_text(encoding="utf-8"))
    assert list(document) == ["name", "description", "evaluation_framework", "tasks"]
    splits = {
        config["config_name"]: config["data_files"] for config in yaml_data(release.folder / "README.md")["configs"]
    }
    for task in document["tasks"]:
        assert set(task) == {"id", "config", "split"}
        assert task["split"] in [file["split"] for file in splits[task["config"]]]
    assert {"topic_out", "topic_rel_loss", "wh_out", "length_rel_loss"} <= {task["id"] for task in document["tasks"]}


def test_what_was_changed_is_refused_and_written_again(mini_release: Release, tmp_path: Path) -> None:
    folder, manifest = tmp_path / "ms-marco-shift", dict(mini_release.manifest)
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
