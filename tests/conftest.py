"""Fixtures: the real data where it is at hand, and releases built once for the whole session.

Where builder's extra is not installed, what needs it is skipped: eval_kit's own tests run without.
"""

import gc
import importlib
import io
import os
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import clients
import pytest
from filelock import FileLock
from hypothesis import settings

from eval_kit.release import Release, open_release

LONGEST = ("test_shadow.py", "test_pages.py", "test_publish.py", "test_run.py", "test_ray.py", "test_torchrun.py")
READ_AT_THE_START = ("HF_", "LANG", "LC_", "PYTHON")
ROOT = Path(__file__).parent.parent
SHARED = Path(os.environ.get("MS_MARCO_SHIFT_SHARED", ROOT.parent / "shared"))

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

type Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest begin first, so that no worker ends with one of them."""
    items.sort(key=lambda item: item.path.parent != ROOT / "tests" and item.path.name not in LONGEST)


def pytest_configure() -> None:
    clients.compile_java_once()


def pytest_collection_finish() -> None:
    """Each training collects garbage twice; among all that the tests have imported, that takes a second of its own."""
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """One closing line: how many tests did not run on this machine, and why."""
    yield
    whys = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ()))
    if whys:
        said = "; ".join(f"{count}: {why}" for why, count in whys.most_common())
        terminalreporter.write_line(f"{whys.total()} tests did not run on this machine. {said}")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the authors' files and real runs (``$MS_MARCO_SHIFT_SHARED``, else ``../shared``)."""
    if not (SHARED / "upstream").is_dir():
        pytest.skip(f"REAL DATA ABSENT: {SHARED}/upstream is not there; golden values were NOT checked")
    return SHARED


@pytest.fixture(scope="session", autouse=True)
def no_ir_datasets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An ``IR_DATASETS_HOME`` in which msmarco-passage cannot be obtained, with or without a network."""
    home = tmp_path_factory.mktemp("no-ir-datasets")
    (home / "msmarco-passage").write_text("a file where ir_datasets wants a folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR_DATASETS_HOME", str(home))
        yield home


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes and downloads are kept in a folder of this session, not in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MS_MARCO_SHIFT_CACHE", str(_of_all_workers(tmp_path_factory) / "cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """``fsync`` keeps what a power failure would lose; no test switches the machine off, and thousands would wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def _of_all_workers(factory: pytest.TempPathFactory) -> Path:
    return factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """The folder of a release that whichever pytest worker asks for it first builds for all.

    An environment that cannot build names a folder of those that are built already: $BUILT_RELEASES.
    """
    if prebuilt := os.environ.get("BUILT_RELEASES"):
        return Path(prebuilt, name)
    root = _of_all_workers(factory)
    folder, built = root / name / "ms-marco-shift", root / f"{name}.built"
    with FileLock(root / f"{name}.lock"):
        if not built.exists():
            folder.parent.mkdir(exist_ok=True)
            build(folder)
            built.touch()
    return folder


@pytest.fixture(scope="session")
def published_release(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The partial canonical release, built from the authors' files at hand."""

    def build(out: Path) -> None:
        releases = pytest.importorskip("builder.release", exc_type=ImportError)
        published = pytest.importorskip("builder.sources.published", exc_type=ImportError)
        releases.write(published.draft(shared / "upstream", allow_partial=True), out)

    folder = built_once(tmp_path_factory, "published", build)
    return open_release(folder)


@pytest.fixture(scope="session")
def mini_release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A mini release of 1,500 queries."""

    def build(out: Path) -> None:
        planted = pytest.importorskip("builder.mini", exc_type=ImportError)
        pytest.importorskip("builder.release", exc_type=ImportError).write(planted.draft(queries=1_500), out)

    return open_release(built_once(tmp_path_factory, "mini", build))


@pytest.fixture(scope="session")
def trainable_release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A mini release of 500 queries with 20 BM25 negatives each."""
    planted = pytest.importorskip("builder.mini", exc_type=ImportError)
    releases = pytest.importorskip("builder.release", exc_type=ImportError)
    negatives = pytest.importorskip("builder.negatives", exc_type=ImportError)

    def build(folder: Path) -> None:
        releases.write(planted.draft(queries=500), folder)
        parameters = negatives.NegativeParameters(depth=100, sample=20)
        negatives.add(folder, parameters, cache=folder.parent / "cache", threads=1)

    return open_release(built_once(tmp_path_factory, "trainable", build))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the kit as it is here."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def inside() -> Run:
    """As ``command``, in this process, which has Java and PyTorch already: a tenth of the time.

    What depends on a process of its own (signals, pipes, locks, what is imported) is ``command``'s.
    """

    def run(program: str, *arguments: object, cwd: Path | None = None) -> clients.Done:
        out, error = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True) for _ in range(2))
        module, status = importlib.import_module(f"{program}.cli"), None
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            patch.setattr(sys, "argv", [program, *map(str, arguments)])
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", error)
            patch.setenv("COLUMNS", "200")
            patch.syspath_prepend(cwd or Path.cwd())
            patch.chdir(cwd or Path.cwd())
            warnings.resetwarnings()
            ends = signal.getsignal(signal.SIGTERM)
            try:
                module.main()
            except SystemExit as end:
                status = end.code
            finally:
                signal.signal(signal.SIGTERM, ends)
        assert status is None or isinstance(status, int), status
        printed = [stream.buffer.getvalue().decode() for stream in (out, error)]  # type: ignore[attr-defined]
        return subprocess.CompletedProcess([program, *map(str, arguments)], status or 0, *printed)

    return run


@pytest.fixture(scope="session")
def command() -> Run:
    """Run ``python -m <module> <arguments>`` as a user would, from any folder, and return what it printed.

    It has to end with the ``status``, if one is given.
    """

    def run(*arguments: object, cwd: Path | None = None, status: int | None = None, **environment: str) -> clients.Done:
        line = ["-m", *map(str, arguments)]
        variables = {**os.environ, "COLUMNS": "200", **environment}
        if any(name.startswith(READ_AT_THE_START) for name in environment):
            whole = [sys.executable, *line]
            done = subprocess.run(whole, cwd=cwd, env=variables, capture_output=True, text=True, timeout=300)
        else:
            done = clients.run(line, variables, cwd, neural=arguments[:2] in clients.NEURAL_COMMANDS)
        assert status is None or done.returncode == status, done.stderr
        return done

    return run
