"""A release made by the papers' algorithms, from any collection's queries.

The validation queries are drawn first and stand outside everything else. Each shift then has its own split: topic and
wh test queries are training queries held back from that shift's training, length is tested on dev, as published.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from builder.assembly import DL, Build
from builder.encoders import Encoder, Lsa
from builder.parameters import SHIFTS, Parameters
from builder.release import Draft, Table
from builder.shifts import topic, wh
from builder.sources.collection import Collection
from builder.test_sets import in_order, test_sets
from eval_kit.errors import UserError

VERSION = "1.0.0"


def draft(
    collection: Collection,
    shifts: Sequence[str] | None = None,
    encoder: Encoder | None = None,
    parameters: Parameters | None = None,
    seed: int = 13,
    runs: Mapping[str, Path] | None = None,
    cache: Path | None = None,
    threads: int | None = None,
) -> Draft:
    """Build the shifts of a collection.

    Args:
        collection: from one of :mod:`builder.sources`.
        shifts: which; by default all that the collection and the runs suffice for.
        encoder: of the queries, for topic, ReSTTest and ReSTrain; LSA learnt from the queries, if not given.
        parameters: the papers', if not given; their seeds are replaced.
        seed: of every draw.
        runs: ranker -> run file over the dev (else test) queries, for the Chameleons.
        cache: where vectors are kept.
        threads: how many to use; without influence on the result.

    Raises:
        UserError: a shift that is unknown or cannot be built from what there is, and whatever the shifts refuse.
    """
    build = Build(collection, encoder or Lsa(), (parameters or Parameters()).seeded(seed), seed, runs or {}, cache)
    chosen, left_out = _chosen(shifts, build)
    tables = list(build.tables(chosen, threads))
    remarks = [*collection.remarks, *_remarks(build, chosen), *left_out]
    return Draft(
        kind="rebuilt",
        version=VERSION,
        collection=collection.irds,
        seed=seed,
        tables=in_order(tables),
        test_sets=test_sets(in_order(tables)),
        inputs=collection.inputs,
        remarks=remarks,
        reports=_reports(tables, seed),
    )


def _chosen(shifts: Sequence[str] | None, build: Build) -> tuple[list[str], list[str]]:
    """The shifts to build, and remarks about those left out."""
    for name in shifts or ():
        if name not in SHIFTS:
            raise UserError(f"there is no shift {name!r}; there are {', '.join(SHIFTS)}")
    lacking = build.lacking()
    for name, what in lacking.items():
        if shifts is not None and name in shifts:
            raise UserError(f"{name} cannot be built: {what}")
    if shifts is not None and "chameleons" not in shifts and build.runs:
        raise UserError("runs are for the shift chameleons, which is not asked for")
    if shifts is not None:
        return [name for name in SHIFTS if name in shifts], []
    return [name for name in SHIFTS if name not in lacking], [f"no {name}: {what}" for name, what in lacking.items()]


def _remarks(build: Build, shifts: Sequence[str]) -> list[str]:
    """What a reader of the manifest should know."""
    found = [
        f"queries and judgements from {build.collection.source}; training queries are those with a relevant passage"
    ]
    if "wh" in shifts:
        changes = ", ".join(
            f"{cluster} +{gained:,} -{lost:,}"
            for cluster, (gained, lost) in wh.differences(build.train["text"]).items()
        )
        found.append(
            f"wh is built by the {build.parameters.wh.rule} rule; against the substring rule the token rule "
            f"changes the members among all {build.train.height:,} training queries by {changes}"
        )
    if "restrain" in shifts and not {"resttest"} & set(shifts) and not set(DL) & set(build.restrain_tests):
        found.append("ReSTrain's test queries are in no table; build resttest too for a test set of them")
    return found


def _reports(tables: Sequence[Table], seed: int) -> dict[str, str]:
    """What the topics are about, as the paper's Table 1."""
    topics = [table.frame for table in tables if table.config == "topic"]
    if not topics:
        return {}
    members = pl.concat(topics)
    found = topic.described(members, members.select("query_id", "cluster"), seed=seed)
    joined = found.with_columns(pl.col("terms").list.join(" "), pl.col("samples").list.join(" | "))
    return {"topics.tsv": joined.write_csv(separator="\t")}
