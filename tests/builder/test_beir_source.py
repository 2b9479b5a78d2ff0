"""Collections from BEIR folders, ir_datasets and releases: what is read, what is refused, and releases made of it."""

from dataclasses import replace
from pathlib import Path

import layouts
import polars as pl

from builder import rebuilt
from builder import release as releases
from builder.collection import Collection, split_name
from builder.sources import beir, irds, released
from builder.verify import verify
from eval_kit.documents import Manifest
from eval_kit.files.digests import file_sha256
from eval_kit.files.formats import QRELS_SCHEMA, QUERIES_SCHEMA
from eval_kit.release import Release, open_release

SETTINGS = ["topic.k=60", "topic.size=150", "restrain.sizes=a:340,b:500"]


def digests(manifest: Manifest) -> dict[str, str]:
    return {f"{table.config}/{table.split}": table.digest for table in manifest.tables}


def content(collection: Collection, *shifts: str) -> dict[str, str]:
    """The digests of what is rebuilt from it."""
    parameters = rebuilt.defaults(collection).with_settings(SETTINGS)
    return digests(releases.describe(rebuilt.draft(collection, shifts or None, parameters=parameters)))


def test_one_collection_gives_one_release_whatever_its_layout(small: Collection, command, tmp_path: Path) -> None:
    """By the command line, from a folder as BEIR's, and from ir_datasets: MS MARCO and any other id."""
    folder, out = layouts.beir(small, tmp_path / "toy"), tmp_path / "beir" / "ms-marco-shift"

    def build(name: object, *more: str) -> Release:
        given = ("rebuilt", "--collection", name, "--encoder", "lsa", *more, "--out", out)
        done = command("builder", "build", *given, *options, IR_DATASETS_HOME=str(tmp_path / "home"))
        assert done.returncode == 0, done.stderr
        assert not [check for check in verify(out) if check.fault]
        return open_release(out)

    options = [word for setting in SETTINGS for word in ("--set", setting)]
    release = build(folder)
    assert release.manifest.collection is None and digests(release.manifest) == content(small)
    assert str(tmp_path) not in (out / "manifest.json").read_text() + (out / "README.md").read_text()
    inputs = {record.id: record.sha256 for record in release.manifest.inputs}
    assert inputs["toy/corpus.jsonl"] == file_sha256(folder / "corpus.jsonl")
    assert set(inputs) == {
        *("toy/corpus.jsonl", "toy/queries.jsonl"),
        *(f"toy/qrels/{split}.tsv" for split in ("train", "dev", "dl19", "dl20")),
    }
    assert all(table.rule.inputs == list(inputs) for table in release.manifest.tables)

    layouts.irds_ms_marco(small, tmp_path / "home")
    layouts.irds_scifact(small, tmp_path / "home")
    release = build("msmarco")
    without_passages = content(replace(small, passages=None))  # ir_datasets has them
    assert release.manifest.collection == "msmarco-passage" and digests(release.manifest) == without_passages
    assert {"dev", "dl19", "dl20"} <= set(release.test_sets)
    release = build("beir/scifact", "--shift", "resttest")
    assert release.manifest.collection == "beir/scifact" and set(release.configs["resttest"]) == {"train", "test"}
    assert "test" in release.test_sets and "passages" not in release.configs


def test_subsets_of_ir_datasets_are_splits() -> None:
    assert irds._splits("beir/scifact") == {"train": "beir/scifact/train", "test": "beir/scifact/test"}
    assert irds._splits("antique/train") == {"train": "antique/train"}
    assert irds._splits("vaswani") == {"train": "vaswani"}
    assert set(irds._splits("beir/fiqa")) == {"train", "dev", "test"}


def test_what_a_folder_holds(tiny: Path) -> None:
    found = beir.collection(tiny)
    assert found.name == "tiny" and found.irds is None
    assert found.train["query_id"].to_list() == ["q0", "q1"], "q2 has no relevant passage"
    assert {split: queries["query_id"].to_list() for split, queries in found.evaluation.items()} == {"dev": ["q3"]}
    assert found.passages is not None
    assert found.passages.rows() == [("p1", "A title a text"), ("p2", "only text"), ("p3", "")]
    assert list(found.remarks) == ["1 passages of corpus.jsonl have neither title nor text; kept"]
    assert found.qrels["train"].rows() == [("q0", "p1", 1), ("q1", "p2", 2), ("q1", "p1", 0), ("q2", "p1", 0)]
    assert [split_name(name) for name in ("Validation", "trec-dl-2019", "test")] == ["dev", "trec_dl_2019", "test"]

    with (tiny / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "q3", "text": "query 3"}\n')
    (tiny / "qrels" / "._train.tsv").write_bytes(b"\0\5\26\7")  # as a Mac leaves it
    found = beir.collection(tiny)
    assert set(found.qrels) == {"train", "dev"}
    assert found.remarks[1].startswith("1 queries have the id of a passage, as ArguAna's have")


def test_judgements_that_come_twice_count_once(small: Collection) -> None:
    pairs = small.qrels["dev"]
    lower = pairs.with_columns(score=pl.col("score") - 1)
    twice = replace(small, qrels={**small.qrels, "dev": pl.concat([lower, pairs])})
    assert content(twice, "length") == content(small, "length")


def test_queries_of_a_release(mini_release: Release) -> None:
    found = released.collection(mini_release.folder)
    topics = pl.concat(mini_release.table("topic", split)["query_id"] for split in ("train", "test"))
    assert set(found.train["query_id"]) == set(topics)
    assert set(found.evaluation) == {"dev", "dl19", "dl20"} and found.passages is not None
    assert found.queries["dev"].schema == pl.Schema(QUERIES_SCHEMA)
    assert found.qrels["train"].schema == pl.Schema(QRELS_SCHEMA)
    assert content(found, "wh")
