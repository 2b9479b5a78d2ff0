"""Python processes for tests that start hundreds of them: forks of a server that has the large imports behind it.

A fork is a process of its own, with its own arguments, environment, folder, standard output and error, and it ends as
``python`` would. The servers import nothing that reads ``HF_*``, but for the one of neural commands.
"""

import atexit
import contextlib
import gc
import hashlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from filelock import FileLock

LIGHT = (
    *("polars", "pyarrow.parquet", "numpy", "httpx2", "httpcore2", "jinja2", "jsonschema", "yaml", "filelock"),
    *("fsspec", "anyio", "pydantic", "rich.console", "rich.progress", "rich.table", "typer"),
    *("scipy.stats", "scipy.sparse", "sklearn.cluster", "sklearn.decomposition"),
    *("builder.cli", "builder.publish", "builder.card", "builder.verify", "builder.reports"),
)
NEURAL = (*LIGHT, "baselines.cli", "sentence_transformers", "sentence_transformers.sparse_encoder")
NEURAL_COMMANDS = (("baselines", "grid"), ("eval_kit", "run"))
READS_ITS_ENVIRONMENT = ("huggingface_hub", "hf_xet", "tqdm", "datasets")
TIMEOUT = 580
IDLE = 120
"""Seconds without a client after which the tests have ended."""

type Done = subprocess.CompletedProcess[str]


def run(arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None, neural: bool = False) -> Done:
    """What ``python`` does with these arguments, in a fork where they are ``-m MODULE ...`` or ``-c CODE ...``.

    An environment with the evaluator alone ($BUILT_RELEASES) lacks what the server imports: each process is a new one.
    """
    if arguments[0] not in ("-m", "-c") or "BUILT_RELEASES" in os.environ:
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT)
    return Running(arguments, environment, folder, neural).wait()


def compile_java_once() -> None:
    """Java's second compiler pays where a process searches for minutes; no test does."""
    from eval_kit.search import lucene

    lucene._JAVA_OPTIONS += ("-XX:TieredStopAtLevel=1",)


class Running:
    """A fork that does what ``python`` does with ``-m MODULE ...`` or ``-c CODE ...``, and may be killed."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path | None = None,
        neural: bool = False,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Its output and error are kept, or go to the descriptors."""
        self.arguments = list(map(str, arguments))
        self._done: Done | None = None
        self._outputs = [] if descriptors else [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115
        self._connection = _connected(NEURAL if neural else LIGHT)
        request = json.dumps([self.arguments, dict(environment), str(folder or Path.cwd())]).encode()
        descriptors = descriptors or [file.fileno() for file in self._outputs]
        socket.send_fds(self._connection, [len(request).to_bytes(4)], descriptors)
        self._connection.sendall(request)
        self.pid = int.from_bytes(self._connection.recv(4))

    def status(self) -> int:
        return int.from_bytes(self._connection.recv(4), signed=True)

    def ended(self) -> bool:
        return bool(select.select([self._connection], [], [], 0)[0])

    def kill(self) -> Done:
        if self._done is None and not self.ended():
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> Done:
        if self._done is None:
            with self._outputs[0] as out, self._outputs[1] as error, self._connection:
                status = self.status()
                out.seek(0)
                error.seek(0)
                self._done = subprocess.CompletedProcess(self.arguments, status, out.read(), error.read())
        return self._done


def in_a_shell(folder: Path) -> dict[str, str]:
    """The environment of a shell whose commands ``python`` and ``eval_kit`` are forks; its scripts are in a folder."""
    for modules in (LIGHT, NEURAL):
        _connected(modules).close()
    folder.mkdir()
    for name, first in {"python": "", "eval_kit": "-m eval_kit"}.items():
        script = f'case "$1" in *.py) exec {sys.executable} "$@";; esac'
        (folder / name).write_text(f'#!/bin/sh\n{script}\nexec {sys.executable} -E {__file__} {first} "$@"\n')
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}", "CLIENTS": str(_servers())}


def _stand_in(arguments: list[str]) -> int:
    """The exit status of a fork that has this process's output, error and environment."""
    neural = tuple(arguments[1:3]) in NEURAL_COMMANDS
    process = Running(arguments, os.environ, neural=neural, descriptors=[1, 2])
    process._connection.settimeout(None)
    status = process.status()
    return status if status >= 0 else 128 - status


def _servers() -> Path:
    """The folder of the servers' addresses, which all workers of pytest share."""
    name = f"clients-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    return Path(os.environ.get("CLIENTS") or Path(tempfile.gettempdir(), name))


def _connected(modules: Sequence[str]) -> socket.socket:
    """A connection to the server that has imported ``modules``."""
    folder = _servers()
    folder.mkdir(exist_ok=True)
    address = folder / hashlib.sha256(" ".join(modules).encode()).hexdigest()[:8]
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(TIMEOUT)
    with FileLock(f"{address}.lock"):
        try:
            client.connect(str(address))
        except (FileNotFoundError, ConnectionRefusedError):
            address.unlink(missing_ok=True)
            command = [sys.executable, __file__, "serve", str(address), *modules]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            assert process.stdout and process.stdout.readline() == b"listening\n"
            client.connect(str(address))
    return client


def _serve(address: str, modules: Sequence[str]) -> None:
    """Fork for every connection a process that forks the client, and tells how it ended; stop when nobody calls."""
    for module in modules:
        __import__(module)
    if modules == list(LIGHT):
        assert not set(READS_ITS_ENVIRONMENT) & set(sys.modules)
    os.fsync = lambda descriptor: None  # as in the tests' own process
    compile_java_once()
    gc.freeze()  # or each fork would copy what the collector looks at
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        print("listening", flush=True)
        while True:
            if not select.select([server], [], [], IDLE)[0]:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(-1, os.WNOHANG)
                    continue  # a client is still at work
                Path(address).unlink(missing_ok=True)  # the folder may be another server's by now
                return
            connection, _ = server.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, files, _, _ = socket.recv_fds(connection, 4, 2)
    if not files:
        os._exit(0)  # who connected only made sure of the server
    with connection.makefile("rb") as stream:
        arguments, environment, folder = json.loads(stream.read(int.from_bytes(length)))
    if client := os.fork():
        connection.sendall(client.to_bytes(4))
        connection.sendall(os.waitstatus_to_exitcode(os.waitpid(client, 0)[1]).to_bytes(4, signed=True))
        os._exit(0)
    connection.close()
    for number, file in enumerate([os.open(os.devnull, os.O_RDONLY), *files]):
        os.dup2(file, number)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")  # what the server had may have been a file where this is a pipe
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace")
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if "PYTHONWARNINGS" in os.environ:
        warnings.simplefilter(os.environ["PYTHONWARNINGS"])  # type: ignore[arg-type]
    kind, what, *sys.argv[1:] = arguments
    try:
        if kind == "-m":
            sys.path[0] = folder
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.path[0], sys.argv[0] = "", "-c"
            exec(what, {"__name__": "__main__"})
    except SystemExit as end:
        _end(end.code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        _end(1)
    _end(None)


def _end(code: int | str | None) -> None:
    """As python ends, but that it takes no module apart: for that the system would copy all that the server holds."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if isinstance(code, str) else code or 0)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(_stand_in(sys.argv[1:]))
