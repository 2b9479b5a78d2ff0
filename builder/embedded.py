"""Queries with their vectors, fit for use."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.errors import UserError

type Vectors = NDArray[np.float32]

CHECK_ROWS = 65_536


@dataclass(frozen=True)
class Embedded:
    """Queries with their vectors: the boundary that every shift trusts.

    Attributes:
        query_ids: n distinct ids.
        vectors: float32 of shape (n, d), all finite; a memory map will do.

    Raises:
        UserError: ids and vectors that differ in number, an id that comes twice, a vector that is not finite.
    """

    query_ids: pl.Series
    vectors: Vectors

    def __post_init__(self) -> None:
        check_ids(self.query_ids)
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.query_ids):
            raise UserError(f"{len(self.query_ids):,} queries cannot have vectors of shape {self.vectors.shape}")
        for start in range(0, len(self.vectors), CHECK_ROWS):
            finite = np.isfinite(self.vectors[start : start + CHECK_ROWS]).all(axis=1)
            if not finite.all():
                row = start + int(finite.argmin())
                raise UserError(f"the vector of query {self.query_ids[row]!r} holds NaN or infinity")

    def __len__(self) -> int:
        return len(self.query_ids)


def check_ids(query_ids: pl.Series) -> None:
    """Refuse ids that come twice.

    Raises:
        UserError: naming the first of them.
    """
    twice = query_ids.is_duplicated()
    if twice.any():
        more = query_ids.filter(twice).n_unique() - 1
        and_more = f" (and {more:,} more)" if more else ""
        raise UserError(f"query id {query_ids.filter(twice)[0]!r} comes more than once{and_more}")
