"""Time whole processes, from the operating system's accounting."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Cost:
    """The cost of one run of a command: wall and processor seconds, and its peak memory in MB."""

    wall_s: float
    cpu_s: float
    peak_mb: float

    def as_json(self) -> dict[str, Any]:
        """The same, rounded."""
        return {name: round(value, 2) for name, value in asdict(self).items()}


def median_cost(command: Sequence[str], repeats: int, environment: dict[str, str] | None = None) -> Cost:
    """Run a command once to warm the file cache, then ``repeats`` times; median times and the greatest peak memory.

    Raises:
        RuntimeError: the command failed; with the end of what it printed.
    """
    costs = [cost(command, environment) for _ in range(repeats + 1)][1:]
    middle = sorted(costs, key=lambda run: run.wall_s)[len(costs) // 2]
    return Cost(middle.wall_s, sorted(run.cpu_s for run in costs)[len(costs) // 2], max(run.peak_mb for run in costs))


LAUNCHER = """
import json, os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
_, status, usage = os.wait4(process.pid, 0)
wall = time.perf_counter() - start
print(json.dumps([wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
sys.exit(bool(status))
"""


def cost(command: Sequence[str], environment: dict[str, str] | None = None) -> Cost:
    """One run, launched from a small process, because the system counts a parent's size as the command's peak.

    Raises:
        RuntimeError: the command failed; with the end of what it printed.
    """
    launched = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *command], capture_output=True, env={**os.environ, **(environment or {})}
    )
    if launched.returncode:
        raise RuntimeError(f"{command[0]} failed: {launched.stderr[-500:].decode(errors='replace')}")
    return Cost(*json.loads(launched.stdout))
