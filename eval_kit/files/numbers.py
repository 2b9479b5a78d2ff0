"""Numbers as files and options hold them: ASCII decimals, without the underscores and digits that Python also takes."""

import math
import re

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_GRADE = re.compile(r"(-?[0-9]{1,18})(?:\.0*)?")


def whole_number(text: str) -> int | None:
    """The whole number with or without a minus sign, as grades are written; None for anything else.

    ``1.0`` is one, as dataframes write it.
    """
    match = _GRADE.fullmatch(text)
    return int(match[1]) if match else None


def finite_number(text: str) -> float | None:
    """The number of a decimal, in 64 bits; None for anything else, and for what is beyond them."""
    number = float(text) if NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None
