"""Each test set's files and ``eval.yaml``, read by the rules that ir_measures and the Hub document."""

import shutil
from pathlib import Path

import polars as pl
import pytest
import yaml

from builder import benchmarks
from builder.benchmarks import KINDS
from builder.card import check_card, write
from builder.release import files
from eval_kit.errors import UserError
from eval_kit.release import Release


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
