"""``python -m bench.discover``: is what ``eval_kit discover`` says true? On SQuAD, where the truth is planted or known.

Differences of random sign have no kind that loses. A share of what a run has is taken from one kind of question. And of
two crossed models the one that never saw a cluster loses on that cluster, so that kinds should point there.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import permutations
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


def crossed(folder: Path, runs: list[Path], size: int = 7_000) -> dict[str, Any]:
    """Of all pairs of crossed models: whether the kinds that are said are of clusters that only the better one saw."""
    release = eval_kit.open_release(folder)
    roles = release.table("crossed", "train")
    values = {path.name.split(".")[2]: eval_kit.score(path, release, [MEASURE]).per_query() for path in runs}
    rows, luck = [], []
    for one, other in permutations(values, 2):
        sides = [values[model].unique("query_id").select("query_id", value=pl.col("value")) for model in (one, other)]
        both = roles.join(sides[0].rename({"value": "before"}), on="query_id").join(
            sides[1].rename({"value": "after"}), on="query_id"
        )
        both = both.sort("query_id").sample(min(size, both.height), seed=0)
        gains = (both["after"] - both["before"]).to_numpy()
        found = worst(gains, kinds(both["text"], 2 * FEWEST), FEWEST)
        luck += [(kind.found, kind.held.value) for kind in found]
        is_out = [both[model].cast(pl.String).to_numpy() == "out" for model in (one, other)]
        for kind in filter(lambda kind: kind.loses, found):
            right, wrong = (float((is_out[b] & ~is_out[1 - b])[kind.rows].mean()) for b in (1, 0))
            more = kind.p_rest is not None and kind.p_rest < ALPHA
            row = {"better": one, "worse": other, "kind": kind.name, "queries": len(kind.rows)}
            rows.append(row | {"unseen by the worse": right, "by the better": wrong, "more than the rest": more})
    found, held = np.mean(luck, axis=0).tolist()
    pairs = {(row["better"], row["worse"]) for row in rows}
    counts = {"pairs": len(values) * (len(values) - 1), "with a kind": len(pairs), "said": len(rows)}
    counts |= {"right": len([row for row in rows if row["unseen by the worse"] > row["by the better"]])}
    return counts | {"queries": min(size, both.height), "found": found, "held": held, "kinds": rows}


def retrained(folder: Path, runs: list[Path], size: int = 7_000) -> dict[str, Any]:
    """Of all pairs of models that were trained on the same parts from other seeds: in how many a kind is said."""
    release = eval_kit.open_release(folder)
    joined = release.table("crossed", "train").select("query_id", "text").sort("query_id")
    for number, path in enumerate(runs):
        values = eval_kit.score(path, release, [MEASURE]).per_query().unique("query_id")
        own = values.select("query_id", pl.col("value").alias(str(number)))
        joined = joined.join(own, on="query_id", maintain_order="left")
    joined = joined.sample(fraction=1.0, shuffle=True, seed=0)
    said = more = draws = 0
    for start in range(0, joined.height - size + 1, size):
        some = joined.slice(start, size)
        known = kinds(some["text"], 2 * FEWEST)
        for one, other in permutations(range(len(runs)), 2):
            gains = (some[str(other)] - some[str(one)]).to_numpy()
            found = [kind for kind in worst(gains, known, FEWEST) if kind.loses]
            said += bool(found)
            more += any(kind.p_rest is not None and kind.p_rest < ALPHA for kind in found)
            draws += 1
    means = joined.select(pl.col(map(str, range(len(runs)))).mean()).row(0)
    counts = {"models": len(runs), "pairs": len(runs) * (len(runs) - 1), "queries": size, "draws": draws}
    return counts | {"wrong": said, "more than the rest": more, "means": means}


def main() -> None:
    """Ask what is at hand, and write the figures among those of the last time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--squad", type=Path, help="SQuAD's folder in BEIR's format")
    parser.add_argument("--run", type=Path, action="append", default=[], help="two runs over it")
    parser.add_argument("--crossed", type=Path, help="the release of the crossed models")
    parser.add_argument("--model", type=Path, action="append", default=[], help="the run of a crossed model")
    parser.add_argument("--retrained", type=Path, action="append", default=[], help="the run of one model's seed")
    arguments = parser.parse_args()
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))
    if arguments.run:
        release = eval_kit.open_release(arguments.squad)
        texts = pl.concat(map(release.queries, release.test_sets)).unique("query_id")
        sides = eval_kit.score(arguments.run, release, [MEASURE]).per_query().partition_by("run", maintain_order=True)
        before, after = (side.select("query_id", "value") for side in sides)
        pairs = texts.join(before.rename({"value": "before"}), on="query_id")
        pairs = pairs.join(after.rename({"value": "after"}), on="query_id").sort("query_id")
        figures |= {"random signs": under_the_null(pairs.head(7_000)), "planted": list(planted(pairs))}
    if arguments.model:
        figures["crossed"] = crossed(arguments.crossed, arguments.model)
    if arguments.retrained:
        figures["retrained"] = retrained(arguments.crossed, arguments.retrained)
    RESULTS.write_text(json.dumps(figures, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
