"""The validation queries, outside every shift, on which checkpoints are selected (ECIR 2023 §4).

The paper says only "a validation set composed of 1600 queries, which is not subject to the shifts": neither whether
they are training queries nor how they were chosen, and the authors released no list. Here they are training queries,
since every dev query is a test query of the length shift.
"""

import numpy as np
import polars as pl

from eval_kit.errors import UserError

COUNT = 1_600
"""The paper's number."""
SHARE = 0.05
"""Largest share of the training queries; MS MARCO's are enough for the paper's number."""
CONFIG = "validation"
SOURCE = "ECIR 2023 §4"
RULE = (
    f"{COUNT:,} training queries (at most {SHARE:.0%} of all), drawn at random (seeded) before anything else and in no "
    "other list"
)
PUBLISHED_RULE = f"{COUNT:,} judged training queries that are in none of the authors' lists, drawn at random (seeded)"
PUBLISHED_SEED = 13  # the published release has no seed of its own, and its list is one for all


def draw(train: pl.DataFrame, seed: int) -> pl.DataFrame:
    """The validation queries among all training queries (``query_id`` and more columns), in their order."""
    count = min(COUNT, round(SHARE * train.height))
    return _rows(train, draw_ids(train["query_id"], count, seed, CONFIG))


def draw_outside(train: pl.DataFrame, left_out: pl.Series) -> pl.DataFrame:
    """The validation queries among the training queries whose ids are not ``left_out``, in their order."""
    outside = train.filter(~pl.col("query_id").is_in(left_out.implode()))
    return _rows(outside, draw_ids(outside["query_id"], COUNT, PUBLISHED_SEED, CONFIG))


def draw_ids(query_ids: pl.Series, count: int, seed: int, purpose: str) -> pl.Series:
    """``count`` of the distinct ``query_ids``, or all of them if there are no more.

    The draw depends on the ids, the seed and what it is for, never on the order; draws for different purposes are
    independent.
    """
    ids = query_ids.unique().sort()
    rng = np.random.Generator(np.random.PCG64([seed, *purpose.encode()]))
    return ids.gather(rng.permutation(len(ids))[:count])


def check_share(test_share: float) -> None:
    """Refuse a share of test queries that leaves none for testing or training."""
    if not 0 < test_share < 1:
        raise UserError(f"The share of test queries must be between 0 and 1, not {test_share}")


def split_by(test: pl.Series) -> pl.Expr:
    """``test`` for the query ids given, ``train`` for the others (Enum train, test)."""
    is_test = pl.col("query_id").is_in(test.implode())
    return pl.when(is_test).then(pl.lit("test")).otherwise(pl.lit("train")).cast(pl.Enum(["train", "test"]))


def _rows(queries: pl.DataFrame, ids: pl.Series) -> pl.DataFrame:
    return queries.filter(pl.col("query_id").is_in(ids.implode()))
