"""The mini release: the synthetic collection of :mod:`builder.sources.mini`, with the shifts planted in it.

Its tables have the form of the published release. Every cluster is as planted by the generator, not found by an
algorithm, so that algorithms and protocols can be checked against a known truth.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from builder.assembly import Build
from builder.release import in_order
from builder.shifts import length, wh
from builder.sources import mini
from eval_kit.authors.draft import Draft, Table
from eval_kit.authors.test_sets import BUCKETS, CHAMELEON_SETS, LEVELS, OBSTINACY, TOPICS, test_sets
from eval_kit.documents import Rule
from eval_kit.files.formats import by_id
from eval_kit.models.typos import plant

SOURCE = "builder/sources/mini"
NEAR = 1.0
"""Planted nearness from which a training query shares a topic and aspect, or an entity, with a TREC DL query."""
RESTRAIN_SHARES = {"small": 0.04, "medium": 0.08, "large": 0.16}
"""Sizes of the ReSTrain sets, as shares of the training queries."""
_CHAMELEON_SHARES = {
    "veiled": (0.0573, 0.1407, 0.2350, 0.3424, 0.4468),
    "pygmy": (0.0319, 0.0881, 0.1653, 0.2526, 0.3543),
    "lesser": (0.0136, 0.0514, 0.1010, 0.1676, 0.2426),
}
"""Sizes of the published Chameleons sets as shares of dev-small, by level (CIKM 2021, Table 3)."""


def draft(seed: int = 13, queries: int = 10_000, strength: float = 1.0) -> Draft:
    """Generate the mini collection, by its :class:`~builder.sources.mini.MiniParameters`, and its planted release."""
    collection = mini.generate(mini.MiniParameters(seed, queries, strength))
    benchmarks = list(_benchmarks(collection))
    dl19 = next(table.frame for table in benchmarks if (table.config, table.split) == ("resttest", "dl19"))
    variations, typos = zip(*plant("dl19", dl19, seed=seed), strict=True)
    tables = in_order([*_shifts(collection), *benchmarks, *_restrain(collection), *_qrels(collection), *typos])
    passages = Rule("synthetic passages", SOURCE)
    tables.append(Table("passages", "passages", by_id(collection.passages, "passage_id"), passages))
    remarks = []
    for shift, clusters in collection.strengths.items():
        for cluster, share in clusters.items():
            of_queries = f"{share:.2f} of its queries ask with words that no other cluster of the shift uses"
            remarks.append(f"planted strength of {shift}.{cluster}: {of_queries}")
    return Draft(
        kind="mini",
        collection=None,
        seed=seed,
        tables=tables,
        test_sets=test_sets(tables),
        variations=variations,
        remarks=remarks,
    )


def _shifts(collection: mini.Mini) -> Iterator[Table]:
    """Topic and wh test queries are held-back training queries, as published; length is tested on dev."""
    train = collection.queries.filter(pl.col("population") == "train")
    parts = {"train": train.filter(~pl.col("test")), "test": train.filter("test")}
    parameters = {"strengths": collection.strengths}
    for split, queries in parts.items():
        topics = queries.drop_nulls("topic").with_columns(cluster=pl.col("topic").cast(pl.Enum(TOPICS)))
        rule = Rule("the planted topic", SOURCE, parameters=parameters)
        yield Build.table("topic", split, topics, ["cluster"], rule)
        members = []
        for cluster in wh.CLUSTERS:
            label = pl.lit(cluster, pl.Enum(wh.CLUSTERS)).alias("cluster")
            members.append(queries.filter(wh.member(queries["text"], cluster)).with_columns(label))
        rule = Rule(wh.RULE, wh.SOURCE, parameters=parameters)
        yield Build.table("wh", split, pl.concat(members), ["cluster"], rule)
    parts["test"] = collection.queries.filter(pl.col("population") == "dev")
    for split, queries in parts.items():
        lengths = queries.with_columns(length.cluster(queries["text"]))
        rule = Rule(length.RULE, length.SOURCE, parameters=parameters)
        yield Build.table("length", split, lengths, ["cluster"], rule)


def _benchmarks(collection: mini.Mini) -> Iterator[Table]:
    rule = Rule("the bucket of the planted topic; queries of no topic are dealt out in turn", SOURCE)
    dealt = pl.Series(BUCKETS).gather(np.arange(collection.queries.height) % len(BUCKETS))
    bucket = pl.col("topic").replace_strict(dict(zip(TOPICS, BUCKETS, strict=True)), default=None)
    queries = collection.queries.with_columns(bucket=pl.coalesce(bucket, dealt).cast(pl.Enum(BUCKETS)))
    for split in ("train", "dev", "dl19", "dl20"):
        yield Build.table("resttest", split, queries.filter(pl.col("population") == split), ["bucket"], rule)

    rule = Rule("the hardest queries as planted, in sets of the published shares", "CIKM 2021, Table 3")
    yield Build.table("chameleons", "dev", _obstinate(collection), [f"level_{level}" for level in LEVELS], rule)

    for split in ("dl19", "dl20"):
        topics = collection.queries.filter(pl.col("population") == split)
        with_judgements = topics.with_columns(judged=pl.lit("yes", pl.Enum(["no", "yes"])))
        yield Build.table("trec_dl", split, with_judgements, ["judged"], Rule("all planted topics are judged", SOURCE))
    outside = collection.queries.filter(pl.col("population") == "validation")
    yield Build.table("validation", "validation", outside, [], Rule("queries outside every shift", SOURCE))


def _obstinate(collection: mini.Mini) -> pl.DataFrame:
    """Dev queries by planted hardness, labelled with the strictest set that holds them."""
    dev = collection.queries.filter(pl.col("population") == "dev").sort(
        "hardness", "query_id", descending=[True, False], maintain_order=True
    )
    rank = pl.int_range(pl.len())
    for i, level in enumerate(LEVELS):
        label = pl.lit(OBSTINACY[0])
        for name in CHAMELEON_SETS:
            size = round(_CHAMELEON_SHARES[name][i] * dev.height)
            label = pl.when(rank < size).then(pl.lit(name)).otherwise(label)
        dev = dev.with_columns(label.cast(pl.Enum(OBSTINACY)).alias(f"level_{level}"))
    return dev


def _restrain(collection: mini.Mini) -> Iterator[Table]:
    """The training queries nearest to the TREC DL queries, and as many drawn from those that are not near."""
    train = collection.queries.filter(pl.col("population") == "train").sort("nearness", "query_id", descending=True)
    far = train.filter(pl.col("nearness") < NEAR)
    order = np.random.Generator(np.random.PCG64(collection.parameters.seed)).permutation(far.height)
    for size, share in RESTRAIN_SHARES.items():
        count = min(round(share * train.height), far.height)
        sets = {
            "interpolate": (f"the {count} nearest training queries, as planted", train.head(count)),
            "extrapolate": (f"{count} of the {far.height} training queries that are not near", far[order[:count]]),
        }
        for regime, (text, queries) in sets.items():
            yield Build.table("restrain", f"{regime}_{size}", queries, [], Rule(text, "CIKM 2022 §4.1.2"))
            pairs = collection.qrels.filter(pl.col("query_id").is_in(queries["query_id"].implode()))
            yield _qrels_table(f"restrain_{regime}_{size}", pairs)


def _qrels(collection: mini.Mini) -> Iterator[Table]:
    population = collection.queries.select("query_id", "population", "test", "topic", "wh")
    pairs = collection.qrels.join(population, on="query_id")
    held_back = (pl.col("population") == "train") & pl.col("test")
    splits = {
        "topic_test": held_back & pl.col("topic").is_not_null(),
        "wh_test": held_back & pl.col("wh").is_not_null(),
        "train": (pl.col("population") == "train") & ~pl.col("test"),
        **{split: pl.col("population") == split for split in ("dev", "dl19", "dl20", "validation")},
    }
    for split, which in splits.items():
        yield _qrels_table(split, pairs.filter(which))


def _qrels_table(split: str, pairs: pl.DataFrame) -> Table:
    frame = pairs.select(
        pl.col("query_id").alias("query-id"), pl.col("passage_id").alias("corpus-id"), pl.col("score").cast(pl.Int64)
    )
    return Table("qrels", split, by_id(frame, "query-id", "corpus-id"), Rule("planted relevance", SOURCE))
