"""What the parts of a release are about, and how its queries differ from another log's: for reading alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from builder.sources import log
from builder.validation import draw_ids
from eval_kit import __version__, plots
from eval_kit.errors import UserError
from eval_kit.release import Release, beir_folder, open_release
from eval_kit.results import Picture, Result
from eval_kit.sentences import counted
from eval_kit.shifts import SHIFTS, union
from eval_kit.stats.distance import Trigrams
from eval_kit.stats.figure import POWER
from eval_kit.stats.losses import holm
from eval_kit.stats.similarity import weighted_jaccard
from eval_kit.stats.typical import topics
from eval_kit.tables.table import Column, Table, laid_out
from eval_kit.words import words

_PARTS = ("shift", "part", "queries", "words", "examples", "jaccard")
_EXAMPLES = 10
_SAMPLE = 2_000
"""Queries of each side that the classifier sees, at most: half to learn from, half to be tested on."""
_WIDTH = 1 << 14
"""Features of the classifier."""
_FEWEST = 10
"""Queries of a side; of fewer, a classifier would learn from less than five."""
_LEVEL = 0.05
"""Of 20 pairs of halves of one log at most 4 are called different (tests/builder/test_splits.py)."""
# one-sided at half the level, as the first of two that Holm corrects, and 80 % beside it
_REACH = NormalDist().inv_cdf(1 - _LEVEL / 2) + NormalDist().inv_cdf(POWER)
_MOST, _NEWEST = 10_000, 5
"""Queries of each side that are compared with the other log, at most, and how many of the newest are named."""
_NOT_WHOLE = (
    "Whether the logs differ is not tested, as a release has only the queries that its shifts kept. "
    "Give both logs themselves, as files"
)


@dataclass(frozen=True, repr=False)
class Description(Result):
    """What the parts of a release are about.

    Attributes:
        parts: ``shift``, ``part``, ``queries``, ``words``, ``examples`` (one a line), and ``jaccard``, the weighted
            Jaccard with the other log (null without one).
        sentences: on all queries together.
        remarks: of the release.
        provenance: the release.
    """

    title = "What the queries are about"
    parts: pl.DataFrame
    sentences: list[str]
    remarks: Sequence[str]
    provenance: Mapping[str, Any]

    def to_polars(self) -> pl.DataFrame:
        """The parts."""
        return self.parts

    def tables(self) -> list[Table]:
        """For each shift its parts, and queries of each."""
        columns = [
            Column("part", "heading"),
            Column("queries", "number", format=","),
            Column("Jaccard", "number", "jaccard", ".3f", shown=self.parts["jaccard"].count() > 0),
            Column("typical words", source="words"),
        ]
        tables = []
        for (shift,), rows in self.parts.group_by("shift", maintain_order=True):
            questions = []
            for part, examples in rows.select("part", "examples").iter_rows():
                first, *more = examples.split("\n")
                questions.append([[part, first], *([None, text] for text in more)])
            title = f"{SHIFTS[str(shift)].title} ({shift})"
            tables.append(laid_out(rows, columns, section=title))
            tables.append(
                Table([Column("part", "heading"), Column("queries drawn at random")], questions, section=title)
            )
        return tables

    def summary(self) -> list[str]:
        """On all queries together."""
        return [f"{sentence}." for sentence in self.sentences]

    def figures(self) -> list[Picture]:
        """How alike each part of a shift is to the other log; without one, how many queries it has."""
        figures = []
        for (shift,), rows in self.parts.group_by("shift", maintain_order=True):
            near = rows["jaccard"].count() > 0
            axis = "weighted Jaccard similarity to the other log" if near else "queries"
            values = rows.select("part", "jaccard" if near else "queries").iter_rows()
            bars = [(part, value, f"{value:.3f}" if near else f"{value:,}") for part, value in values]
            title = f"{SHIFTS[str(shift)].title}: {axis} by part."
            figures.append(Picture(plots.bars(bars, axis, title), title))
        return figures

    def notes(self) -> list[str]:
        """The release's remarks."""
        return list(self.remarks)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return super().as_json() | {"summary": self.sentences}


def describe(source: Path, against: Path | None, seed: int) -> Description:
    """Describe each shift's parts by sizes, typical words and ten queries drawn at random.

    They are set ``against`` another log, or a release whose queries are taken as one. Whether two logs differ is
    tested only where both are whole, a file or a BEIR folder: what a shift has kept is no random sample of its log.

    Args:
        source: a release, or a query log, which has no parts.
        against: likewise, or None.
        seed: of what is drawn.

    Raises:
        UserError: the release is damaged, or a log cannot be read.
    """
    release = open_release(str(source)) if source.is_dir() else None
    queries, whole = _queries(source, release)
    other, other_whole = (None, False) if against is None else _queries(against)
    rows: list[tuple[Any, ...]] = []
    for name, shift in SHIFTS.items():
        if release is not None and shift.label and name in release.configs:
            table = _with_labels(release, name, shift.label)
            rows += [(name, *row) for row in _parts(table, shift.label, other, seed)]
    keys = pl.Series([" ".join(sorted(words(text))) for text in queries["text"]])
    lines = [f"{queries.height:,} queries, of which {keys.is_duplicated().sum():,} have the same words as another"]
    if other is not None:
        near = weighted_jaccard(queries["text"], other["text"])
        lines.append(
            f"The other log has {counted(other.height, 'query')}. Their weighted Jaccard similarity is {near:.3f}"
        )
        lines += _verdicts(queries, other, seed) if whole and other_whole else [_NOT_WHOLE]
    provenance: dict[str, Any] = {"kit_version": __version__}
    if release is not None:
        provenance["release"] = release.identity
    remarks = release.manifest.remarks if release is not None else ()
    return Description(pl.DataFrame(rows, _PARTS, orient="row"), lines, remarks, provenance)


def _two_sample(first: pl.Series, other: pl.Series, seed: int) -> tuple[float, float]:
    """Classifier two-sample test (Lopez-Paz and Oquab, ICLR 2017): can a classifier tell the two logs apart?

    A logistic regression over character 2- to 4-grams within words learns from half of
    equally many texts of each side, drawn at random.

    Returns:
        Its accuracy on the other half (0.5: the logs cannot be told apart), and the one-sided binomial p of that.
    """
    from scipy.stats import binomtest
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import LogisticRegression

    rng = np.random.Generator(np.random.PCG64(seed))
    size = min(len(first), len(other), _SAMPLE) // 2 * 2
    texts = pl.concat([side.gather(rng.permutation(len(side))[:size]) for side in (first, other)])
    rows = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), n_features=_WIDTH).transform(texts.to_list())
    labels = np.repeat([0, 1], size)
    learn = np.arange(2 * size) % size < size // 2  # the first half of each side, whose texts are in random order
    model = LogisticRegression(C=10, max_iter=200).fit(rows[learn], labels[learn])
    right = int((model.predict(rows[~learn]) == labels[~learn]).sum())
    return right / size, float(binomtest(right, size, 0.5, alternative="greater").pvalue)


@dataclass(frozen=True)
class _Novelty:
    """How far the queries of a log are from an older one, beside how far the older one's own are.

    Attributes:
        farther: the chance that a new query is farther than one of the old log's own; 0.5 where nothing is new.
        p: one-sided, of 0.5 or less.
        would_find: the chance that is found in 80 % of cases.
        newest: the queries that are farthest.
    """

    farther: float
    p: float
    would_find: float
    newest: list[str]


def _novelty(queries: pl.Series, other: pl.Series, seed: int) -> _Novelty:
    """Distance to the nearest of half of the other log, against that of its other half, by Mann and Whitney's test.

    The classifier sees a change of the mixture, and hardly a few queries that nobody asked before.
    """
    from scipy.stats import mannwhitneyu

    rng = np.random.Generator(np.random.PCG64([seed, 1]))
    new, old = (side.gather(rng.permutation(len(side))[:_MOST]) for side in (queries, other))
    known = Trigrams(old.head(len(old) // 2).to_list())
    sides = new, old.tail(-(len(old) // 2))
    far, own = (1 - known.nearest(side, "distance to the other log")["cosine"].to_numpy() for side in sides)
    tested = mannwhitneyu(far, own, alternative="greater", method="asymptotic")
    m, n = len(far), len(own)
    newest = sides[0].gather(np.argsort(-far, kind="stable")[:_NEWEST]).to_list()
    error = np.sqrt((m + n + 1) / (12 * m * n))
    return _Novelty(float(tested.statistic) / (m * n), float(tested.pvalue), 0.5 + _REACH * float(error), newest)


def _would_find(tests: int) -> float:
    """The classifier's accuracy that is found in 80 % of cases, on so many queries."""
    return 0.5 + _REACH * 0.5 / float(np.sqrt(tests))


def _queries(source: Path, release: Release | None = None) -> tuple[pl.DataFrame, bool]:
    """The queries of a log or release, each text once as a log is read, and whether they are the whole log."""
    if not source.is_dir():
        return log.collection(source).queries["train"], True
    release = release or open_release(str(source))
    configs = (*SHIFTS, "validation", beir_folder.KIND)
    tables = [entry.key for entry in release.manifest.tables if entry.config in configs]
    texts = union(release, tables).drop_nulls("text").unique("query_id", keep="first").sort("query_id")
    if texts.is_empty():
        raise UserError(f"{release.folder} has no texts of queries")
    return texts, release.manifest.kind == beir_folder.KIND


def _with_labels(release: Release, config: str, label: str) -> pl.DataFrame:
    """The queries of a config with their labels; of a partial release those whose texts are at hand."""
    tables = (release.table(config, split).select("query_id", "text", label) for split in release.configs[config])
    return pl.concat(tables).drop_nulls("text")


def _parts(table: pl.DataFrame, label: str, other: pl.DataFrame | None, seed: int) -> Iterator[tuple[Any, ...]]:
    for part in topics(table.unique(["query_id", label], keep="first", maintain_order=True), label):
        members = table.filter(pl.col(label).cast(pl.String) == part.cluster)
        near = None if other is None else weighted_jaccard(members["text"], other["text"])
        ids = draw_ids(members["query_id"], _EXAMPLES, seed, f"describe {part.cluster}")
        examples = members.filter(pl.col("query_id").is_in(ids.implode()))["text"].unique(maintain_order=True)
        yield part.cluster, part.queries, ", ".join(part.terms), "\n".join(examples), near


def _verdicts(queries: pl.DataFrame, other: pl.DataFrame, seed: int) -> Iterator[str]:
    """What two tests, after Holm's correction, show of a log beside an older one, and what each would find."""
    first, second = (side["text"].unique(maintain_order=True) for side in (queries, other))
    if min(len(first), len(second)) < _FEWEST:
        yield f"too few queries to tell two logs apart: that needs {_FEWEST} of each"
        return
    accuracy, p = _two_sample(first, second, seed)
    novelty = _novelty(first, second, seed)
    p_mixture, p_new = (each or 0.0 for each in holm([p, novelty.p]))
    would = _would_find(min(len(first), len(second), _SAMPLE) // 2 * 2)
    verdict = "they differ" if p_mixture < _LEVEL else "no difference beyond chance is seen"
    yield (
        f"a classifier tells the two logs apart in {accuracy:.1%} of cases, {_p(p_mixture)}: {verdict} "
        f"(would find {would:.1%})"
    )
    verdict = "it has queries unlike any before" if p_new < _LEVEL else "no queries unlike any before are seen"
    yield (
        f"a query is farther from the nearest of the other log than that log's own are in {novelty.farther:.1%} of "
        f"cases, {_p(p_new)}: {verdict} (would find {novelty.would_find:.1%})"
    )
    if p_new < _LEVEL:
        yield f"the newest: {'; '.join(novelty.newest)}"


def _p(value: float) -> str:
    """A p-value after correction."""
    return f"p (Holm) {f'= {value:.2g}' if value else '< 1e-300'}"
