"""Real passages and queries: 30,005 MS MARCO passages and the 97 judged queries of TREC DL 2019 and 2020."""

import json
import os
from pathlib import Path

import clients
import ir_measures
import polars as pl
import pytest

from eval_kit.files.formats import read_queries

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
