"""Test queries that a model may have been trained on, and what they do to its figures.

A test query *leaks* if a training query is equal to it, equal but for case, punctuation and spaces, or a near-duplicate
(:mod:`eval_kit.stats.leaks`). The others are *clean*. The division ``leaked`` scores the two apart. Leaked queries may
simply be easier, so that a system's figures on the two say nothing by themselves: its gain over an untrained pivot is
compared by :mod:`eval_kit.protocols.generalise`.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__, plots
from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.documents import Compared
from eval_kit.errors import UserError
from eval_kit.protocols.scoring import named
from eval_kit.release import Release
from eval_kit.results import Picture, Result, origin
from eval_kit.runs.training import TrainingQueries, read
from eval_kit.search.passages import has_passages, passages
from eval_kit.sentences import counted
from eval_kit.stats import leaks
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

    title = "Test queries leaked by training"

    def to_polars(self) -> pl.DataFrame:
        """One row for each query of each test set."""
        return self.queries

    def counts(self) -> pl.DataFrame:
        """One row for each test set: ``queries``, and how many of them leak in each way and in all."""
        kinds = [pl.when(pl.col(kind).count() > 0).then(pl.col(kind).sum()).alias(kind) for kind in KINDS]
        groups = self.queries.group_by("test_set", maintain_order=True)
        return groups.agg(pl.len().alias("queries"), *kinds, pl.col(LEAKED).sum(), (~pl.col(LEAKED)).sum().alias(CLEAN))

    def compared(self) -> Compared:
        """How many queries of each test set have the text of a training query, as a run declares it."""
        same = pl.any_horizontal("equal", "normalised").fill_null(False).sum().alias("same")
        counts = self.queries.group_by("test_set", maintain_order=True).agg(same)
        training, release = self.provenance["training"], self.provenance["release"]["digest"]
        return Compared(**training, release=release, test_sets=dict(counts.iter_rows()))

    def tables(self) -> list[Table]:
        """The counts, with shares."""
        columns = [Column("test set", source="test_set"), Column("queries", "number", format=",")]
        columns += [Column(name, "number", with_share(name)) for name in (*KINDS, LEAKED, CLEAN)]
        return [laid_out(self.counts(), columns)]

    @property
    def heading(self) -> str:
        """The source of the training queries."""
        return f"Test queries leaked by {self.provenance['training']['source']}"

    def summary(self) -> list[str]:
        """How many queries leak, in all and where most do."""
        counts = self.counts()
        row = counts.sort(pl.col(LEAKED) / pl.col("queries"), descending=True, maintain_order=True).row(0, named=True)
        leaked, queries = (each["query_id"].n_unique() for each in (self.queries.filter(LEAKED), self.queries))
        passage = ", or a relevant passage," * self.provenance["passages"]
        text = f"{leaked:,} of {queries:,} test queries ({share(leaked / queries)}) have a duplicate or near-duplicate"
        text += f"{passage} in training"
        most = f". {row['test_set']} has the highest share ({row[LEAKED]:,} of {row['queries']:,})" * bool(row[LEAKED])
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
        """What was compared."""
        training = self.provenance["training"]
        queries = counted(training["queries"], "training query")
        return [f"Compared with {queries} of {training['source']}"]

    def method(self) -> list[str]:
        """What counts as a leak."""
        of = ", or with a relevant passage in common" if self.provenance["passages"] else ""
        return [
            f"Leaked means equal, equal once normalised, or near{of}",
            f"Near means a trigram cosine of {self.provenance['near']:g} or more. At {leaks.NEAR:g}, precision is "
            f"{leaks.PRECISION:.2f} and recall {leaks.RECALL:.2f} on as many duplicate as different pairs",
            origin(self.provenance),
        ]

    def content(self) -> dict[str, Any]:
        """The counts, and the ids of each test set's leaked and clean queries."""
        sides = []
        for (name, is_leaked), group in self.queries.group_by("test_set", LEAKED, maintain_order=True):
            side = f"{name}.{LEAKED if is_leaked else CLEAN}"
            sides.append({"name": side, "of": name, "queries": group["query_id"].to_list()})
        sides.sort(key=itemgetter("name"))
        return {"rows": self.counts().to_dicts(), "test_sets": sides}


def with_share(name: str) -> Callable[[Fields], str | None]:
    """Lays out a row's count of that name, with its share of the row's queries."""
    return lambda row: None if row[name] is None else f"{row[name]:,} ({row[name] / row['queries']:.1%})"


def clean(
    train: TrainingQueries | str | PathLike[str],
    release: ReleaseSource = None,
    *,
    test_sets: Sequence[str] = (),
    near: float = leaks.NEAR,
    shared_passages: bool = False,
) -> Clean:
    """Find the test queries that a model's training gives away.

    Args:
        train: queries, triplets, a release or a BEIR folder (:func:`eval_kit.runs.training.read`).
        release: whose queries are tested.
        test_sets: names; by default all.
        near: the cosine of trigrams from which two queries are near-duplicates.
        shared_passages: whether a query leaks whose relevant passage was relevant in training.

    Raises:
        UserError: no such test set, training data that cannot be read, or a threshold that is not in 0 to 1.
    """
    release = open_release(release)
    training = train if isinstance(train, TrainingQueries) else read(Path(train))
    if not 0 < near <= 1:
        raise UserError(f"The threshold of near-duplicates must be above 0 and at most 1, not {near}")
    selection = named(release.test_sets, test_sets)
    texts = pl.concat(map(release.queries, selection))
    texts = leaks.with_normal(texts.drop_nulls().unique("query_id", keep="first", maintain_order=True))
    known = leaks.with_normal(training.queries)
    flags = flagged(texts, known, near, "comparing queries")
    given_away = _passages(release, training)
    frames = []
    for test_set in selection.values():
        sharing = None
        if given_away is not None:
            relevant = release.qrels(test_set.qrels).filter(pl.col("relevance") > 0)
            sharing = relevant.filter(pl.col("passage_id").is_in(given_away.implode()))["query_id"]
        kinds = KINDS if shared_passages else KINDS[:3]
        frames.append(of_test_set(test_set.name, test_set.queries, flags, sharing, kinds))
    texts_digest = hashlib.sha256("\n".join(sorted(known["text"])).encode()).hexdigest()
    source = {"source": training.source.name, "queries": known.height, "sha256": texts_digest}
    provenance = {
        "kit_version": __version__,
        "release": release.identity,
        "training": source,
        "near": near,
        "passages": shared_passages,
    }
    return Clean(pl.concat(frames), provenance)


def flagged(test: pl.DataFrame, train: pl.DataFrame, near: float | None = None, doing: str = "") -> pl.DataFrame:
    """``query_id`` and the leaks of test queries by their texts; both sides from :func:`leaks.with_normal`.

    Without training texts, no query has a row; without ``near``, near-duplicates are not looked for, and are null.
    """
    flags = leaks.with_same(test if train.height else test.clear(), train)
    if near is not None and flags.height:
        return leaks.with_near(flags, train, near, doing).drop("text", "normal")
    unknown = {"near": pl.Boolean, "nearest": pl.String, "cosine": pl.Float64}
    return flags.drop("text", "normal").with_columns(pl.lit(None, kind).alias(name) for name, kind in unknown.items())


def of_test_set(
    name: str, ids: pl.Series, flags: pl.DataFrame, sharing: pl.Series | None, kinds: Sequence[str] = KINDS
) -> pl.DataFrame:
    """The rows of :class:`Clean` for these queries.

    ``flags`` are from :func:`flagged`; ``sharing`` has the ids of queries that share a passage with training, or is
    None where that is unknown; ``kinds`` are those that make a query leaked.
    """
    frame = ids.to_frame("query_id").join(flags, on="query_id", how="left", maintain_order="left")
    shares = pl.lit(None, pl.Boolean) if sharing is None else pl.col("query_id").is_in(sharing.implode())
    frame = frame.with_columns(test_set=pl.lit(name), passages=shares)
    frame = frame.with_columns(pl.any_horizontal(pl.col(kinds).fill_null(False)).alias(LEAKED))
    return frame.select("test_set", "query_id", *KINDS, LEAKED, "nearest", "cosine")


def _passages(release: Release, training: TrainingQueries) -> pl.Series | None:
    """Ids of the release's passages that were relevant in training; None where either does not say."""
    if len(training.passage_ids):
        return training.passage_ids
    if not len(training.passage_texts) or not has_passages(release):
        return None
    training_texts = set(map(leaks.normal_form, training.passage_texts))
    ids = [passage for passage, text in passages(release) if leaks.normal_form(text) in training_texts]
    return pl.Series("passage_id", ids, pl.String)
