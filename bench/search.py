"""``python -m bench.search``: exact dense search beside ``faiss.IndexFlatIP``, on the same vectors and one thread.

Latency is measured twice: with queries one at a time, as in BEIR's Table 3, and with all in one call, as in a grid. Our
vectors are mapped from the disk and ties are broken by passage id; faiss holds its vectors in memory.
Replaces the part ``synthetic`` of ``bench/results/baselines.json``.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.measuring import Figures, in_turn, keep, timed
from eval_kit.search import dense, shards

DEPTH, TOP = 1_000, 10
PASSAGES, QUERIES, ALONE, DIMENSIONS = 1_000_000, 32, 4, 384
REPEATS = 5
SEED = 13

type Search = Callable[[dense.Vectors], list[list[str]]]
"""Takes query vectors (queries, dimensions); returns the ids of each query's best passages."""


def measured(folder: Path, passages: int = PASSAGES, repeats: int = REPEATS) -> dict[str, Any]:
    """Milliseconds per query of ours and the peer over ``passages`` vectors, and the share of equal top tens."""
    import faiss

    stored = drawn(folder, passages, DIMENSIONS, np.float32)
    queries = np.random.default_rng(SEED).standard_normal((QUERIES, DIMENSIONS), dtype=np.float32)
    index = faiss.IndexFlatIP(DIMENSIONS)
    for _, arrays in stored:
        index.add(np.array(arrays["vectors"]))

    def ours(queries: dense.Vectors) -> list[list[str]]:
        return [[passage for passage, _ in hits] for hits in dense.exact(queries, stored, DEPTH)]

    def peer(queries: dense.Vectors) -> list[list[str]]:
        _, rows = index.search(queries, min(DEPTH, len(stored)))
        return [np.char.decode(stored.ids[row]).tolist() for row in rows]

    tops = zip(ours(queries), peer(queries), strict=True)
    same = [len(set(top[:TOP]) & set(expected[:TOP])) / TOP for top, expected in tops]
    engines = {"ours": ours, "peer": peer}
    return {
        "passages": passages,
        "dimensions": DIMENSIONS,
        "same_top_10": float(np.mean(same)),
        "one_at_a_time": latency(engines, np.split(queries[:ALONE], ALONE), repeats),
        "in_one_call": latency(engines, [queries], repeats),
        "bytes_per_passage": shards.bytes_below(folder) / len(stored),
        "repeats": repeats,
    }


def drawn(folder: Path, passages: int, dimensions: int, kind: type[np.floating]) -> shards.Shards:
    """Random vectors in the search's own files."""
    rng = np.random.default_rng(SEED)

    def vectors(texts: list[str]) -> shards.Arrays:
        return {"vectors": rng.standard_normal((len(texts), dimensions), dtype=np.float32).astype(kind)}

    return shards.write(((str(number), "") for number in range(passages)), folder, vectors, "drawn")


def latency(engines: dict[str, Search], calls: Sequence[dense.Vectors], repeats: int) -> dict[str, Any]:
    """Milliseconds per query of each engine over ``calls``, and our overhead."""
    queries = sum(len(call) for call in calls)

    def timing(search: Search) -> Callable[[], Figures]:
        def run() -> Figures:
            spent = timed(lambda: [search(call) for call in calls])
            return spent | {"ms": 1_000 * spent["wall_s"] / queries, "cpu_ms": 1_000 * spent["cpu_s"] / queries}

        return run

    return in_turn({name: timing(search) for name, search in engines.items()}, repeats)


def main() -> None:
    """Measure on one thread, print and keep the figures."""
    import faiss
    import torch

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        keep("synthetic", measured(Path(folder)))


if __name__ == "__main__":
    main()
