"""What people hold is read as they mean it: any form of a run scores as plain Python and pytrec_eval say."""

import bz2
import gzip
import json
import lzma
import os
import random
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eval_kit
from eval_kit.files.endings import run_name
from eval_kit.program import check_outputs
from eval_kit.runs import rows
from eval_kit.runs.folders import run_files
from eval_kit.runs.names import names_of

QUERIES = [f"q {n}" if n % 3 == 0 else f"q{n}" for n in range(8)]
PASSAGES = [f"Geneva Durben {n}" if n % 4 == 0 else f"p{n}" for n in range(12)]
QRELS = {q: {p: (i + j) % 3 for j, p in enumerate(PASSAGES) if (i * j) % 2 == 0} for i, q in enumerate(QUERIES)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder in BEIR's format, some of whose ids hold blanks."""
    root = tmp_path_factory.mktemp("forms") / "rel[12]"
    (root / "qrels").mkdir(parents=True)
    (root / "queries.jsonl").write_text("".join(json.dumps({"_id": q, "text": "t"}) + "\n" for q in QUERIES))
    lines = [f"{q}\t{p}\t{grade}.0\n" for q, of in QRELS.items() for p, grade in of.items()]
    (root / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return root


def expected(run: dict[str, dict[str, float]]) -> float:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    values = pytrec_eval.RelevanceEvaluator(QRELS, {"ndcg_cut_10"}).evaluate(run)
    return sum(one["ndcg_cut_10"] for one in values.values()) / len(QUERIES)


def measured(run, folder: Path) -> float:
    [value] = eval_kit.score(run, folder, ["nDCG@10"]).to_polars()["value"]
    return value


def drawn(seed: int) -> dict[str, dict[str, float]]:
    order = random.Random(seed)
    return {q: {p: order.randrange(1000) / 8 for p in order.sample(PASSAGES, 9)} for q in QUERIES}


@pytest.mark.parametrize(("query", "passage"), list(product(rows.QUERY, rows.PASSAGE)))
def test_columns_pair_as_any_tools_name_them(query, passage):
    frame = pl.DataFrame({query: ["q"], passage: ["p"], "score": [1.5], "rank": [float("nan")]})
    assert rows.lines("run", frame).rows() == [("q", "p", 1.5)]


def test_every_form_scores_alike(folder):
    run = drawn(1)
    triples = [(q, p, s) for q, of in run.items() for p, s in of.items()]
    frame = pl.DataFrame(triples, ["qid", "docid", "score"], orient="row")
    dictionaries = frame.rename({"qid": "query-id", "docid": "corpus-id"}).to_dicts()
    hits = {q: [SimpleNamespace(docid=p, score=s) for p, s in of.items()] for q, of in run.items()}
    forms = [
        run,
        frame,
        [frame],
        frame.to_dict(as_series=False),
        dictionaries,
        iter(dictionaries),
        {q: list(of.items()) for q, of in run.items()},
        hits,
        {q: [{"corpus_id": p, "score": s} for p, s in of.items()] for q, of in run.items()},
        {"mteb_model_meta": {"model_name": "m"}, "default": {"test": run}},
        {"name": dictionaries},
    ]
    for form in forms:
        assert measured(form, folder) == pytest.approx(expected(run), abs=1e-9)
    both = eval_kit.score([frame, frame.rename({"qid": "topic"})], folder, ["nDCG@10"]).to_polars()
    assert both["run"].to_list() == ["run1", "run2"] and both["value"].n_unique() == 1
    for strange in ({"q1": ["p1"]}, [("q1", "p1", 1.0)], {"q1": [("p1", 1.0, 2)]}):
        with pytest.raises(eval_kit.UserError):
            eval_kit.score(strange, folder)
    for release in ("", {}, [], 0, frame):
        with pytest.raises(eval_kit.UserError, match="release: expected a folder"):
            eval_kit.score(run, release)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    ranks=st.sampled_from(["-1", "1.0", "None", "n/a", "NaN", "0"]),
    tag=st.sampled_from(["t", "my bm25", "a b c 5"]),
    head=st.sampled_from(["", "# bm25 run\n", "# ir_metadata.start\n#   a: b\n# ir_metadata.end\n\n"]),
    tail=st.sampled_from(["", "\n", "\n \n"]),
    pack=st.sampled_from([bytes, gzip.compress, bz2.compress, lzma.compress]),
)
def test_what_decides_nothing_is_not_judged(folder, tmp_path_factory, seed, ranks, tag, head, tail, pack):
    run = drawn(seed)
    path = tmp_path_factory.mktemp("runs") / "run.txt"
    lines = [f"{q}\tE2\t{p}\t{ranks}\t{s}\t{tag}\n" for q, of in run.items() for p, s in of.items()]
    path.write_bytes(pack((head + "".join(lines) + tail).encode()))
    assert measured(path, folder) == pytest.approx(expected(run), abs=1e-9)
    assert run_files([path.parent]) == [path]


def test_pipes_and_parquet_are_runs(folder, tmp_path):
    run = drawn(2)
    frame = pl.DataFrame(
        [(q, p, s) for q, of in run.items() for p, s in of.items()], ["q_id", "doc_id", "score"], orient="row"
    )
    frame.write_parquet(tmp_path / "run.parq")
    assert measured(tmp_path / "run.parq", folder) == pytest.approx(expected(run), abs=1e-9)
    eval_kit.write_run(run, tmp_path / "run.trec")
    assert measured(tmp_path / "run.trec", folder) == pytest.approx(expected(run), abs=1e-9)
    reading, writing = os.pipe()
    os.write(writing, (tmp_path / "run.trec").read_bytes())
    os.close(writing)
    assert measured(f"/dev/fd/{reading}", folder) == pytest.approx(expected(run), abs=1e-9)


def test_a_run_by_blanks_that_cannot_hold_an_id_says_so(folder, tmp_path):
    (tmp_path / "run.trec").write_text("".join(f"q1 Q0 Geneva_Durben_{n} 1 {n} t\n" for n in range(3)))
    with pytest.warns(UserWarning, match="ids with blanks, such as 'Geneva Durben"):
        eval_kit.score(tmp_path / "run.trec", folder, allow_missing=True)
    (tmp_path / "run.trec").write_text("q1 Q0 Geneva Durben 0 1 2.5 t\n")
    with pytest.raises(eval_kit.UserError, match="ids with blanks need tabs"):
        eval_kit.score(tmp_path / "run.trec", folder)


paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(paths, st.sampled_from([".trec", ".trec.gz", ""])).map("".join), unique=True, max_size=8))
def test_no_two_runs_share_a_name(files):
    runs = [Path(file) for file in files]
    names = names_of(runs)
    assert list(names) == runs and len(set(names.values())) == len(runs)
    for run, name in names.items():
        alone = sum(run_name(other) == run_name(run) for other in runs) == 1
        assert name == (run_name(run) if alone else name)


def test_names_have_as_much_of_the_path_as_tells_them_apart():
    runs = list(map(Path, ("x/m1/run.trec", "x/m2/run.trec", "x/bm25.trec", "y/m2/run.trec.gz")))
    assert list(names_of(runs).values()) == ["m1/run", "x/m2/run", "bm25", "y/m2/run"]


def test_outputs_spare_what_is_read_beside_an_input(tmp_path):
    for name in ("r.trec.gz", "v.npy", "v.ids.txt"):
        (tmp_path / name).touch()
    for kept in ("r.training.json", "v.ids.txt", "r.npy"):
        with pytest.raises(eval_kit.UserError, match="name another one"):
            check_outputs(
                {"runs": [tmp_path / "r.trec.gz"], "vectors": str(tmp_path / "v.npy"), "page": tmp_path / kept}
            )
    check_outputs({"runs": [tmp_path / "r.trec.gz"], "json_file": tmp_path / "r.json"})
