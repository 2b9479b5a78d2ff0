"""What people hold is read as they mean it: any form of a run scores as plain Python and pytrec_eval say."""

import bz2
import gzip
import lzma
import os
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import ir_measures
import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import eval_kit
from eval_kit.files.endings import run_name
from eval_kit.program import check_outputs
from eval_kit.runs import rows
from eval_kit.runs.folders import run_files
from eval_kit.runs.given import take
from tests.beir_folders import beir_folder

QUERIES = [f"q {n}" if n % 3 == 0 else f"q{n}" for n in range(8)]
PASSAGES = [f"Geneva Durben {n}" if n % 4 == 0 else f"p{n}" for n in range(12)]
QRELS = {q: {p: (i + j) % 3 for j, p in enumerate(PASSAGES) if (i * j) % 2 == 0} for i, q in enumerate(QUERIES)}
OTHERS = [f"other{n}" for n in range(3)]
Triples = list[tuple[str, str, float]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder in BEIR's format, some of whose ids hold blanks."""
    rows = [(query, passage, f"{grade}.0") for query, of in QRELS.items() for passage, grade in of.items()]
    return beir_folder(tmp_path_factory.mktemp("forms") / "rel[12]", [], dict.fromkeys(QUERIES, "t"), rows)


@st.composite
def runs(draw: st.DrawFn, queries: list[str] = QUERIES) -> Triples:
    """Lines of all queries, each query's together, with scores that are exact in 32 bits too, some of them tied."""
    triples: Triples = []
    for query in draw(st.permutations(queries)):
        passages = draw(st.lists(st.sampled_from(PASSAGES), min_size=1, max_size=9, unique=True))
        triples += [(query, passage, draw(st.integers(-40, 40)) / 8) for passage in passages]
    return triples


def expected(triples: Triples) -> dict[str, float]:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    run: dict[str, dict[str, float]] = {}
    for query, passage, score in triples:
        run.setdefault(query, {})[passage] = score
    values = pytrec_eval.RelevanceEvaluator(QRELS, {"ndcg_cut_10", "recip_rank"}).evaluate(run)
    sums = [sum(one[name] for one in values.values()) for name in ("ndcg_cut_10", "recip_rank")]
    return {"nDCG@10": sums[0] / len(QUERIES), "RR": sums[1] / len(QUERIES)}


def measured(run, folder: Path) -> dict[str, float]:
    table = eval_kit.score(run, folder, ["nDCG@10", "RR"]).to_polars()
    return dict(zip(table["measure"], table["value"], strict=True))


def close(values: dict[str, float]):
    return pytest.approx(values, abs=1e-9)


def skippable(data: bytes) -> bytes:
    return b"\x50\x2a\x4d\x18\x04\0\0\0seek" + zstandard.ZstdCompressor().compress(data)


PACKINGS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": skippable}


@settings(max_examples=30, deadline=None)
@given(
    triples=runs([*QUERIES, *OTHERS]),
    rank=st.sampled_from(["-1", "1.0", "None", "n/a", "NaN", "0", "99999999999999999999"]),
    tag=st.sampled_from(["t", "my bm25", "a b c 5", "#"]),
    head=st.sampled_from(["", "# bm25 run\n", "# ir_metadata.start\n#   a: b\n# ir_metadata.end\n\n"]),
    end=st.sampled_from(["\n", "\r\n"]),
    tail=st.sampled_from(["", "{}", "{} {}"]),
    packing=st.sampled_from(sorted(PACKINGS)),
    name=st.sampled_from(["run.bm25.txt", "x.res", "a.run", "b.trec", "c[1].tsv"]),
    through_a_pipe=st.booleans(),
)
def test_six_columns(folder, tmp_path_factory, triples, rank, tag, head, end, tail, packing, name, through_a_pipe):
    path = tmp_path_factory.mktemp("r[un]s") / f"{name}{packing}"
    lines = [f"{query}\tE2\t{passage}\t{rank}\t{score}\t{tag}" for query, passage, score in triples]
    text = head.replace("\n", end) + end.join([*lines, tail.format(end, end)])
    path.write_bytes(PACKINGS[packing](text.encode()))
    assert run_files(path.parent) == [path]
    if through_a_pipe:
        reading, writing = os.pipe()
        os.write(writing, path.read_bytes())
        os.close(writing)
        path = Path(f"/dev/fd/{reading}")
    assert measured(path, folder) == close(expected(triples))


@settings(max_examples=30, deadline=None)
@given(triples=runs(), by_tabs=st.booleans(), first=st.integers(0, 1), data=st.data())
def test_three_columns(folder, tmp_path_factory, triples, by_tabs, first, data):
    """As MS MARCO's script: a passage stands at the rank that the file says, and the last line of a rank counts."""
    path = tmp_path_factory.mktemp("runs") / "run.tsv"
    lines, places = [], {}
    for query in QUERIES:
        place = first
        for passage in [passage for other, passage, _ in triples if other == query]:
            lines.append((query, passage, place))
            places[query, place] = passage
            place += data.draw(st.integers(0 if place > first else 1, 6))
    if by_tabs:
        path.write_text("".join(f"{query}\t{passage}\t{place}\n" for query, passage, place in lines))
    else:
        path.write_text("".join(f"{'_'.join(q.split())} {'_'.join(p.split())} {place}\n" for q, p, place in lines))
    reciprocal = dict.fromkeys(QUERIES, 0.0)
    for (query, place), passage in places.items():
        found = QRELS[query].get(passage, 0) > 0 and (by_tabs or " " not in passage)
        if found and (by_tabs or " " not in query):
            reciprocal[query] = max(reciprocal[query], 1 / (place + 1 - first))
    scores = eval_kit.score(path, folder, ["RR"], allow_missing=True).to_polars()
    assert scores["value"].to_list() == close([sum(reciprocal.values()) / len(QUERIES)])


def frame_of(triples: Triples, query: str, passage: str) -> pl.DataFrame:
    return pl.DataFrame(triples, [query, passage, "score"], orient="row")


def by_query(triples: Triples) -> dict[str, list[tuple[str, float]]]:
    found: dict[str, list[tuple[str, float]]] = {}
    for query, passage, score in triples:
        found.setdefault(query, []).append((passage, score))
    return found


FRAMES = {
    "polars": lambda frame: frame,
    "lazy": pl.DataFrame.lazy,
    "pandas": pl.DataFrame.to_pandas,
    "categories": lambda frame: frame.cast(dict.fromkeys(frame.columns[:2], pl.Categorical)).to_pandas(),
    "Arrow": pl.DataFrame.to_arrow,
    "columns": lambda frame: frame.to_dict(as_series=False),
    "columns of arrays": lambda frame: {name: frame[name].to_numpy() for name in frame.columns},
    "rows": pl.DataFrame.to_dicts,
    "a generator of rows": lambda frame: iter(frame.to_dicts()),
    "objects": lambda frame: [SimpleNamespace(query_id=q, docno=p, score=s) for q, p, s, *_ in frame.iter_rows()],
    "with ranks that say nothing": lambda frame: frame.with_columns(rank=float("nan")).to_pandas(),
}
BY_QUERY = {
    "dictionaries": lambda found: {query: dict(pairs) for query, pairs in found.items()},
    "pairs": lambda found: found,
    "hits": lambda found: {q: [SimpleNamespace(docid=p, score=s) for p, s in of] for q, of in found.items()},
    "rows of each": lambda found: {q: [{"qid": q, "docno": p, "score": s} for p, s in of] for q, of in found.items()},
    "dictionaries of hits": lambda found: {q: [{"corpus_id": p, "score": s} for p, s in of] for q, of in found.items()},
}
LISTS = {"alone": lambda run: run, "in a list": lambda run: [run], "named": lambda run: {"mine": run}}


@settings(max_examples=50, deadline=None)
@given(
    triples=runs([*QUERIES, *OTHERS]),
    query=st.sampled_from(rows.QUERY),
    passage=st.sampled_from(rows.PASSAGE),
    form=st.sampled_from([*FRAMES, *BY_QUERY]),
    how=st.sampled_from(sorted(LISTS)),
)
def test_what_python_holds(folder, triples, query, passage, form, how):
    run = FRAMES[form](frame_of(triples, query, passage)) if form in FRAMES else BY_QUERY[form](by_query(triples))
    assert measured(LISTS[how](run), folder) == close(expected(triples))


@settings(max_examples=10, deadline=None)
@given(one=runs(), other=runs())
def test_several_runs_keep_their_own_figures(folder, tmp_path_factory, one, other):
    root = tmp_path_factory.mktemp("systems")
    frames = [frame_of(one, "qid", "docno"), frame_of(other, "topic", "pid").to_pandas()]
    values = eval_kit.score(frames, folder, ["RR"]).to_polars().rows_by_key("run", named=True)
    assert [values[name][0]["value"] for name in ("run1", "run2")] == close(
        [expected(triples)["RR"] for triples in (one, other)]
    )
    files = []
    for system, frame in zip("ab", frames, strict=True):
        (root / system).mkdir()
        files.append(root / system / "bm25.trec")
        eval_kit.write_run(frame, files[-1])
    frames[0].rename({"qid": "q_id", "docno": "doc_id"}).write_parquet(root / "run.parq")
    scores = eval_kit.score([*files, root / "run.parq"], folder, ["RR"]).to_polars().rows_by_key("run", named=True)
    of_files = [scores[name][0]["value"] for name in ("a/bm25", "b/bm25", "run")]
    assert of_files == close([values["run1"][0]["value"], values["run2"][0]["value"], values["run1"][0]["value"]])


def test_lines_of_ir_measures_predictions_of_mteb_and_what_is_no_run(folder):
    run = {query: dict.fromkeys(PASSAGES[:3], 1.0) for query in QUERIES}
    triples = [(query, passage, 1.0) for query, passage in product(QUERIES, PASSAGES[:3])]
    of_ir_measures = [ir_measures.ScoredDoc(*row) for row in triples]
    assert measured(iter(of_ir_measures), folder) == close(expected(triples))
    predictions = {"mteb_model_meta": {"model_name": "m"}, "default": {"test": run}}
    assert measured(predictions, folder) == close(expected(triples))
    for strange in ({"q1": ["p1"]}, [("q1", "p1", 1.0)], {"q1": [("p1", 1.0, 2)]}):
        with pytest.raises(eval_kit.UserError):
            eval_kit.score(strange, folder)
    for release in ("", {}, [], 0, frame_of(triples, "qid", "docno")):
        with pytest.raises(eval_kit.UserError, match="release"):
            eval_kit.score(run, release)


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize(
    "header",
    [
        "query,doc,score",
        "run,query,doc,rank,score",
        "score,Topic,docno",
        "Query ID,Document ID,Score",
        "qid,text,pid,score",
    ],
)
def test_names_of_columns_are_those_that_engines_write(folder, tmp_path, header, separator):
    triples = [(query, passage, 9.5 - at) for query in QUERIES for at, passage in enumerate(PASSAGES[2:6])]
    of_column = {"query": 0, "Topic": 0, "qid": 0, "doc": 1, "docno": 1, "pid": 1, "score": 2}
    of_column |= {"Query ID": 0, "Document ID": 1, "Score": 2}
    rows = [[str(row[of_column[name]]) if name in of_column else "7" for name in header.split(",")] for row in triples]
    path = tmp_path / f"s.topic.c0.{'csv' if separator == ',' else 'tsv'}"
    path.write_text("".join(f"{separator.join(row)}\n" for row in [header.split(","), *rows]))
    assert measured(path, folder) == close(expected(triples))
    [[run]] = take(runs=tmp_path)
    assert run.cell is not None and run.cell.held_out == "c0"


@pytest.mark.parametrize("header", ["query-id,corpus-id,score", "query_id,0,doc,grade", "qid,doc,relevance"])
def test_judgements_in_the_place_of_a_run_are_told_apart(folder, tmp_path, header):
    path = tmp_path / "test.tsv"
    rows = [header, *("q1,p1,1" if header.count(",") == 2 else "q1,0,p1,1" for _ in range(3))]
    path.write_text("".join(f"{row}\n" for row in rows).replace(",", "\t"))
    with pytest.raises(eval_kit.UserError, match="judgements, which qrels takes"):
        eval_kit.score(path, folder)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_a_table_of_several_runs_is_none(folder, tmp_path, ending):
    rows = [(run, query, f"{run}p1", 1.5) for run, query in product(("a", "b"), QUERIES)]
    frame, path = pl.DataFrame(rows, ["system", "qid", "docno", "score"], orient="row"), tmp_path / f"run.{ending}"
    writers = {"jsonl": frame.write_ndjson, "parquet": frame.write_parquet}
    writers.get(ending, lambda at: frame.write_csv(at, separator="," if ending == "csv" else "\t"))(path)
    with pytest.raises(eval_kit.UserError, match="several runs: a, b"):
        eval_kit.score(path, folder)


@pytest.mark.parametrize("inner", [packing for packing in PACKINGS if packing])
def test_what_is_packed_twice_says_so(folder, tmp_path, inner):
    path = tmp_path / f"run.trec{inner}.gz"
    path.write_bytes(gzip.compress(PACKINGS[inner](b"q1 Q0 p1 1 1.5 t\n")))
    with pytest.raises(eval_kit.UserError, match="packed twice"):
        eval_kit.score(path, folder)


def test_a_table_without_scores_says_which_columns_it_has(folder, tmp_path):
    path = tmp_path / "run.csv"
    for text, message in (
        ("query,doc,sim\nq1,p1,1.5\n", "columns are query, doc, sim"),
        ("q,d,s\nq1,p1,1.5\n", "header names"),
    ):
        path.write_text(text)
        with pytest.raises(eval_kit.UserError, match=message):
            eval_kit.score(path, folder)


def test_a_run_by_blanks_that_cannot_hold_an_id_says_so(folder, tmp_path):
    (tmp_path / "run.trec").write_text("".join(f"q1 Q0 Geneva_Durben_{n} 1 {n} t\n" for n in range(3)))
    with pytest.warns(UserWarning, match="ids with blanks, such as 'Geneva Durben"):
        eval_kit.score(tmp_path / "run.trec", folder, allow_missing=True)
    (tmp_path / "run.trec").write_text("q1 Q0 Geneva Durben 0 1 2.5 t\n")
    with pytest.raises(eval_kit.UserError, match="with blanks need tabs"):
        eval_kit.score(tmp_path / "run.trec", folder)


paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(paths, st.sampled_from([".trec", ".trec.gz", ""])).map("".join), unique=True, max_size=8))
def test_no_two_runs_share_a_name(files):
    [runs] = take(runs=files)
    names = {run.path: run.name for run in runs}
    assert list(names) == list(map(Path, files)) and len(set(names.values())) == len(runs)
    for run, name in names.items():
        alone = sum(run_name(other) == run_name(run) for other in names) == 1
        assert name == (run_name(run) if alone else name)


def test_names_have_as_much_of_the_path_as_tells_them_apart():
    [runs] = take(runs=["x/m1/run.trec", "x/m2/run.trec", "x/bm25.trec", "y/m2/run.trec.gz"])
    assert [run.name for run in runs] == ["m1/run", "x/m2/run", "bm25", "y/m2/run"]


def test_outputs_spare_what_is_read_beside_an_input(tmp_path):
    for name in ("r.trec.gz", "v.npy", "v.ids.txt"):
        (tmp_path / name).touch()
    for kept in ("r.training.json", "v.ids.txt", "r.npy"):
        with pytest.raises(eval_kit.UserError, match="another"):
            check_outputs(
                {"runs": [tmp_path / "r.trec.gz"], "vectors": str(tmp_path / "v.npy"), "page": tmp_path / kept}
            )
    check_outputs({"runs": [tmp_path / "r.trec.gz"], "json_file": tmp_path / "r.json"})
