"""The Python API: every form of a run scores as its file does, and is refused as its file is."""

import json
import subprocess
import sys
import time

import polars as pl
import pytest

import eval_kit
from eval_kit.errors import UserError

FORMS = {
    "path": lambda path, frame: path,
    "text": lambda path, frame: str(path),
    "dictionary": lambda path, frame: {
        query: dict(group.select("passage_id", "score").iter_rows())
        for (query,), group in frame.group_by("query_id", maintain_order=True)
    },
    "polars": lambda path, frame: frame,
    "ir_measures": lambda path, frame: frame.rename({"passage_id": "doc_id"}),
    "TREC": lambda path, frame: frame.rename({"query_id": "query", "passage_id": "passage"}),
    "PyTerrier": lambda path, frame: pandas(
        frame.select(qid="query_id", query=pl.lit("a text"), docno="passage_id", score="score", rank="rank")
    ),
    "integer ids": lambda path, frame: frame.with_columns(pl.col("query_id", "passage_id").cast(pl.Int64)),
}


def pandas(frame):
    return pytest.importorskip("pandas").DataFrame(frame.to_dict(as_series=False))


def lines(path):
    columns = ("query_id", "q0", "passage_id", "rank", "score", "tag")
    return pl.read_csv(path, separator=" ", has_header=False, new_columns=columns, infer_schema=False).select(
        "query_id", "passage_id", pl.col("rank").cast(pl.Int64), pl.col("score").cast(pl.Float64)
    )


@pytest.fixture(scope="module")
def run(shared):
    return shared / "real-slice" / "runs" / "tas-b.dl19.trec"


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_run_scores_as_the_command_does(form, run, published_release, tmp_path, command):
    out = tmp_path / "scores.json"
    done = command("eval_kit", "score", run, "--release", published_release.folder, "--json", out)
    assert done.returncode == 0, done.stderr
    expected = json.loads(out.read_text())["measures"]
    scores = eval_kit.score({"tas-b.dl19": FORMS[form](run, lines(run))}, published_release)
    assert scores.as_json()["measures"] == expected
    assert scores.provenance["runs"][0]["file"] == (str(run) if form in ("path", "text") else "tas-b.dl19")
    table = scores.to_polars()
    assert table["value"].to_list() == [figure["value"] for figure in expected]
    assert pandas(table).equals(scores.to_pandas())
    assert scores.per_query().height == sum(figure["queries"] for figure in expected)


def test_an_unnamed_run_and_a_list(run, published_release):
    frame = lines(run)
    assert {figure.run for figure in eval_kit.score(frame, published_release).figures} == {"run"}
    assert {figure.run for figure in eval_kit.score([frame, run], published_release).figures} == {"run1", "tas-b.dl19"}


def test_a_run_that_is_written_scores_as_it_did(run, published_release, tmp_path):
    eval_kit.write_run(lines(run), tmp_path / "written.trec")
    written = eval_kit.score(tmp_path / "written.trec", published_release).to_polars()
    assert written.drop("run").equals(eval_kit.score(lines(run), published_release).to_polars().drop("run"))
    with pytest.raises(UserError, match="it is a int"):
        eval_kit.write_run(7, tmp_path / "written.trec")


def test_measures_that_are_asked_for(run, published_release):
    frame = lines(run)
    names = ["P@5", "Judged@10"]
    scores = eval_kit.score(frame, published_release, measures=names).to_polars()
    assert scores["measure"].to_list() == names and scores["test_set"].unique().to_list() == ["dl19"]
    compared = eval_kit.compare({"a": frame, "b": frame}, published_release, measures=names).to_polars()
    assert compared.filter(pl.col("system") == "a")["value"].to_list() == pytest.approx(scores["value"].to_list())
    with pytest.raises(UserError, match="unknown measure 'MRR@10'"):
        eval_kit.score(frame, published_release, measures=["MRR@10"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda frame: frame.with_columns(score=pl.lit(float("nan"))),
            "mine:1: the score 'NaN' is not a finite number",
        ),
        (lambda frame: frame.with_columns(query_id=pl.lit("no body")), "mine:1: 7 columns, expected 6"),
        (
            lambda frame: pl.concat([frame.head(1).with_columns(query_id=pl.lit("nobody")), frame]),
            "mine:1: query nobody is in no test set",
        ),
        (lambda frame: pl.concat([frame, frame.tail(1)]), "appears twice for query"),
        (lambda frame: frame.head(frame.height * 9 // 10), "of the 43 queries of dl19 are missing"),
        (lambda frame: frame.drop("score"), "mine: expected a path, {query: {passage: score}} or a dataframe"),
        (lambda frame: 7, "it is a int"),
        (lambda frame: frame.clear(), "mine:1: the file is empty"),
    ],
)
def test_what_a_file_may_not_hold_is_refused(change, message, run, published_release):
    with pytest.raises(UserError) as refused:
        eval_kit.score({"mine": change(lines(run))}, published_release)
    assert message in str(refused.value)
    assert "/tmp" not in str(refused.value)


def test_compare_and_similarity(shared, run, published_release):
    other = run.with_name("bm25.dl19.trec")
    from_files = eval_kit.compare([run, other], published_release)
    from_memory = eval_kit.compare({"tas-b.dl19": lines(run), "bm25.dl19": lines(other)}, published_release)
    assert from_memory.to_polars().equals(from_files.to_polars())
    assert set(from_memory.per_query()["system"]) == {"tas-b.dl19", "bm25.dl19"}
    assert len(from_memory.to_pandas()) == from_memory.rows.height
    assert eval_kit.similarity(published_release).to_polars().height > 0


def test_the_import_is_quick():
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import eval_kit, sys; assert 'polars' not in sys.modules"], check=True)
    assert time.monotonic() - begun < 2  # 0.1 s on an idle machine
    assert set(eval_kit.__all__) <= set(dir(eval_kit))
    assert callable(eval_kit.protocol)
    assert callable(eval_kit.report)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = eval_kit.nothing
