"""Time whole processes, from the operating system's accounting."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cost:
    """The cost of one run of a command: wall and processor seconds, and its peak memory in MB; what it printed."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str = ""

    def as_json(self) -> dict[str, Any]:
        """The three figures, rounded."""
        return {name: round(getattr(self, name), 2) for name in ("wall_s", "cpu_s", "peak_mb")}


def median_cost(command: Sequence[str], repeats: int) -> Cost:
    """Run a command once to warm the file cache, then ``repeats`` times; median times and the greatest peak memory."""
    costs = [cost(command) for _ in range(repeats + 1)][1:]
    middle = sorted(costs, key=lambda run: run.wall_s)[len(costs) // 2]
    cpu = sorted(run.cpu_s for run in costs)[len(costs) // 2]
    return Cost(middle.wall_s, cpu, max(run.peak_mb for run in costs))


LAUNCHER = """
import json, os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(process.pid, 0)
wall = time.perf_counter() - start
print(json.dumps([wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
sys.exit(bool(status))
"""


def cost(command: Sequence[str]) -> Cost:
    """One run, launched from a small process, because the system counts a parent's size as the command's peak.

    Raises:
        RuntimeError: the command failed; with the end of what it printed.
    """
    launched = subprocess.run([sys.executable, "-c", LAUNCHER, *command], capture_output=True)
    if launched.returncode:
        raise RuntimeError(f"{command[0]} failed: {launched.stderr[-500:].decode(errors='replace')}")
    output, _, figures = launched.stdout.decode().rstrip("\n").rpartition("\n")
    return Cost(*json.loads(figures), output)
