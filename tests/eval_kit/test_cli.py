"""The commands about other people's results, as they are typed."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from eval_kit import __version__
from eval_kit.release import Release
from tests.eval_kit.submissions import submit


@pytest.fixture(scope="module")
def submissions(mini_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two submissions on dl19: one finds a relevant passage first, the other second; the second has an odd name."""
    folder = tmp_path_factory.mktemp("submissions")
    judged = mini_release.qrels("dl19").filter(pl.col("relevance") >= 2)
    relevant = dict(judged.group_by("query_id").agg(pl.col("passage_id").min()).iter_rows())
    for system, place in (("first", 1), ("<b>second</b> & co", 2)):
        lines = []
        for query in mini_release.test_sets["dl19"].queries:
            ranked = [relevant[query] if rank == place else f"x{rank}" for rank in (1, 2, 3)]
            lines += [f"{query} Q0 {passage} {rank} {9 - rank} t\n" for rank, passage in enumerate(ranked, 1)]
        (folder / f"s{place}").mkdir()
        (folder / f"s{place}" / "run.dl19.trec").write_text("".join(lines))
        submit(mini_release, folder / f"s{place}", ["run.dl19.trec"], system, training_data=["none"])
    return folder


def test_the_version(command):
    for module in ("eval_kit", "eval_kit.cli"):
        assert command(module, "--version").stdout == f"eval_kit {__version__}\n"


def test_check(submissions, mini_release, command, tmp_path):
    where = ("--release", mini_release.folder)
    done = command("eval_kit", "compare", submissions / "s1", "--check", *where)
    assert (done.returncode, done.stdout) == (0, f"{submissions / 's1'}: 0 faults\n")
    (tmp_path / "submission.json").write_text('{"system": "x", "runs": [{"file": "../../secret"}]}')
    done = command("eval_kit", "compare", tmp_path, submissions / "s1", "--check", *where, "--json", "-")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    faults = [row["fault"] for row in document["rows"] if row["submission"] == str(tmp_path)]
    assert len(faults) == len(document["rows"])
    assert document["notes"] == [f"{tmp_path}: {len(faults)} faults", f"{submissions / 's1'}: 0 faults"]
    assert len(faults) > 3
    assert any("$.runs[0].file" in one for one in faults)
    assert "Traceback" not in done.stderr


def test_compare(submissions, mini_release, command, tmp_path):
    both = (submissions / "s1", submissions / "s2", "--release", mini_release.folder.resolve())
    done = command("eval_kit", "compare", *both, "--json", tmp_path / "c.json")
    assert done.returncode == 0, done.stderr
    assert "<b>second</b> & co" in done.stdout
    assert json.loads((tmp_path / "c.json").read_text())
    assert r"\&" in command("eval_kit", "compare", *both, "--format", "latex").stdout
    rows = pl.read_csv(command("eval_kit", "compare", *both, "--format", "csv").stdout.encode(), infer_schema=False)
    assert rows.height > 0
    for name in ("a.trec", "b.trec"):
        shutil.copy(submissions / "s1" / "run.dl19.trec", tmp_path / name)
    done = command("eval_kit", "compare", "a.trec", "b.trec", *both[2:], cwd=tmp_path)
    assert done.returncode == 0 and done.stderr.count("byte for byte") == 1, done.stderr


def test_leaderboard(submissions, mini_release, command, tmp_path):
    out = tmp_path / "board.html"
    done = command("eval_kit", "leaderboard", submissions, "--release", mini_release.folder, "--page", out)
    assert (done.returncode, done.stdout) == (0, f"{out}\n"), done.stderr
    page = out.read_text()
    assert "&lt;b&gt;second&lt;/b&gt; &amp; co" in page
    assert "<b>second</b>" not in page
    assert "monobert" not in page  # the papers' figures are of MS MARCO
    assert page.count("Training data: none.") == 10  # two systems, five measures: told apart by two of them
    assert [page.count(f'">{rank}</td>') for rank in ("1", "2", "1–2")] == [2, 2, 6]
    done = command("eval_kit", "leaderboard", tmp_path, "--release", mini_release.folder)
    assert done.returncode == 2
    assert "holds no submission" in done.stderr


def test_a_faulty_submission_does_not_stop_the_leaderboard(submissions, mini_release, command, tmp_path):
    board, out, where = tmp_path / "all", tmp_path / "board.html", ("--release", mini_release.folder)
    for name in ("s1", "faulty", "twice"):
        shutil.copytree(submissions / "s1", board / name)
    (board / "faulty" / "run.dl19.trec").write_text("q Q0 p 1 nan t\n")
    shutil.copy(board / "twice" / "run.dl19.trec", board / "twice" / "again.dl19.trec")
    submit(mini_release, board / "twice", ["run.dl19.trec", "again.dl19.trec"])
    (board / "nothing").mkdir()
    done = command("eval_kit", "leaderboard", board, *where, "--page", out)
    assert (done.returncode, done.stdout) == (0, f"{out}\n"), done.stderr
    assert "left out the submission faulty: run.dl19.trec:1: " in done.stderr
    assert "'nan' is not a finite number" in done.stderr
    assert "the submission twice: run.dl19 and again.dl19 are both runs of dl19; submit one, or a grid" in done.stderr
    assert "all/nothing: is not a submission: there is no submission.json" in done.stderr
    assert {name for name in ("s1", "faulty", "twice") if f'"source">{name}' in out.read_text()} == {"s1"}
    checked = command("eval_kit", "compare", board / "twice", "--check", *where)
    assert checked.returncode == 2
    assert "run.dl19.trec and again.dl19.trec are both runs of dl19" in checked.stderr + checked.stdout
    for name in ("s1", "twice", "nothing"):
        shutil.rmtree(board / name)
    done = command("eval_kit", "leaderboard", board, *where, "--page", out)
    assert done.returncode == 2 and "holds no submission without a fault" in done.stderr


def test_beir_and_align(mini_release, submissions, command, tmp_path):
    dataset = tmp_path / "toy"
    (dataset / "qrels").mkdir(parents=True)
    (dataset / "queries.jsonl").write_text('{"_id": "q1", "text": "a"}\n')
    (dataset / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    run = tmp_path / "toy.trec"
    run.write_text("q1 Q0 d2 1 2.0 t\nq1 Q0 d1 2 1.0 t\n")
    done = command("eval_kit", "score", run, "--dataset", dataset)
    assert done.returncode == 0, done.stderr
    assert "0.631" in done.stdout  # 1 / log2(3)
    refused = command("eval_kit", "score", run, "--dataset", dataset, "--measure", "P@5")
    assert refused.returncode == 2 and "--measure: datasets of BEIR are scored by its own measures" in refused.stderr
    table = tmp_path / "models.csv"
    rows = [f"m{i},{how},{i / 10},{i / 7}" for how in ("interpolation", "extrapolation") for i in range(1, 6)]
    table.write_text("system,training,score,nq\n" + "\n".join(rows) + "\n")
    done = command("eval_kit", "align", table, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert "spearman" in done.stdout.lower()
