"""Other readings of the runs of a comparison: a word that depends on which of them is taken is none.

A run may lack queries, and whether they count as 0 may decide; so may the order of its tied passages. A run whose ranks
contradict its scores in all queries may be ordered the other way round, so it decides nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import polars as pl

from eval_kit.known import contradicts_throughout
from eval_kit.stats.differences import CANNOT_TELL
from eval_kit.tables.table import ALPHA

LACKING, TIES, RANKS = "queries that a run lacks", "ties", "ranks that contradict scores"
MENDS = {
    LACKING: "Search them, or compare on those that all runs have",
    TIES: "Write more digits of the scores",
    RANKS: "Write scores that are highest for the first passage, such as minus the distance",
}
"""What to do where one of them decides."""
_QUERY = ("test_set", "measure", "query_id")


def others(values: pl.DataFrame, bases: Sequence[str], system: str = "system") -> Iterator[tuple[str, pl.DataFrame]]:
    """Each reading but the usual one, and the values under it.

    Args:
        values: ``test_set``, ``measure``, ``query_id``, ``value``, ``searched``, ``worst``, ``best``, and
        bases: the systems that the others are compared with.
        system: the column that names systems.
    """
    if not values["searched"].all():
        yield LACKING, values.filter(pl.col("searched").all().over(_QUERY))
    if (values["worst"] != values["best"]).any():
        is_base = pl.col(system).is_in(bases)
        for of_base, of_others in (("best", "worst"), ("worst", "best")):
            yield TIES, values.with_columns(value=pl.when(is_base).then(of_base).otherwise(of_others))


def with_decides(
    rows: pl.DataFrame,
    keys: Sequence[str],
    values: pl.DataFrame,
    base: str,
    doubtful: AbstractSet[str],
    read: Callable[[pl.DataFrame], pl.DataFrame],
) -> pl.DataFrame:
    """The rows with ``decides``: what their word depends on, if anything; and ``on_shared``, where queries lack.

    That is the difference on the queries that all runs have. Verdicts that depend on a reading become *cannot tell*.

    Args:
        rows: of differences: ``system``, ``test_set``, ``difference``, ``p_holm`` and, of a gate, ``verdict``.
        keys: the columns that name a row.
        values: that the rows were computed from.
        base: the system that the others are compared with.
        doubtful: the systems with a run whose ranks contradict its scores throughout.
        read: computes such rows from other values.
    """
    concerned = pl.col("system").is_in(doubtful) | pl.lit(base in doubtful)
    rows = rows.with_columns(
        decides=pl.when(concerned & pl.col("difference").is_not_null()).then(pl.lit(RANKS)),
        on_shared=pl.lit(None, pl.Float64),
    )
    lacking = values.filter(pl.col("missing") > 0).select("test_set", "system").unique()
    by_base = lacking.filter(system=pl.lit(base))["test_set"].implode()
    for what, other in others(values, [base]):
        if other.is_empty():
            continue
        found = read(other).select(*keys, found=pl.col("difference"), said=_word(rows.columns))
        both = rows.join(found, on=keys, how="left", nulls_equal=True, maintain_order="left")
        changed = pl.col("found").ne_missing(pl.col("difference"))
        if what == LACKING:
            is_lacking = pl.struct("test_set", "system").is_in(lacking.to_struct().implode())
            changed = is_lacking | pl.col("test_set").is_in(by_base)
            both = both.with_columns(on_shared=pl.when(changed).then("found").otherwise("on_shared"))
        decides = changed & pl.col("difference").is_not_null() & pl.col("said").ne_missing(_word(rows.columns))
        both = both.with_columns(decides=pl.coalesce("decides", pl.when(decides).then(pl.lit(what))))
        rows = both.select(rows.columns)
    if "verdict" in rows.columns:
        is_open = pl.col("decides").is_not_null() & pl.col("verdict").is_not_null()
        rows = rows.with_columns(verdict=pl.when(is_open).then(pl.lit(CANNOT_TELL)).otherwise("verdict"))
    return rows


def _word(columns: Sequence[str]) -> pl.Expr:
    """What a row says: its verdict, or else whether and which way it differs."""
    way = pl.when(pl.col("p_holm") < ALPHA).then(pl.col("difference").sign()).otherwise(0.0).cast(pl.String)
    return pl.coalesce("verdict", way) if "verdict" in columns else way


def doubtful(sources: Sequence[Mapping[str, Any]], systems: Mapping[str, str]) -> set[str]:
    """The systems of the runs whose ranks contradict their scores throughout; ``systems`` by the run's name."""
    return {systems.get(source["run"], source["run"]) for source in sources if contradicts_throughout(source)}
