"""For any name, pipe, closed descriptor and number: a status that means what it says, within a minute, no traceback.

The two runs are one run, so that 1, by which ``compare`` says that one is shown to lose, is never right.
"""

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_kit.markup import visible
from tests.conftest import Run
from tests.fuzz.test_contract import fuzz

REFUSED, CLOSED = 2, 141
NAMES = [
    "\x1b[31mred",
    "\x9b1m",
    "a\u202eb",
    "\u200f",
    "\x08\x7f",
    "a\nb",
    "<b>",
    "é",
    "\udcff",
    " ",
    "=1+1",
    "-x",
    "%s{}",
]
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
NUMBERS = ["inf", "-inf", "nan", "1e400", "1_0", "٣", "１", "0x1", "", " 1", "1e-400", "0.5", "-0", "1e9", "+.5", "1."]
OUTPUTS = [
    "out",
    "/dev/stdout",
    "/dev/fd/1",
    "/dev/fd/77",
    "/proc/self/x",
    "/dev/full",
    "/dev/null",
    ".",
    "gone/out",
    "-",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Judgements of three queries, a run of them by two names, and parts."""
    made = tmp_path_factory.mktemp("edges")
    (made / "q").write_text("".join(f"q{n} 0 p{n} 1\n" for n in range(3)))
    (made / "r.trec").write_text("".join(f"q{n} Q0 p{n // 2} 1 {n} t\n" for n in range(3)))
    return made


def ended(folder: Path, arguments: list[str], shell: str = "") -> tuple[int, str, bytes]:
    """Status, standard error and output of the evaluator in ``folder``; the shell says what its streams are."""
    environment = {**os.environ, "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[2:3]))}
    command = f"{shlex.join([sys.executable, '-m', 'eval_kit', *arguments])} {shell}"
    bash = ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}".encode("utf-8", "surrogateescape")]
    done = subprocess.run(bash, cwd=folder, env=environment, capture_output=True, timeout=60)
    return done.returncode, done.stderr.decode(errors="replace"), done.stdout


def check(status: int, said: str, expected: set[int]) -> None:
    assert "Traceback" not in said, said
    assert status in expected, said


@fuzz
@given(
    name=st.sampled_from(NAMES), part=st.sampled_from(NAMES), how=st.sampled_from(["table", "latex", "markdown", "csv"])
)
def test_names(folder: Path, inside: Run, name: str, part: str, how: str) -> None:
    run = folder / f"x{name}.trec"
    run.write_bytes((folder / "r.trec").read_bytes().replace(b"0", b"0 "))
    (folder / "parts.tsv").write_bytes(f"q0\t{part}\nq1\tb\nq2\tb\n".encode("utf-8", "surrogateescape"))
    page = folder / "p.html"
    page.unlink(missing_ok=True)
    options = ["--qrels", "q", "--by", "parts.tsv", "--format", how, "--page", page.name]
    done = inside("eval_kit", "compare", "r.trec", run.name, *options, cwd=folder)
    run.unlink()
    check(done.returncode, done.stderr, {0, REFUSED})
    text = done.stdout + (page.read_text() if page.exists() else "")
    assert not CONTROLS.search(text), CONTROLS.search(text)
    assert not CONTROLS.search(done.stderr.replace("\n", "")), done.stderr


@fuzz
@given(
    output=st.sampled_from(OUTPUTS),
    option=st.sampled_from(["--json", "--page", "--per-query"]),
    shell=st.sampled_from(["", "| head -c 9", "| head -c 0", "| cat", "> /dev/full", "< /dev/null", *(
        " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
        for count in (1, 2, 3) for closed in itertools.combinations(range(3), count)
    )]),
)  # fmt: skip
def test_outputs_and_streams(folder: Path, output: str, option: str, shell: str) -> None:
    status, said, out = ended(folder, ["score", "r.trec", "--qrels", "q", option, output], shell)
    check(status, said, {0, REFUSED, CLOSED})
    if status == 0 and output == "out":
        assert (folder / "out").read_text()
        (folder / "out").unlink()
    if shell in ("", "| cat", "2>&-", "0<&-") and output == "out":
        assert status == 0 and b"nDCG@10" in out
    assert not list(folder.glob(".*"))


@fuzz
@given(number=st.sampled_from(NUMBERS), option=st.sampled_from(["--no-worse-than", "--seed"]), joined=st.booleans())
def test_numbers(folder: Path, inside: Run, number: str, option: str, joined: bool) -> None:
    (folder / "s.trec").write_bytes((folder / "r.trec").read_bytes() + b"\n")
    given_as = [f"{option}={number}"] if joined else [option, number]
    done = inside("eval_kit", "compare", "r.trec", "s.trec", "--qrels", "q", *given_as, cwd=folder)
    is_plain = re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", number) and number != "1e400"
    check(done.returncode, done.stderr, {0, REFUSED, 3} if is_plain else {REFUSED})


def test_an_unexpected_exception_is_no_answer(folder: Path) -> None:
    code = "from eval_kit.errors import reporting\nwith reporting('kit'):\n raise ValueError('a bug')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 70 and "a bug" in done.stderr


def test_what_is_seen_stays() -> None:
    assert visible("<b>é 北京 مرحبا 😀\n\t</b>") == "<b>é 北京 مرحبا 😀\n\t</b>"
