"""``python -m bench.growth``: how time and memory grow, command by command, as whole processes at three sizes.

The exponent is of the last step, log((t₃ - a) / (t₂ - a)) / log(n₃ / n₂), where a is what a start takes; the lesser of
two measurements counts. Writes ``bench/results/growth.json``; ``--only NAME`` measures the rows of one command again.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.scoring import _cost, _machine
from builder import mini as planted
from builder import release as releases
from eval_kit.release import open_release

RESULTS = Path(__file__).parent / "results" / "growth.json"
REPEATS, SEED = 2, 0
LEAST_S, LEAST_MB = 0.2, 50
"""What grows by less from size to size has no exponent."""
NOT_RUN = [
    "score of 30 million lines in one run (6.4 million are the most here, of 1,000,000 queries 10 million)",
    "clean beyond 400,000 training queries",
    "build rebuilt beyond 36,000 queries, and verify beyond 64,000",
]
_WORDS = np.array(
    [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("", "n", "ra", "to", "lise", "mung")]
)


@dataclass(frozen=True)
class Row:
    """What grows, and the command of a size; ``make`` writes its inputs."""

    command: str
    grows: str
    sizes: tuple[int, int, int]
    make: Callable[[Path, int], list[str]]


def texts(count: int, seed: int) -> list[str]:
    """Queries of three to nine words, of which few are frequent."""
    random = np.random.default_rng(seed)
    ranks = np.minimum(random.zipf(1.3, (count, 9)) - 1, len(_WORDS) ** 2 - 1)
    lengths = random.integers(3, 10, count).tolist()
    first, second = _WORDS[ranks // len(_WORDS)], _WORDS[ranks % len(_WORDS)]
    return [
        " ".join(map("".join, zip(*pair, strict=True)))[: 8 * n]
        for n, *pair in zip(lengths, first, second, strict=True)
    ]


@cache
def collection(folder: Path, queries: int) -> Path:
    """A folder in BEIR's format whose queries have a relevant passage each."""
    target = folder / f"collection-{queries}"
    (target / "qrels").mkdir(parents=True)
    rows = pl.DataFrame({"_id": [f"q{row}" for row in range(queries)], "text": texts(queries, SEED)})
    rows.write_ndjson(target / "queries.jsonl")
    (target / "corpus.jsonl").write_text('{"_id": "0", "title": "", "text": "one"}\n')
    judged = rows.select(pl.col("_id").alias("query-id"), pl.lit("0").alias("corpus-id"), pl.lit(1).alias("score"))
    judged.write_csv(target / "qrels" / "test.tsv", separator="\t")
    return target


def run_of(path: Path, query_ids: Sequence[str], depth: int, seed: int, relevant: Sequence[str] | None = None) -> Path:
    """A run that finds the relevant passage, ``0`` unless given, of most queries at some rank."""
    random = np.random.default_rng(seed)
    ranks = np.tile(np.arange(1, depth + 1), len(query_ids))
    found = np.repeat((depth * random.random(len(query_ids)) ** 3).astype(int) + 1, depth) == ranks
    of_query = np.repeat(np.array(relevant if relevant is not None else ["0"] * len(query_ids)), depth)
    frame = pl.DataFrame(
        {
            "query": np.repeat(np.array(query_ids), depth),
            "q0": "Q0",
            "passage": np.where(
                found, of_query, (10**7 + random.integers(0, 10**7, len(ranks)) * depth + ranks).astype(str)
            ),
            "rank": ranks,
            "score": 1_000.0 - ranks,
            "tag": "t",
        }
    )
    frame.write_csv(path, include_header=False, separator=" ")
    return path


def on(folder: Path, queries: int, depth: int, systems: int = 1) -> tuple[list[str], Path]:
    """Runs over a collection, and the collection."""
    release = collection(folder, queries)
    ids = [f"q{row}" for row in range(queries)]
    runs = [folder / f"system{number}-{queries}-{depth}.trec" for number in range(systems)]
    for number, run in enumerate(runs):
        if not run.exists():
            run_of(run, ids, depth, number)
    return list(map(str, runs)), release


def kit(command: str, *words: object, release: Path) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "eval_kit", command, *map(str, words), "--release", str(release)]


def score_lines(folder: Path, size: int) -> list[str]:
    """1,000 passages a query."""
    runs, release = on(folder, size // 1_000, 1_000)
    return kit("score", *runs, release=release)


def score_queries(folder: Path, size: int) -> list[str]:
    """Ten passages a query."""
    runs, release = on(folder, size, 10)
    return kit("score", *runs, release=release)


def compare_systems(folder: Path, size: int) -> list[str]:
    """Runs of 200,000 lines."""
    runs, release = on(folder, 1_000, 200, size)
    return kit("compare", *runs, release=release)


def compare_parts(folder: Path, size: int) -> list[str]:
    """Two runs of 64,000 queries, divided by a file."""
    runs, release = on(folder, 64_000, 10, 2)
    parts = folder / f"parts-{size}.tsv"
    parts.write_text("".join(f"q{row}\tpart{row % size}\n" for row in range(64_000)))
    return kit("compare", *runs, "--by", parts, release=release)


def log_of(folder: Path, size: int) -> Path:
    """Training queries."""
    path = folder / f"train-{size}.tsv"
    path.write_text("".join(f"t{row}\t{text}\n" for row, text in enumerate(texts(size, SEED + 1))))
    return path


def clean(folder: Path, size: int) -> list[str]:
    """1,000 test queries."""
    return kit("clean", "--train", log_of(folder, size), release=collection(folder, 1_000))


def discover(folder: Path, size: int) -> list[str]:
    """Two runs, ten passages a query."""
    runs, release = on(folder, size, 10, 2)
    return kit("discover", *runs, release=release)


@cache
def mini(folder: Path, queries: int) -> Path:
    """A mini release."""
    releases.write(planted.draft(queries=queries), folder / f"mini-{queries}" / "ms-marco-shift")
    return folder / f"mini-{queries}" / "ms-marco-shift"


def protocol(folder: Path, size: int) -> list[str]:
    """Grids of five runs, on the topics of a mini release."""
    release = open_release(mini(folder, 4_000))
    sets = [test_set for name, test_set in release.test_sets.items() if name.startswith("topic.")]
    pairs = pl.concat([release.qrels(test_set.qrels).filter(pl.col("relevance") > 0) for test_set in sets[:1]])
    ids = pl.concat([test_set.queries for test_set in sets]).unique(maintain_order=True)
    relevant = dict(pairs.select("query_id", "passage_id").iter_rows())
    runs = []
    for system in range(size):
        for test_set in sets:
            path = folder / f"s{system}.{test_set.name}.trec"
            if not path.exists():
                run_of(path, ids.to_list(), 20, system, [relevant.get(query, "0") for query in ids])
            runs.append(path)
    return kit("protocol", *runs, release=release.folder)


def generalise(folder: Path, size: int) -> list[str]:
    """On a tenth of a mini release's queries, far or near by its training queries."""
    release = open_release(mini(folder, size))
    ids = release.test_sets["dev"].queries.to_list()
    run, pivot = (run_of(folder / f"dev{seed}-{size}.trec", ids, 20, seed) for seed in (0, 1))
    train = folder / f"trained-on-{size}.tsv"
    release.table("topic", "train").select("query_id", "text").write_csv(train, include_header=False, separator="\t")
    return kit("generalise", run, "--pivot", pivot, "--trained-on", train, release=release.folder)


def similarity(folder: Path, size: int) -> list[str]:
    """Of a mini release's clusters."""
    return kit("similarity", release=mini(folder, size))


def rebuilt(folder: Path, size: int) -> list[str]:
    """The shifts that any number of mini's queries has."""
    out = folder / f"rebuilt-{size}" / "ms-marco-shift"
    shifts = [word for name in ("topic", "wh", "length", "resttest") for word in ("--shift", name)]
    return [sys.executable, "-m", "builder", "build", "rebuilt", "--queries", str(size), *shifts, "--out", str(out)]


def verify(folder: Path, size: int) -> list[str]:
    """A mini release."""
    return [sys.executable, "-m", "builder", "verify", str(mini(folder, size))]


ROWS = [
    Row("score", "lines", (400_000, 1_600_000, 6_400_000), score_lines),
    Row("score", "queries", (62_500, 250_000, 1_000_000), score_queries),
    Row("compare", "systems", (25, 50, 100), compare_systems),
    Row("compare --by", "parts", (10, 100, 1_000), compare_parts),
    Row("protocol", "systems", (4, 16, 64), protocol),
    Row("clean", "training queries", (25_000, 100_000, 400_000), clean),
    Row("similarity", "queries", (4_000, 16_000, 64_000), similarity),
    Row("generalise", "queries", (4_000, 16_000, 64_000), generalise),
    Row("discover", "queries", (4_000, 16_000, 64_000), discover),
    Row("build rebuilt", "queries", (4_000, 12_000, 36_000), rebuilt),
    Row("verify", "queries", (4_000, 16_000, 64_000), verify),
]


def exponent(sizes: Sequence[int], costs: Sequence[float], start: float, least: float) -> float | None:
    """Of the last step, above what a start takes; None where the costs grow by less than ``least``."""
    if costs[2] - costs[1] < least:
        return None
    grown = (costs[2] - start) / (costs[1] - start)
    return round(math.log(grown) / math.log(sizes[2] / sizes[1]), 2)


def _least(command: list[str]) -> tuple[float, float]:
    """Processor seconds and peak memory in MB."""
    costs = [_cost(command) for _ in range(REPEATS)]
    return round(min(cost.cpu_s for cost in costs), 2), round(min(cost.peak_mb for cost in costs), 2)


def measured(row: Row, folder: Path, start: Sequence[float]) -> dict[str, Any]:
    """The costs of a row, and their exponents."""
    costs = []
    for size in row.sizes:
        command = row.make(folder, size)
        costs.append(_least(command))
    cpu, peak = ([each[which] for each in costs] for which in (0, 1))
    exponents = {"exponent": exponent(row.sizes, cpu, start[0], LEAST_S)}
    exponents |= {"memory_exponent": exponent(row.sizes, peak, start[1], LEAST_MB)}
    return {"command": row.command, "grows": row.grows, "sizes": row.sizes, "cpu_s": cpu, "peak_mb": peak} | exponents


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", action="append")
    only = parser.parse_args().only
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []
    found = {(row["command"], row["grows"]): row for row in kept}
    start = _least([sys.executable, "-m", "eval_kit", "score", "--example"])
    with tempfile.TemporaryDirectory() as folder:
        for row in ROWS:
            if only is None or row.command in only:
                found[row.command, row.grows] = measured(row, Path(folder), start)
                print(json.dumps(found[row.command, row.grows]), flush=True)
                rows = [found[each.command, each.grows] for each in ROWS if (each.command, each.grows) in found]
                document = {"machine": _machine(), "start": start, "rows": rows, "not_run": NOT_RUN}
                RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
