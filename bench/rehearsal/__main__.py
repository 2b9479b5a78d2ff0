"""``python -m bench.rehearsal``: every stage of a benchmark at a share of MS MARCO's size, on made-up passages.

Each stage is a process of its own that may open 256 files. A stopped rehearsal resumes at the stage where it stopped
and keeps that stage's finished work; the figures of that stage are those of the last attempt. Writes
``bench/results/rehearsal.json``.
"""

import argparse
import json
import os
import resource
import sys
from pathlib import Path

from bench.measuring import cost, machine
from bench.rehearsal import sizes
from bench.rehearsal.stages import STAGES, Work
from eval_kit.search import cache
from eval_kit.search.shards import bytes_below

OPEN_FILES = 256
RESULTS = Path(__file__).parent.parent / "results" / "rehearsal.json"
COLUMNS = ("stage", "how many", "wall", "CPU", "a CPU second", "peak memory", "on disk")


def main() -> None:
    """Do the stages that are left, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", default="0.01", help="share of MS MARCO's 8,841,823 passages")
    parser.add_argument("--folder", type=Path, required=True, help="for all that is made: about 60 GB at scale 1")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--here", choices=list(STAGES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = arguments.folder / arguments.scale
    if arguments.here:
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
        print(STAGES[arguments.here].run(Work(folder, sizes.of(float(arguments.scale)))))
        return
    # With two threads on a busy machine, one spins while the other waits for a core: 15 times the processor time.
    os.environ |= {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", cache.VARIABLE: str(folder / "cache")}
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for name in arguments.stages:
        if not (figures / f"{name}.json").exists():
            print(f"{name}: {STAGES[name].title}", file=sys.stderr, flush=True)
            document = _measure(arguments.folder, arguments.scale, name)
            (figures / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    keep(arguments.out, arguments.scale, figures)


def keep(out: Path, scale: str, figures: Path) -> None:
    """Replace the figures of one scale in ``out``, and print the table that docs/full-size.md shows."""
    document = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    stages = {}
    for name in STAGES:
        if (file := figures / f"{name}.json").exists():
            stages[name] = json.loads(file.read_text(encoding="utf-8"))
    document[scale] = {"machine": machine(), "stages": stages}
    by_scale = dict(sorted(document.items(), key=lambda entry: float(entry[0])))
    out.write_text(json.dumps(by_scale, indent=1) + "\n", encoding="utf-8")
    print(f"| {' | '.join(COLUMNS)} |", f"|---|{'---:|' * (len(COLUMNS) - 1)}", sep="\n")
    for name, stage in stages.items():
        print(
            f"| {name} | {stage['count']:,} {stage['unit']} | {stage['wall_s']:,.1f} s | {stage['cpu_s']:,.1f} s "
            f"| {stage['count'] / stage['cpu_s']:,.1f} | {stage['peak_gb']:.2f} GB | {stage['disk_gb']:.3f} GB |"
        )


def _measure(parent: Path, scale: str, name: str) -> dict[str, object]:
    folder = parent / scale
    before, load = bytes_below(folder), os.getloadavg()[0]
    arguments = ["--folder", str(parent), "--scale", scale, "--here", name]
    resources = cost([sys.executable, "-m", "bench.rehearsal", *arguments])
    count = int(resources.output.splitlines()[-1])
    return {
        "count": count,
        "unit": STAGES[name].unit,
        "wall_s": round(resources.wall_s, 3),
        "cpu_s": round(resources.cpu_s, 3),
        "peak_gb": round(resources.peak_mb * 2**20 / 1e9, 3),
        "rate": round(count / resources.wall_s, 2),
        "disk_gb": round((bytes_below(folder) - before) / 1e9, 4),
        "load_before": round(load, 1),
    }


if __name__ == "__main__":
    main()
