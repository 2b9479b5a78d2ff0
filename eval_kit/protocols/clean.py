"""Test queries that a model may have been trained on, and what they do to its figures.

A test query *leaks* if a training query is equal to it, equal but for case, punctuation and spaces, or a near-duplicate
(:mod:`eval_kit.stats.leaks`). The others are *clean*. Each test set gets two twins, ``<name>.leaked`` and
``<name>.clean``, which are scored like it. Leaked queries may simply be easier, so that a system's figures on the two
say nothing by themselves: its gain over an untrained pivot is compared, as :mod:`eval_kit.protocols.generalise` does.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__, plots
from eval_kit.documents import CleanDocument
from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.protocols.generalise import Generalisation, contrasts, small_division
from eval_kit.protocols.scores import Scores
from eval_kit.protocols.scoring import named
from eval_kit.release import Release, TestSet
from eval_kit.results import Picture, Result, origin
from eval_kit.runs.training import TrainingQueries
from eval_kit.search.passages import has_passages, passages
from eval_kit.stats import leaks
from eval_kit.stats.far import DEGRADES
from eval_kit.tables.table import Column, Fields, Table, laid_out, share

KINDS = ("equal", "normalised", "near", "passages")
LEAKED, CLEAN = "leaked", "clean"


@dataclass(frozen=True, repr=False)
class Clean(Result):
    """The leaks of each test set.

    Attributes:
        queries: ``test_set``, ``query_id``, ``equal``, ``normalised``, ``near``, ``passages`` (null where the
            training's passages are unknown), ``leaked``, and ``nearest`` (text of the nearest training query) with its
            ``cosine``.
        provenance: kit version, release, training queries and threshold.
    """

    queries: pl.DataFrame
    provenance: dict[str, Any]

    title = "Test queries that training gives away"

    def to_polars(self) -> pl.DataFrame:
        """One row for each query of each test set."""
        return self.queries

    def counts(self) -> pl.DataFrame:
        """One row for each test set: ``queries``, and how many of them leak in each way and in all."""
        kinds = [pl.when(pl.col(kind).count() > 0).then(pl.col(kind).sum()).alias(kind) for kind in KINDS]
        groups = self.queries.group_by("test_set", maintain_order=True)
        return groups.agg(pl.len().alias("queries"), *kinds, pl.col(LEAKED).sum(), (~pl.col(LEAKED)).sum().alias(CLEAN))

    def tables(self) -> list[Table]:
        """The counts, with shares."""
        columns = [Column("test set", source="test_set"), Column("queries", "number", format=",")]
        columns += [Column(name, "number", partial(_with_share, name)) for name in (*KINDS, LEAKED, CLEAN)]
        return [laid_out(self.counts(), columns)]

    @property
    def heading(self) -> str:
        """The source of the training queries."""
        return f"Test queries that {self.provenance['training']['source']} gives away"

    def summary(self) -> list[str]:
        """How many queries leak, in all and where most do."""
        counts = self.counts()
        row = counts.sort(pl.col(LEAKED) / pl.col("queries"), descending=True, maintain_order=True).row(0, named=True)
        leaked, queries = (each["query_id"].n_unique() for each in (self.queries.filter(LEAKED), self.queries))
        passage = ", or a relevant passage," * self.provenance["passages"]
        text = f"{leaked:,} of {queries:,} test queries ({share(leaked / queries)}) have a duplicate or near-duplicate"
        text += f"{passage} in training"
        most = f"; the highest share is {row['test_set']}'s ({row[LEAKED]:,} of {row['queries']:,})" * bool(row[LEAKED])
        return [f"{text}{most if counts.height > 1 else ''}."]

    def figures(self) -> list[Picture]:
        """The share of each test set that leaks."""
        shares = [(row["test_set"], row[LEAKED] / row["queries"]) for row in self.counts().iter_rows(named=True)]
        rows = [(name, share, f"{share:.1%}") for name, share in shares]
        return [
            Picture(
                plots.bars(rows, "share of queries that leak", "leaks", percent=True), "The share of queries that leak."
            )
        ]

    def notes(self) -> list[str]:
        """What was compared, and what counts as a leak."""
        training = self.provenance["training"]
        of = "equal, normalised and near" + (" ones and shared passages" if self.provenance["passages"] else " ones")
        return [
            origin(self.provenance),
            f"compared with {training['queries']:,} training queries of {training['source']}; leaked: {of}",
            f"near: a cosine of trigrams of at least {self.provenance['near']:g}; at {leaks.NEAR:g}, precision is "
            f"{leaks.PRECISION:.2f} and recall {leaks.RECALL:.2f} on as many duplicate as different pairs",
        ]

    def as_json(self) -> dict[str, Any]:
        """The counts, the twins that ``score --clean`` reads, and their digest."""
        twins = []
        for (name, is_leaked), group in self.queries.group_by("test_set", LEAKED, maintain_order=True):
            twin = f"{name}.{LEAKED if is_leaked else CLEAN}"
            twins.append({"name": twin, "of": name, "queries": group["query_id"].to_list()})
        twins.sort(key=lambda twin: twin["name"])
        digest = _digest(self.provenance["release"]["digest"], twins)
        rows = {"rows": self.counts().to_dicts(), "test_sets": twins, "digest": digest}
        return {**rows, "notes": self.notes(), "provenance": self.provenance}


def _with_share(name: str, row: Fields) -> str | None:
    return None if row[name] is None else f"{row[name]:,} ({row[name] / row['queries']:.1%})"


def clean(
    release: Release,
    training: TrainingQueries,
    test_sets: Sequence[str] = (),
    near: float = leaks.NEAR,
    shared_passages: bool = False,
) -> Clean:
    """Find the test queries of a release that training queries give away.

    The arguments are those of :func:`eval_kit.api.clean`, the release open and ``training`` read.

    Raises:
        UserError: no such test set, or a threshold that is not in 0 to 1.
    """
    if not 0 < near <= 1:
        raise UserError(f"the threshold of near-duplicates must be above 0 and at most 1, not {near}")
    selection = named(release.test_sets, test_sets)
    texts = pl.concat(map(release.queries, selection))
    texts = leaks.with_normal(texts.drop_nulls().unique("query_id", keep="first", maintain_order=True))
    train = leaks.with_normal(training.queries)
    flags = leaks.with_near(leaks.with_same(texts, train), train, near, "comparing queries").drop("text", "normal")
    given_away = _passages(release, training)
    frames = []
    for test_set in selection.values():
        frame = test_set.queries.to_frame("query_id").join(flags, on="query_id", how="left", maintain_order="left")
        shares = pl.lit(None, pl.Boolean)
        if given_away is not None:
            relevant = release.qrels(test_set.qrels).filter(pl.col("relevance") > 0)
            sharing = relevant.filter(pl.col("passage_id").is_in(given_away.implode()))["query_id"]
            shares = pl.col("query_id").is_in(sharing.implode())
        frame = frame.with_columns(test_set=pl.lit(test_set.name), passages=shares)
        kinds = KINDS if shared_passages else KINDS[:3]
        frames.append(frame.with_columns(pl.any_horizontal(pl.col(kinds).fill_null(False)).alias(LEAKED)))
    texts_digest = hashlib.sha256("\n".join(sorted(train["text"])).encode()).hexdigest()
    source = {"source": training.source.name, "queries": train.height, "sha256": texts_digest}
    provenance = {
        "kit_version": __version__,
        "release": release.identity,
        "training": source,
        "near": near,
        "passages": shared_passages,
    }
    columns = ("test_set", "query_id", *KINDS, LEAKED, "nearest", "cosine")
    return Clean(pl.concat(frames).select(columns), provenance)


def twins(path: Path, release: Release) -> dict[str, TestSet]:
    """The release's test sets, each followed by its leaked and its clean twin.

    Args:
        path: what ``eval_kit clean --json`` wrote.
        release: the one that it was written for.

    Raises:
        UserError: another file, one that was edited, or one of another release; a twin of no test set of the release,
            or that has not its name; queries that are not the test set's, or twice.
    """
    document = strict_json.load(CleanDocument, path)
    entries = [twin.as_json() for twin in document.test_sets]
    if document.digest != _digest(release.digest, entries):
        raise UserError(f"{path}: expected what 'eval_kit clean --json' wrote for this release, unchanged")
    seen: set[tuple[str, str]] = set()
    for twin in document.test_sets:
        if twin.of not in release.test_sets or twin.name not in (f"{twin.of}.{LEAKED}", f"{twin.of}.{CLEAN}"):
            raise UserError(f"{path}: {twin.name!r:.60} is no twin of a test set of this release")
        queries = [(twin.of, query) for query in twin.queries]
        if not release.test_sets[twin.of].query_ids.issuperset(twin.queries) or seen.intersection(queries):
            raise UserError(
                f"{path}: {twin.name}: holds queries that are not those of {twin.of}, or that another holds"
            )
        seen.update(queries)
        if len(set(queries)) < len(queries):
            raise UserError(f"{path}: {twin.name}: holds a query twice")
    if len({twin.name for twin in document.test_sets}) < len(document.test_sets):
        raise UserError(f"{path}: holds a twin twice")
    test_sets = {}
    for name, test_set in release.test_sets.items():
        test_sets[name] = test_set
        for twin in sorted(document.test_sets, key=attrgetter("name"), reverse=True):
            if twin.of == name:
                queries_of_twin = pl.Series("query_id", twin.queries, pl.String)
                test_sets[twin.name] = replace(test_set, name=twin.name, queries=queries_of_twin)
    return test_sets


@dataclass(frozen=True, repr=False)
class CleanScores(Scores):
    """Scores on test sets and their twins, and the difference in differences to untrained pivots.

    Attributes:
        effects: of each test set: the gain over the pivots on clean queries, minus that on leaked ones.
    """

    effects: Mapping[str, Generalisation]

    def tables(self) -> list[Table]:
        """The scores; then a table for each test set that has both twins."""
        tables = super().tables()
        for name, effect in self.effects.items():
            tables += [replace(table, title=f"{name}: near is leaked, far is clean") for table in effect.tables()]
        return tables

    def notes(self) -> list[str]:
        """Those of the scores; what the differences mean, or why there are none."""
        if not self.effects:
            why = "no differences between leaked and clean: they need a run of a system that was trained (a model) and "
            return [*super().notes(), f"{why}one that was declared untrained, such as BM25, over queries of both kinds"]
        effect = next(iter(self.effects.values()))
        return [*super().notes(), *effect.notes()[:2]]

    def summary(self) -> list[str]:
        """The verdict on each test set, and what it means for the figure on all its queries."""
        sentences = []
        for name, effect in self.effects.items():
            for row in effect.contrasts.iter_rows(named=True):
                text = f"{row['system']} on {name}, clean queries beside leaked ones: {row['verdict']}"
                if row["verdict"] == DEGRADES:
                    text += ": its gain is smaller on clean ones, so the figure on all queries flatters it"
                sentences.append(f"{text}{': ' * bool(row['why'])}{row['why']}.")
        return sentences[:5] or super().summary()

    def figures(self) -> list[Picture]:
        """The scores; and the levels on leaked and clean queries."""
        slopes = (effect.slopes((LEAKED, CLEAN), name) for name, effect in self.effects.items())
        return [*super().figures(), *chain.from_iterable(slopes)]

    def as_json(self) -> dict[str, Any]:
        """The document of the scores, with the ``leak_effects`` of each test set."""
        effects = {name: each.as_json()["rows"] for name, each in self.effects.items()}
        return super().as_json() | {"leak_effects": effects}


def with_effects(
    scores: Scores, release: Release, test_sets: Mapping[str, TestSet], allow_missing: bool = False
) -> CleanScores:
    """Add the differences in differences, wherever a run was declared untrained and another was not.

    Args:
        scores: on the ``test_sets``, of files.
        release: that they were scored on.
        test_sets: from :func:`twins`.
        allow_missing: as for the scores.
    """
    sources = {source["run"]: source for source in scores.provenance["runs"]}
    runs_of: dict[str, dict[str, None]] = {}
    for mean in scores.means:
        runs_of.setdefault(mean.test_set, {})[mean.run] = None
    effects = {}
    for name, runs in runs_of.items():
        pivots: list[Path] = []
        systems: list[Path] = []
        for run in runs:
            is_pivot = sources[run]["training_data"] == []
            (pivots if is_pivot else systems).append(Path(sources[run]["file"]))
        if not pivots or not systems or not {f"{name}.{LEAKED}", f"{name}.{CLEAN}"} <= test_sets.keys():
            continue
        texts = release.queries(name)
        of_sides = {}
        for side in (LEAKED, CLEAN):
            queries = test_sets[f"{name}.{side}"].queries
            of_sides[side] = texts.filter(pl.col("query_id").is_in(queries.implode()))
        division = small_division("leaks", of_sides, CLEAN, seed=0)
        effects[name] = contrasts(systems, release, pivots, release.test_sets[name], [division], allow_missing)
    return CleanScores(scores.means, scores.provenance, effects)


def _passages(release: Release, training: TrainingQueries) -> pl.Series | None:
    """Ids of the release's passages that were relevant in training; None where either does not say."""
    if len(training.passage_ids):
        return training.passage_ids
    if not len(training.passage_texts) or not has_passages(release):
        return None
    training_texts = set(map(leaks.normal_form, training.passage_texts))
    ids = [passage for passage, text in passages(release) if leaks.normal_form(text) in training_texts]
    return pl.Series("passage_id", ids, pl.String)


def _digest(release: str, twins: Any) -> str:
    text = json.dumps([release, twins], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
