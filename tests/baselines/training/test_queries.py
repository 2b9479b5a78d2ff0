"""What a cell may train on: leave-one-out, never validation or test, and the same examples every time."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from baselines.cell import Cell
from baselines.training import mining
from baselines.training.early_stopping import METRIC, evaluator
from baselines.training.queries import Lookup, dataset, passage_texts, queries_for, training
from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.runs import names as cells
from eval_kit.search.examples import judged_queries
from eval_kit.shifts import SHIFTS
from tests.baselines.tiny_cells import tiny_cell

BUILT = [name for name in SHIFTS if name not in ("given", "crossed")]
"""The shifts of mini; only a build with --parts has given clusters."""


def part_of(release: Release, shift: str, held_out: str) -> tuple[pl.DataFrame, set[str]]:
    """A shift's training table, and the ids of the part that a cell may not see, written out from the papers."""
    if shift == "restrain":
        return release.table("restrain", held_out), set()
    table = release.table(shift, "train")
    part = set(table.filter(pl.col(table.columns[-1]) == held_out)["query_id"])
    if shift == "wh":
        terms = {"wha": ["what", "definition"], "how": ["how"], "who": ["who", "when", "where", "which"]}[held_out]
        for query, text in table.select("query_id", "text").iter_rows():
            if any(term in text.lower() for term in terms):
                part.add(query)
    return table, part


@pytest.mark.parametrize("shift", BUILT)
def test_a_cell_trains_on_all_but_the_held_out_part_its_own_tests_and_validation(
    trainable_release: Release, tmp_path: Path, shift: str
) -> None:
    release = trainable_release
    validation_ids = set(release.table("validation", "validation")["query_id"])
    judged_queries = set(release.qrels("train").filter(pl.col("relevance") >= 1)["query_id"])
    for held_out in SHIFTS[shift].parts(release):
        cell = tiny_cell("biencoder", release, tmp_path, (shift, held_out))
        judged = training(cell)
        table, part = part_of(release, shift, held_out)
        tests = set(cell.test_queries()["query_id"])
        assert not set(judged.texts) & tests
        expected = set(table["query_id"]) - part - tests - validation_ids
        assert set(judged.texts) == (expected & judged_queries if shift != "restrain" else expected)
        excluded = queries_for(cell).excluded
        assert sum(excluded.values()) == table["query_id"].n_unique() - len(expected)
        assert set(excluded) == {"held-out part", "test sets", "validation"}
        relevant = {tuple(row) for row in release.qrels("train").select("query_id", "passage_id").iter_rows()}
        for query in judged.texts:
            assert judged.positives[query]
            assert not set(judged.positives[query]) & set(judged.negatives[query])
            pairs = {(query, passage) for passage in judged.positives[query]}
            assert pairs <= relevant or shift == "restrain"


@pytest.mark.parametrize("shift", BUILT)
def test_strict_leaves_out_every_test_query_and_every_text_of_one(
    trainable_release: Release, tmp_path: Path, shift: str
) -> None:
    release = trainable_release
    held_out = SHIFTS[shift].parts(release)[0]
    cell = tiny_cell("biencoder", release, tmp_path, (shift, held_out), strict=True)
    judged = training(cell)
    tests = {query for test_set in release.test_sets.values() for query in test_set.queries}
    tables = {(entry.config, entry.split) for entry in release.manifest.test_sets}
    texts = {text for table in tables for text in release.table(*table)["text"]}
    unseen = tests | set(release.table("validation", "validation")["query_id"])
    assert not set(judged.texts) & unseen
    assert not set(judged.texts.values()) & texts
    table, part = part_of(release, shift, held_out)
    assert len(judged.texts) > 0.7 * len(set(table["query_id"]) - part - unseen)


def test_an_unknown_part_is_refused(tmp_path: Path, trainable_release: Release) -> None:
    with pytest.raises(UserError, match="c9"):
        training(tiny_cell("biencoder", trainable_release, tmp_path, ("topic", "c9")))


@pytest.fixture
def cell(trainable_release: Release, tmp_path: Path) -> Cell:
    return tiny_cell("biencoder", trainable_release, tmp_path)


def test_examples_are_texts_of_judged_passages_and_negatives(cell: Cell) -> None:
    judged, texts = training(cell), passage_texts(cell)
    lookup = Lookup(judged.texts, texts)
    made, sha256 = dataset(cell, judged, lookup, 2 * len(judged.texts))
    passages = dict(cell.release.table("passages", "passages").iter_rows())
    ids = made.with_format(None)
    assert made.column_names == ["query", "positive", "negative_0", "negative_1"]
    assert len(made) == 2 * len(judged.texts)
    for named, example in zip(ids, made, strict=True):
        query = named["query"].removeprefix("?")
        assert example["query"] == judged.texts[query]
        assert named["positive"] in judged.positives[query]
        if len(judged.negatives[query]) > 1:
            assert {named["negative_0"], named["negative_1"]} <= set(judged.negatives[query])
        assert named["negative_0"] != named["negative_1"]
        assert [example[name] for name in made.column_names[1:]] == [passages[named[n]] for n in made.column_names[1:]]
    again, same_sha256 = dataset(cell, judged, lookup, 2 * len(judged.texts))
    assert ids.to_dict() == again.with_format(None).to_dict() and sha256 == same_sha256


def test_the_seed_decides_which_negatives(cell: Cell, trainable_release: Release, tmp_path: Path) -> None:
    judged = training(cell)
    lookup = Lookup(judged.texts, passage_texts(cell))
    other = Cell(cells.RunName("biencoder", "topic", "c0", seed=1), trainable_release, cell.options, tmp_path)
    one, two = (dataset(c, judged, lookup, 99)[0].with_format(None).to_dict() for c in (cell, other))
    assert one["query"] == two["query"]
    assert one["negative_0"] != two["negative_0"]


def test_mined_passages_take_the_place_of_negatives(cell: Cell) -> None:
    judged, texts = training(cell), passage_texts(cell)
    query = next(iter(judged.texts))
    lookup = Lookup(judged.texts, texts)
    made, _ = dataset(cell, judged, lookup, len(judged.texts))
    row = made.with_format(None)["query"].index(f"?{query}")
    other = next(one for one in range(len(made)) if one != row)
    before = made[other]
    lookup.mined_negatives = {query: ["0", "1"]}
    assert {made[row]["negative_0"], made[row]["negative_1"]} == set(texts.of(["0", "1"]))
    assert made[row] == made[row]
    assert made[other] == before
    lookup.mined_negatives = None
    first = made[row]
    lookup.mined_negatives, lookup.static_negatives = {query: ["0", "1"]}, 1
    assert made[row]["negative_0"] in texts.of(["0", "1"])
    assert made[row]["negative_1"] == first["negative_1"]


@pytest.mark.parametrize(("static", "at"), [({}, [2, 4]), ({"static_negatives": 1}, [2])])
def test_static_negatives_are_mined_once(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, static: dict[str, int], at: list[int]
) -> None:
    mined: list[int] = []
    monkeypatch.setattr(mining, "_negatives", lambda cell, *_: mined.append(len(mined)) or {})
    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=6, mine_every=2, **static)
    lookup = Lookup({}, passage_texts(cell))
    callback = mining.miner(cell, 2, training(cell), lookup, None)
    for step in range(1, 6):
        before = len(mined)
        callback.on_step_end(SimpleNamespace(output_dir=tmp_path, max_steps=6), SimpleNamespace(global_step=step), None)
        assert (len(mined) > before) == (step in at)
        callback.on_train_begin(SimpleNamespace(output_dir=tmp_path), SimpleNamespace(global_step=step), None)
        assert (lookup.mined_negatives is not None) == (step > 2) and (lookup.mined_next is not None) == (step in at)


def test_random_negatives_come_from_all_passages_and_need_none_of_bm25(mini_release: Release, tmp_path: Path) -> None:
    cell = tiny_cell("biencoder", mini_release, tmp_path, negatives=8, negatives_from="random")
    judged = training(cell)
    made = dataset(cell, judged, Lookup(judged.texts, passage_texts(cell)), 1000)[0].with_format(None)
    drawn = {one for name in made.column_names[2:] for one in made[name]}
    with pytest.raises(UserError, match="has no negatives to train with"):
        of_bm25 = tiny_cell("biencoder", mini_release, tmp_path)
        dataset(of_bm25, training(of_bm25), Lookup({}, passage_texts(of_bm25)), 9)
    assert len(drawn) > 0.9 * mini_release.table("passages", "passages").height


def test_early_stopping_looks_at_judged_passages_and_negatives_of_validation_queries_only(
    trainable_release: Release, tmp_path: Path
) -> None:
    class Recorder:
        """Scores each passage by the queries that it is judged relevant to."""

        model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_: None)
        device = torch.device("cpu")
        similarity_fn_name = "dot"

        def encode_query(self, texts: list[str], **_: object) -> list[str]:
            self.queries = texts
            return texts

        def encode_document(self, texts: list[str], **_: object) -> list[str]:
            self.passages = texts
            return texts

        def similarity(self, queries: list[str], passages: list[str]) -> torch.Tensor:
            return torch.tensor([[passage in relevant[query] for passage in passages] for query in queries]).float()

    cell = tiny_cell("biencoder", trainable_release, tmp_path, evaluate_every=5, patience=2, encode_batch=None)
    queries = trainable_release.table("validation", "validation")
    contents, model = passage_texts(cell), Recorder()
    examples = judged_queries(trainable_release, queries, "validation")
    relevant = {examples.texts[query]: set(contents.of(ids)) for query, ids in examples.positives.items()}
    stopping = evaluator(cell, contents)
    metrics = stopping(model)
    assert sorted(model.queries) == sorted(queries["text"])
    ids = {one for lists in (examples.positives, examples.negatives) for listed in lists.values() for one in listed}
    assert sorted(model.passages) == sorted(contents.of(sorted(ids)))
    assert metrics[METRIC] == 1
    assert stopping.primary_metric == METRIC
    assert evaluator(tiny_cell("biencoder", trainable_release, tmp_path), contents) is None
