"""Similarity of the words of datasets in BEIR's format, and whether systems lose more on dissimilar ones.

BEIR (Thakur et al. 2021), Figure 2 and Appendix F, compares the datasets' passages. ECIR 2023 §5.2 finds that systems
lose more on clusters of queries unlike those of the training. Here the same question is put to datasets: MS MARCO's
training queries are compared with each dataset's, beside each system's loss of nDCG@10 there against MS MARCO.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__, plots
from eval_kit.console import counted
from eval_kit.errors import UserError
from eval_kit.files.beir import judged_queries, read_corpus
from eval_kit.files.formats import read_queries
from eval_kit.measures.beir import MS_MARCO, split_of
from eval_kit.protocols.align_results import beir_scores
from eval_kit.release import beir_suite
from eval_kit.results import Figure, Result
from eval_kit.stats import words_on_disk
from eval_kit.stats.losses import KINDS, Correlation, Estimate, correlations
from eval_kit.stats.similarity import weighted_jaccard
from eval_kit.stats.words_on_disk import Words
from eval_kit.tables.table import Cell, Column, Table, loss

PUBLISHED = " (BEIR)"
"""Added to the name of a system whose losses are from the paper's Table 2."""
_LOSSES = {"system": pl.String, "dataset": pl.String, "jaccard": pl.Float64, "rel_loss": pl.Float64}


@dataclass(frozen=True, repr=False)
class Overlap(Result):
    """Similarities of datasets, and each system's losses beside them.

    Attributes:
        datasets: ``dataset``, ``passages``, ``words`` (of the passages, in all), ``queries``, and ``jaccard`` of the
            queries to the training queries (null without any).
        passages: ``dataset``, ``other`` and ``jaccard`` of their passages; each pair once.
        losses: ``system``, ``dataset``, ``jaccard`` (of the queries), ``rel_loss`` = 1 - nDCG@10 / nDCG@10 on MS MARCO.
        correlations: system → kind → correlation of the two over the datasets.
        provenance: kit version, seed and results read.
    """

    title = "How alike are the datasets?"

    datasets: pl.DataFrame
    passages: pl.DataFrame
    losses: pl.DataFrame
    correlations: Mapping[str, Mapping[str, Correlation]]
    provenance: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        by_system = {
            system: {kind: asdict(correlation) for kind, correlation in kinds.items()}
            for system, kinds in self.correlations.items()
        }
        frames = {"datasets": self.datasets, "passages": self.passages, "losses": self.losses}
        rows = {name: frame.to_dicts() for name, frame in frames.items()}
        return {**rows, "correlations": by_system, "provenance": dict(self.provenance)}

    def matrix(self) -> Table:
        """Figure 2 in numbers; columns are numbered as the rows."""
        names = self.datasets["dataset"].to_list()
        jaccard = {frozenset(pair): value for *pair, value in self.passages.iter_rows()}
        columns = [Column("passages of", "heading", wrap="never")]
        columns += [Column(str(number), "number", wrap="never") for number in range(1, len(names) + 1)]
        rows = []
        for number, name in enumerate(names, start=1):
            values = (jaccard.get(frozenset((name, column))) for column in names)
            rows.append([f"{number} {name}", *("-" if value is None else f"{value:.2f}" for value in values)])
        return Table(columns, [rows], "Weighted Jaccard similarity of passages (BEIR, Figure 2)")

    def beside_losses(self) -> Table:
        """One row per dataset: its queries' similarity to the training queries, and each system's loss."""
        losses = {(row["system"], row["dataset"]): row["rel_loss"] for row in self.losses.iter_rows(named=True)}
        columns = [Column("dataset", "heading"), Column("queries", "number"), Column("Jaccard", "number", wrap="never")]
        columns += [Column(system, "number", group="Rel Loss of nDCG@10", wrap="never") for system in self.correlations]
        rows = []
        for row in self.datasets.filter(pl.col("dataset") != MS_MARCO).sort("jaccard").iter_rows(named=True):
            known = [loss(losses.get((system, row["dataset"]))) for system in self.correlations]
            rows.append([row["dataset"], f"{row['queries']:,}", f"{row['jaccard']:.3f}", *known])
        return Table(columns, [rows], "Queries beside MS MARCO's training queries, and loss to MS MARCO")

    def correlated(self) -> Table:
        """One row per system: how its losses correlate with the similarity of the queries."""
        columns = [Column("system", "heading"), Column("n", "number")]
        columns += [Column(kind.capitalize(), "number", wrap="never") for kind in KINDS]
        rows: list[list[Cell | str | None]] = []
        for system, kinds in self.correlations.items():
            estimates = [kinds[kind].estimate for kind in KINDS]
            rows.append([system, str(estimates[0].n), *map(_shown, estimates)])
        return Table(
            columns, [rows], "Correlation of Jaccard and Rel Loss over datasets, with 95 % bootstrap intervals"
        )

    def to_polars(self) -> pl.DataFrame:
        """One row for each pair of datasets."""
        return self.passages

    def tables(self) -> list[Table]:
        """The similarities, the losses beside them, and their correlations."""
        of_passages = [self.matrix()] if len(self.passages) else []
        return of_passages + ([self.beside_losses(), self.correlated()] if self.correlations else [])

    def figures(self) -> list[Figure]:
        """The heatmap of passages; with training queries also the losses against the similarity of queries."""
        names = self.datasets["dataset"].to_list()
        pairs = {(left, right): value for left, right, value in self.passages.iter_rows()}
        heatmap = plots.heatmap(names, pairs, "Figure 2: weighted Jaccard similarity of passages")
        if not self.correlations:
            return [Figure(heatmap)]
        points = self.losses.with_columns(
            cluster="dataset", shift=pl.lit("beir"), low=pl.lit(None, pl.Float64), high=pl.lit(None, pl.Float64)
        )
        systems = list(self.correlations)
        losses = plots.loss_against_jaccard(
            points,
            systems,
            "nDCG@10",
            "weighted Jaccard similarity to MS MARCO's training queries",
            "Rel Loss of nDCG@10 to MS MARCO against similarity of queries",
        )
        return [Figure(heatmap), Figure(losses, series=systems)]


def _shown(estimate: Estimate) -> Cell:
    if estimate.value is None:
        return Cell("-")
    interval = "" if estimate.low is None else f"[{estimate.low:+.2f}, {estimate.high:+.2f}]"
    return Cell(f"{estimate.value:+.3f}", below=interval)


def overlap(
    folders: Sequence[Path], results: Sequence[Path] = (), training: Path | None = None, seed: int = 0
) -> Overlap:
    """Compare datasets, and set systems' losses beside the similarities.

    Words are counted on the disk, in the folder for temporary files: memory grows only with the ids of one corpus.

    Args:
        folders: in BEIR's format; CQADupStack's twelve count as one dataset.
        results: of ``eval_kit beir --json`` or ``baselines beir --json``, with scores on MS MARCO too. The paper's own
            systems need none.
        training: queries that systems were trained on, ``id<TAB>text``; by default the ``train`` split of the folder
            ``msmarco``, if that is among the folders. Without any, only passages are compared.
        seed: for the bootstrap over datasets.

    Raises:
        UserError: a dataset given twice, a folder or file that is not as it should be, or one without words.
    """
    names = [folder.resolve().name for folder in folders]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two datasets are called {repeated}")
    named = dict(zip(names, folders, strict=True))
    scores = _with_published(beir_scores(results))
    trained_on = _training_queries(training, named)
    queries = {name: _queries(folder) for name, folder in named.items()}
    similarity = {
        name: _similarity(named[name], texts, trained_on) for name, texts in queries.items() if trained_on is not None
    }
    datasets, pairs = _passages(named)
    datasets = datasets.with_columns(
        queries=pl.Series([len(texts) for texts in queries.values()]),
        jaccard=pl.Series([similarity.get(name) for name in named], dtype=pl.Float64),
    )
    losses = pl.DataFrame(list(_losses(scores, similarity)), _LOSSES, orient="row")
    by_system = {
        str(system): correlations(of_system["jaccard"], of_system["rel_loss"], seed=seed)
        for (system,), of_system in losses.group_by("system", maintain_order=True)
    }
    provenance = {"kit_version": __version__, "seed": seed, "results": [str(path) for path in results]}
    return Overlap(datasets, pairs, losses, by_system, provenance)


def _with_published(scores: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    published: dict[str, dict[str, float]] = {}
    for (system, dataset), values in beir_suite.published_values().items():
        if "nDCG@10" in values:
            published.setdefault(f"{system}{PUBLISHED}", {})[dataset] = values["nDCG@10"]
    return {**scores, **published}


def _losses(
    scores: Mapping[str, Mapping[str, float]], similarity: Mapping[str, float]
) -> Iterator[tuple[str, str, float, float]]:
    """System, dataset, similarity and loss, for the systems that have a score on MS MARCO."""
    for system, values in scores.items():
        in_domain = values.get(MS_MARCO)
        for dataset in similarity:
            if in_domain and dataset in values and dataset != MS_MARCO:
                yield system, dataset, similarity[dataset], 1 - values[dataset] / in_domain


def _training_queries(training: Path | None, folders: Mapping[str, Path]) -> pl.Series | None:
    if training is not None:
        queries = read_queries(training)["text"]
        if queries.is_empty():
            raise UserError(f"{training}: holds no queries")
        return queries
    return judged_queries(folders[MS_MARCO], "train")["text"] if MS_MARCO in folders else None


def _queries(folder: Path) -> pl.Series:
    parts = [judged_queries(part, split_of(part)) for part in beir_suite.parts(folder)]
    return pl.concat(parts)["text"]


def _similarity(folder: Path, queries: pl.Series, trained_on: pl.Series) -> float:
    try:
        return weighted_jaccard(queries, trained_on)
    except ValueError as error:
        raise UserError(f"{folder}: {error}") from None


def _passages(folders: Mapping[str, Path]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """``dataset``, ``passages``, ``words``; ``dataset``, ``other``, ``jaccard``."""
    with tempfile.TemporaryDirectory(prefix="words-") as scratch:
        words = {name: _counted(folder, Path(scratch) / name) for name, folder in folders.items()}
        pairs = [(*pair, words_on_disk.jaccard(*(words[name] for name in pair))) for pair in combinations(words, 2)]
    rows = [(name, counts.texts, counts.total) for name, counts in words.items()]
    return (
        pl.DataFrame(rows, ["dataset", "passages", "words"], orient="row"),
        pl.DataFrame(pairs, {"dataset": pl.String, "other": pl.String, "jaccard": pl.Float64}, orient="row"),
    )


def _counted(folder: Path, scratch: Path) -> Words:
    files = [part / "corpus.jsonl" for part in beir_suite.parts(folder)]
    texts = (text for file in files for _, text in read_corpus(file))
    words = words_on_disk.count(counted(texts, f"counting words of {folder.name}", "passages"), scratch)
    if not words.total:
        raise UserError(f"{files[0]}: its passages have no words")
    return words
