"""How a command ends: one line that no control character leaves, and the status that a shell expects."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import eval_kit
from eval_kit.errors import MOST_SHOWN, printable

ENDS = """
import sys, os, signal, time, warnings
from pathlib import Path
from eval_kit.errors import UserError, reporting
with reporting("kit"):
    exec(sys.stdin.buffer.read().decode())
"""


def ended(code: str, *arguments: str, **options) -> tuple[int, str, str]:
    """Status, standard output and error of some code inside ``reporting``."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS, *arguments], input=code, capture_output=True, text=True, timeout=60, **options
    )
    return done.returncode, done.stdout, done.stderr


def test_controls_and_bidirectional_marks_are_written_out_and_much_is_cut():
    assert printable("a\x1b[31m\x00\u202eb\u2028\ud800é😀") == r"a\x1b[31m\x00\u202eb\u2028\ud800é😀"
    shown = printable("x" * 1_000_000)
    assert len(shown) < MOST_SHOWN + 50 and shown.endswith("(998,000 characters more)")


@pytest.mark.parametrize(
    ("code", "status", "line"),
    [
        (r'raise UserError("bad\x1b[2J\nname")', 2, r"bad\x1b[2J\nname"),
        ('raise UserError("x" * 10_000)', 2, "x" * MOST_SHOWN + "… (8,000 characters more)"),
        ('Path("/proc/self/mem").write_bytes(b"x")', 2, "Input/output error"),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", 130, "interrupted"),
        ('warnings.simplefilter("error"); warnings.warn("partial")', 2, "partial"),
        ('sys.stdout = open("/dev/full", "w"); print("x")', 2, "No space left on device"),
        ("bytearray(1 << 60)", 2, "There is not enough memory. Take fewer files, or raise the limit (ulimit -v)"),
    ],
)
def test_whatever_ends_a_command_is_one_line(code: str, status: int, line: str, tmp_path: Path):
    assert ended(code, cwd=tmp_path) == (status, "", f"kit: {line}\n")


FULL = """\
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
"""


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise pl.exceptions.PanicException('no descriptor')", 70),
        ("raise GeneratorExit", 70),
        (f"{FULL}raise pl.exceptions.PanicException", 70),
        (f"{FULL}raise OSError('no descriptor')", 2),
        (f"{FULL}open('/dev/null')", 2),
        ("sys.stderr = open('/dev/full', 'w'); raise UserError('what')", 120),
        ("sys.stderr = open('/dev/full', 'w'); 1 / 0", 120),
        ("raise SystemExit(1)", 1),
    ],
)
def test_no_end_but_a_commands_own_is_its_answer(code: str, status: int):
    """A gate answers with 0, 1 and 3; 120 is Python's own where the last lines have no room."""
    assert ended(f"import polars as pl\n{code}")[0] == status


@pytest.mark.parametrize(
    ("package", "extra"), [("sklearn.svm", "builder"), ("pyarrow", "release"), ("torch", "models")]
)
def test_a_missing_package_names_the_extra_that_brings_it(package: str, extra: str):
    status, _, said = ended(f"import sys; sys.modules[{package.partition('.')[0]!r}] = None; import {package}")
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert status == 2 and said.endswith(f"'.[{extra}]'\n") and extra in extras["optional-dependencies"]


def test_a_signal_ends_by_way_of_every_finally(tmp_path: Path):
    code = 'from eval_kit.files import atomic\nwith atomic.whole(Path("file")) as part:\n part.write_text("half")\n'
    assert ended(f"{code} signal.raise_signal(signal.SIGTERM)", cwd=tmp_path)[0] == 143
    assert list(tmp_path.iterdir()) == []


def test_an_output_of_another_encoding_gets_what_it_can_hold():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    assert ended('print("20 °", "\\udcff")', env=environment) == (0, "20 \\xb0 \\udcff\n", "")


def test_a_closed_pipe_is_silent():
    with subprocess.Popen(
        [sys.executable, "-c", ENDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        process.stdin.write(b"print('x' * 100_000)")
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("program", ["eval_kit", "builder", "baselines"])
def test_a_python_without_the_packages_is_a_sentence(program):
    environment = os.environ | {"PYTHONPATH": str(Path(eval_kit.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-S", "-m", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and ". .venv/bin/activate" in done.stderr and done.stderr.count("\n") == 1
