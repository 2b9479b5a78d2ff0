"""``python -m bench.rehearsal``: every stage of a benchmark at a share of MS MARCO's size, on made-up passages.

Each stage is a process of its own that may open 256 files. A rehearsal that was stopped goes on with the stage that it
was at, and that stage with what it had done; its figures are then those of the last attempt. Writes
``bench/results/rehearsal.json``.
"""

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from bench.rehearsal import report, watch
from bench.rehearsal.stages import STAGES
from search.shards import bytes_below


def main() -> None:
    """Do the stages that are left, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", default="0.01", help="share of MS MARCO's 8,841,823 passages")
    parser.add_argument("--folder", type=Path, required=True, help="for all that is made: about 60 GB at scale 1")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    given = parser.parse_args()
    folder = given.folder / given.scale
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name in given.stages:
        figures = folder / "figures" / f"{name}.json"
        if not figures.exists():
            print(f"{name}: {STAGES[name].title}", file=sys.stderr, flush=True)
            figures.write_text(json.dumps(_measured(folder, given.scale, name), indent=1) + "\n", encoding="utf-8")
    done = [name for name in STAGES if (folder / "figures" / f"{name}.json").exists()]
    stages = {name: json.loads((folder / "figures" / f"{name}.json").read_text(encoding="utf-8")) for name in done}
    scales = report.keep(given.out, given.scale, _machine(), stages)
    print(report.markdown(stages), report.growth(scales), sep="\n\n")


def _measured(folder: Path, scale: str, name: str) -> dict[str, object]:
    before, load = bytes_below(folder), os.getloadavg()[0]
    cost = watch.run([sys.executable, "-m", "bench.rehearsal.stage", str(folder), scale, name])
    done = json.loads(cost.output.splitlines()[-1])
    figures = {key: round(value, 3) for key, value in asdict(cost).items() if key != "output"}
    return {
        **done,
        "unit": STAGES[name].unit,
        **figures,
        "rate": round(done["count"] / cost.wall_s, 2),
        "disk_gb": round((bytes_below(folder) - before) / 1e9, 4),
        "load_before": round(load, 1),
    }


def _machine() -> dict[str, object]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    main()
