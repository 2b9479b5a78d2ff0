"""Runs on BEIR datasets (Thakur et al., NeurIPS Datasets and Benchmarks 2021): any folder in BEIR's format.

nDCG@10 (§4), R_cap@100 (Appendix G) and hole@10 (§6, Table 4) over the queries that ``qrels/test.tsv`` judges, and
the average against BM25 over datasets (the last row of Table 2).
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from eval_kit import __version__
from eval_kit.errors import UserError
from eval_kit.files.digests import table_digest
from eval_kit.files.text import read_utf8
from eval_kit.measures.definitions import holes, parse, per_query, with_ties_resolved
from eval_kit.measures.score import Figure, Scores, mean, source_of
from eval_kit.release import TestSet
from eval_kit.runs.covered_test_sets import covered
from eval_kit.runs.names import run_name
from eval_kit.runs.ranks import TIE_RULE, RankedRun, rank_judged
from eval_kit.runs.reader import Faults
from eval_kit.tables.table import Column, Table

MEASURES = ("nDCG@10", "R_cap@100")
HOLE_CUTOFF = 10
HOLE = f"hole@{HOLE_CUTOFF}"
HEADER = "query-id\tcorpus-id\tscore"

_CUTOFFS = (10, 100)
_QUERIES = {"query_id": pl.String(), "text": pl.String()}
_QRELS = {"query_id": pl.String(), "passage_id": pl.String(), "relevance": pl.Int64()}


@dataclass(frozen=True)
class Dataset:
    """One dataset: its queries of every split, and the judgements of its test split.

    Attributes:
        folder: where it lies; its name is the dataset's.
        queries: ``query_id`` and ``text``.
        qrels: ``query_id``, ``passage_id``, ``relevance``; a pair stands there once.
    """

    folder: Path
    queries: pl.DataFrame
    qrels: pl.DataFrame

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def test_set(self) -> TestSet:
        """The judged queries, as ``beir.<name>``."""
        queries = self.qrels["query_id"].unique(maintain_order=True)
        return TestSet(f"beir.{self.name}", "beir", (*MEASURES, HOLE), queries, "test")

    @property
    def digest(self) -> str:
        """Identity of what scores depend on (judgements and query ids): 64 hexadecimal digits."""
        strings = [{"name": name, "type": "string"} for name in ("query_id", "passage_id")]
        judged = table_digest(self.qrels, [*strings, {"name": "relevance", "type": "int64"}])
        return hashlib.sha256((table_digest(self.queries, strings[:1]) + judged).encode()).hexdigest()


@dataclass(frozen=True)
class DatasetScores:
    """A run's scores on one dataset, and for how many queries the run's own query id was left out."""

    dataset: str
    scores: Scores
    left_out: int

    def value(self, measure: str) -> float:
        """The mean of a measure over the dataset's queries."""
        return next(figure.value for figure in self.scores.figures if figure.measure == measure)


@dataclass(frozen=True)
class Average:
    """Means over ``datasets`` datasets, and system / BM25 − 1 (None where BM25 finds nothing)."""

    system: float
    bm25: float
    relative: float | None
    datasets: int


@dataclass(frozen=True)
class Report:
    """A system on some datasets, BM25 on the same ones if given, and the average of both."""

    system: list[DatasetScores]
    bm25: list[DatasetScores]
    average: Average | None

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values; each entry of ``scores`` and ``bm25`` is a document of scores.schema.json."""
        return {
            "scores": [one.scores.as_json() for one in self.system],
            "bm25": [one.scores.as_json() for one in self.bm25],
            "average": asdict(self.average) if self.average else None,
        }

    def print(self, console: Console) -> None:
        """One row a dataset, in the order given, and the average against BM25 below."""
        columns = [Column(name, wrap="anywhere") for name in ("dataset", "run")]
        columns += [Column(name, "number") for name in ("queries", *MEASURES, HOLE)]
        lines = []
        for index, system in enumerate(self.system):
            for scores in (system, *self.bm25[index : index + 1]):
                figure = scores.scores.figures[0]
                values = [parse(measure).show_as_cikm_2022(scores.value(measure)) for measure in MEASURES]
                names = [scores.dataset, figure.run, f"{figure.queries:,}"]
                lines.append([*names, *values, f"{scores.value(HOLE):.1%}"])
        console.print(Table(columns, [lines]))
        if self.average is not None:
            relative = "-" if self.average.relative is None else f"{self.average.relative:+.1%}"
            console.print(
                f"Avg. performance vs. BM25 (nDCG@10): {relative} ({self.average.system:.3f} against "
                f"{self.average.bm25:.3f}, datasets: {self.average.datasets})",
                highlight=False,
            )
        for note in self._notes():
            console.print(Text(note))

    def _notes(self) -> list[str]:
        notes = []
        for one in (*self.system, *self.bm25):
            first = one.scores.figures[0]
            if first.missing:
                notes.append(f"{first.run}: {first.missing:,} queries of {one.dataset} are missing (scored as empty)")
            if one.left_out:
                notes.append(
                    f"{first.run}: {one.left_out:,} queries of {one.dataset} had a passage with the query's own id, "
                    "which was left out"
                )
        return notes


def open(folder: Path) -> Dataset:
    """Read a dataset: ``queries.jsonl`` and ``qrels/test.tsv``; its corpus is not looked at.

    Raises:
        UserError: a file that is not there; ``file:line`` of the first lines that are not as BEIR's, or that judge a
            query without a text, and how many more there are.
    """
    queries = read_queries(folder / "queries.jsonl")
    return Dataset(folder, queries, read_qrels(folder / "qrels" / "test.tsv", set(queries["query_id"])))


def score(run: Path, dataset: Dataset, allow_missing: bool = False) -> DatasetScores:
    """Score a run on a dataset.

    As in BEIR's own evaluator, a passage with the query's own id (ArguAna's queries are passages of its corpus) is
    left out of the ranking; unlike there, it stays where it is judged. A query that the run lacks has the value 0.

    Raises:
        UserError: a run that cannot be read, with a query the dataset does not have, or that does not cover
            the judged queries (:func:`eval_kit.runs.covered_test_sets.covered`), unless ``allow_missing``.
    """
    test_set = dataset.test_set
    own = pl.DataFrame({"query_id": test_set.queries, "passage_id": test_set.queries})
    ranked_pairs = pl.concat([dataset.qrels.select("query_id", "passage_id"), own]).unique()
    ranked = rank_judged(run, ranked_pairs, {cutoff + extra for cutoff in _CUTOFFS for extra in (0, 1)})
    known = dataset.queries["query_id"]
    coverage = covered(run, ranked.queries["query_id"], {test_set.name: test_set}, known, allow_missing)
    judged, retrieved = _without_own_ids(ranked, dataset.qrels, test_set.queries)
    name = run_name(run)
    figures = [_figure(name, test_set, measure, judged, retrieved) for measure in test_set.measures]
    source = source_of(name, ranked, coverage)
    provenance = {
        "kit_version": __version__,
        "release": {"version": dataset.name, "kind": "beir", "digest": dataset.digest, "missing": []},
        "tie_rule": TIE_RULE,
        "runs": [source],
    }
    return DatasetScores(dataset.name, Scores(figures, provenance), int(retrieved["own"].is_not_null().sum()))


def against_bm25(system: Mapping[str, float], bm25: Mapping[str, float]) -> Average:
    """Average performance against BM25 (Table 2's last row): the ratio of the means over the same datasets.

    The paper does not define the row, and no printed cell of it follows from the table; the ratio of the means comes
    closest, closer than the mean of the ratios.

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
    one, other = (sum(values.values()) / len(values) for values in (system, bm25))
    return Average(one, other, one / other - 1 if other else None, len(system))


def report(
    runs: Sequence[Path],
    datasets: Sequence[Path],
    bm25: Sequence[Path] = (),
    allow_missing: bool = False,
    on_run: Callable[[Path], object] = lambda run: None,
) -> Report:
    """Score a system's runs, one a dataset, and BM25's.

    CQADupStack is twelve folders: average them before they enter an average over datasets.

    Args:
        runs: the system's.
        datasets: folders, in the order of the runs.
        bm25: BM25's runs in that order, or none.
        allow_missing: as for :func:`score`.
        on_run: called with each run before it is read.

    Raises:
        UserError: as many runs as datasets were not given; a dataset given twice; what :func:`open` and
            :func:`score` refuse.
    """
    for name, given in (("--dataset", datasets), ("--bm25", bm25)):
        if len(given) != len(runs) and (given or name == "--dataset"):
            raise UserError(f"give {name} once for each run: {len(runs)} runs, but {len(given)} of {name}")
    opened = [open(folder) for folder in datasets]
    names = [dataset.name for dataset in opened]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two datasets are called {twice}")

    def scored(given: Sequence[Path]) -> list[DatasetScores]:
        found = []
        for run, dataset in zip(given, opened, strict=True):
            on_run(run)
            found.append(score(run, dataset, allow_missing))
        return found

    mine, theirs = scored(runs), scored(bm25) if bm25 else []
    values = ({one.dataset: one.value("nDCG@10") for one in many} for many in (mine, theirs))
    return Report(mine, theirs, against_bm25(*values) if theirs else None)


def _without_own_ids(ranked: RankedRun, qrels: pl.DataFrame, queries: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The judged passages and the queries of a run, as if unjudged passages with the query's own id were not there.

    Returns:
        ``judged`` as for :func:`eval_kit.measures.definitions.per_query`; of the test queries that the run has,
        ``query_id``, ``retrieved``, ``tied_across_k`` and ``own``, the rank of the passage left out (null: none was).
    """
    on = ["query_id", "passage_id"]
    same = ranked.judged.filter(pl.col("query_id") == pl.col("passage_id")).join(qrels, on=on, how="anti")
    own = same.select("query_id", own=pl.col("rank").cast(pl.Int64))
    judged = qrels.join(ranked.judged, on=on, how="left").join(own, on="query_id", how="left")
    own_rank = pl.col("own")
    judged = judged.with_columns(
        (pl.col(name).cast(pl.Int64) - before.fill_null(False).cast(pl.Int64)).alias(name)
        for name, before in {
            "rank": own_rank < pl.col("rank"),
            "tied_from": own_rank < pl.col("tied_from"),
            "tied_to": own_rank <= pl.col("tied_to"),
        }.items()
    )
    held = ranked.queries.filter(pl.col("query_id").is_in(queries.implode())).join(own, on="query_id", how="left")
    held = held.with_columns(
        pl.col("retrieved").cast(pl.Int64) - own_rank.is_not_null().cast(pl.Int64),
        *(_tied_across(cutoff).alias(f"tied_across_{cutoff}") for cutoff in _CUTOFFS),
    )
    return judged.drop("own"), held


def _tied_across(k: int) -> pl.Expr:
    """Whether ranks k and k + 1 have one score once the passage at rank ``own`` is gone."""
    here, next_one = pl.col(f"tied_across_{k}"), pl.col(f"tied_across_{k + 1}")
    return pl.when(pl.col("own") <= k).then(next_one).when(pl.col("own") == k + 1).then(here & next_one).otherwise(here)


def _figure(run: str, test_set: TestSet, name: str, judged: pl.DataFrame, held: pl.DataFrame) -> Figure:
    def values(of: pl.DataFrame) -> pl.Series:
        if name == HOLE:
            return holes(of, held, test_set.queries, HOLE_CUTOFF)
        return per_query(parse(name), of, test_set.queries)

    cutoff = int(name.rpartition("@")[2])
    mine = values(judged)
    ties = int(held[f"tied_across_{cutoff}"].sum())
    worst = best = None
    if ties:
        # for holes, what matters is that a passage is judged, not its grade
        graded = judged.with_columns(relevance=pl.lit(1, pl.Int64)) if name == HOLE else judged
        worst, best = (mean(values(with_ties_resolved(graded, cutoff, best=how))) for how in (False, True))
    return Figure(
        run=run,
        test_set=test_set.name,
        measure=name,
        value=mean(mine),
        queries=len(test_set.queries),
        missing=len(test_set.queries) - held.height,
        ties_at_cutoff=ties,
        worst=worst,
        best=best,
        per_query=pl.DataFrame({"query_id": test_set.queries, "value": mine}),
    )


def read_queries(path: Path) -> pl.DataFrame:
    """``query_id`` and ``text`` of a ``queries.jsonl``, in its order.

    Raises:
        UserError: what is wrong with the file, with the lines.
    """
    faults = Faults(path)
    texts: dict[str, str] = {}
    for number, line in enumerate(_lines(path), start=1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            faults.add(number, "is not a JSON object")
            continue
        name, text = (entry.get(key) if isinstance(entry, dict) else None for key in ("_id", "text"))
        if not isinstance(name, str) or not isinstance(text, str) or not name:
            faults.add(number, 'expected a JSON object with "_id" and "text", both strings')
        elif name in texts:
            faults.add(number, f"query {name} comes twice")
        else:
            texts[name] = text
    if not texts and not faults.count:
        faults.add(1, "the file is empty")
    faults.raise_any()
    return pl.DataFrame({"query_id": list(texts), "text": list(texts.values())}, _QUERIES)


def read_qrels(path: Path, queries: set[str]) -> pl.DataFrame:
    """``query_id``, ``passage_id`` and ``relevance`` of a BEIR qrels file, whose queries are all among ``queries``.

    Raises:
        UserError: what is wrong with the file, with the lines.
    """
    faults = Faults(path)
    grades: dict[tuple[str, str], int] = {}
    lines = _lines(path)
    if lines[:1] != [HEADER]:
        faults.add(1, "expected the header query-id, corpus-id, score, separated by tabs")
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split("\t")
        query, passage, grade = fields if len(fields) == 3 else ("", "", "")
        if not (query and passage):
            faults.add(number, "expected a query id, a passage id and a grade, separated by tabs")
        elif not grade.removeprefix("-").isdecimal() or not grade.isascii() or len(grade) > 9:
            faults.add(number, f"the grade {grade[:40]!r} is not a whole number")
        elif query not in queries:
            faults.add(number, f"query {query} is not in queries.jsonl")
        elif (query, passage) in grades:
            faults.add(number, f"passage {passage} comes twice for query {query}")
        else:
            grades[query, passage] = int(grade)
    if not grades and not faults.count:
        faults.add(2, "the file judges nothing")
    faults.raise_any()
    return pl.DataFrame([(*pair, grade) for pair, grade in grades.items()], _QRELS, orient="row")


def _lines(path: Path) -> list[str]:
    text = read_utf8(path, "; a BEIR dataset has this file")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
