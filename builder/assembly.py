"""The tables of a rebuilt release: each shift's algorithm, run on one collection."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from builder import validation
from builder.encode import embed
from builder.encoders import Encoder, public_name
from builder.parameters import Parameters
from builder.release import Rule, Table
from builder.shifts import chameleons, length, restrain, resttest, topic, wh
from builder.sources.collection import Collection
from builder.test_sets import main_split
from eval_kit.files.formats import by_id
from eval_kit.stats.vectors import Vectors

DL = ("dl19", "dl20")


@dataclass(frozen=True)
class Build:
    """One rebuilding: what is given, and what several tables are made from."""

    collection: Collection
    encoder: Encoder
    parameters: Parameters
    seed: int
    runs: Mapping[str, Path]
    cache: Path | None

    @cached_property
    def validation(self) -> pl.DataFrame:
        """The validation queries."""
        return validation.draw(self.collection.train, self.seed)

    @cached_property
    def train(self) -> pl.DataFrame:
        """The training queries that are left."""
        return self.collection.train.join(self.validation, on="query_id", how="anti", maintain_order="left")

    @property
    def main(self) -> str | None:
        """The split of the Chameleons."""
        return main_split(self.collection.evaluation)

    @property
    def restrain_tests(self) -> list[str]:
        """The splits that ReSTrain is near to: TREC DL's, else test, else dev."""
        have = self.collection.evaluation
        candidates = [list(DL), ["test"], ["dev"]]
        return next((found for one in candidates if (found := [split for split in one if split in have])), [])

    @cached_property
    def embedded(self) -> dict[str, Vectors]:
        """Split -> queries with vectors; all are encoded together, so that they are in one space."""
        splits = {"train": self.train, **self.collection.evaluation}
        queries = pl.concat(splits.values()).unique("query_id", keep="first", maintain_order=True)
        everything = embed(queries, self.encoder, self.cache)
        source, train = everything.source, self.train["query_id"]
        evaluation = {split: part["query_id"] for split, part in self.collection.evaluation.items()}
        return {"train": Vectors(source, train, everything.values[: len(train)])} | {
            split: Vectors(source, ids, everything.of(ids)) for split, ids in evaluation.items()
        }

    def lacking(self) -> dict[str, str]:
        """The shifts that can't be built, and what they lack."""
        found = {}
        if not self.restrain_tests:
            found["restrain"] = f"{self.collection.name} has no dl19, dl20, test or dev split with judgements"
        if self.main is None:
            found["chameleons"] = f"{self.collection.name} has no dev or test split with judgements"
        elif not self.runs:
            found["chameleons"] = f"no runs over {self.main} are given (--run, three rankers at least)"
        return found

    def tables(self, shifts: Sequence[str], threads: int | None) -> Iterator[Table]:
        """All tables, each shift's judgements with it."""
        if "chameleons" in shifts:  # first, as bad runs are soon found
            yield self._chameleons()
        if "wh" in shifts:
            yield from self._wh()
        if "length" in shifts:
            yield from self._length()
        if "topic" in shifts:
            yield from self._topic(threads)
        if "resttest" in shifts:
            yield from self._resttest(threads)
        if "restrain" in shifts:
            yield from self._restrain(threads)
        yield from self._dl()
        rule = self._rule(validation.RULE, validation.SOURCE, seed=self.seed)
        yield self._table(validation.CONFIG, validation.CONFIG, self.validation, [], rule)
        yield self._qrels(validation.CONFIG, "train", self.validation)
        yield self._qrels("train", "train", self.train)
        for split, queries in self.collection.evaluation.items():
            yield self._qrels(split, split, queries)
        if self.collection.passages is not None:
            passages = by_id(self.collection.passages, "passage_id")
            yield Table("passages", "passages", passages, self._rule("the collection's passages", "corpus"))

    def _topic(self, threads: int | None) -> Iterator[Table]:
        found = topic.assign(self.embedded["train"], self.parameters.topic, threads)
        rule = self._rule(topic.RULE, topic.SOURCE, shift="topic", encoded=True)
        yield from self._held_back("topic", found, rule)

    def _wh(self) -> Iterator[Table]:
        found = wh.assign(self.train, self.parameters.wh)
        rule = self._rule(wh.RULES[self.parameters.wh.rule] + wh.DRAWN, wh.SOURCE, shift="wh")
        yield from self._held_back("wh", found, rule)

    def _held_back(self, shift: str, found: pl.DataFrame, rule: Rule) -> Iterator[Table]:
        """A shift's two splits, and the judgements of the test queries, which are training queries."""
        members = found.join(self.train, on="query_id", maintain_order="left")
        for split in ("train", "test"):
            yield self._table(shift, split, members.filter(pl.col("split") == split), ["cluster"], rule)
        yield self._qrels(f"{shift}_test", "train", members.filter(pl.col("split") == "test"))

    def _length(self) -> Iterator[Table]:
        dev = self.collection.evaluation.get("dev")
        parts = length.assign(self.train, dev, self.parameters.length)
        rule = self._rule(length.RULE + length.DRAWN, length.SOURCE, shift="length")
        for split, queries in parts.items():
            yield self._table("length", split, queries, ["cluster"], rule)
        if dev is None:
            yield self._qrels("length_test", "train", parts["test"])

    def _resttest(self, threads: int | None) -> Iterator[Table]:
        found = resttest.assign(self.embedded, self.parameters.resttest, threads)
        rule = self._rule(resttest.RULE, resttest.SOURCE, shift="resttest", encoded=True)
        for split, queries in {"train": self.train, **self.collection.evaluation}.items():
            members = queries.join(found[split], on="query_id", maintain_order="left")
            yield self._table("resttest", split, members, ["bucket"], rule)

    def _restrain(self, threads: int | None) -> Iterator[Table]:
        train = self.embedded["train"]
        parts = [self.embedded[split] for split in self.restrain_tests]
        ids, values = pl.concat(part.query_ids for part in parts), np.concatenate([part.values for part in parts])
        tests = Vectors(train.source, ids, values)
        depth = restrain.depths(train, tests, threads)
        solved = restrain.solve(depth, self.parameters.restrain.sizes)
        regimes = restrain.regimes(train.query_ids, depth, solved, self.seed)
        for one in solved:
            for regime in restrain.REGIMES:
                ids = regimes["query_id"].filter(regimes[f"regime_{one.size}"].cast(pl.String) == regime)
                queries = self.train.filter(pl.col("query_id").is_in(ids.implode()))
                rule = self._rule(
                    restrain.RULE,
                    restrain.SOURCE,
                    shift="restrain",
                    encoded=True,
                    tests=self.restrain_tests,
                    top_i=one.top_i,
                    top_e=one.top_e,
                )
                yield self._table("restrain", f"{regime}_{one.size}", queries, [], rule)
                yield self._qrels(f"restrain_{regime}_{one.size}", "train", queries)

    def _chameleons(self) -> Table:
        assert self.main is not None
        queries = self.collection.evaluation[self.main]
        qrels = _pairs(self.collection.qrels[self.main]).rename(
            {"query-id": "query_id", "corpus-id": "passage_id", "score": "relevance"}
        )
        values = chameleons.average_precision(self.runs, qrels, queries["query_id"])
        found = queries.join(chameleons.assign(values, self.parameters.chameleons), on="query_id")
        levels = [name for name in found.columns if name.startswith("level_")]
        rule = self._rule(chameleons.RULE, chameleons.SOURCE, shift="chameleons", rankers=list(self.runs))
        return self._table("chameleons", self.main, found, levels, rule)

    def _dl(self) -> Iterator[Table]:
        for split in DL:
            if split in self.collection.evaluation:
                judged = pl.col("query_id").is_in(self.collection.evaluation[split]["query_id"].implode())
                label = pl.when(judged).then(pl.lit("yes")).otherwise(pl.lit("no")).cast(pl.Enum(["no", "yes"]))
                topics = self.collection.queries[split].with_columns(label.alias("judged"))
                rule = self._rule("all topics of the track, and whether they are judged", self.collection.source)
                yield self._table("trec_dl", split, topics, ["judged"], rule)

    def _rule(self, text: str, source: str, shift: str = "", encoded: bool = False, **more: Any) -> Rule:
        parameters = self.parameters.described(shift) if shift else {}
        if encoded:
            parameters["encoder"] = {"name": public_name(self.encoder), "revision": self.encoder.revision}
        return Rule(text, source, [str(one["id"]) for one in self.collection.inputs], {**parameters, **more})

    def _table(self, config: str, split: str, queries: pl.DataFrame, labels: Sequence[str], rule: Rule) -> Table:
        order = labels if labels in (["cluster"], ["bucket"]) else []
        return Table(config, split, by_id(queries.select("query_id", "text", *labels), *order, "query_id"), rule)

    def _qrels(self, split: str, origin: str, queries: pl.DataFrame) -> Table:
        """The judgements, in the collection's split ``origin``, of some queries."""
        pairs = _pairs(self.collection.qrels[origin]).filter(
            pl.col("query-id").is_in(queries["query_id"].unique().implode())
        )
        rule = self._rule("the collection's own judgements", self.collection.source)
        return Table("qrels", split, by_id(pairs, "query-id", "corpus-id"), rule)


def _pairs(qrels: pl.DataFrame) -> pl.DataFrame:
    """Each judged pair once, with its highest grade."""
    return qrels.group_by("query-id", "corpus-id").agg(pl.col("score").max())
