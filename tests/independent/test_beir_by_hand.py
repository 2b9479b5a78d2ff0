"""BEIR's figures by plain Python, as BEIR's own evaluator and ``custom_metrics.hole`` define them."""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def nfcorpus(shared: Path, tmp_path_factory: pytest.TempPathFactory):
    """The test judgements, and a run by shared words that leaves some queries without a hit."""
    folder = shared / "beir" / "nfcorpus"
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, passage, grade = line.split("\t")
        judged[query][passage] = int(grade)
    queries = {}
    for line in (folder / "queries.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["_id"] in judged:
            queries[entry["_id"]] = set(entry["text"].lower().split())
    holders = defaultdict(list)
    for line in (folder / "corpus.jsonl").read_text().splitlines():
        entry = json.loads(line)
        for word in set(f"{entry['title']} {entry['text']}".lower().split()):
            holders[word].append(entry["_id"])
    run = {}
    for query, words in queries.items():
        scores: dict[str, float] = defaultdict(float)
        for word in words:
            for passage in holders[word] if len(holders[word]) < 500 else ():
                scores[passage] += math.log(4000 / len(holders[word]))
        best = sorted(scores, key=lambda passage: (scores[passage], passage.encode()), reverse=True)
        if best:
            run[query] = best[:120]
    path = tmp_path_factory.mktemp("beir") / "words.trec"
    with path.open("w") as file:
        for query, passages in run.items():
            for rank, passage in enumerate(passages, start=1):
                file.write(f"{query} Q0 {passage} {rank} {1000 - rank} words\n")
    return judged, run, path


def test_the_figures_of_a_run_that_leaves_queries_unanswered(nfcorpus, shared: Path, command) -> None:
    judged, run, path = nfcorpus
    assert 0 < len(judged) - len(run) < 100, "some queries, but not all, are without a hit"
    seen = {passage for grades in judged.values() for passage in grades}
    hole, per_query, ndcg, recall = 0.0, 0.0, 0.0, 0.0
    for query, passages in run.items():
        grades = judged[query]
        hole += sum(passage not in seen for passage in passages[:10]) / 10
        per_query += sum(passage in grades for passage in passages[:10]) / len(passages[:10])
        ideal = sorted(grades.values(), reverse=True)[:10]
        gains = [grades.get(passage, 0) for passage in passages[:10]]
        ndcg += discounted(gains) / discounted(ideal)
        relevant = {passage for passage, grade in grades.items() if grade > 0}
        recall += len(relevant.intersection(passages[:100])) / len(relevant)
    done = command("eval_kit", "score", path, "--dataset", shared / "beir" / "nfcorpus", "--json", "-")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    everything = len(judged)
    expected = {
        "nDCG@10": ndcg / everything,
        "R@100": recall / everything,
        "hole@10": hole / everything,  # BEIR divides by the judged queries
        "Judged@10": per_query / everything,
    }
    values = {row["measure"]: row["value"] for row in rows}
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    scored = command(
        "eval_kit",
        "score",
        path,
        "--release",
        shared / "beir" / "nfcorpus",
        "--allow-missing",
        "--test-set",
        "test",
        *(word for name in expected for word in ("--measure", name)),
        "--json",
        "-",
    )
    of_score = {row["measure"]: row["value"] for row in json.loads(scored.stdout)["measures"]}
    assert of_score == pytest.approx(expected, abs=1e-12)
    # BEIR averages pytrec_eval's values, which the answered queries alone have
    answered = {"nDCG@10": ndcg / len(run), "R@100": recall / len(run)}
    assert {row["measure"]: row["answered"] for row in rows if row["measure"] in answered} == pytest.approx(answered)


def discounted(gains: list[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))
