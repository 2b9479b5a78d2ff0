"""A folder of runs is its runs, on the command line and in Python."""

from pathlib import Path

import pytest

import eval_kit
from eval_kit.release import Release
from eval_kit.runs import folders
from eval_kit.runs.given import take
from eval_kit.runs.names import cell_of
from tests.eval_kit.plain_runs import plain_run


@pytest.fixture
def runs(mini_release: Release, tmp_path: Path) -> Path:
    """Two runs of dl19, one with its declaration, and what is no run."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in ("b.dl19.trec", "a.dl19.trec"):
        (folder / name).write_text(plain_run(mini_release, "dl19"))
    (folder / "a.dl19.training.json").write_text('{"training_data": []}')
    (folder / "notes.txt").write_text("not a run")
    return folder


@pytest.mark.parametrize("text", ["hi\n", "hello\tworld\n", "a b c d e\n", ""])
def test_a_text_beside_runs_is_left_out(text: str, runs: Path, mini_release: Release) -> None:
    (runs / "a.txt").write_text(text)
    with pytest.warns(UserWarning, match=r"left out a\.txt"):
        eval_kit.score(runs, mini_release)


def test_scores_are_those_of_its_files(runs: Path, mini_release: Release, command) -> None:
    files = [runs / "a.dl19.trec", runs / "b.dl19.trec"]
    named = eval_kit.score(files, mini_release).to_polars()
    for given in (runs, str(runs), [runs]):
        assert eval_kit.score(given, mini_release).to_polars().equals(named)
    outputs = [command("eval_kit", "score", *of, "--release", mini_release.folder) for of in ([runs], files)]
    of_folder, of_files = (done.stdout.splitlines()[:-1] for done in outputs)  # the last is the next command
    assert outputs[0].returncode == 0 and of_folder == of_files
    done = command("eval_kit", "score", runs, "--release", mini_release.folder, "--json", files[0], status=2)
    assert str(files[0]) in done.stderr


def test_files_that_may_be_runs_are_named(runs: Path, mini_release: Release) -> None:
    (runs / "notes.txt").rename(runs / "a.dl19.ids.txt")
    assert folders.run_files(runs) == [runs / "a.dl19.trec", runs / "b.dl19.trec"]
    (runs / "c.dl19.run.gz").touch()
    (runs / "d.tsv").touch()
    with pytest.warns(UserWarning, match=r"c\.dl19\.run\.gz and 1 more"):
        folders.run_files(runs)


def test_endings_may_be_in_capitals(runs: Path, mini_release: Release) -> None:
    (runs / "notes.txt").unlink()
    (runs / "b.dl19.trec").rename(runs / "B.DL19.TREC")
    assert set(eval_kit.score(runs, mini_release).to_polars()["run"]) == {"B.DL19", "a.dl19"}
    [[run]] = take(run="mine.topic.c0.TREC.Gz")
    assert run.cell == cell_of("mine.topic.c0")
