"""Draw queries at random so that only their ids and the seed decide, never their order."""

import numpy as np
import polars as pl


def drawn(query_ids: pl.Series, count: int, seed: int, purpose: str) -> pl.Series:
    """``count`` of the distinct ``query_ids``, or all of them if there are no more.

    Args:
        query_ids: from which; an id that comes twice counts once.
        count: how many.
        seed: of the release.
        purpose: what the draw is for; draws for different purposes are independent.
    """
    ordered = query_ids.unique().sort()
    rng = np.random.Generator(np.random.PCG64([seed, *purpose.encode()]))
    return ordered.gather(rng.permutation(len(ordered))[:count])
