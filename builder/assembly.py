"""The common basis of rebuilt shifts: one collection's queries, judgements and vectors, and the shared tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from builder import validation
from builder.collection import Collection
from builder.encoders import Encoder, encode, public_name
from eval_kit.authors.draft import Table
from eval_kit.documents import Rule
from eval_kit.errors import UserError
from eval_kit.files.formats import by_id
from eval_kit.sentences import counted
from eval_kit.shifts import TREC_DL
from eval_kit.stats.vectors import Vectors

# by SPREAD a 95 % interval of ±0.08, as ECIR 2023's Table 2 has drops of up to 0.07; of FEWEST_TESTED it is ±0.14
TESTED = 100
"""Test queries that a part should have."""
FEWEST_TESTED = 30
"""Test queries of a part; a mean over fewer says next to nothing (docs/by.md marks them too)."""
SPREAD = 0.4
"""A usual standard deviation of RR@10 over queries, to say how wide intervals will be."""
_SHOWN = 5


@dataclass(frozen=True)
class ShiftResult:
    """The result of one shift's algorithm; ``reports`` are texts by their names in the release's ``reports/``."""

    tables: Sequence[Table]
    remarks: Sequence[str] = ()
    reports: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Build:
    """One rebuild: the user's input, and the data that several shifts share."""

    collection: Collection
    encoder: Encoder
    seed: int
    runs: Mapping[str, Path]
    cache: Path | None
    set_by_user: frozenset[str] = frozenset()
    """Shifts whose parameters the user chose, so that an unreachable size is an error."""
    required: frozenset[str] = frozenset()
    """Shifts that the user asked for by name, and so are built even with parts too small to test on."""
    disjoint_passages: bool = False
    """Whether no training query may share a relevant passage with a test query of its shift."""

    @cached_property
    def validation(self) -> pl.DataFrame:
        """The validation queries."""
        return validation.draw(self.collection.train, self.seed)

    @cached_property
    def train(self) -> pl.DataFrame:
        """The training queries without the validation queries."""
        return self.collection.train.join(self.validation, on="query_id", how="anti", maintain_order="left")

    @property
    def splits(self) -> dict[str, pl.DataFrame]:
        """The training queries, if any, and those of every evaluation split."""
        train = {"train": self.train} if self.train.height else {}
        return {**train, **self.collection.evaluation}

    @cached_property
    def vectors_by_split(self) -> dict[str, Vectors]:
        """Split -> queries with vectors; all are encoded together, and so lie in one space."""
        distinct = pl.concat(self.splits.values()).unique("query_id", keep="first", maintain_order=True)
        encoded = encode(distinct["text"], self.encoder, self.cache)
        vectors = Vectors(public_name(self.encoder), distinct["query_id"], encoded)
        vectors_of = {}
        for split, queries in self.splits.items():
            ids = queries["query_id"]
            values = vectors.values[: len(ids)] if split == "train" else vectors.of(ids)  # train is first: no copy
            vectors_of[split] = Vectors(vectors.source, ids, values)
        return vectors_of

    def rule(self, text: str, source: str, parameters: Any = None, from_vectors: bool = False, **more: Any) -> Rule:
        """The rule of a table.

        ``parameters`` are the shift's, a dataclass, and ``more`` further ones; a rule ``from_vectors`` depends on the
        queries' vectors, and so on the encoder.
        """
        values = {} if parameters is None else msgspec.to_builtins(parameters, enc_hook=dict)
        if from_vectors:
            values["encoder"] = {"name": public_name(self.encoder), "revision": self.encoder.revision}
        return Rule(text, source, [record.id for record in self.collection.inputs], {**values, **more})

    @staticmethod
    def table(config: str, split: str, queries: pl.DataFrame, labels: Sequence[str], rule: Rule) -> Table:
        """A table of queries with label columns; sorted by cluster or bucket, then by id."""
        order = labels if labels in (["cluster"], ["bucket"]) else []
        return Table(config, split, by_id(queries.select("query_id", "text", *labels), *order, "query_id"), rule)

    def qrels(self, split: str, origin: str, queries: pl.DataFrame) -> list[Table]:
        """The judgements of some queries in the collection's split ``origin``; none of a query log."""
        if not self.collection.qrels:
            return []
        pairs = self.pairs(origin).filter(pl.col("query-id").is_in(queries["query_id"].unique().implode()))
        rule = self.rule("the collection's own judgements", self.collection.source)
        return [Table("qrels", split, by_id(pairs, "query-id", "corpus-id"), rule)]

    def pairs(self, split: str) -> pl.DataFrame:
        """Each judged pair of the collection's split once, with its highest grade."""
        return self.collection.qrels[split].group_by("query-id", "corpus-id").agg(pl.col("score").max())

    def held_back(
        self, shift: str, assignment: pl.DataFrame, rule: Rule, reports: Mapping[str, str] | None = None
    ) -> ShiftResult:
        """A shift's two splits, and the judgements of its test queries, which are held-back training queries.

        Parts with fewer than 30 test queries are left out, unless the shift was asked for by name.

        The assignment has ``query_id``, ``cluster`` and ``split`` (train, test); the rule is that of both splits.
        """
        remarks = []
        if self.disjoint_passages:
            assignment = apart(shift, assignment, self.pairs("train").filter(pl.col("score") > 0), self.seed)
            remarks.append(f"{shift}: no training query shares a relevant passage with a test query")
        sizes = dict(assignment.filter(pl.col("split") == "test")["cluster"].cast(pl.String).value_counts().iter_rows())
        if not sizes:
            raise UserError(f"No part of {shift} has enough queries to hold one back for testing")
        dtype = assignment.schema["cluster"]
        assert isinstance(dtype, pl.Enum)
        few, large = [], {}
        for label in dtype.categories:
            size = sizes.get(label, 0)
            if size < FEWEST_TESTED:
                few.append(f"{label} ({size})")
            else:
                large[label] = size
        if few and shift not in self.required:
            names = ", ".join(few[:_SHOWN])
            why = f"fewer than {FEWEST_TESTED} test queries: {names}{', ...' if len(few) > _SHOWN else ''}"
            sizes, labels = large, list(large)
            if len(labels) < 2:
                raise UserError(
                    f"The parts of {shift} have {why}, too few to test on",
                    do=f"Add --shift {shift} to build them all the same",
                )
            remarks.append(f"{shift}: parts left out, with {why}")
            text = pl.col("cluster").cast(pl.String)
            assignment = assignment.filter(text.is_in(labels)).with_columns(text.cast(pl.Enum(labels)))
        remarks.append(interval_remark(shift, list(sizes.values())))
        members = assignment.join(self.train, on="query_id", maintain_order="left")
        parts = {split: members.filter(pl.col("split") == split) for split in ("train", "test")}
        check_clusters(shift, parts)
        tables = [self.table(shift, split, queries, ["cluster"], rule) for split, queries in parts.items()]
        tables += self.qrels(f"{shift}_test", "train", parts["test"])
        return ShiftResult(tables, remarks, reports or {})

    def shared_tables(self) -> Iterator[Table]:
        """The tables that no shift owns: TREC DL's topics, validation queries, judgements and passages."""
        yield from self._trec_dl()
        if self.validation.height:
            rule = self.rule(validation.RULE, validation.SOURCE, seed=self.seed)
            yield self.table(validation.CONFIG, validation.CONFIG, self.validation, [], rule)
            yield from self.qrels(validation.CONFIG, "train", self.validation)
        for split, queries in self.splits.items():
            yield from self.qrels(split, split, queries)
        if self.collection.passages is not None:
            passages = by_id(self.collection.passages, "passage_id")
            yield Table("passages", "passages", passages, self.rule("the collection's passages", "corpus"))

    def _trec_dl(self) -> Iterator[Table]:
        for split in TREC_DL:
            if split in self.collection.evaluation:
                is_judged = pl.col("query_id").is_in(self.collection.evaluation[split]["query_id"].implode())
                label = pl.when(is_judged).then(pl.lit("yes")).otherwise(pl.lit("no")).cast(pl.Enum(["no", "yes"]))
                topics = self.collection.queries[split].with_columns(label.alias("judged"))
                rule = self.rule("all topics of the track, and whether they are judged", self.collection.source)
                yield self.table("trec_dl", split, topics, ["judged"], rule)


def lacks_train(build: Build) -> str:
    """What the collection lacks for a shift that holds back training queries for testing; empty if nothing."""
    return "" if build.train.height else f"{build.collection.name} has no split train with judgements"


def apart(shift: str, assignment: pl.DataFrame, pairs: pl.DataFrame, seed: int) -> pl.DataFrame:
    """The same queries divided anew, so that none in training shares a relevant passage with one in test.

    Queries that are linked by relevant passages, directly or through others, are drawn together, until as many are
    in test as before. A query of the ``assignment`` may be in several clusters.
    """
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ids = assignment["query_id"].unique().sort()
    links = pairs.filter(pl.col("query-id").is_in(ids.implode()))
    queries = pl.Series(ids).search_sorted(links["query-id"]).to_numpy()
    passages = links["corpus-id"].rank("dense").to_numpy() - 1 + len(ids)
    nodes = len(ids) + links["corpus-id"].n_unique()
    graph = coo_array((np.ones(len(queries)), (queries, passages)), shape=(nodes, nodes))
    group = connected_components(graph, directed=False)[1][: len(ids)]
    sizes = np.bincount(group)
    if sizes.max() > len(ids) / 2:
        raise UserError(
            f"{shift} cannot be disjoint in passages", f"Passages link {sizes.max():,} of {counted(len(ids), 'query')}"
        )
    goal = assignment.filter(pl.col("split") == "test")["query_id"].n_unique()
    order = np.random.Generator(np.random.PCG64([seed, *shift.encode()])).permutation(len(sizes))
    choice = order[: 1 + int(np.abs(np.cumsum(sizes[order]) - goal).argmin())]
    test = ids.filter(pl.Series(np.isin(group, choice)))
    return assignment.with_columns(split=validation.split_by(test))


def interval_remark(shift: str, sizes: Sequence[int]) -> str:
    """How many test queries the parts of a shift have, and how wide an interval to expect."""
    low, high = min(sizes), max(sizes)
    half = 1.96 * SPREAD / low**0.5
    between = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return (
        f"{shift}: {len(sizes):,} test parts of {between} queries; expect a 95 % interval of about ±{half:.2f} on a "
        f"mean RR@10 of the smallest (if its standard deviation is {SPREAD})" + f"; {low:,} are few" * (low < TESTED)
    )


def check_clusters(shift: str, parts: Mapping[str, pl.DataFrame]) -> None:
    """Check that two clusters of a shift or more have queries in every part: split -> queries and their ``cluster``."""
    clusters = set.intersection(*(set(queries["cluster"].cast(pl.String)) for queries in parts.values()))
    if len(clusters) < 2:
        names = ", ".join(sorted(clusters)) or "none"
        raise UserError(
            f"{shift} needs two clusters with queries in {' and '.join(parts)}",
            f"Only {names} has such queries" if clusters else "None has such queries",
        )
