"""Python processes for tests that start hundreds of them: forks of a server that has the large imports behind it.

Nothing that reads ``HF_*`` at its import is imported there: each fork does so itself, in its own environment.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

IMPORTED = (
    *(
        "clients",
        "polars",
        "pyarrow.parquet",
        "numpy",
        "httpx2",
        "httpcore2",
        "jinja2",
        "jsonschema",
        "yaml",
        "filelock",
    ),
    *("fsspec", "anyio", "pydantic", "rich.console", "rich.progress", "rich.table", "typer", "typer._adapters"),
    *("builder.cli", "builder.publish", "builder.card", "builder.verify", "builder.history"),
)
READS_ITS_ENVIRONMENT = ("huggingface_hub", "hf_xet", "tqdm", "datasets")
TIMEOUT = 180

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(IMPORTED))


def run(arguments: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What ``python`` does with these arguments, in a fork where they are ``-m MODULE ...`` or ``-c CODE ...``."""
    if arguments[0] not in ("-m", "-c"):
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT)
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch, name) for name in ("stdout", "stderr")]
        process = _context.Process(target=_client, args=(arguments, environment, folder, files))
        process.start()
        process.join(TIMEOUT)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(arguments, TIMEOUT)
        return subprocess.CompletedProcess(arguments, process.exitcode, *(file.read_text() for file in files))


def _client(arguments: list[str], environment: dict[str, str], folder: Path, files: list[Path]) -> None:
    assert not set(READS_ITS_ENVIRONMENT) & set(sys.modules)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    kind, what, *sys.argv[1:] = arguments
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv[0] = "-c"
        exec(what, {"__name__": "__main__"})
