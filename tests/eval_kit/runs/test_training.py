"""Training queries in the forms that people have them in."""

import shutil
from pathlib import Path

import pytest

from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.runs import training


def test_files(tmp_path: Path) -> None:
    tevatron = '{"query_id": "7", "query": "q", "positive_passages": [{"docid": "3", "text": "p"}]}\n'
    for name, text, queries, passages in (
        ("t.tsv", "1\thow tall\n2\thow wide\n3\thow tall\n", ["how tall", "how wide"], []),
        ("t.tsv", "how tall\ttall it is\tno\nhow tall\tvery\tno\n", ["how tall"], ["tall it is", "very"]),
        ("t.jsonl", '{"anchor": "wie hoch", "positive": "so hoch"}\n', ["wie hoch"], ["so hoch"]),
        ("t.jsonl", '{"query": "北京", "pos": ["在", "人口"], "neg": ["x"]}\n', ["北京"], ["在", "人口"]),
        ("t.jsonl", tevatron, ["q"], ["p"]),
        ("t.jsonl", '{"query": "alone"}\n', ["alone"], []),
        ("queries.jsonl", '{"_id": "q1", "text": "of BEIR", "metadata": {}}\n', ["of BEIR"], []),
    ):
        (tmp_path / name).write_text(text)
        known = training.read(tmp_path / name)
        assert known.queries["text"].to_list() == queries
        assert known.passage_texts.to_list() == passages and known.passage_ids.is_empty()


def test_folders(mini_release: Release, shared: Path, tmp_path: Path) -> None:
    known = training.read(mini_release.folder)
    assert set(mini_release.table("topic", "train")["query_id"]) <= set(known.queries["query_id"])
    assert set(known.passage_ids) <= set(mini_release.qrels("train")["passage_id"])
    known = training.read(shared / "beir/nfcorpus")
    assert known.queries.height == 2_590 and len(known.passage_ids)
    without = shutil.ignore_patterns("corpus.jsonl", "train.tsv")
    shutil.copytree(shared / "beir/nfcorpus", tmp_path / "nfcorpus", ignore=without)
    with pytest.raises(UserError, match="has no train split"):
        training.read(tmp_path / "nfcorpus")


def test_mistakes(tmp_path: Path) -> None:
    columns = "expected id and text, or query, relevant and other passage"
    for name, text, sentence in (
        ("t.tsv", "1\thow tall\nhow wide\n", rf"t\.tsv:2: {columns}"),
        ("t.tsv", "1\t \n", r"t\.tsv:1: expected id and text"),
        ("t.tsv", "", "no queries"),
        ("t.jsonl", "[1]\n", r"t\.jsonl:1: expected a JSON object"),
        ("t.jsonl", '{"query": 3}\n', r"t\.jsonl:1: expected"),
        ("t.jsonl", '{"query": "q", "positive": [3]}\n', r"t\.jsonl:1: expected"),
        ("t.jsonl", '{"query": "q", "positive_passages": [{"docid": "3"}]}\n', r"t\.jsonl:1: expected"),
        ("t.jsonl", '{"query": " "}\n', r"t\.jsonl:1: expected"),
        ("t.jsonl", '{"_id": "p1", "title": "", "text": "a passage"}\n', r"t\.jsonl:1: expected"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=sentence):
            training.read(tmp_path / name)
