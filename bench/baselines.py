"""``python -m bench.baselines``: what our training, encoding and search cost compared with plain libraries.

Each of our figures is beside a peer's, measured in turn with it on one thread: the same training in a plain
sentence-transformers trainer, its ``encode``, and faiss, scipy, torch, Pyserini and maxsim on the same vectors and
queries. Writes ``bench/results/baselines.json``.
"""

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
PARTS = ("training", "slice", "synthetic")
LIBRARIES = ("torch", "sentence-transformers", "transformers", "faiss-cpu", "scipy", "pyserini")


def main() -> None:
    """Measure, print tables, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works; writes only to --out")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="others keep their last figures")
    parser.add_argument("--slice", type=Path, default=Path("../shared/real-slice"), help="folder of the real slice")
    parser.add_argument("--folder", type=Path, help="keep what is encoded of the slice there, for the next time")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    given = parser.parse_args()
    os.environ["TQDM_DISABLE"] = "1"
    with tempfile.TemporaryDirectory() as temporary:
        _measure(given, Path(temporary), Console())


def _measure(given: argparse.Namespace, temporary: Path, console: Console) -> None:
    _one_thread()
    out = given.out or (None if given.quick else RESULTS / "baselines.json")
    document = json.loads(out.read_text(encoding="utf-8")) if out and out.is_file() else {}
    for part in given.parts:
        before = os.getloadavg()[0]
        with console.status(f"measuring: {part}"):
            measured = _measures(given, temporary / part)[part]()
        load = {"load_before": before, "load_after": os.getloadavg()[0]}
        measured |= {"repeats": given.repeats, "quick": given.quick} | load
        document[part] = measured
        _SHOWN[part](measured, console)
        _write({"machine": _machine()} | document, out)


def _measures(given: argparse.Namespace, folder: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    from bench import baselines_search, baselines_training

    quick, repeats = given.quick, given.repeats

    def real_slice() -> dict[str, Any]:
        if not (given.slice / "collection.tsv").is_file():
            return {"rows": [], "remark": f"{given.slice} is not there; it was not searched"}
        sizes = (60, 2) if quick else (30_005, 20)
        return baselines_search.real_slice(given.slice, given.folder or folder, repeats, *sizes)

    return {
        "training": lambda: baselines_training.measure(folder, quick, repeats),
        "slice": real_slice,
        "synthetic": lambda: baselines_search.synthetic(
            folder, repeats, 10_000 if quick else baselines_search.SYNTHETIC
        ),
    }


def _show_training(measured: dict[str, Any], console: Console) -> None:
    columns = "samples/s", "plain", "wall", "CPU", "outside s", "plain", "weights differ by"
    table = _table("Training beside the library's plain trainer", *columns)
    for name, figures in measured["training"].items():
        both = figures["ours"], figures["peer"]
        speeds = [f"{times['samples_per_second']:.1f}" for times in both]
        outside = [f"{times['outside_s']:.1f}" for times in both]
        difference = f"{figures['largest_weight_difference']:.2g}"
        table.add_row(name, *speeds, *_overheads(figures["overhead"]), *outside, difference)
    console.print(table)
    _show_encoding(measured["encoding"], console)


def _show_encoding(measured: dict[str, Any], console: Console) -> None:
    table = _table("Encoding beside the library's encode", "passages/s", "plain", "wall", "CPU")
    for name, figures in measured.items():
        speeds = [f"{figures[which]['passages_per_second']:,.0f}" for which in ("ours", "peer")]
        table.add_row(name, *speeds, *_overheads(figures["overhead"]))
    console.print(table)


def _show_search(measured: dict[str, Any], console: Console) -> None:
    if "remark" in measured:
        console.print(measured["remark"])
    columns = "passages", "one by one", "plain", "at once", "plain", "bytes each", "plain", "same top"
    table = _table("Search: ms a query on one thread, and index bytes a passage", *columns)
    for row in measured["rows"]:
        ways = product(("one_at_a_time", "in_one_call"), ("ours", "peer"))
        times = [f"{row[way][which]['ms']:.2f}" for way, which in ways]
        sizes = [f"{row['bytes_per_passage'][which]:,.0f}" for which in ("ours", "peer")]
        table.add_row(row["name"], f"{row['passages']:,}", *times, *sizes, f"{row['same_top_10']:.3f}")
    console.print(table)
    if "encoding" in measured:
        _show_encoding({"MiniLM": measured["encoding"]}, console)


_SHOWN = {"training": _show_training, "slice": _show_search, "synthetic": _show_search}


def _overheads(overhead: dict[str, float]) -> list[str]:
    return [f"{overhead[name]:+.1%}" for name in ("wall_s", "cpu_s")]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=None)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _write(document: dict[str, Any], out: Path | None) -> None:
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _machine() -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }


def _one_thread() -> None:
    import faiss
    import torch

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    _quiet()


def _quiet() -> None:
    import datasets
    from transformers.utils import logging as transformers_logging

    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()


if __name__ == "__main__":
    main()
