"""``python -m bench.rehearsal.stage FOLDER SCALE NAME``: one stage in this process, under 256 open files."""

import resource
import sys
from pathlib import Path

from bench.rehearsal import sizes
from bench.rehearsal.stages import STAGES, Work

OPEN_FILES = 256

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    folder, scale, name = sys.argv[1:]
    print(STAGES[name].run(Work(Path(folder), sizes.of(float(scale)))))
