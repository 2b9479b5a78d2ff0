"""Results as pandas dataframes, for those who have pandas, and as CSV."""

from typing import Any

import polars as pl

from eval_kit.errors import UserError, printable


def to_pandas(frame: pl.DataFrame) -> Any:
    """The same columns and values as a ``pandas.DataFrame``; imports pandas only here, and pyarrow nowhere.

    Raises:
        UserError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise UserError("pandas is not installed; to_polars() gives the same table without it") from error
    return pandas.DataFrame(frame.to_dict(as_series=False))


def to_csv(frame: pl.DataFrame) -> str:
    """The columns and values as CSV that a spreadsheet shows as they are.

    A text that it would take for a formula, as it begins with =, +, -, @ or a control character, gets an apostrophe
    in front (OWASP, CSV Injection).
    """
    texts = pl.col(pl.String).str.replace(r"^([=+\-@\t\r\n])", "'$1")
    return frame.with_columns(texts.map_elements(printable, pl.String)).write_csv()
