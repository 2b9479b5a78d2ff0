"""What a process and those that it starts cost, as the operating system accounts for them."""

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True)
class Watched:
    """Wall and processor seconds, peak memory (GB) and open files of the largest process, and what it printed."""

    wall_s: float
    cpu_s: float
    peak_gb: float
    open_files: int
    output: str


def run(command: Sequence[str]) -> Watched:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed; with the end of what it said.
    """
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    most = 0
    ended = threading.Event()

    def look() -> None:
        nonlocal most
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            most = max([most, *map(_open_files, _family(process.pid))])

    watching = threading.Thread(target=look)
    watching.start()
    errors: list[str] = []
    reading = threading.Thread(target=lambda: errors.append(process.stderr.read()))  # type: ignore[union-attr]
    reading.start()
    output = process.stdout.read()  # type: ignore[union-attr]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begun
    ended.set()
    watching.join()
    reading.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: ended with {process.returncode}: {errors[0][-2000:]}")
    return Watched(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e9, most, output)


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    family = [pid]
    for child in children:
        family += _family(int(child))
    return family


def _open_files(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0
