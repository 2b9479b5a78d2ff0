"""Terminals, homes and warnings as no developer has them: the same figures come out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_kills import prepared  # noqa: F401

pytestmark = pytest.mark.slow

RUNS = ["s.wh.wha.trec", "s.wh.how.trec", "s.wh.who.trec"]
COMMANDS = {
    "score": ["eval_kit", "score", *RUNS, "--release", "release"],
    "compare": ["eval_kit", "compare", *RUNS[:2], "--release", "release"],
    "protocol": ["eval_kit", "protocol", *RUNS, "--release", "release"],
    "report": ["eval_kit", "protocol", *RUNS, "--release", "release", "--page", "out/report.html"],
    "leaderboard": ["eval_kit", "leaderboard", "board", "--release", "release", "--page", "out/board.html"],
    "verify": ["builder", "verify", "release"],
    "papers": ["eval_kit", "protocol", ".", "--paper", "all", "--release", "release"],
}
HOMES = {
    "ascii": {"PYTHONIOENCODING": "ascii", "HOME": "/nonexistent", "COLUMNS": "20", "LANG": "C", "LC_ALL": "C"},
    "latin": {"PYTHONIOENCODING": "latin-1", "HOME": "", "COLUMNS": "20", "TERM": "dumb"},
}


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("name", COMMANDS)
def test_figures_come_out_in_any_home(name: str, home: str, prepared: Path, tmp_path: Path):  # noqa: F811
    """In /proc, where not even root may write, with every warning an error."""
    (tmp_path / "out").mkdir()
    paths = {"out/report.html": tmp_path, "out/board.html": tmp_path}
    command = [
        str(paths.get(word, prepared) / word) if (prepared / word).exists() or word in paths else word
        for word in COMMANDS[name]
    ]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "XDG_", "HF_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", *command],
        cwd="/proc",
        env=inherited | HOMES[home],
        capture_output=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(HOMES[home]["PYTHONIOENCODING"])
    assert text and not set(text) - set("\n") - {char for char in text if char.isprintable()}
