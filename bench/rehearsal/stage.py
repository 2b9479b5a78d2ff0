"""``python -m bench.rehearsal.stage FOLDER SCALE NAME``: one stage in this process, under 256 open files.

A product of matrices has one thread, as in a grid's cells: of two on a machine that others use, one spins while the
other waits for its turn (15 times the processor time, measured with the one-layer model).
"""

import json
import os
import resource
import sys
from pathlib import Path

OPEN_FILES = 256


def main() -> None:
    """Do the stage, and say how many of what it did, with what else it measured."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    os.environ["OMP_NUM_THREADS"] = "1"
    from bench.rehearsal import sizes
    from bench.rehearsal.stages import STAGES, Work
    from search import cache

    folder, scale, name = sys.argv[1:]
    os.environ["TQDM_DISABLE"] = "1"
    os.environ[cache.VARIABLE] = str(Path(folder) / "cache")
    done = STAGES[name].run(Work(Path(folder), sizes.of(float(scale))))
    print(json.dumps({"count": done} if isinstance(done, int) else done))


if __name__ == "__main__":
    main()
