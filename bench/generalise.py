"""``python -m bench.generalise SQUAD``: does ``eval_kit generalise`` find what is known to be there?

Eight static bi-encoders (a learnt vector and weight a word, summed) are trained on SQuAD from
scratch, each without half of 64 clusters of articles (rows of a Hadamard matrix) and without a
quarter of the other queries by id. So every query is searched by models that saw its cluster but
not the query, and by models that saw neither: the true loss of each model on each cluster is known.
About five minutes on two idle cores; a stopped run resumes. Figures go to
``bench/results/generalise.json``.
"""

import argparse
import json
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from builder.sources import beir
from eval_kit.search import bm25
from eval_kit.stats import parts

MODELS, CLUSTERS, SHARE, DIMENSIONS, BATCH, EPOCHS = 8, 64, 4, 128, 512, 2
LONGEST, DEPTH, CUTOFF = 120, 100, 10
DRAWS, LOSS = 1_000, 0.13
RESULTS = Path(__file__).parent / "results" / "generalise.json"
WORD = re.compile(r"\w+")

type Floats = NDArray[np.float64]


def main() -> None:
    """Train, search, estimate, and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("squad", type=Path, help="SQuAD in BEIR's format, with articles as titles")
    arguments.add_argument("--folder", type=Path, default=Path("build/generalise"), help="for what is kept")
    given = arguments.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    data = Data(given.squad)
    values = np.array([trained(data, model, given.folder) for model in range(MODELS)])
    pivots = {"BM25": by_bm25(data, given.folder), "LSA": by_lsa(data, given.folder)}
    figures = {name: estimated(data, values, chosen, kind) for name, kind, chosen in designs(pivots)}
    figures |= {f"a loss of {LOSS}": thinned(data, values, pivots["BM25"])}
    figures |= {"shuffled": shuffled(data, values, pivots["BM25"])}
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    for name, row in figures.items():
        print(f"{name:26s}", "  ".join(f"{key} {value:.4f}" for key, value in row.items()))


class Data:
    """SQuAD's texts as words, each query's passage and cluster, and who may train on what."""

    def __init__(self, folder: Path) -> None:
        from scipy.linalg import hadamard

        collection = beir.collection(folder)
        assert collection.passages is not None
        self.passages = dict(collection.passages.iter_rows())
        numbers = {passage: number for number, passage in enumerate(self.passages)}
        queries = pl.concat(collection.judged.values())
        judged = pl.concat(collection.qrels.values()).filter(pl.col("score") > 0)
        relevant = dict(judged.select("query-id", "corpus-id").iter_rows())
        self.ids, self.texts = queries["query_id"].to_list(), queries["text"].to_list()
        self.relevant = np.array([numbers[relevant[query]] for query in self.ids])
        with (folder / "corpus.jsonl").open() as file:
            titles = {row["_id"]: row["title"] for row in map(json.loads, file)}
        self.cluster = _clusters(self.passages, titles)[self.relevant]
        self.share = np.array([zlib.crc32(query.encode()) % SHARE for query in self.ids])
        order = np.random.default_rng(0).permutation(CLUSTERS)
        saw = hadamard(CLUSTERS)[1 : MODELS + 1][:, order] > 0
        self.saw = saw[:, self.cluster]
        self.words = np.log1p([len(text.split()) for text in self.texts])

    def unseen(self, model: int) -> NDArray[np.bool_]:
        """The queries that a model may be tested on: it never saw the query, or not even its cluster."""
        return np.asarray(~self.saw[model] | (self.share == model % SHARE))


def _clusters(passages: dict[str, str], titles: dict[str, str]) -> NDArray[np.int64]:
    """The cluster of each passage: of its article, by k-means on LSA of the articles' texts."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    articles: dict[str, list[str]] = {}
    for passage, text in passages.items():
        articles.setdefault(titles[passage], []).append(text)
    counts = TfidfVectorizer(max_df=0.2, min_df=3, sublinear_tf=True)
    weights = counts.fit_transform(" ".join(texts) for texts in articles.values())
    vectors = normalize(TruncatedSVD(64, random_state=0).fit_transform(weights))
    labels = KMeans(CLUSTERS, n_init=2, random_state=0).fit_predict(vectors)
    by_title = dict(zip(articles, labels, strict=True))
    return np.array([by_title[titles[passage]] for passage in passages], np.int64)


def trained(data: Data, model: int, folder: Path) -> Floats:
    """RR@10 of every query, (queries,), by the model that is trained without its held-out clusters."""
    import torch
    from torch.nn.functional import cross_entropy, normalize

    path = folder / f"model{model}.npy"
    if path.exists():
        return np.load(path).astype(np.float64)
    passages = [WORD.findall(text.lower()) for text in data.passages.values()]
    queries = [WORD.findall(text.lower()) for text in data.texts]
    counts = Counter(word for words in passages + queries for word in words)
    vocabulary = {word: row for row, word in enumerate((w for w, n in counts.items() if n > 1), 1)}
    documents = Counter(word for words in passages for word in set(words))
    torch.manual_seed(model)
    vectors = torch.nn.EmbeddingBag(len(vocabulary) + 1, DIMENSIONS, mode="sum", sparse=True)
    torch.nn.init.normal_(vectors.weight, 0, DIMENSIONS**-0.5)
    weights = torch.nn.Embedding(len(vocabulary) + 1, 1, sparse=True)
    rare = [np.log(1 + len(passages) / (1 + documents[word])) for word in vocabulary]
    weights.weight.data[:, 0] = torch.tensor([0.0, *rare])

    def encoded(texts: list[list[str]]) -> Any:
        rows = [[vocabulary[w] for w in words if w in vocabulary][:LONGEST] or [0] for words in texts]
        starts = torch.tensor([0, *np.cumsum([len(row) for row in rows[:-1]])])
        flat = torch.tensor(np.concatenate(rows))
        return normalize(vectors(flat, starts, per_sample_weights=weights(flat)[:, 0]), dim=1)

    optimiser = torch.optim.SparseAdam([*vectors.parameters(), *weights.parameters()], 4e-3)
    training = np.flatnonzero(data.saw[model] & (data.share != model % SHARE))
    random = np.random.default_rng(model)
    for _ in range(EPOCHS):
        order = random.permutation(training)
        for start in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            relevant = data.relevant[batch]
            scores = 20 * encoded([queries[row] for row in batch]) @ encoded([passages[row] for row in relevant]).T
            same = torch.tensor(relevant[:, None] == relevant) & ~torch.eye(BATCH, dtype=torch.bool)
            loss = cross_entropy(scores.masked_fill(same, -1e9), torch.arange(BATCH))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    ranks = []
    with torch.no_grad():
        index = encoded(passages)
        for start in range(0, len(queries), 4 * BATCH):
            scores = encoded(queries[start : start + 4 * BATCH]) @ index.T
            relevant = torch.tensor(data.relevant[start : start + 4 * BATCH])
            ranks.append((scores > scores.gather(1, relevant[:, None])).sum(1).numpy() + 1)
    np.save(path, reciprocal(np.concatenate(ranks)))
    return np.load(path).astype(np.float64)


def by_bm25(data: Data, folder: Path) -> pl.DataFrame:
    """What BM25 (k1 0.9, b 0.4) makes of each query: ``value``, ``hit``, ``rank``, ``top``, ``step``."""
    path = folder / "bm25.parquet"
    if not path.exists():
        bm25.index_once(data.passages.items(), folder / "lucene")
        names, rows = list(data.passages), []
        searched = bm25.search(zip(data.ids, data.texts, strict=True), bm25.index_in(folder / "lucene"), DEPTH)
        for relevant, (_, hits) in zip(data.relevant, searched, strict=True):
            passages, scores = [passage for passage, _ in hits], [score for _, score in hits]
            rank = passages.index(names[relevant]) + 1 if names[relevant] in passages else 0
            top, step = (scores[0], scores[0] - scores[1]) if len(scores) > 1 else (0.0, 0.0)
            rows.append((rank, top, step))
        pl.DataFrame(rows, ["rank", "top", "step"], orient="row").write_parquet(path)
    kept = pl.read_parquet(path)
    return _features(kept["rank"].to_numpy(), kept["top"].to_numpy(), kept["step"].to_numpy())


def by_lsa(data: Data, folder: Path) -> pl.DataFrame:
    """The same of an untrained dense pivot: LSA of the passages in 256 dimensions."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    path = folder / "lsa.parquet"
    if not path.exists():
        counts = TfidfVectorizer(max_df=0.2, min_df=2, sublinear_tf=True)
        svd = TruncatedSVD(256, random_state=0, n_iter=3)
        index = normalize(svd.fit_transform(counts.fit_transform(data.passages.values()))).astype(np.float32)
        vectors = normalize(svd.transform(counts.transform(data.texts))).astype(np.float32)
        rows = []
        for start in range(0, len(vectors), 4 * BATCH):
            scores = vectors[start : start + 4 * BATCH] @ index.T
            relevant = data.relevant[start : start + 4 * BATCH]
            best = np.partition(scores, -2, axis=1)[:, -2:]
            rank = (scores > scores[np.arange(len(scores)), relevant][:, None]).sum(axis=1) + 1
            rows.append(np.column_stack([rank, best[:, 1], best[:, 1] - best[:, 0]]))
        pl.DataFrame(np.concatenate(rows), ["rank", "top", "step"]).write_parquet(path)
    kept = pl.read_parquet(path)
    rank = np.where(kept["rank"] <= DEPTH, kept["rank"], 0)
    return _features(rank, kept["top"].to_numpy(), kept["step"].to_numpy())


def _features(rank: NDArray[Any], top: Floats, step: Floats) -> pl.DataFrame:
    hit = rank > 0
    by_rank = np.where(hit, 1 / (1 + np.log(np.maximum(rank, 1))), 0.0)
    columns = {"value": reciprocal(rank), "hit": hit.astype(float), "rank": by_rank}
    return pl.DataFrame(columns | {"top": np.arcsinh(top), "step": np.arcsinh(step)})


def reciprocal(rank: NDArray[Any]) -> Floats:
    """RR@10 of ranks, 0 being none."""
    return np.where((rank > 0) & (rank <= CUTOFF), 1 / np.maximum(rank, 1), 0.0)


def designs(pivots: dict[str, pl.DataFrame]) -> list[tuple[str, str, list[pl.DataFrame]]]:
    """The estimates that are compared: a name, whether it is adjusted, and its pivots."""
    both = list(pivots.values())
    adjusted = [(f"adjusted, {name}", "adjusted", [pivot]) for name, pivot in pivots.items()]
    plain = ("less BM25", "plain", [pivots["BM25"]])
    return [("raw", "plain", []), plain, *adjusted, ("adjusted, both", "adjusted", both)]


def gains(
    data: Data,
    values: Floats,
    chosen: list[pl.DataFrame],
    kind: str,
    rows: NDArray[np.bool_],
    near: NDArray[np.bool_],
) -> Floats:
    """The gain of one model's ``values`` over the pivots on these ``rows``, adjusted or plain."""
    values, chosen = values[rows], [pivot.filter(rows) for pivot in chosen]
    gain = values - (np.mean([pivot["value"].to_numpy() for pivot in chosen], axis=0) if chosen else 0.0)
    if kind == "plain":
        return np.asarray(gain)
    covariates = [pivot.to_numpy() for pivot in chosen]
    covariates += [np.column_stack([data.words, data.words**2])[rows]]
    return parts.adjusted(gain, np.concatenate(covariates, axis=1), data.cluster[rows], near)


def estimated(data: Data, values: Floats, chosen: list[pl.DataFrame], kind: str) -> dict[str, float]:
    """Error and correlation on held-out clusters, spread and false alarms on trained-on ones."""
    truths, estimates, finds, near_offs, alarms, by_queries = [], [], [], [], [], []
    for model in range(MODELS):
        rows = data.unseen(model)
        near, clusters = data.saw[model][rows], data.cluster[rows]
        gain = gains(data, values[model], chosen, kind, rows, near)
        offs = parts.outliers(gain, clusters, near)
        for cluster, (off, _, p) in offs.items():
            queries = data.cluster == cluster
            if data.saw[model][queries][0]:
                near_offs.append(off)
                alarms.append(p < 0.05)
                inside = gain[clusters == cluster]
                by_queries.append(abs(off) > 1.96 * inside.std() / np.sqrt(len(inside)))
                continue
            estimates.append(off)
            finds.append(p < 0.05 and off < 0)
            truths.append(true_loss(data, values, model, queries))
    error = np.sqrt(np.mean((np.array(estimates) - truths) ** 2))
    return {
        "rmse": float(error),
        "r": float(np.corrcoef(estimates, truths)[0, 1]),
        "spread": float(np.std(near_offs)),
        "alarms": float(np.mean(alarms)),
        "alarms_by_queries": float(np.mean(by_queries)),
        "finds": float(np.mean(finds)),
        "held_out": len(estimates),
        "truth": float(np.mean(truths)),
    }


def true_loss(data: Data, values: Floats, model: int, queries: NDArray[np.bool_]) -> float:
    """Out − In of a model on a cluster that it did not see; In by models that saw it, not the query."""
    inside = np.full((MODELS, int(queries.sum())), np.nan)
    for other in range(MODELS):
        tested = data.saw[other][queries] & (data.share[queries] == other % SHARE)
        inside[other] = np.where(tested, values[other][queries], np.nan)
    covered = ~np.isnan(inside).all(axis=0)
    differences = values[model][queries][covered] - np.nanmean(inside[:, covered], axis=0)
    return float(differences.mean())


def thinned(data: Data, values: Floats, pivot: pl.DataFrame) -> dict[str, float]:
    """Finds where the true loss is brought down to about ``LOSS``: In's value for a share of the queries."""
    random, weaker = np.random.default_rng(1), values.copy()
    share = 1 - LOSS / 0.205
    for model in range(MODELS):
        for other in range(MODELS):
            tested = ~data.saw[model] & data.saw[other] & (data.share == other % SHARE)
            chosen = tested & (random.random(len(tested)) < share)
            weaker[model][chosen] = values[other][chosen]
    return estimated(data, weaker, [pivot], "adjusted")


def shuffled(data: Data, values: Floats, pivot: pl.DataFrame) -> dict[str, float]:
    """False alarms of the contrast where far and near are drawn among the clusters trained on."""
    random, alarms = np.random.default_rng(2), []
    for model in range(MODELS):
        rows = data.unseen(model) & data.saw[model]
        of_queries = data.cluster[rows]
        clusters = np.unique(of_queries)
        for _ in range(DRAWS // MODELS):
            far = np.isin(of_queries, random.choice(clusters, len(clusters) // 2, replace=False))
            gain = gains(data, values[model], [pivot], "adjusted", rows, ~far)
            contrast = parts.contrast(gain, of_queries, far)
            alarms.append(contrast is not None and contrast.p < 0.05)
    return {"alarms": float(np.mean(alarms)), "draws": len(alarms)}


if __name__ == "__main__":
    main()
