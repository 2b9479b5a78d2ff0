"""Systems on the datasets of BEIR (Thakur et al., NeurIPS Datasets and Benchmarks 2021), beside the paper's figures.

nDCG@10 (§4, Table 2), R@100 (Table 9), R_cap@100 (Appendix G), hole@10 (§6, Table 4) and Judged@10 over the queries
that a split judges, the mean of CQADupStack's twelve folders, and the average against BM25. Each run is scored by
:func:`eval_kit.protocols.scoring.scores_of` on its dataset's folder.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__
from eval_kit.errors import UserError, parameter
from eval_kit.protocols.scores import Mean, Scores
from eval_kit.protocols.scoring import scores_of
from eval_kit.release import Release, beir_folder
from eval_kit.release.beir_suite import ANNOTATED, CQADUPSTACK, MS_MARCO, dataset_name, published_values, split_of
from eval_kit.release.beir_suite import datasets as suite
from eval_kit.results import Result
from eval_kit.runs.given import GivenRuns, take
from eval_kit.runs.ranks import TIE_RULE
from eval_kit.sentences import counted
from eval_kit.stats.figure import Figure
from eval_kit.stats.parts import FEWEST_PARTS
from eval_kit.tables.table import Column, Table, bracketed, laid_out, of, or_dash, side_by_side, text_columns

MEASURES = ("nDCG@10", "R@100", "R_cap@100", "hole@10", "Judged@10")
_OVER_ANSWERED = ("nDCG@10", "R@100", "R_cap@100", "hole@10")
"""The measures whose mean BEIR's own evaluator takes over the queries that the run answers."""
_TITLES = {"nDCG@10": "nDCG@10 (Table 2)", "R@100": "R@100 (Table 9)", "hole@10": "hole@10 (Table 4)"}
_CAPPED = "trec-covid"
"""The dataset for which Table 9 has capped recall."""
_PUBLISHED_AS = {"bm25-multifield": "bm25", "minilm-cross-encoder": "bm25+ce"}
"""The paper's names of systems that have others here."""
BM25 = ("bm25-multifield", "bm25")
"""The first of these among the systems is the one that others are compared with: the paper's BM25 has two fields."""


@dataclass(frozen=True)
class Average:
    """The mean nDCG@10 of a system and of BM25 over some datasets, whose number is ``datasets``.

    ``relative`` is the ratio of the means less 1, None where BM25 finds nothing.
    """

    system: float
    bm25: float
    relative: float | None
    datasets: int


@dataclass(frozen=True, repr=False)
class Suite(Result):
    """Systems on the same datasets.

    Attributes:
        rows: see :meth:`to_polars`.
        provenance: of every run on every dataset.
    """

    title = "BEIR"

    rows: pl.DataFrame
    provenance: dict[str, Any]

    def to_polars(self) -> pl.DataFrame:
        """A row for each system, dataset and measure; CQADupStack's folders have rows besides that of their mean.

        ``published`` is the paper's figure, null where it has none; ``missing``, how many of the ``queries`` the run
        lacks; ``answered``, the mean over the others (:data:`_OVER_ANSWERED`).
        """
        return self.rows

    def tables(self) -> list[Table]:
        """A row for each dataset and system; beside each measure that the paper prints, the paper's figure."""
        titles = pl.DataFrame({"title": list(_TITLES)})
        rows = self._of_datasets().join(titles, how="cross").filter(pl.col("measure") == _as_printed())
        if "bm25" not in map(_in_paper, rows["system"].unique()):  # the paper's, beside any system
            first = rows.filter(system=rows["system"][0])
            paper = _published("bm25", first)
            alone = first.with_columns(pl.lit("bm25").alias("system"), pl.lit(None).alias("value"), published=paper)
            rows = pl.concat([rows, alone], how="vertical_relaxed")
        datasets = rows["dataset"].unique(maintain_order=True).to_frame()
        rows = datasets.join(rows, on="dataset", maintain_order="left_right")
        columns = [*text_columns("dataset", "system", wrap="anywhere"), Column("n", "number", "queries", ",")]
        for measure, title in _TITLES.items():
            for name, source in (("ours", "value"), ("BEIR", "published")):
                columns.append(Column(name, "number", of(measure, source), ".3f", group=title, wrap="never"))
        return [laid_out(side_by_side(rows, ("dataset", "system", "queries"), "title"), columns, "dataset")]

    def averages(self) -> dict[str, Average]:
        """Each system against BM25, without MS MARCO, which systems were trained on (§4), and the second TREC-COVID.

        Empty without BM25, or on MS MARCO alone.
        """
        left_out = ~pl.col("dataset").is_in([MS_MARCO, ANNOTATED])
        rows = self._of_datasets().filter(left_out, measure="nDCG@10")
        systems = rows.group_by("system", maintain_order=True)
        values = {str(system): dict(own.select("dataset", "value").iter_rows()) for (system,), own in systems}
        reference = values.pop(self._bm25 or "", {})
        return {system: against_bm25(figures, reference) for system, figures in values.items() if reference}

    def summary(self) -> list[str]:
        """The mean of each system over its datasets, with an interval from six on; of one dataset its figure."""
        said = []
        main = self._of_datasets().filter(measure=pl.lit(MEASURES[0]))
        for (system,), group in main.group_by("system", maintain_order=True):
            values = group["value"].to_numpy()
            mean, low, high = float(values.mean()), None, None
            if len(values) >= FEWEST_PARTS:
                low, high = Figure(mean, float(values.std(ddof=1)) / len(values) ** 0.5, len(values) - 1).interval
            text = bracketed(mean, low, high, "{:.4f}".format)
            text += " (95 %, datasets as random draws)" * (low is not None)
            alone = len(values) == 1
            where = group["dataset"][0] if alone else counted(len(values), "dataset")
            said.append(f"{system}: {'mean ' * (not alone)}{MEASURES[0]} {text} on {where}.")
        return said

    def notes(self) -> list[str]:
        """Datasets that are not whole, the averages against BM25, and the means without queries that a run lacks."""
        notes = []
        for dataset, queries in self._of_datasets().select("dataset", "queries").unique(maintain_order=True).rows():
            if not _is_whole(dataset, queries):
                other = f"{dataset} has {counted(queries, 'query')} here and {suite()[dataset].queries:,} in the paper"
                notes.append(f"{other}, so no figure of the paper stands beside it")
        for system, average in self.averages().items():
            notes.append(
                f"{system} against {self._bm25} (nDCG@10): {or_dash(average.relative, '+z.1%')} (ratio of the means, "
                f"{average.system:.3f} against {average.bm25:.3f}) over {counted(average.datasets, 'dataset')}. "
                "The paper's own row does not follow from its 18 datasets"
            )
        lacking = self.rows.filter(pl.col("missing") > 0, pl.col("measure").is_in(_OVER_ANSWERED))
        for (system, dataset), group in lacking.group_by("system", "dataset", maintain_order=True):
            means = ", ".join(f"{row['measure']} {row['answered']:.4f}" for row in group.iter_rows(named=True))
            notes.append(
                f"{system} found nothing for {counted(group['missing'][0], 'query')} of {dataset}, scored as 0. "
                f"Without them, as BEIR averages: {means}"
            )
        return notes

    @property
    def _bm25(self) -> str | None:
        """The system that stands for the paper's BM25, if there is one."""
        systems = self.rows["system"].unique()
        return next((name for name in BM25 if name in systems), None)

    def _of_datasets(self) -> pl.DataFrame:
        """The rows without those of CQADupStack's folders."""
        return self.rows.filter(~pl.col("dataset").str.starts_with(f"{CQADUPSTACK}."))


def beir(runs: GivenRuns, datasets: Sequence[Path], bm25: GivenRuns = ()) -> Suite:
    """Score a system on datasets of BEIR, beside the paper's figures.

    A query that a run lacks, such as one for which BM25 finds nothing, has the value 0 and is counted.

    Args:
        runs: the system's, one a dataset: ``<system>.<dataset>.trec`` or any other name; the first names the system.
        datasets: folders in BEIR's format, in the order of the runs; CQADupStack's twelve (``cqadupstack/android`` …)
            count as one dataset, their mean.
        bm25: BM25's runs in that order, or none; with them, the average gain over BM25.

    Raises:
        UserError: not as many runs as datasets, a dataset given twice, or without the split that the paper reports; a
            folder that is not in BEIR's format; a run that cannot be used.
    """
    own, of_bm25 = take(runs=runs, bm25=bm25)
    for name, values in (("datasets", datasets), ("bm25", of_bm25)):
        if len(values) != len(own) and (values or name == "datasets"):
            raise UserError(
                f"{parameter(name)} was given {len(values)} times for {counted(len(own), 'run')}",
                do=f"Give {parameter(name)} once for each run",
            )
    folders = {dataset_name(Path(folder)): Path(folder) for folder in datasets}
    if len(folders) < len(datasets):
        raise UserError(
            f"Two of {parameter('datasets')} are called {Counter(map(dataset_name, datasets)).most_common()[0][0]}"
        )
    system = own[0].own_name.removesuffix(f".{next(iter(folders))}")
    if of_bm25 and system == "bm25":
        raise UserError(f"The runs to compare with {parameter('bm25')} are called bm25 too", do="Rename them")
    scores: dict[str, dict[str, Scores]] = {name: {} for name in (system, *["bm25"] * bool(of_bm25))}
    digests, sources = {}, []
    for number, (name, folder) in enumerate(folders.items()):
        release = Release(folder, *beir_folder.read(folder))
        split = split_of(folder)
        if split not in release.test_sets:
            has = ", ".join(release.test_sets)
            raise UserError(f"{folder / 'qrels' / split}.tsv does not exist", f"The folder has {has}")
        test_sets = {split: replace(release.test_sets[split], measures=MEASURES)}
        for of_system, each in zip(scores.values(), (own, of_bm25), strict=False):
            of_system[name] = scores_of([each[number]], release, allow_missing=True, test_sets=test_sets)
            sources += of_system[name].provenance["runs"]
        digests[name] = release.digest
    provenance = {"kit_version": __version__, "tie_rule": TIE_RULE, "datasets": digests, "runs": sources}
    return Suite(pl.concat(_rows(*each) for each in scores.items()), provenance)


def _in_paper(system: str) -> str:
    """What the paper calls a system, if it has it."""
    return _PUBLISHED_AS.get(system, system.partition(".")[0])


def _as_printed() -> pl.Expr:
    """The measure, of those with a title, that the paper prints of a dataset: Table 9's is capped for TREC-COVID."""
    is_capped = (pl.col("dataset") == _CAPPED) & (pl.col("title") == "R@100")
    return pl.when(is_capped).then(pl.lit("R_cap@100")).otherwise("title")


def against_bm25(system: Mapping[str, float], bm25: Mapping[str, float]) -> Average:
    """Average performance against BM25 (Table 2's last row).

    The paper does not define the row. Over its 18 datasets no printed cell follows from the table; without NQ, the
    ratio of the means, which this is, gives two as printed (docT5query and GenQ), and none of the others.

    Args:
        system: dataset → nDCG@10; at least one.
        bm25: the same for BM25, on the same datasets.
    """
    system_mean, bm25_mean = sum(system.values()) / len(system), sum(bm25.values()) / len(bm25)
    return Average(system_mean, bm25_mean, system_mean / bm25_mean - 1 if bm25_mean else None, len(system))


def _rows(system: str, scores: Mapping[str, Scores]) -> pl.DataFrame:
    """A system's rows: each folder's, with CQADupStack's mean behind the last of its folders."""
    by_dataset: dict[str, list[pl.DataFrame]] = {}
    for name, of_folder in scores.items():
        dataset = CQADUPSTACK if name.startswith(f"{CQADUPSTACK}.") else name
        figures = pl.DataFrame([_row(system, name, figure) for figure in of_folder.means])
        by_dataset.setdefault(dataset, []).append(figures.cast({"answered": pl.Float64}))
    if members := by_dataset.get(CQADUPSTACK):
        means = pl.col("value", "answered").mean()  # each folder counts the same, as in BEIR
        together = pl.concat(members).group_by("measure", maintain_order=True)
        keys = {"system": pl.lit(system), "dataset": pl.lit(CQADUPSTACK)}
        mean = together.agg(means, pl.col("queries", "missing").sum(), **keys)
        members.append(mean.select(members[0].columns))
    rows = pl.concat(chain.from_iterable(by_dataset.values()))
    return rows.with_columns(published=_published(_in_paper(system), rows))


def _published(paper_name: str, rows: pl.DataFrame) -> pl.Series:
    """The paper's value for the dataset and measure of each row; none for other queries under a dataset's name."""
    values = [
        published_values().get((paper_name, dataset), {}).get(measure) if _is_whole(dataset, queries) else None
        for dataset, measure, queries in rows.select("dataset", "measure", "queries").iter_rows()
    ]
    return pl.Series("published", values, pl.Float64)


def _is_whole(dataset: str, queries: int) -> bool:
    """Whether a folder of a dataset's name has as many queries as the paper's Table 1."""
    return dataset not in (known := suite()) or known[dataset].queries == queries


def _row(system: str, dataset: str, figure: Mean) -> dict[str, Any]:
    count = figure.queries - figure.missing
    # the value of a query that the run lacks is 0
    over_answered = float(figure.per_query["value"].sum()) / count if count else 0.0
    return {
        "system": system,
        "dataset": dataset,
        "measure": figure.measure,
        "value": figure.value,
        "queries": figure.queries,
        "missing": figure.missing,
        "answered": over_answered if figure.measure in _OVER_ANSWERED else None,
    }
