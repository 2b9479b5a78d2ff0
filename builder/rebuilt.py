"""A release made by the papers' algorithms, from any collection's queries.

The validation queries are drawn first and stand outside everything else. Each shift then has its own split: topic and
wh test queries are training queries held back from that shift's training, length is tested on dev, as published.
"""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from builder.assembly import DL, Build
from builder.encoders import Encoder, Lsa
from builder.parameters import REBUILDABLE, ShiftParameters
from builder.release import Draft
from builder.shifts import restrain
from builder.sources.collection import Collection
from builder.test_sets import in_order, test_sets
from eval_kit.errors import UserError

VERSION = "1.0.0"


def draft(
    collection: Collection,
    shifts: Sequence[str] | None = None,
    encoder: Encoder | None = None,
    parameters: ShiftParameters | None = None,
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
    build = Build(collection, encoder or Lsa(), seed, runs or {}, cache, threads)
    seeded = (parameters or ShiftParameters()).seeded(seed)
    chosen, left_out = _chosen(shifts, build)
    # mistakes of the quick ones show before the encoding
    quick_first = sorted(chosen, key=lambda shift: REBUILDABLE[shift].encodes)
    results = [REBUILDABLE[shift].rebuild(build, getattr(seeded, shift)) for shift in quick_first]
    tables = in_order([*chain.from_iterable(result.tables for result in results), *build.shared_tables()])
    remarks = [
        *collection.remarks,
        f"queries and judgements from {collection.source}; training queries are those with a relevant passage",
        *chain.from_iterable(result.remarks for result in results),
    ]
    if "restrain" in chosen and "resttest" not in chosen and not set(DL) & set(restrain.test_splits(build)):
        remarks.append("ReSTrain's test queries are in no table; build resttest too for a test set of them")
    return Draft(
        kind="rebuilt",
        version=VERSION,
        collection=collection.irds,
        seed=seed,
        tables=tables,
        test_sets=test_sets(tables),
        inputs=collection.inputs,
        remarks=[*remarks, *left_out],
        reports=ChainMap(*(dict(result.reports) for result in results)),
    )


def _chosen(shifts: Sequence[str] | None, build: Build) -> tuple[list[str], list[str]]:
    """The shifts to build, and remarks about those left out."""
    for name in shifts or ():
        if name not in REBUILDABLE:
            raise UserError(f"there is no shift {name!r}; there are {', '.join(REBUILDABLE)}")
    lacking = {name: shift.lacking(build) for name, shift in REBUILDABLE.items()}
    if shifts is None:
        left_out = [f"no {name}: {what}" for name, what in lacking.items() if what]
        return [name for name, what in lacking.items() if not what], left_out
    for name in REBUILDABLE:
        if name in shifts and lacking[name]:
            raise UserError(f"{name} cannot be built: {lacking[name]}")
    if "chameleons" not in shifts and build.runs:
        raise UserError("runs are for the shift chameleons, which is not asked for")
    return [name for name in REBUILDABLE if name in shifts], []
