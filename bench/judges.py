"""``python -m bench.judges``: is what ``compare`` says of judges and of snapshots true? On TREC DL, where it is known.

Under the null, two systems change places on each query by the toss of a coin, under all judges at once. And of systems
that follow each other while judgements grow, the change is known from the complete judgements of both.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np

import eval_kit
from eval_kit.files.formats import read_judgements
from eval_kit.protocols.judges import NOT_SHOWN
from eval_kit.stats.differences import ALPHA

RESULTS = Path(__file__).parent / "results" / "judges.json"
MEASURE, DRAWS, SNAPSHOTS = "nDCG@10", 50, 3
SYSTEMS = ("bm25", "bm25-rm3", "tas-b", "splade-pp-ed")
KEPT = (0.1, 0.3, 0.5)

type Run = dict[str, dict[str, float]]


def ranks(path: Path) -> Run:
    """A run's passages by query, with minus their ranks."""
    run: Run = {}
    for query, _, passage, rank, *_ in map(str.split, path.read_text().splitlines()):
        run.setdefault(query, {})[passage] = -float(rank)
    return run


def grades(path: Path) -> Run:
    """Judgements by query and passage."""
    judged: Run = {}
    for query, passage, grade in read_judgements(path, None).iter_rows():
        judged.setdefault(query, {})[passage] = grade
    return judged


def of_ranks(run: Run, judged: Run) -> dict[str, dict[str, int]]:
    """The judgements of a judge that grades the pool by the run's own ranks: 3 to the tenth, 2 to 30, 1 to 60."""
    return {
        query: {passage: sum(-run[query].get(passage, -1e9) <= end for end in (10, 30, 60)) for passage in passages}
        for query, passages in judged.items()
    }


def under_the_null(runs: dict[str, Run], judges: dict[str, Any]) -> dict[str, int]:
    """In how many draws a difference is said, under all judges or some, where there is none."""
    said = draws = 0
    for number, (one, other) in enumerate(combinations(SYSTEMS, 2)):
        for draw in range(DRAWS):
            rng = np.random.default_rng([number, draw])
            swapped = {query: rng.random() < 0.5 for query in runs[one]}
            pair = [
                {query: runs[other if swapped[query] == first else one].get(query, {}) for query in runs[one]}
                for first in (True, False)
            ]
            found = eval_kit.compare(dict(zip("ab", pair, strict=True)), qrels=judges, measures=[MEASURE])
            said += found.rows["verdict"][-1] != NOT_SHOWN
            draws += 1
    return {"draws": draws, "said": said}


def snapshots(runs: dict[str, Run], judged: Run) -> Iterator[dict[str, Any]]:
    """A system, then itself or another, on judgements that grow: what is said of a change that is known."""
    complete = {name: eval_kit.score({name: run}, qrels=judged, measures=[MEASURE]) for name, run in runs.items()}
    level = {name: scores.means[0].value for name, scores in complete.items()}
    pairs = [*permutations(SYSTEMS, 2), *((name, name) for name in SYSTEMS)]
    for how in (*KEPT, "the first system's top ten"):
        for one, other in pairs:
            for draw in range(SNAPSHOTS if isinstance(how, float) else 1):
                rng = np.random.default_rng(draw)
                early = {
                    query: {
                        passage: grade
                        for passage, grade in passages.items()
                        if (rng.random() < how if isinstance(how, float) else runs[one][query].get(passage, -99) >= -10)
                    }
                    for query, passages in judged.items()
                }
                early = {query: passages for query, passages in early.items() if passages}
                sides = {"a": runs[one]}, {"a": runs[other]}
                found = eval_kit.snapshots(sides[0], early, judged, sides[1], measures=[MEASURE], allow_missing=True)
                truth = 1 - level[other] / level[one]
                for row in found.rows.iter_rows(named=True):
                    shown = row["p_holm"] is not None and row["p_holm"] < ALPHA and row["rc"] is not None
                    yield {
                        "judged first": how,
                        "figures": "plain" if row["judged_in_both"] is None else "judged in both",
                        "changed": one != other,
                        "error": None if row["rc"] is None else abs(row["rc"] - truth),
                        "wrong": shown and (one == other or row["rc"] * truth < 0),
                        "right": shown and one != other and row["rc"] * truth > 0,
                    }


def summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By how much was judged first, by the figures, and by whether the system changed: errors and verdicts."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["judged first"], row["figures"], row["changed"]), []).append(row)
    names = "judged first", "figures", "changed"
    return [
        dict(zip(names, key, strict=True))
        | {"cases": len(group), "wrong": sum(row["wrong"] for row in group), "right": sum(r["right"] for r in group)}
        | {"median error": float(np.median([row["error"] for row in group if row["error"] is not None]))}
        for key, group in groups.items()
    ]


def main() -> None:
    """Ask both, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="folder of <system>.dl19.trec and <system>.dl20.trec")
    parser.add_argument("--qrels", type=Path, required=True, help="folder of qrels.dl19-passage.txt and of dl20's")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"measure": MEASURE, "null": {}}
    rows: list[dict[str, Any]] = []
    for year in ("dl19", "dl20"):
        runs = {name: ranks(arguments.runs / f"{name}.{year}.trec") for name in SYSTEMS}
        judged = grades(arguments.qrels / f"qrels.{year}-passage.txt")
        judges = {"nist": judged, "bm25": of_ranks(runs["bm25"], judged), "tas-b": of_ranks(runs["tas-b"], judged)}
        figures["null"][year] = under_the_null(runs, judges)
        rows += snapshots(runs, judged)
    figures["snapshots"] = summed(rows)
    RESULTS.write_text(json.dumps(figures, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
