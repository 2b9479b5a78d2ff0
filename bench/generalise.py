"""``python -m bench.generalise RELEASE RUNS``: does ``eval_kit generalise`` find what is known to be there?

RELEASE holds crossed hold-outs, RUNS are those of its grid (``make baselines CONFIG=squad-crossed SQUAD=DIR``). Each
query was searched by a model that saw its cluster but not the query, and by four that saw neither: the true loss of
each model on each cluster is known. Figures go to ``bench/results/generalise.json``.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.measures.score import score
from eval_kit.release import Release, open_release
from eval_kit.search import bm25
from eval_kit.search.passages import passages
from eval_kit.shifts import SHIFTS
from eval_kit.stats import distance, parts

BATCH, DEPTH, CUTOFF = 2_048, 100, 10
DRAWS, LOSS = 1_000, 0.13
SIZES, LOSSES, SPREADS, REPEATS = (50, 200, 1_000, 5_000), (0.05, 0.1, 0.2, 0.4), (0.0, 0.04), 200
RESULTS = Path(__file__).parent / "results" / "generalise.json"

type Floats = NDArray[np.float64]


def main() -> None:
    """Read, search by the pivots, estimate, and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("release", type=Path, help="with crossed hold-outs and passages")
    arguments.add_argument("runs", type=Path, nargs="+", help="of one system, for every model")
    arguments.add_argument("--folder", type=Path, default=Path("build/generalise"), help="for what is kept")
    options = arguments.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    data = Data(open_release(options.release), options.runs)
    pivots = {"BM25": by_bm25(data, options.folder), "LSA": by_lsa(data, options.folder)}
    figures: dict[str, Any] = {
        name: estimated(data, data.values, chosen, kind) for name, kind, chosen in designs(pivots)
    }
    figures["thinned"] = thinned(data, pivots["BM25"])
    figures["shuffled"] = shuffled(data, pivots["BM25"])
    figures["power"] = power(data, pivots["BM25"])
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    print(RESULTS.read_text())


class Data:
    """The queries, each one's passage and cluster, who was trained on what, and what each model makes of them."""

    def __init__(self, release: Release, runs: list[Path]) -> None:
        table = release.table("crossed", "train")
        self.models = SHIFTS["crossed"].parts(release)
        qrels = release.qrels("train").filter(pl.col("relevance") > 0).unique("query_id", keep="first")
        table = table.join(qrels.select("query_id", "passage_id"), on="query_id", how="inner", maintain_order="left")
        self.passages = dict(passages(release))
        numbers = {passage: number for number, passage in enumerate(self.passages)}
        self.ids, self.texts = table["query_id"], table["text"]
        self.relevant = np.array([numbers[passage] for passage in table["passage_id"]])
        self.cluster = table["cluster"].rank("dense").to_numpy().astype(np.int64) - 1
        self.out = np.array([(table[model] == "out").to_numpy() for model in self.models])
        self.inside = np.array([(table[model] == "in").to_numpy() for model in self.models])
        words = np.log1p(self.texts.str.split(" ").list.len().to_numpy())
        characters = np.log1p([len(text) for text in self.passages.values()])
        self.forms = np.column_stack([words, words**2, characters[self.relevant]])
        self.values = np.full(self.out.shape, np.nan)
        scores = score(runs, release).per_query().filter(pl.col("measure") == f"RR@{CUTOFF}")
        for number, model in enumerate(self.models):
            of_model = scores.filter(pl.col("test_set") == f"crossed.{model}").select("query_id", "value")
            joined = self.ids.to_frame().join(of_model, on="query_id", how="left", maintain_order="left")
            self.values[number] = joined["value"].fill_null(np.nan).to_numpy()

    def tested(self, model: int) -> NDArray[np.bool_]:
        """The queries that a model may be tested on: it never saw the query, or not even its cluster."""
        return np.asarray(self.out[model] | self.inside[model])


def by_bm25(data: Data, folder: Path) -> pl.DataFrame:
    """What BM25 (k1 0.9, b 0.4) makes of each query: ``value``, ``hit``, ``rank``, ``top``, ``step``."""
    path = folder / "bm25.parquet"
    if not path.exists():
        bm25.index_once(data.passages.items(), folder / "lucene")
        names, rows = list(data.passages), []
        searched = bm25.search(zip(data.ids, data.texts, strict=True), bm25.index_in(folder / "lucene"), DEPTH)
        for relevant, (_, hits) in zip(data.relevant, searched, strict=True):
            ranked, scores = [passage for passage, _ in hits], [score for _, score in hits]
            rank = ranked.index(names[relevant]) + 1 if names[relevant] in ranked else 0
            top, step = (scores[0], scores[0] - scores[1]) if len(scores) > 1 else (0.0, 0.0)
            rows.append((rank, top, step))
        pl.DataFrame(rows, ["rank", "top", "step"], orient="row").write_parquet(path)
    searched = pl.read_parquet(path)
    return _features(searched["rank"].to_numpy(), searched["top"].to_numpy(), searched["step"].to_numpy())


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
        for start in range(0, len(vectors), BATCH):
            scores = vectors[start : start + BATCH] @ index.T
            relevant = data.relevant[start : start + BATCH]
            best = np.partition(scores, -2, axis=1)[:, -2:]
            rank = (scores > scores[np.arange(len(scores)), relevant][:, None]).sum(axis=1) + 1
            rows.append(np.column_stack([rank, best[:, 1], best[:, 1] - best[:, 0]]))
        pl.DataFrame(np.concatenate(rows), ["rank", "top", "step"]).write_parquet(path)
    searched = pl.read_parquet(path)
    rank = np.where(searched["rank"] <= DEPTH, searched["rank"], 0)
    return _features(rank, searched["top"].to_numpy(), searched["step"].to_numpy())


def _features(rank: NDArray[Any], top: Floats, step: Floats) -> pl.DataFrame:
    hit = rank > 0
    by_rank = np.where(hit, 1 / (1 + np.log(np.maximum(rank, 1))), 0.0)
    value = np.where(hit & (rank <= CUTOFF), 1 / np.maximum(rank, 1), 0.0)
    columns = {"value": value, "hit": hit.astype(float), "rank": by_rank}
    return pl.DataFrame(columns | {"top": np.arcsinh(top), "step": np.arcsinh(step)})


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
    rows: NDArray[Any],
    near: NDArray[np.bool_],
    of_parts: NDArray[np.int64],
) -> Floats:
    """The gain of ``values`` (those of these ``rows``) over the pivots, adjusted or plain."""
    chosen = [pivot[rows] for pivot in chosen]
    gain = values - (np.mean([pivot["value"].to_numpy() for pivot in chosen], axis=0) if chosen else 0.0)
    if kind == "plain":
        return np.asarray(gain)
    covariates = [pivot.to_numpy() for pivot in chosen]
    covariates += [data.forms[rows]]
    return parts.adjusted(gain, np.concatenate(covariates, axis=1), of_parts, near)


def estimated(data: Data, values: Floats, chosen: list[pl.DataFrame], kind: str) -> dict[str, float]:
    """Error and correlation on held-out clusters, spread and false alarms on trained-on ones."""
    truths, estimates, finds, near_offs, alarms, by_queries = [], [], [], [], [], []
    for model in range(len(data.models)):
        rows = np.flatnonzero(data.tested(model))
        near, clusters = data.inside[model][rows], data.cluster[rows]
        gain = gains(data, values[model][rows], chosen, kind, rows, near, clusters)
        for cluster, (off, _, p) in parts.outliers(gain, clusters, near).items():
            if near[clusters == cluster][0]:
                near_offs.append(off)
                alarms.append(p < 0.05)
                inside = gain[clusters == cluster]
                by_queries.append(abs(off) > 1.96 * inside.std() / np.sqrt(len(inside)))
                continue
            estimates.append(off)
            finds.append(p < 0.05 and off < 0)
            truths.append(true_loss(data, values, model, data.cluster == cluster))
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
    """Out − In of a model on a cluster that it did not see; In by the models that saw it, not the query."""
    inside = np.where(data.inside[:, queries], data.values[:, queries], np.nan)
    covered = ~np.isnan(inside).all(axis=0)
    return float((values[model][queries][covered] - np.nanmean(inside[:, covered], axis=0)).mean())


def thinned(data: Data, pivot: pl.DataFrame) -> dict[str, float]:
    """Finds where the true loss is brought down to about ``LOSS``: In's value for a share of the queries."""
    random, weaker = np.random.default_rng(1), data.values.copy()
    mean_inside = np.nanmean(np.where(data.inside, data.values, np.nan), axis=0)
    whole = estimated(data, data.values, [pivot], "adjusted")["truth"]
    for model in range(len(data.models)):
        chosen = data.out[model] & (random.random(len(mean_inside)) < 1 + LOSS / whole) & ~np.isnan(mean_inside)
        weaker[model][chosen] = mean_inside[chosen]
    return estimated(data, weaker, [pivot], "adjusted")


def shuffled(data: Data, pivot: pl.DataFrame) -> dict[str, float]:
    """False alarms of the contrast where far and near are drawn among the clusters trained on."""
    random, alarms = np.random.default_rng(2), []
    for model in range(len(data.models)):
        rows = np.flatnonzero(data.inside[model])
        of_parts = data.cluster[rows]
        clusters = np.unique(of_parts)
        for _ in range(DRAWS // len(data.models)):
            far = np.isin(of_parts, random.choice(clusters, len(clusters) // 2, replace=False))
            gain = gains(data, data.values[model][rows], [pivot], "adjusted", rows, ~far, of_parts)
            contrast = parts.contrast(gain, of_parts, far)
            alarms.append(contrast is not None and contrast.p < 0.05)
    return {"alarms": float(np.mean(alarms)), "draws": len(alarms)}


def power(data: Data, pivot: pl.DataFrame) -> list[dict[str, float]]:
    """Finds of losses planted in half of the small parts of some queries that a model's training resembled.

    The loss takes away that share of the far queries' values; the spread is a further draw for each part.
    """
    random, rows = np.random.default_rng(3), []
    for size in SIZES:
        for repeat in range(REPEATS):
            model = repeat % len(data.models)
            chosen = random.choice(np.flatnonzero(data.inside[model]), size, replace=False)
            count = int(np.clip(size // 3, 2, 60))
            of_parts = np.asarray(distance.small_parts(data.texts.gather(chosen), count, repeat), np.int64)
            far = np.isin(of_parts, random.choice(count, count // 2, replace=False))
            kept = random.random(size)
            draws = random.standard_normal(count)
            for loss in (0.0, *LOSSES):
                for spread in SPREADS:
                    values = data.values[model][chosen] * ~(far & (kept < loss)) + spread * draws[of_parts]
                    gain = gains(data, values, [pivot], "adjusted", chosen, ~far, of_parts)
                    contrast = parts.contrast(gain, of_parts, far)
                    finds = contrast is not None and contrast.p < 0.05 and contrast.difference < 0
                    rows.append((size, loss, spread, float(finds)))
    table = pl.DataFrame(rows, ["queries", "loss", "spread", "finds"], orient="row")
    return table.group_by("queries", "loss", "spread", maintain_order=True).agg(pl.col("finds").mean()).to_dicts()


if __name__ == "__main__":
    main()
