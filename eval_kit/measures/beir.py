"""Runs on BEIR datasets (Thakur et al., NeurIPS Datasets and Benchmarks 2021): any folder in BEIR's format.

nDCG@10 (§4), R@100 (Table 9), R_cap@100 (Appendix G), hole@10 (§6, Table 4) and Judged@10 over the queries that a split
judges, the mean of CQADupStack's twelve folders, the paper's figures beside them, and the average against BM25.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from eval_kit import __version__
from eval_kit.errors import UserError
from eval_kit.files.beir import read_qrels, read_queries
from eval_kit.files.digests import table_digest
from eval_kit.measures.definitions import holes, parse, per_query, with_ties_resolved
from eval_kit.measures.score import Mean, Scores, mean, source_of
from eval_kit.release import TestSet, beir_suite
from eval_kit.release.beir_suite import CQADUPSTACK
from eval_kit.runs.covered_test_sets import covered
from eval_kit.runs.names import run_name
from eval_kit.runs.ranks import TIE_RULE, RankedRun, rank_judged
from eval_kit.tables.table import Column, Table

MEASURES = ("nDCG@10", "R@100", "R_cap@100")
MS_MARCO = "msmarco"
HOLE_CUTOFF = 10
HOLE = f"hole@{HOLE_CUTOFF}"
JUDGED = f"Judged@{HOLE_CUTOFF}"
COLUMNS = (*MEASURES, HOLE, JUDGED)
OVER_ANSWERED = ("nDCG@10", "R@100")
"""The measures whose mean BEIR's own evaluator takes over the queries that the run answers."""

_CUTOFFS = (10, 100)


@dataclass(frozen=True)
class Dataset:
    """One dataset: its queries of every split, and the judgements of its test split (of dev, for MS MARCO).

    Attributes:
        folder: where it lies; its name is the dataset's.
        queries: ``query_id`` and ``text``.
        qrels: ``query_id``, ``passage_id``, ``relevance``; each pair once.
    """

    folder: Path
    queries: pl.DataFrame
    qrels: pl.DataFrame

    @property
    def name(self) -> str:
        """The folder's name; of CQADupStack's folders ``cqadupstack.android`` and so on."""
        return dataset_name(self.folder)

    @property
    def test_set(self) -> TestSet:
        """The judged queries, as ``beir.<name>``."""
        queries = self.qrels["query_id"].unique(maintain_order=True)
        return TestSet(f"beir.{self.name}", "beir", COLUMNS, queries, "test")

    @property
    def digest(self) -> str:
        """Identity of what scores depend on (judgements and query ids): 64 hexadecimal digits."""
        strings = [{"name": name, "type": "string"} for name in ("query_id", "passage_id")]
        judged = table_digest(self.qrels, [*strings, {"name": "relevance", "type": "int64"}])
        return hashlib.sha256((table_digest(self.queries, strings[:1]) + judged).encode()).hexdigest()


@dataclass(frozen=True)
class DatasetScores:
    """A run's scores on one dataset.

    Attributes:
        dataset: its name.
        scores: in which a query without any passage counts, with the value 0.
        left_out: the queries for which a passage with the query's own id was left out.
        answered: means of :data:`OVER_ANSWERED` over the queries for which the run has passages.
    """

    dataset: str
    scores: Scores
    left_out: int
    answered: Mapping[str, float]

    def value(self, measure: str) -> float:
        """The mean of a measure over the dataset's queries."""
        return next(figure.value for figure in self.scores.means if figure.measure == measure)


@dataclass(frozen=True)
class Average:
    """A system against BM25 over some datasets, by nDCG@10.

    Attributes:
        system: its mean.
        bm25: BM25's mean.
        relative: the ratio of the means less 1; None where BM25 finds nothing.
        mean_of_relatives: the mean over datasets of the ratio less 1; None where BM25 finds nothing on one.
        datasets: how many.
    """

    system: float
    bm25: float
    relative: float | None
    mean_of_relatives: float | None
    datasets: int


@dataclass(frozen=True)
class Row:
    """One line of the table: a run on a dataset, the mean of CQADupStack's folders, or the paper's own figures.

    ``answered`` is as in :class:`DatasetScores`, and empty for the paper's figures.
    """

    dataset: str
    run: str
    queries: int | None
    values: Mapping[str, float]
    answered: Mapping[str, float]


@dataclass(frozen=True)
class Report:
    """A system on some datasets, BM25 on the same ones if given, and the average of both."""

    system: list[DatasetScores]
    bm25: list[DatasetScores]
    average: Average | None

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values; each entry of ``scores`` and ``bm25`` is a document of scores.schema.json."""
        return {
            "scores": [entry.scores.as_json() for entry in self.system],
            "bm25": [entry.scores.as_json() for entry in self.bm25],
            "average": asdict(self.average) if self.average else None,
            "table": [asdict(row) for row in self.rows()],
        }

    def by_dataset(self) -> dict[str, Row]:
        """The system's line of each dataset of the suite; of CQADupStack the mean of its folders."""
        return _by_dataset(self.system)

    def rows(self) -> list[Row]:
        """The table's lines: each run, the mean of CQADupStack's folders behind them, and the paper's figures."""
        rows = []
        for dataset in dict.fromkeys(_suite_dataset(scores.dataset) for scores in self.system):
            for scores in (self.system, self.bm25):
                members = [entry for entry in scores if _suite_dataset(entry.dataset) == dataset]
                rows += [_row(member) for member in members]
                if dataset == CQADUPSTACK and members:
                    rows.append(_mean_row(members))
            rows += self._published_rows(dataset)
        return rows

    def _published_rows(self, dataset: str) -> list[Row]:
        """The paper's figures of BM25, and of the system if the paper has it, on a dataset."""
        run = next(entry for entry in self.system if _suite_dataset(entry.dataset) == dataset).scores.means[0].run
        rows = []
        for system in dict.fromkeys((run.partition(".")[0], "bm25")):
            if values := beir_suite.published_values().get((system, dataset)):
                rows.append(Row(dataset, f"{system} (BEIR)", None, values, {}))
        return rows

    def print(self, console: Console) -> None:
        """One row per dataset, in the order given, and the average against BM25 below."""
        columns = [Column(name, wrap="anywhere") for name in ("dataset", "run")]
        columns += [Column(name, "number") for name in ("queries", *COLUMNS)]
        lines = []
        for row in self.rows():
            shown = [_shown(row.values, measure) for measure in COLUMNS]
            lines.append([row.dataset, row.run, f"{row.queries:,}" if row.queries else "", *shown])
        console.print(Table(columns, [lines]))
        if self.average is not None:
            relative, mean_of_relatives = (
                "-" if value is None else f"{value:+.1%}"
                for value in (self.average.relative, self.average.mean_of_relatives)
            )
            console.print(
                f"Avg. performance vs. BM25 (nDCG@10): {relative} (ratio of the means, {self.average.system:.3f} "
                f"against {self.average.bm25:.3f}), {mean_of_relatives} (mean of the ratios); datasets: "
                f"{self.average.datasets}. The paper's own row follows from neither over its 18 datasets.",
                highlight=False,
            )
        for note in self.notes():
            console.print(Text(note))

    def notes(self) -> list[str]:
        """How many queries a run lacks, the means without them, and where the own id was left out."""
        notes = []
        for entry in (*self.system, *self.bm25):
            first = entry.scores.means[0]
            if first.missing:
                means = ", ".join(f"{name} {value:.4f}" for name, value in entry.answered.items())
                notes.append(
                    f"{first.run}: nothing was found for {first.missing:,} queries of {entry.dataset} "
                    f"(scored 0; without them, as BEIR averages: {means})"
                )
            if entry.left_out:
                notes.append(
                    f"{first.run}: {entry.left_out:,} queries of {entry.dataset} "
                    "had a passage with the query's own id, which was left out"
                )
        return notes


def _row(scores: DatasetScores) -> Row:
    figure = scores.scores.means[0]
    values = {measure: scores.value(measure) for measure in COLUMNS}
    return Row(scores.dataset, figure.run, figure.queries, values, scores.answered)


def _mean_row(members: Sequence[DatasetScores]) -> Row:
    """The mean over CQADupStack's folders, each counting the same, as in BEIR."""
    rows = [_row(member) for member in members]
    of_all = len(beir_suite.named(CQADUPSTACK).folders)
    return Row(
        CQADUPSTACK,
        f"mean of {len(rows)} of {of_all} folders",
        sum(row.queries or 0 for row in rows),
        _means([row.values for row in rows]),
        _means([row.answered for row in rows]),
    )


def _means(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(each[name] for each in values) / len(values) for name in values[0]}


def _shown(values: Mapping[str, float], measure: str) -> str:
    if measure not in values:
        return ""
    return f"{values[measure]:.1%}" if measure == HOLE else parse(measure).show_as_cikm_2022(values[measure])


def _suite_dataset(name: str) -> str:
    """The dataset of BEIR that a folder belongs to: CQADupStack for each of its folders."""
    return CQADUPSTACK if name.startswith(f"{CQADUPSTACK}.") else name


def _by_dataset(scores: Sequence[DatasetScores]) -> dict[str, Row]:
    """The line of each dataset of the suite, with one for CQADupStack."""
    rows = {}
    for dataset in dict.fromkeys(_suite_dataset(entry.dataset) for entry in scores):
        members = [entry for entry in scores if _suite_dataset(entry.dataset) == dataset]
        rows[dataset] = _mean_row(members) if dataset == CQADUPSTACK else _row(members[0])
    return rows


def _zero_shot(scores: Sequence[DatasetScores]) -> dict[str, float]:
    """Dataset -> nDCG@10, without MS MARCO, which systems were trained on (§4), and the second TREC-COVID."""
    left_out = (MS_MARCO, beir_suite.ANNOTATED)
    return {name: row.values["nDCG@10"] for name, row in _by_dataset(scores).items() if name not in left_out}


def open(folder: Path) -> Dataset:
    """Read a dataset: ``queries.jsonl`` and its test judgements; its corpus is not looked at.

    Raises:
        UserError: a missing file; ``file:line`` of the first lines that are not in BEIR's format, or that judge a
            query without a text, and how many more there are.
    """
    queries = read_queries(folder / "queries.jsonl")
    qrels = folder / "qrels" / f"{split_of(folder)}.tsv"
    return Dataset(folder, queries, read_qrels(qrels, set(queries["query_id"])))


def score(run: Path, dataset: Dataset) -> DatasetScores:
    """Score a run on a dataset.

    As in BEIR's own evaluator, a passage with the query's own id (ArguAna's queries are passages of its corpus) is
    left out of the ranking; unlike there, it stays where it is judged. A query that the run lacks, such as one for
    which BM25 finds nothing, has the value 0 and is counted.

    Raises:
        UserError: a run that cannot be read, with a query the dataset does not have, or with none that it judges.
    """
    test_set = dataset.test_set
    own = pl.DataFrame({"query_id": test_set.queries, "passage_id": test_set.queries})
    pairs = pl.concat([dataset.qrels.select("query_id", "passage_id"), own])
    # hole@k asks for passages that are judged for another query, too
    seen = rank_judged(
        run,
        pairs.select("passage_id").unique(),
        {cutoff + extra for cutoff in _CUTOFFS for extra in (0, 1)},
    )
    ranked = replace(seen, judged=seen.judged.join(pairs, on=pairs.columns, how="semi"))
    known = dataset.queries["query_id"]
    coverage = covered(run, ranked.queries["query_id"], {test_set.name: test_set}, known, allow_missing=True)
    judged, annotated, retrieved = _without_own_ids(seen, dataset.qrels, test_set.queries)
    name = run_name(run)
    figures = [
        _figure(name, test_set, measure, annotated if measure == HOLE else judged, retrieved)
        for measure in test_set.measures
    ]
    answered = {}
    for figure in figures:
        if figure.measure in OVER_ANSWERED:
            values = figure.per_query.join(retrieved, on="query_id", how="semi")["value"]
            answered[figure.measure] = mean(values)
    source = source_of(name, ranked, coverage)
    provenance = {
        "kit_version": __version__,
        "release": {"version": dataset.name, "kind": "beir", "digest": dataset.digest, "missing": []},
        "tie_rule": TIE_RULE,
        "runs": [source],
    }
    left_out = int(retrieved["own"].is_not_null().sum())
    return DatasetScores(dataset.name, Scores(figures, provenance), left_out, answered)


def against_bm25(system: Mapping[str, float], bm25: Mapping[str, float]) -> Average:
    """Average performance against BM25 (Table 2's last row), by the two definitions that are defensible.

    The paper does not define the row. Over its 18 datasets no printed cell follows from the table; without NQ, the
    ratio of the means gives two as printed (docT5query and GenQ), and none of the others.

    Args:
        system: dataset → nDCG@10.
        bm25: the same for BM25.

    Raises:
        UserError: no datasets, or not the same ones.
    """
    if odd := sorted(set(system) ^ set(bm25)):
        raise UserError(f"system and BM25 must be scored on the same datasets; only one of them is on {odd[0]}")
    if not system:
        raise UserError("an average against BM25 needs at least one dataset")
    system_mean, bm25_mean = (sum(values.values()) / len(values) for values in (system, bm25))
    ratios = [system[dataset] / bm25[dataset] - 1 for dataset in system if bm25[dataset]]
    mean_of_ratios = sum(ratios) / len(ratios) if len(ratios) == len(system) else None
    return Average(
        system_mean, bm25_mean, system_mean / bm25_mean - 1 if bm25_mean else None, mean_of_ratios, len(system)
    )


def report(
    runs: Sequence[Path],
    datasets: Sequence[Path],
    bm25: Sequence[Path] = (),
    on_run: Callable[[Path], object] = lambda run: None,
) -> Report:
    """Score a system's runs, one per dataset, and BM25's.

    CQADupStack's twelve folders (``cqadupstack/android`` …) count as one dataset: their mean.

    Args:
        runs: the system's.
        datasets: folders, in the order of the runs.
        bm25: BM25's runs in that order, or none.
        on_run: called with each run before it is read.

    Raises:
        UserError: not as many runs as datasets; a dataset given twice; what :func:`open` and :func:`score` refuse.
    """
    for name, given in (("--dataset", datasets), ("--bm25", bm25)):
        if len(given) != len(runs) and (given or name == "--dataset"):
            raise UserError(f"give {name} once for each run: {len(runs)} runs, but {len(given)} of {name}")
    opened = open_all(datasets)
    system_scores, bm25_scores = score_all(runs, opened, on_run), score_all(bm25, opened, on_run) if bm25 else []
    return Report(system_scores, bm25_scores, average_of(system_scores, bm25_scores))


def dataset_name(folder: Path) -> str:
    """The folder's name; of CQADupStack's folders ``cqadupstack.android`` and so on."""
    path = folder.resolve()
    return f"{CQADUPSTACK}.{path.name}" if path.parent.name == CQADUPSTACK else path.name


def split_of(folder: Path) -> str:
    """The split that Table 2 reports: ``test``, and ``dev`` for MS MARCO."""
    known = beir_suite.datasets().get(folder.resolve().name)
    return known.split if known else "test"


def open_all(folders: Sequence[Path]) -> list[Dataset]:
    """Read datasets, in their order.

    Raises:
        UserError: a dataset given twice; what :func:`open` refuses.
    """
    opened = [open(folder) for folder in folders]
    names = [dataset.name for dataset in opened]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two datasets are called {twice}")
    return opened


def score_all(
    runs: Sequence[Path], datasets: Sequence[Dataset], on_run: Callable[[Path], object] = lambda run: None
) -> list[DatasetScores]:
    """:func:`score` each run on its dataset; ``on_run`` is called with a run before it is read."""
    entries = []
    for run, dataset in zip(runs, datasets, strict=True):
        on_run(run)
        entries.append(score(run, dataset))
    return entries


def average_of(system: Sequence[DatasetScores], bm25: Sequence[DatasetScores]) -> Average | None:
    """:func:`against_bm25` over the datasets but MS MARCO; None without any, or without BM25."""
    zero_shot = _zero_shot(system)
    return against_bm25(zero_shot, _zero_shot(bm25)) if bm25 and zero_shot else None


def _without_own_ids(
    seen: RankedRun, qrels: pl.DataFrame, queries: pl.Series
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """A run as if unjudged passages with the query's own id were not in it.

    Args:
        seen: with every passage that is judged for any query, or has the id of one.
        qrels: the dataset's.
        queries: the test queries.

    Returns:
        ``judged`` as for :func:`eval_kit.measures.definitions.per_query`; ``annotated`` as for
        :func:`eval_kit.measures.definitions.holes`, with ``relevance`` 1, as ties ask for one; of
        the test queries that the run has, ``query_id``, ``retrieved``, ``tied_across_k`` and
        ``own``, the rank of the passage left out (null: none was).
    """
    on = ["query_id", "passage_id"]
    same = pl.col("query_id") == pl.col("passage_id")
    left_out = seen.judged.filter(same).join(qrels, on=on, how="anti")
    own = left_out.select("query_id", own=pl.col("rank").cast(pl.Int64))
    annotated = seen.judged.join(qrels, on="passage_id", how="semi").join(left_out, on=on, how="anti")
    retrieved = seen.queries.filter(pl.col("query_id").is_in(queries.implode()))
    retrieved = retrieved.join(own, on="query_id", how="left").with_columns(
        pl.col("retrieved").cast(pl.Int64) - pl.col("own").is_not_null().cast(pl.Int64),
        *(_tied_across(cutoff).alias(f"tied_across_{cutoff}") for cutoff in _CUTOFFS),
    )
    judged = _moved_up(qrels.join(seen.judged, on=on, how="left"), own)
    judged = judged.join(retrieved.select("query_id", "retrieved"), on="query_id", how="left")
    return judged, _moved_up(annotated, own).with_columns(relevance=pl.lit(1, pl.Int64)), retrieved


def _moved_up(passages: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """The passages' ranks once the one at rank ``own`` of their query is gone."""
    own_rank = pl.col("own")
    moved = passages.join(own, on="query_id", how="left").with_columns(
        (pl.col(name).cast(pl.Int64) - before.fill_null(False).cast(pl.Int64)).alias(name)
        for name, before in {
            "rank": own_rank < pl.col("rank"),
            "tied_from": own_rank < pl.col("tied_from"),
            "tied_to": own_rank <= pl.col("tied_to"),
        }.items()
    )
    return moved.drop("own")


def _tied_across(k: int) -> pl.Expr:
    """Whether ranks k and k + 1 have one score once the passage at rank ``own`` is gone."""
    tied_here, next_one = pl.col(f"tied_across_{k}"), pl.col(f"tied_across_{k + 1}")
    return (
        pl.when(pl.col("own") <= k)
        .then(next_one)
        .when(pl.col("own") == k + 1)
        .then(tied_here & next_one)
        .otherwise(tied_here)
    )


def _figure(run: str, test_set: TestSet, name: str, judged: pl.DataFrame, retrieved: pl.DataFrame) -> Mean:
    def values(of: pl.DataFrame) -> pl.Series:
        if name == HOLE:
            return holes(of, retrieved, test_set.queries, HOLE_CUTOFF)
        return per_query(parse(name), of, test_set.queries).fill_nan(0.0)  # Judged of no passages

    cutoff = int(name.rpartition("@")[2])
    exact = values(judged)
    ties = int(retrieved[f"tied_across_{cutoff}"].sum())
    worst = best = None
    if ties:
        # for holes and Judged, what matters is that a passage is judged, not its grade
        graded = judged.with_columns(relevance=pl.lit(1, pl.Int64)) if name == JUDGED else judged
        worst, best = (mean(values(with_ties_resolved(graded, cutoff, best=how))) for how in (False, True))
    return Mean(
        run=run,
        test_set=test_set.name,
        measure=name,
        value=mean(exact),
        queries=len(test_set.queries),
        missing=len(test_set.queries) - retrieved.height,
        ties_at_cutoff=ties,
        worst=worst,
        best=best,
        per_query=pl.DataFrame({"query_id": test_set.queries, "value": exact}),
    )
