"""Training files for other trainers: the examples of our own cells, in the words of each tool."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset
from tiny_checkpoints import tiny

from baselines.training.queries import Lookup, dataset, passage_texts, training
from builder import triplets
from eval_kit.release import Release
from tests.baselines.tiny_cells import tiny_cell
from tests.conftest import Run


def loaded(path: Path, cache: Path) -> Any:
    return load_dataset("json", data_files=str(path), split="train", cache_dir=str(cache))


@pytest.mark.parametrize(
    ("place", "negatives"),
    [(("topic", "c0"), 1), (("wh", "who"), 0), (("restrain", "extrapolate_small"), 3), (("all", "none"), 30)],
)
def test_the_examples_are_those_of_our_own_cell(
    trainable_release: Release, tmp_path: Path, place: tuple[str, str], negatives: int
) -> None:
    cell = tiny_cell("biencoder", trainable_release, tmp_path / "grid", place, negatives=negatives)
    queries = training(cell)
    own, sha256 = dataset(cell, queries, Lookup(queries.texts, passage_texts(cell)), 2 * len(queries.texts))
    out, cache = tmp_path / "triplets.jsonl", tmp_path / "cache"
    written = triplets.write(trainable_release, *place, out, negatives=negatives, count=len(own), cache=cache)
    assert written == triplets.Triplets(len(own), sha256)
    rows = [json.loads(row) for row in out.read_text("utf-8").split("\n")[:-1]]
    assert rows == list(own) and list(rows[0]) == own.column_names


def test_datasets_loads_what_sentence_transformers_trains_on(
    trainable_release: Release, tmp_path: Path, command: Run
) -> None:
    """It takes a column's role from its place."""
    options = ("--training-set", "topic.not-c0", "--negatives", 2, "--format", "sentence-transformers")
    done = command(
        "builder", "export", trainable_release.folder, *options, "--out", tmp_path, "--cache", tmp_path / "cache"
    )
    assert done.returncode == 0, done.stderr
    rows = loaded(tmp_path / "topic.not-c0.jsonl", tmp_path)
    count, sha256 = done.stdout.split()[1], done.stdout.split()[-1]
    assert int(count.replace(",", "")) == len(rows) and len(sha256) == 64
    assert rows.column_names == ["query", "positive", "negative_0", "negative_1"]
    passages = set(trainable_release.table("passages", "passages")["text"])
    assert {text for name in rows.column_names[1:] for text in rows[name]} <= passages


@pytest.mark.slow
def test_sentence_transformers_trains_on_the_file(trainable_release: Release, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    out = tmp_path / "triplets.jsonl"
    triplets.write(trainable_release, "topic", "c0", out, negatives=2, cache=tmp_path / "cache")
    model = SentenceTransformer(str(tiny("dense")))
    losses: list[int] = []

    class Counted(MultipleNegativesRankingLoss):
        def forward(self, sentence_features: Any, labels: Any) -> Any:
            columns = list(sentence_features)
            losses.append(len(columns))
            return super().forward(columns, labels)

    arguments = Arguments(str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=8, report_to="none")
    trainer = SentenceTransformerTrainer(model, arguments, loaded(out, tmp_path), loss=Counted(model))
    assert trainer.train().global_step == 2
    assert losses == [4, 4]  # query, positive and two negatives


def test_tevatron_reads_ids_and_texts(trainable_release: Release, tmp_path: Path) -> None:
    """Its ``TrainDataset`` takes one of ``positive_passages``, then ``negative_passages``; titles may be absent."""
    out = tmp_path / "tevatron.jsonl"
    place = ("topic", "c0", out, "tevatron-train")
    written = triplets.write(trainable_release, *place, negatives=2, seed=7, cache=tmp_path / "cache")
    rows = loaded(out, tmp_path)
    assert rows.column_names == ["query_id", "query", "positive_passages", "negative_passages"]
    texts = dict(trainable_release.table("passages", "passages").iter_rows())
    judged = {row[:2] for row in trainable_release.qrels("train").iter_rows() if row[2] >= 1}
    sha256 = hashlib.sha256()
    for row in rows:
        [positive], negatives = row["positive_passages"], row["negative_passages"]
        assert (row["query_id"], positive["docid"]) in judged and len(negatives) == 2
        for passage in (positive, *negatives):
            assert passage["text"] == texts[passage["docid"]]
        ids = [row["query_id"], *(passage["docid"] for passage in (positive, *negatives))]
        sha256.update("\t".join(ids).encode() + b"\n")
    assert sha256.hexdigest() == written.sha256
