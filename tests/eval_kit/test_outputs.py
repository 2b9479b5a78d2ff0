"""No command writes over what it reads, whatever its arguments are."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_kit import cli
from eval_kit.errors import UserError
from eval_kit.program import check_outputs
from eval_kit.release import Release

RUN = "r.trec"
CASES = [
    "compare r.trec b.trec --json r.trec",
    "score r.trec --by length --json r.trec",
    "similarity r.trec --json r.trec",
    "score r.trec --dataset d --json r.trec",
    "score r.trec --dataset d --json d/qrels/test.tsv",
    "score r.trec --json rel/manifest.json",
    "score r.trec --per-query rel/data/qrels/dev-00000-of-00001.parquet",
    "score r.trec --per-query link.trec",
    "score r.trec --json x.json --per-query x.json",
    "protocol r.trec --page rel/README.md",
    "similarity --json rel/manifest.json",
    "builder fidelity rel --against rel --json rel/manifest.json",
    "builder export rel --out rel",
]


@pytest.fixture(scope="module")
def place(mini_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder to work in; no command may change what lies in it."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(mini_release.folder, folder / "rel")
    dataset = ("d/corpus.jsonl", "d/queries.jsonl", "d/qrels/test.tsv")
    for name in ("r.trec", "b.trec", "scores.csv", "old.json", *dataset):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("precious")
    (folder / "link.trec").symlink_to("r.trec")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MS_MARCO_SHIFT_RELEASE", "rel")
        yield folder
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("line", CASES)
def test_an_output_is_no_input(line: str, place: Path, monkeypatch, capsys) -> None:
    main = cli.main
    if line.startswith("builder"):
        main = pytest.importorskip("builder.cli", exc_type=ImportError).main
    monkeypatch.setattr(sys, "argv", line.split() if line.startswith("builder") else ["eval_kit", *line.split()])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "already reads or writes" in capsys.readouterr().err


def test_a_page_is_html(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["eval_kit", "score", "r.trec", "--page", "x.pdf"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert "x.html" in capsys.readouterr().err and not Path("x.pdf").exists()
    with pytest.raises(UserError, match=r"scores\.html"):
        check_outputs({"page": Path("scores.pdf")})


@pytest.mark.parametrize("name", ["rel/new.json", "rel/data/new.html", "rel/data/topic/x.json"])
def test_nothing_is_written_into_a_release(place: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"is in the release .*/rel"):
        check_outputs({"runs": [Path("r.trec")], "json_file": Path(name)})


def test_what_is_no_input_may_be_replaced(place: Path) -> None:
    """A file beside the inputs, the same output as last time."""
    check_outputs({"runs": [Path("r.trec")], "json_file": Path("old.json"), "release": None})
    check_outputs({"runs": [Path("r.trec")], "json_file": Path("-"), "out": Path("new"), "seed": 0})
    with pytest.raises(UserError, match=r"^--per-query needs the name of a file"):
        check_outputs({"runs": [Path("r.trec")], "per_query": Path("-")})
    with pytest.raises(UserError, match="already reads"):
        check_outputs({"vectors": "scores.csv", "out": Path("./scores.csv")})
