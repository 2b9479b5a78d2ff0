"""BEIR's figures by pytrec_eval, as BEIR's own evaluator has them, and by its ``custom_metrics.hole``."""

import json
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval


@pytest.fixture(scope="module")
def nfcorpus(shared: Path, tmp_path_factory: pytest.TempPathFactory):
    """The test judgements, and a run of a judged and many other passages that leaves each tenth query without a hit.

    One of the run's queries is of another split.
    """
    folder = shared / "beir" / "nfcorpus"
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, passage, grade = line.split("\t")
        judged[query][passage] = int(grade)
    passages = [json.loads(line)["_id"] for line in (folder / "corpus.jsonl").read_text().splitlines()]
    draws, run = random.Random(1), {}
    for number, (query, grades) in enumerate(judged.items()):
        found = list(dict.fromkeys([*draws.sample(sorted(grades), 1), *draws.sample(passages, 119)]))
        if number % 10:
            run[query] = {passage: float(place) for place, passage in enumerate(draws.sample(found, len(found)))}
    path = tmp_path_factory.mktemp("beir") / "words.trec"
    with path.open("w") as file:
        for query, scores in run.items():
            file.writelines(f"{query} Q0 {passage} 1 {score} words\n" for passage, score in scores.items())
        other = (folder / "qrels" / "train.tsv").read_text().splitlines()[1].split("\t")
        file.write(f"{other[0]} Q0 {other[1]} 1 1 words\n")
    return judged, run, path


def test_the_figures_of_a_run_that_leaves_queries_unanswered(nfcorpus, shared: Path, command) -> None:
    judged, run, path = nfcorpus
    assert 0 < len(judged) - len(run) < 100, "some queries, but not all, are without a hit"
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut_10", "recall_100"})
    values = evaluator.evaluate(run).values()
    ndcg, recall = (np.array([value[name] for value in values]) for name in ("ndcg_cut_10", "recall_100"))
    seen = {passage for grades in judged.values() for passage in grades}
    hole, share_judged = 0.0, 0.0
    for query, scores in run.items():
        top = sorted(scores, key=lambda passage: -scores[passage])[:10]
        hole += sum(passage not in seen for passage in top) / 10
        share_judged += sum(passage in judged[query] for passage in top) / len(top)
    expected = {
        "nDCG@10": ndcg.sum() / len(judged),
        "R@100": recall.sum() / len(judged),
        "hole@10": hole / len(judged),  # BEIR divides by the judged queries
        "Judged@10": share_judged / len(judged),
    }
    folder = shared / "beir" / "nfcorpus"
    done = command("eval_kit", "score", path, "--dataset", folder, "--json", "-", status=0)
    document = json.loads(done.stdout)
    assert document["provenance"]["runs"][0]["unjudged_queries"] == 1
    rows = {row["measure"]: row for row in document["rows"]}
    missing = len(judged) - len(run)
    assert all((row["queries"], row["missing"]) == (len(judged), missing) for row in rows.values())
    assert {name: rows[name]["value"] for name in expected} == pytest.approx(expected, abs=1e-12)
    # BEIR averages pytrec_eval's values, which the answered queries alone have
    answered = {"nDCG@10": ndcg.mean(), "R@100": recall.mean()}
    assert {name: rows[name]["answered"] for name in answered} == pytest.approx(answered)
    options = ["--release", folder, "--allow-missing", "--test-set", "test", "--json", "-"]
    for name in expected:
        options += ["--measure", name]
    scored = command("eval_kit", "score", path, *options)
    of_score = {row["measure"]: row["value"] for row in json.loads(scored.stdout)["measures"]}
    assert of_score == pytest.approx(expected, abs=1e-12)
