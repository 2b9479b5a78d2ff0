"""A finished run is used again while the same search would make it, and only then."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.models.first import FirstRun
from eval_kit.models.opening import open_retriever
from eval_kit.models.runs import make_runs
from eval_kit.release import Release
from eval_kit.runs.given import take
from eval_kit.search.passages import Collection
from tests.conftest import Run
from tests.tiny_checkpoints import passages, texts, tiny

QUERIES = pl.DataFrame({"query_id": list("abc"), "text": texts(3, 5)})
PASSAGES = passages(12)


class Searched:
    """Whether a call searched: whether the run is another file than before."""

    def __init__(self, folder: Path) -> None:
        self.run, self.index = folder / "mine.trec", folder / "mine.index"

    def __call__(
        self,
        model: Any,
        options: dict[str, Any] | None = None,
        passages: list[tuple[str, str]] = PASSAGES,
        queries: pl.DataFrame = QUERIES,
        depth: int = 10,
        first: Path | None = None,
    ) -> bool:
        before = self.run.stat().st_ino if self.run.exists() else None
        name, loaded = (model, None) if isinstance(model, str) else ("mine", model)
        retriever: Any = open_retriever(name, options, loaded=loaded)[0]
        collection = Collection(lambda: iter(passages), json.dumps(passages), None)
        if first:
            [[run]] = take(first=first)
            retriever.first = FirstRun(run)
        kept, _ = make_runs(retriever, collection, {self.run: queries}, self.index, depth, first)
        assert kept == (self.run.stat().st_ino == before)
        return not kept


DECIDING: dict[str, dict[str, Any]] = {
    "fewer queries": {"queries": QUERIES.head(2)},
    "a query's text": {"queries": QUERIES.with_columns(text=pl.lit("alpha"))},
    "a query's id": {"queries": QUERIES.with_columns(query_id=pl.Series(list("abd")))},
    "passages": {"passages": PASSAGES[:-1]},
    "depth": {"depth": 5},
    "an option": {"options": {"query_prompt": "omega "}},
}


@pytest.mark.parametrize("what", DECIDING)
def test_a_run_is_searched_again_where_what_decides_it_changed(what: str, tmp_path: Path) -> None:
    searched, model = Searched(tmp_path), str(tiny("dense"))
    assert [searched(model), searched(model)] == [True, False]
    assert [searched(model, **DECIDING[what]), searched(model, **DECIDING[what])] == [True, False]


@pytest.mark.parametrize(
    "lines", ["a Q0 p1 2 9 t\na Q0 p2 1 8 t\n", "a Q0 p1 1 0 t\na Q0 p2 2 0 t\nb Q0 p1 1 0 t\n"], ids=["falls", "one"]
)
def test_a_first_run_whose_ranks_name_other_best_passages_is_refused(lines: str, tmp_path: Path) -> None:
    (tmp_path / "first.trec").write_text(lines)
    [[run]] = take(first=tmp_path / "first.trec")
    with pytest.raises(UserError, match="rank"):
        dict(FirstRun(run).search(QUERIES, tmp_path))
    (tmp_path / "right.trec").write_text("a Q0 p1 1 9 t\na Q0 p2 2 9 t\na Q0 p3 3 8 t\nb Q0 p1 1 1 t\n")
    [[run]] = take(first=tmp_path / "right.trec")
    assert dict(FirstRun(run).search(QUERIES, tmp_path, 1))["a"][0][0] == "p2"


def of_prompts(model: Any) -> None:
    model.prompts["query"] = "omega "


def of_length(model: Any) -> None:
    model.max_seq_length = 5


def of_similarity(model: Any) -> None:
    model.similarity_fn_name = "dot"


def of_weights(model: Any) -> None:
    next(model.parameters()).data.neg_()


@pytest.mark.parametrize("change", [of_prompts, of_length, of_similarity, of_weights])
def test_a_model_in_memory_that_changed_is_searched_again(change: Callable[[Any], None], tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    searched, model = Searched(tmp_path), SentenceTransformer(str(tiny("dense")))
    assert [searched(model), searched(model)] == [True, False]
    change(model)
    assert searched(model)


class Letters:
    scale: Any = 1.0

    def encode(self, batch: Any) -> Any:
        return np.array([[text.count(letter) for letter in "abcdeghilmnoprstuz"] for text in batch]) * self.scale


def test_files_an_object_and_a_first_run_that_changed_are_searched_again(tmp_path: Path) -> None:
    searched, folder = Searched(tmp_path), tmp_path / "model"
    shutil.copytree(tiny("dense"), folder)
    assert [searched(str(folder)), searched(str(folder))] == [True, False]
    [config] = folder.glob("*Pooling/config.json")
    config.write_text(json.dumps(json.loads(config.read_text()) | {"pooling_mode": "cls"}))
    assert searched(str(folder))

    mine = Letters()
    assert [searched(mine), searched(mine)] == [True, False]
    mine.scale = np.arange(18.0)  # which no list of files shows
    with pytest.warns(UserWarning, match="again"):
        assert searched(mine)

    first = tmp_path / "first.trec"
    first.write_text("".join(f"a Q0 {passage} 1 {score} x\n" for score, (passage, _) in enumerate(PASSAGES)))
    how: dict[str, Any] = {"model": str(tiny("cross")), "first": first}
    assert [searched(**how), searched(**how)] == [True, False]
    first.write_text(first.read_text().removesuffix("a Q0 p11 1 11 x\n"))
    assert searched(**how)


def test_only_a_whole_run_that_the_search_wrote_is_used(tmp_path: Path) -> None:
    searched, model = Searched(tmp_path), str(tiny("dense"))
    searched(model)
    made = searched.run.read_bytes()
    for content in (made[: len(made) // 2], made + b"c Q0 p1 99 -9 other\n", b""):
        searched.run.write_bytes(content)
        assert searched(model) and searched.run.read_bytes() == made
    [kept] = searched.index.glob("*.made")
    for content in (b"", kept.read_bytes()[:70], b"\xff\n"):  # as a kill or a disk leaves it
        kept.write_bytes(content)
        assert searched(model) and searched.run.read_bytes() == made
    assert not searched(model)


def test_a_second_command_does_no_search(trainable_release: Release, tmp_path: Path, command: Run) -> None:
    arguments = ["eval_kit", "run", tiny("dense"), "--release", trainable_release.folder, "--out", tmp_path]
    arguments += ["--test-set", "dl19", "--name", "mine", "--json", "-"]
    first = command(*arguments)
    before = {run: run.stat().st_ino for run in tmp_path.glob("*.trec")}
    second = command(*arguments)
    assert first.returncode == second.returncode == 0, second.stderr
    assert second.stdout == first.stdout and len(before) == 2
    assert {run: run.stat().st_ino for run in tmp_path.glob("*.trec")} == before
    assert "finished run" in second.stderr and "finished run" not in first.stderr
