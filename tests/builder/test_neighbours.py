"""An exported release in the hands of its neighbours: the real ``beir`` and ``mteb``, each in a process of its own."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import clients
import pytest

from builder.export import export
from eval_kit.protocols.scoring import score
from eval_kit.release import Release

TEST_SET = "wh.how"

BEIR = """
import json, sys
from beir.datasets.data_loader import GenericDataLoader
found = {}
for folder in sys.argv[1:]:
    corpus, queries, qrels = GenericDataLoader(folder).load(split="test")
    found[folder] = {"corpus": corpus, "queries": queries, "qrels": qrels}
print(json.dumps(found))
"""
MTEB = """
import json, sys
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

folder, ranking = sys.argv[1], json.load(open(sys.argv[2]))
empty = ("reference", "date", "domains", "task_subtypes", "license", "annotations_creators", "dialect",
         "sample_creation", "bibtex_citation")

class Shift(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="Shift", description="A test set of ms-marco-shift.", dataset={"path": folder, "revision": "main"},
        type="Retrieval", category="t2t", modalities=["text"], eval_splits=["test"], eval_langs=["eng-Latn"],
        main_score="mrr_at_10", **dict.fromkeys(empty))

class Ranking:
    mteb_model_meta = None
    def index(self, corpus, **options):
        self.ids = set(corpus["id"])
    def search(self, queries, *, top_k, **options):
        assert all(set(ranking[query]) <= self.ids for query in queries["id"])
        return {query: ranking[query] for query in queries["id"]}

task = Shift()
task.load_data()
data = task.dataset["default"]["test"]
found = {
    "corpus": dict(zip(data["corpus"]["id"], data["corpus"]["text"])),
    "queries": dict(zip(data["queries"]["id"], data["queries"]["text"])),
    "qrels": data["relevant_docs"],
    "scores": task.evaluate(Ranking(), "test", encode_kwargs={})["default"],
}
print(json.dumps(found, default=float))
"""

type Client = Callable[..., object]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Run a script in a process of its own, and read the JSON that it prints last."""
    home = tmp_path_factory.mktemp("home")
    own = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}

    def run(script: str, *arguments: object) -> object:
        done = clients.run(["-c", script, *map(str, arguments)], {**os.environ, **own}, home)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def exported(mini_release: Release, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = export(mini_release, tmp_path_factory.mktemp("export"), "beir")
    return {folder.name: folder for folder in folders}


def queries_of(release: Release, name: str) -> dict[str, str]:
    if name in release.variations:
        return dict(release.wordings(release.variations[name]).select("query_id", "text").iter_rows())
    (entry,) = [one for one in release.manifest.test_sets if one.name == name]
    rows = release.table(entry.config, entry.split).select("query_id", "text").rows()
    return {query: text for query, text in rows if query in set(release.test_sets[name].queries)}


def qrels_of(release: Release, name: str) -> dict[str, dict[str, int]]:
    if name in release.variations:
        name = release.variations[name].base
    found: dict[str, dict[str, int]] = {query: {} for query in release.test_sets[name].queries}
    for query, passage, grade in release.qrels(release.test_sets[name].qrels).iter_rows():
        if query in found:
            found[query][passage] = grade
    return found


def test_beir_loads_every_test_set(client: Client, exported: dict[str, Path], mini_release: Release) -> None:
    found = client(BEIR, *exported.values())
    assert isinstance(found, dict) and set(exported) == {*mini_release.test_sets, *mini_release.variations}
    corpora = {(folder / "corpus.jsonl").stat().st_ino for folder in exported.values()}
    assert len(corpora) == 1 and len(exported) > 20, "the corpora are one file"
    corpus = {one: {"text": text, "title": ""} for one, text in mini_release.table("passages", "passages").iter_rows()}
    for name, folder in exported.items():
        assert found[str(folder)]["corpus"] == corpus
        assert found[str(folder)]["queries"] == queries_of(mini_release, name)
        assert found[str(folder)]["qrels"] == qrels_of(mini_release, name)


@pytest.mark.slow
def test_mteb_evaluates_as_we_do(
    client: Client, exported: dict[str, Path], mini_release: Release, tmp_path: Path
) -> None:
    draw = random.Random(0)
    passages = mini_release.table("passages", "passages")["passage_id"].to_list()
    qrels = qrels_of(mini_release, TEST_SET)
    ranking = {
        query: {passage: 1 / (1 + draw.random()) for passage in [*judged, *draw.sample(passages, 15)]}
        for query, judged in qrels.items()
    }
    (tmp_path / "ranking.json").write_text(json.dumps(ranking))
    found = client(MTEB, exported[TEST_SET], tmp_path / "ranking.json")
    assert isinstance(found, dict)
    assert found["corpus"] == dict(mini_release.table("passages", "passages").iter_rows())
    assert found["queries"] == queries_of(mini_release, TEST_SET) and found["qrels"] == qrels

    run = tmp_path / "drawn.trec"
    lines = [(query, passage, value) for query, hits in ranking.items() for passage, value in hits.items()]
    run.write_text("".join(f"{query} Q0 {passage} 1 {value!r} drawn\n" for query, passage, value in lines))
    ours = {one.measure: one.value for one in score([run], mini_release).means if one.test_set == TEST_SET}
    assert 0.2 < ours["RR@10"] < 0.9
    assert found["scores"]["mrr_at_10"] == pytest.approx(ours["RR@10"], abs=1e-5)
    assert found["scores"]["recall_at_1000"] == pytest.approx(ours["R@1000"], abs=1e-5) == 1
