"""The Python API: every form of a run scores as its file does, and is refused as its file is."""

import json
import warnings

import numpy as np
import polars as pl
import pytest

import eval_kit
from eval_kit.errors import UserError
from eval_kit.protocols.scoring import StrangeRun

FORMS = {  # the others are in runs/test_forms.py
    "path": lambda path, frame: path,
    "text": lambda path, frame: str(path),
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


@pytest.fixture(scope="module")
def expected(run, published_release, tmp_path_factory, command):
    """The measures that the command gives."""
    out = tmp_path_factory.mktemp("scores") / "scores.json"
    command("eval_kit", "score", run, "--release", published_release.folder, "--json", out, status=0)
    return json.loads(out.read_text())["measures"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_run_scores_as_the_command_does(form, run, published_release, expected):
    scores = eval_kit.score({"tas-b.dl19": FORMS[form](run, lines(run))}, published_release)
    assert scores.as_json()["measures"] == expected
    assert scores.provenance["runs"][0]["file"] == (str(run) if form in ("path", "text") else "tas-b.dl19")
    table = scores.to_polars()
    assert table["value"].to_list() == [figure["value"] for figure in expected]
    assert pandas(table).astype(scores.to_pandas().dtypes).equals(scores.to_pandas())
    assert scores.per_query().height == sum(figure["queries"] for figure in expected)


def test_a_run_that_is_written_scores_as_it_did(run, published_release, tmp_path):
    scored = eval_kit.score(lines(run), published_release).to_polars()
    assert set(scored["run"]) == {"run"}, "its name, where it has none"
    gzipped, zstd = b"\x1f\x8b\x08\x00" + bytes(4), b"\x28\xb5\x2f\xfd"
    names = {"w.trec": b"", "w.trec.gz": gzipped, "W.TREC.GZ": gzipped, "w.trec.zst": zstd}
    for name, magic in names.items():
        eval_kit.write_run(lines(run), tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(magic)
        written = eval_kit.score(tmp_path / name, published_release).to_polars()
        assert written.drop("run").equals(scored.drop("run"))
    both = eval_kit.score([lines(run), run], published_release)
    assert {figure.run for figure in both.means} == {"run1", "tas-b.dl19"}


def test_measures_that_are_asked_for(run, published_release):
    frame = lines(run)
    names = ["P@5", "Judged@10"]
    scores = eval_kit.score(frame, published_release, measures=names).to_polars()
    assert scores["measure"].to_list() == names and scores["test_set"].unique().to_list() == ["dl19"]
    compared = eval_kit.compare({"a": frame, "b": frame}, published_release, measures=names).to_polars()
    assert compared.filter(pl.col("system") == "a")["value"].to_list() == pytest.approx(scores["value"].to_list())
    with pytest.raises(UserError, match=r"measure 'nDGC@10' \(did you mean nDCG@10\?"):
        eval_kit.score(frame, published_release, measures=["nDGC@10"])
    for strange in ([None], 5, [5], [[]], [""]):
        with pytest.raises(UserError, match=r"^measures takes names such as 'P@5'"):
            eval_kit.score(frame, published_release, measures=strange)
    ir_measures = pytest.importorskip("ir_measures")
    for same in ("P@5", ["P_5", "p@5"], [ir_measures.P @ 5], ir_measures.P @ 5):
        assert set(eval_kit.score(frame, published_release, measures=same).to_polars()["measure"]) == {"P@5"}
    chosen = eval_kit.score(frame, published_release, measures="map", test_sets=["dl19"])
    assert {(figure.measure, figure.test_set) for figure in chosen.means} == {("AP", "dl19")}
    with pytest.raises(UserError, match=r"test set 'dl18' \(did you mean dl\d+\?\)"):
        eval_kit.score(frame, published_release, test_sets="dl18")


def test_runs_that_are_hardly_meant_are_noticed(run, published_release, tmp_path):
    """Equal bytes under two names (unless untrained), a tag of another wording, no query of the set, nothing judged."""

    def copies(*names):
        paths = [tmp_path / f"{name}.trec" for name in names]
        for path in paths:
            path.write_bytes(run.read_bytes())
        return paths

    frame = lines(run)
    eval_kit.write_run(frame, tmp_path / "s.dl19.typo.3.trec")
    (tmp_path / "s.dl19.typo.5.trec").write_bytes((tmp_path / "s.dl19.typo.3.trec").read_bytes())
    strange = {
        "a is the same run, byte for byte, as b$": copies("a", "b"),
        "a is the same run, byte for byte, as b and 2 more": copies("a", "b", "c", "d"),
        r"are tagged s\.dl19\.typo\.3, another run's name": tmp_path / "s.dl19.typo.5.trec",
        "No passage of run is judged": frame.with_columns(passage_id="x" + pl.col("passage_id")),
    }
    for sentence, runs in strange.items():
        with pytest.warns(UserWarning, match=sentence):
            eval_kit.score(runs, published_release)
    with pytest.warns(UserWarning, match="no results for dl20"):
        eval_kit.score(frame, published_release, test_sets="dl20", allow_missing=True)
    untrained = copies("bm25.length.short", "bm25.length.long")
    for path in untrained:
        path.with_suffix(".training.json").write_text('{"training_data": []}')
    with warnings.catch_warnings():
        warnings.simplefilter("error", StrangeRun)
        eval_kit.score(untrained, published_release, test_sets="dl19")
        eval_kit.score([tmp_path / "s.dl19.typo.3.trec", run], published_release)


LISTS = {"query_id": ["q"], "passage_id": ["p"], "score": [1.0]}
STRANGE = [
    *({"q": {"p": score}} for score in (None, "0.5", "0.5 t\nq Q0 zz 0 9 t", True, 1j, object(), [1.0], 10**400)),
    *({"q": {"p": score}} for score in (float("nan"), float("-inf"), np.float64("inf"), np.bool_(True))),
    *({"q": {passage: 1.0}} for passage in ("", " ", "a ", " a", "a\tb", "a\n9 Q0 b 1 1 t", "a\r", "a\0", "\ufeffa")),
    *({"q": {passage: 1.0}} for passage in ("\ud800", "a" * 9_000, None, 1.5, (1,), b"a", True)),
    *({query: {"p": 1.0}} for query in ("", "q Q0 zz 1 5 t\nq2", "a ", "\ud800", None, 1.5, float("nan"))),
    *({1: {"a": 1.0}, "1": {"b": 1.0}}, {"a": {"q": {"p": 1.0}}, "b": {"q": 1.0}}),
    *({"q": ranked} for ranked in (1.0, ["p"], None)),
    *(None, 7, 1j, b"run.trec", {1, 2}, [1, 2], [None], {}, [], iter("ab"), "\0", "loop.trec", ".", "/dev/zero"),
    *({name: {"q": {"p": 1.0}}} for name in (1, None, "", ".", "..", "a/b", "a\nb", "\ud800", "a" * 300, "é" * 150)),
    *({"named": name} for name in ("loop.trec", "nowhere.trec", "\0")),
    *(pl.DataFrame(LISTS | {"score": [score]}) for score in (None, [1.0], True)),
    *(pl.DataFrame(LISTS | {"passage_id": [passage]}) for passage in (b"p", object())),
    pl.DataFrame(LISTS | {"query_id": [1.0]}),
    pl.DataFrame({"query_id": ["q", None], "passage_id": ["p", "p"], "score": [1.0, 2.0]}),
    pl.DataFrame({"query_id": ["q"]}).lazy(),
    pl.DataFrame(LISTS).clear(),
    pl.DataFrame({name: [value[0]] * 2 for name, value in LISTS.items()}),
]


@pytest.mark.parametrize("strange", STRANGE, ids=map(str, range(len(STRANGE))))
def test_what_is_no_run_is_refused_in_one_sentence_that_names_the_parameter(
    strange, published_release, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.trec").symlink_to("loop.trec")
    with pytest.raises(UserError) as refused:
        eval_kit.score(strange, published_release)
    assert "\n" not in str(refused.value) and "/tmp" not in str(refused.value)
    files = ("loop.trec", "nowhere.trec", "/dev/zero", ".:", "\0")
    assert any(name in str(refused.value) for name in ("runs", "run:2: passage p appears twice", "of run is", *files))
    if not isinstance(strange, dict) or "q" in strange:
        with pytest.raises(UserError):
            eval_kit.write_run(strange, tmp_path / "written.trec")
        assert not (tmp_path / "written.trec").exists()


def test_what_is_no_number_or_id_in_a_pandas_column(published_release):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"query_id": ["q", "q"], "passage_id": ["a", "b"], "score": [1.0, 2.0]})
    for strange in (
        {"score": pandas.array([1, None], dtype="Int64")},
        {"score": pandas.Series([1.0, None], dtype=object)},
        {"passage_id": pandas.Series([1.0, None])},
        {"score": [1j, 2j]},
        {"score": ["1", "2"]},
    ):
        with pytest.raises(UserError, match=r"^runs: .* run "):
            eval_kit.score(frame.assign(**strange), published_release)
    with pytest.raises(UserError, match="two columns called score"):
        eval_kit.score(pandas.concat([frame, frame[["score"]]], axis=1), published_release)


@pytest.mark.parametrize("first", [0, np.int64(0), np.int8(1), np.float32(0.5), np.longdouble(0), 2**70])
def test_no_score_decides_the_type_of_another(first, published_release, tmp_path):
    """The first score is nobody's: the others keep their order, digits and size."""
    queries = published_release.test_sets["dl19"].queries
    judged = published_release.qrels("dl19").filter(pl.col("relevance") == 3)
    best = dict(judged.select("query_id", "passage_id").iter_rows())
    others = {"zy": 0.5000000001, "zx": 300.25, "zw": -(2**70)}
    scores = {query: {"zz": first, **others, best.get(query, "none"): 0.5000000002} for query in queries}
    eval_kit.write_run(scores, tmp_path / "run.trec")
    written = lines(tmp_path / "run.trec").filter(pl.col("query_id") == queries[0])
    assert written["score"].to_list() == sorted(map(float, scores[queries[0]].values()), reverse=True)
    assert written["rank"].to_list() == [1, 2, 3, 4, 5]
    plain = {query: dict(zip(of, map(float, of.values()), strict=True)) for query, of in scores.items()}
    measured = [eval_kit.score(run, published_release).to_polars()["value"] for run in (scores, plain)]
    assert measured[0].equals(measured[1])


def test_a_written_run_has_ranks_and_its_name(run, published_release, tmp_path):
    frame = lines(run).sample(fraction=1, shuffle=True, seed=0)
    eval_kit.write_run(frame.with_columns(rank=pl.lit(0)), tmp_path / "my run.dl19.trec")
    assert {line.split(" ")[5] for line in (tmp_path / "my run.dl19.trec").open()} == {"my-run.dl19\n"}
    for _, ranking in lines(tmp_path / "my run.dl19.trec").group_by("query_id", maintain_order=True):
        assert ranking["rank"].to_list() == list(range(1, ranking.height + 1))
        order = ranking.select("score", "passage_id").rows()
        assert order == sorted(order, reverse=True)
    with pytest.raises(UserError, match="written"):
        eval_kit.write_run(frame, tmp_path / "no.trec.bz2")
    assert not list(tmp_path.glob("no.*"))


def test_the_runs_of_ranx(run, published_release):
    frame = lines(run)

    class Run:
        """As ``ranx.Run``, whose package needs numba."""

        def to_dict(self):
            found = {}
            for query, passage, score in frame.select("query_id", "passage_id", "score").iter_rows():
                found.setdefault(query, {})[passage] = score
            return found

    Run.__module__ = "ranx.data_structures.run"
    assert (
        eval_kit.score(Run(), published_release)
        .to_polars()
        .equals(eval_kit.score(frame, published_release).to_polars())
    )


def test_compare_and_similarity(run, published_release):
    other = run.with_name("bm25.dl19.trec")
    from_files = eval_kit.compare([run, other], published_release)
    memory = {"tas-b.dl19": lines(run), "bm25.dl19": lines(other)}
    from_memory = eval_kit.compare(memory, published_release)
    assert from_memory.to_polars().equals(from_files.to_polars())
    assert set(from_memory.per_query()["system"]) == {"tas-b.dl19", "bm25.dl19"}
    assert len(from_memory.to_pandas()) == from_memory.rows.height
    assert eval_kit.similarity(published_release).to_polars().height > 0


def test_the_name_of_a_shift_is_that_of_all_its_test_sets(mini_release):
    for shift, parts in {"topic": 5, "chameleons.pygmy": 5, "length": 2, "dl19": 1}.items():
        names = [name for name in mini_release.test_sets if f"{name}.".startswith(f"{shift}.")]
        queries = pl.concat([mini_release.queries(name) for name in names])["query_id"].unique()
        frame = pl.DataFrame({"query_id": queries, "passage_id": "p", "score": 1.0})
        scores = eval_kit.score(frame, mini_release, test_sets=[shift])
        assert list(dict.fromkeys(mean.test_set for mean in scores.means)) == names and len(names) == parts
    with pytest.raises(UserError, match=r"test set 'topi'"):
        eval_kit.score(frame, mini_release, test_sets=["topi"])
    with pytest.raises(UserError, match=r"topic is 5 test sets.*test_set.*topic\.c0"):
        eval_kit.generalise(frame, frame, mini_release, test_set="topic", trained_on=["a"])
