"""Results as pandas dataframes, for those who have pandas."""

from typing import Any

import polars as pl

from eval_kit.errors import UserError


def to_pandas(frame: pl.DataFrame) -> Any:
    """The same columns and values as a ``pandas.DataFrame``; needs neither pyarrow nor, until here, pandas.

    Raises:
        UserError: pandas is not installed.
    """
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError as error:
        raise UserError("pandas is not installed; to_polars() gives the same table without it") from error
    return pandas.DataFrame(frame.to_dict(as_series=False))
