"""``python -m bench.discover``: is what ``eval_kit discover`` says true? On SQuAD, where the truth is planted.

Differences of random sign have no kind that loses. A share of what a run has is taken from one kind of question.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import eval_kit
from eval_kit.divisions import FEWEST
from eval_kit.stats.halves import Picked, worst
from eval_kit.stats.kinds import kinds
from eval_kit.stats.losses import holm
from eval_kit.tables.table import ALPHA

RESULTS = Path(__file__).parent / "results" / "discover.json"
MEASURE, DRAWS, NULL = "RR@10", 40, 400
PLANTED = {
    "how many": "^how many", "who": "^who", "when": "^when", "where": "^where", "which": "^which", "why": "^why",
    "year": r"\byear", "name": r"\bname", "type of": r"\b(type|kind) of", "a number": r"\d",
}  # fmt: skip


def alone(found: list[Picked]) -> list[Picked]:
    """What one half would have said without the other's turn."""
    half = [kind for kind in found if kind.half == 2]
    p = holm([kind.held.p for kind in half])
    return [kind for kind, each in zip(half, p, strict=True) if (each or 1.0) < ALPHA and (kind.held.value or 0.0) < 0]


def under_the_null(pairs: pl.DataFrame) -> dict[str, Any]:
    """In how many draws of random signs some kind is said to lose."""
    known = kinds(pairs["text"], 2 * FEWEST)
    gains, wrong = (pairs["after"] - pairs["before"]).to_numpy(), 0
    for draw in range(NULL):
        signs = np.random.default_rng(draw).choice([-1.0, 1.0], len(gains))
        wrong += any(kind.loses for kind in worst(gains * signs, known, FEWEST, seed=draw))
    return {"queries": len(gains), "kinds": len(known), "draws": NULL, "wrong": wrong}


def planted(pairs: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """How often a kind that loses a share is named: more than half of the queries of a kind that is said are its."""
    for size in (1_000, 5_000):
        counts = {loss: dict.fromkeys(("named", "named by one half", "another"), 0) for loss in (0.0, 0.1, 0.2, 0.4)}
        for draw in range(DRAWS):
            rng = np.random.default_rng([draw, size])
            some = pairs[rng.choice(pairs.height, size, replace=False)]
            known = kinds(some["text"], 2 * FEWEST)
            inside = (
                some["text"].str.to_lowercase().str.contains(list(PLANTED.values())[draw % len(PLANTED)]).to_numpy()
            )
            before, after = (some[side].to_numpy() for side in ("before", "after"))
            swapped = rng.random(size) < 0.5  # neither system is better
            before, after = np.where(swapped, after, before), np.where(swapped, before, after)
            for loss, count in counts.items():
                found = worst(after * (1 - loss * inside) - before, known, FEWEST, seed=draw)
                said = [inside[kind.rows].mean() > 0.5 for kind in found if kind.loses]
                count["named"] += any(said)
                count["another"] += not all(said)
                count["named by one half"] += any(inside[kind.rows].mean() > 0.5 for kind in alone(found))
        yield from ({"queries": size, "loss": loss, "draws": DRAWS} | count for loss, count in counts.items())


def main() -> None:
    """Ask both, and write the figures among those of the last time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--squad", type=Path, required=True, help="SQuAD's folder in BEIR's format")
    parser.add_argument("--run", type=Path, action="append", required=True, help="two runs over it")
    arguments = parser.parse_args()
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))
    release = eval_kit.open_release(arguments.squad)
    texts = pl.concat(map(release.queries, release.test_sets)).unique("query_id")
    sides = eval_kit.score(arguments.run, release, [MEASURE]).per_query().partition_by("run", maintain_order=True)
    before, after = (side.select("query_id", "value") for side in sides)
    pairs = texts.join(before.rename({"value": "before"}), on="query_id")
    pairs = pairs.join(after.rename({"value": "after"}), on="query_id").sort("query_id")
    figures |= {"random signs": under_the_null(pairs.head(7_000)), "planted": list(planted(pairs))}
    RESULTS.write_text(json.dumps(figures, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
