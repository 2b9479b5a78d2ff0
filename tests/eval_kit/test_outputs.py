"""No command writes over what it reads, whatever its arguments are."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from eval_kit.errors import UserError
from eval_kit.program import check_outputs
from eval_kit.release import Release

RUN = "r.trec"
CASES = [
    "compare r.trec b.trec --json r.trec",
    "slices r.trec --by length --json r.trec",
    "similarity r.trec --json r.trec",
    "score r.trec --dataset d --json r.trec",
    "score r.trec --dataset d --json d/qrels/test.tsv",
    "leaderboard board --page board/s/run.trec",
    "leaderboard board --page board/s/../s/submission.json",
    "compare board/s b.trec --json board/s/submission.json",
    "compare scores.json b.trec --json scores.tsv",
    "score r.trec --json rel/manifest.json",
    "score r.trec --per-query rel/data/qrels/dev-00000-of-00001.parquet",
    "score r.trec --per-query link.trec",
    "score r.trec --json x.json --per-query x.json",
    "protocol r.trec --page rel/README.md",
    "similarity --json rel/manifest.json",
    "align scores.json --json scores.json",
    "similarity --collection d --json d/corpus.jsonl",
    "builder fidelity rel --against rel --out rel/manifest.json",
    "builder export rel --out rel",
]


@pytest.fixture
def place(mini_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(mini_release.folder, tmp_path / "rel")
    for name in ("r.trec", "b.trec", "scores.json", "scores.tsv", "board/s/run.trec", "board/s/submission.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("precious")
    for name in ("d/corpus.jsonl", "d/queries.jsonl", "d/qrels/test.tsv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("precious")
    (tmp_path / "link.trec").symlink_to("r.trec")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MS_MARCO_SHIFT_RELEASE", "rel")
    return tmp_path


@pytest.mark.parametrize("line", CASES)
def test_an_output_is_no_input(line: str, place: Path, command: Callable[..., object]) -> None:
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    if line.startswith("builder"):
        pytest.importorskip("builder.cli", exc_type=ImportError)
    program, *arguments = line.split() if line.startswith("builder") else ["eval_kit", *line.split()]
    done = command(program, *arguments, cwd=place)
    assert done.returncode == 2 and "already reads or writes this file; name another one to write" in done.stderr
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_what_is_no_input_may_be_replaced(place: Path) -> None:
    """A page in the folder of what it shows, a file beside the inputs, the same output as last time."""
    for name in ("board/index.html", "old.json"):
        (place / name).write_text("old")
    check_outputs({"submissions": Path("board"), "out": Path("board/index.html"), "release": "rel"})
    check_outputs({"runs": [Path("r.trec")], "json_file": Path("old.json"), "release": None})
    check_outputs({"runs": [Path("r.trec")], "json_file": Path("-"), "out": Path("new"), "seed": 0})
    with pytest.raises(UserError, match=r"^--per-query: name a file; only --json takes - for the screen$"):
        check_outputs({"runs": [Path("r.trec")], "per_query": Path("-")})
    with pytest.raises(UserError, match="already reads"):
        check_outputs({"vectors": "scores.json", "out": Path("./scores.json")})
