"""JSON from outside: bounded in size and depth, no repeated keys, no number or text that the next step cannot hold."""

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from eval_kit.errors import UserError
from eval_kit.files.text import LARGEST_DOCUMENT, read_utf8

MOST_DEPTH = 64
_LARGEST_NUMBER = 2**63


def read(path: Path, most: int = LARGEST_DOCUMENT) -> Any:
    """The document in a file of at most ``most`` bytes.

    Raises:
        UserError: the file cannot be read, or what :func:`parse` says.
    """
    return parse(read_utf8(path, most), str(path))


def parse(text: str, where: str) -> Any:
    """The value of a JSON text; ``where`` says in messages where it comes from.

    Raises:
        UserError: ``where`` (with the line, if there is one) and why the text is not JSON, or not accepted here.
    """
    try:
        return decode(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}:{error.lineno}: is not JSON: {error.msg}") from None
    except ValueError as error:
        raise UserError(f"{where}: is not JSON: {error}") from None


def decode(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: in one clause, why it is not JSON, or not accepted here.
    """
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep") from None
    if text.count("[") + text.count("{") > MOST_DEPTH:  # a bound of the depth, which spares most texts the walk
        _check_depth(value)
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds one half of a surrogate pair") from None
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MOST_DEPTH):
        inner = [list(item.values()) if isinstance(item, dict) else item for item in level]
        level = [item for items in inner if isinstance(items, list) for item in items]
        if not level:
            return
    raise ValueError(f"it is nested more than {MOST_DEPTH} deep")


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
    raise ValueError(f"it holds {text[:40]}, not a finite number of 64 bits")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_int=_integer, parse_float=_float, parse_constant=_refuse)
