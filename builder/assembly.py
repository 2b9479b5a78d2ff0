"""The common basis of rebuilt shifts: one collection's queries, judgements and vectors, and the shared tables."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from builder import validation
from builder.encode import embed
from builder.encoders import Encoder, public_name
from builder.release import Rule, Table
from builder.sources.collection import Collection
from eval_kit.errors import UserError
from eval_kit.files.formats import by_id
from eval_kit.stats.vectors import Vectors

DL = ("dl19", "dl20")


@dataclass(frozen=True)
class ShiftResult:
    """The result of one shift's algorithm.

    Attributes:
        tables: of the shift, and the judgements that only it needs.
        remarks: for the manifest.
        reports: file name -> text, for the release's ``reports/``.
    """

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
    threads: int | None
    exact_sizes: bool = False
    """Whether the user chose the sizes of sets, so that an unreachable one is an error."""

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
    def embedded(self) -> dict[str, Vectors]:
        """Split -> queries with vectors; all are encoded together, and so lie in one space."""
        distinct = pl.concat(self.splits.values()).unique("query_id", keep="first", maintain_order=True)
        vectors = embed(distinct, self.encoder, self.cache)
        embedded = {}
        for split, queries in self.splits.items():
            ids = queries["query_id"]
            values = vectors.values[: len(ids)] if split == "train" else vectors.of(ids)  # train is first: no copy
            embedded[split] = Vectors(vectors.source, ids, values)
        return embedded

    def rule(self, text: str, source: str, parameters: Any = None, encoded: bool = False, **more: Any) -> Rule:
        """The rule of a table.

        Args:
            text: the rule in words.
            source: where it is defined.
            parameters: the shift's, a dataclass.
            encoded: whether the rule depends on the queries' vectors, and so on the encoder.
            more: further parameters.
        """
        values = described(parameters) if parameters is not None else {}
        if encoded:
            values["encoder"] = {"name": public_name(self.encoder), "revision": self.encoder.revision}
        return Rule(text, source, [str(record["id"]) for record in self.collection.inputs], {**values, **more})

    def table(self, config: str, split: str, queries: pl.DataFrame, labels: Sequence[str], rule: Rule) -> Table:
        """A table of queries with label columns; sorted by cluster or bucket, then by id."""
        order = labels if labels in (["cluster"], ["bucket"]) else []
        return Table(config, split, by_id(queries.select("query_id", "text", *labels), *order, "query_id"), rule)

    def qrels(self, split: str, origin: str, queries: pl.DataFrame) -> Table:
        """The judgements of some queries in the collection's split ``origin``."""
        pairs = self.pairs(origin).filter(pl.col("query-id").is_in(queries["query_id"].unique().implode()))
        rule = self.rule("the collection's own judgements", self.collection.source)
        return Table("qrels", split, by_id(pairs, "query-id", "corpus-id"), rule)

    def pairs(self, split: str) -> pl.DataFrame:
        """Each judged pair of the collection's split once, with its highest grade."""
        return self.collection.qrels[split].group_by("query-id", "corpus-id").agg(pl.col("score").max())

    def held_back(self, shift: str, assigned: pl.DataFrame, rule: Rule) -> list[Table]:
        """A shift's two splits, and the judgements of its test queries, which are held-back training queries.

        Args:
            shift: its name.
            assigned: ``query_id``, ``cluster`` and ``split`` (train, test).
            rule: of both splits.
        """
        members = assigned.join(self.train, on="query_id", maintain_order="left")
        parts = {split: members.filter(pl.col("split") == split) for split in ("train", "test")}
        check_clusters(shift, parts)
        tables = [self.table(shift, split, queries, ["cluster"], rule) for split, queries in parts.items()]
        return [*tables, self.qrels(f"{shift}_test", "train", parts["test"])]

    def shared_tables(self) -> Iterator[Table]:
        """The tables that no shift owns: TREC DL's topics, validation queries, judgements and passages."""
        yield from self._trec_dl()
        if self.validation.height:
            rule = self.rule(validation.RULE, validation.SOURCE, seed=self.seed)
            yield self.table(validation.CONFIG, validation.CONFIG, self.validation, [], rule)
            yield self.qrels(validation.CONFIG, "train", self.validation)
        for split, queries in self.splits.items():
            yield self.qrels(split, split, queries)
        if self.collection.passages is not None:
            passages = by_id(self.collection.passages, "passage_id")
            yield Table("passages", "passages", passages, self.rule("the collection's passages", "corpus"))

    def _trec_dl(self) -> Iterator[Table]:
        for split in DL:
            if split in self.collection.evaluation:
                judged = pl.col("query_id").is_in(self.collection.evaluation[split]["query_id"].implode())
                label = pl.when(judged).then(pl.lit("yes")).otherwise(pl.lit("no")).cast(pl.Enum(["no", "yes"]))
                topics = self.collection.queries[split].with_columns(label.alias("judged"))
                rule = self.rule("all topics of the track, and whether they are judged", self.collection.source)
                yield self.table("trec_dl", split, topics, ["judged"], rule)


def lacks_train(build: Build) -> str:
    """What the collection lacks for a shift that holds back training queries for testing; empty if nothing."""
    return "" if build.train.height else f"{build.collection.name} has no split train with judgements"


def check_clusters(shift: str, parts: Mapping[str, pl.DataFrame]) -> None:
    """Check that at least two clusters of a shift have queries in every part.

    Args:
        shift: its name.
        parts: split -> queries with their ``cluster``.

    Raises:
        UserError: fewer have.
    """
    clusters = set.intersection(*(set(queries["cluster"].cast(pl.String)) for queries in parts.values()))
    if len(clusters) < 2:
        names = ", ".join(sorted(clusters)) or "none"
        raise UserError(
            f"{shift} needs two clusters with queries in {' and '.join(parts)}; those that have them: {names}"
        )


def described(parameters: Any) -> dict[str, Any]:
    """A shift's parameters as plain JSON values, for the manifest."""
    values = {entry.name: getattr(parameters, entry.name) for entry in dataclasses.fields(parameters)}
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
