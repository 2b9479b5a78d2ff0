"""JSON from outside: bounded in size, no repeated keys, no number that the next step cannot hold."""

import json
import math
import re
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from eval_kit.documents import Document
from eval_kit.errors import UserError
from eval_kit.files.text import LARGEST_DOCUMENT, read_utf8

_LARGEST_NUMBER = 2**63
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""How texts that were cut in units of UTF-16, as in Java, hold what no UTF-8 can."""


def read(path: Path, most: int = LARGEST_DOCUMENT) -> Any:
    """The document in a file of at most ``most`` bytes."""
    try:
        return decode(read_utf8(path, most))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from None


def load[D: Document](kind: type[D], path: Path) -> D:
    """The document in ``path``, of a class of :mod:`eval_kit.documents`."""
    try:
        return msgspec.convert(read(path), kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{path} is not a valid {kind.__name__}: {error}") from None


def decode(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: in one clause, why it is not JSON, or not accepted here.
    """
    try:
        value = _DECODER.decode(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except UnicodeEncodeError:
        raise ValueError("it contains one half of a surrogate pair") from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        names: set[str] = set()
        repeat = next(name for name, _ in pairs if name in names or names.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {repeat!r} appears twice")
    return keys


def _integer(text: str) -> int:
    # int() is quadratic, and has another error from 4,300 digits on
    value = int(text) if len(text) <= len(str(-_LARGEST_NUMBER)) else _LARGEST_NUMBER
    if not -_LARGEST_NUMBER <= value < _LARGEST_NUMBER:
        _refuse(text)
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse(text)
    return value


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is not a finite 64-bit number")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_int=_integer, parse_float=_float, parse_constant=_refuse)
