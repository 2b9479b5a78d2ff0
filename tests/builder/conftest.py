"""Fixtures that several files use."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import Server

from builder.collection import Collection
from builder.sources import mini
from eval_kit.release import Release

WORDS = ["river", "stone", "music", "bread", "garden", "winter", "engine", "doctor", "harbour", "letter"]
WH = ("what is the {0} of {1}", "how to {0} a {1}", "who is {0} in {1} and when", "{0} {1} {2}")


@pytest.fixture(params=["mini_release", "published_release"])
def release(request: pytest.FixtureRequest) -> Release:
    """Each of the two in turn."""
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def small() -> Collection:
    """Mini's collection, of 1,500 queries."""
    return mini.collection(mini.MiniParameters(queries=1_500))


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEIR folder: 400 training and 60 test queries with a passage each."""
    folder = tmp_path_factory.mktemp("own") / "toy"
    (folder / "qrels").mkdir(parents=True)
    draw = random.Random(1)
    texts = [WH[number % 4].format(*draw.choices(WORDS, k=3)) + f" {number}" for number in range(460)]
    lines = [json.dumps({"_id": f"q{n}", "text": text, "meta": {"kind": n % 3}}) for n, text in enumerate(texts)]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"_id": f"p{n}", "title": "", "text": f"about {text}"}) for n, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    for split, numbers in (("train", range(400)), ("test", range(400, 460))):
        rows = [f"q{n}\tp{n}\t1\n" for n in numbers]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A BEIR folder of a few lines, to be spoilt."""
    (tmp_path / "tiny" / "qrels").mkdir(parents=True)
    folder = tmp_path / "tiny"
    passages = [("p1", "A title", "a text"), ("p2", "", "only text"), ("p3", "", "")]
    lines = [json.dumps({"_id": passage, "title": title, "text": text}) for passage, title, text in passages]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"_id": f"q{i}", "text": f"query {i}", "metadata": {}}) for i in range(4)]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "train.tsv").write_text(f"{header}q0\tp1\t1\nq1\tp2\t2\nq1\tp1\t0\nq2\tp1\t0\n")
    (folder / "qrels" / "Validation.tsv").write_text(f"{header}q3\tp1\t1\n")
    return folder


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.shutdown()
    server.server_close()
