"""Text from outside: UTF-8, in lines of bounded length, with its faults named by file and line."""

import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

from eval_kit.errors import UserError
from eval_kit.files.opening import open_file

LONGEST_LINE = 16 << 20
"""Bytes: the longest documents of BEIR's datasets have some hundred thousand."""
LARGEST_DOCUMENT = 64 << 20
"""Bytes of a file that is read whole, such as a config or a manifest."""
_WHOLE_NUMBER = re.compile(r"(-?[0-9]{1,18})(?:\.0*)?")
_PACKED = {
    b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh91AY&SY": "bzip2", b"\xfd7zXZ": "xz",
    b"\x04\x22\x4d\x18": "lz4", b"PK\x03\x04": "zip",
}  # fmt: skip


def read_utf8(path: Path, most: int = LARGEST_DOCUMENT) -> str:
    """The text of a document, line ends as they are.

    Raises:
        UserError: it cannot be read, is larger or packed, or (with the line) is not UTF-8.
    """
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise UserError(f"{path}: is larger than {most:,} bytes")
        content = file.read()
    _refuse_packed(path, content)
    try:
        return content.removeprefix(BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{number}: is not UTF-8 text") from None


def packed_by(start: bytes) -> str:
    """The program that packed a file, by how it starts; empty for plain text."""
    return next((name for magic, name in _PACKED.items() if start.startswith(magic)), "")


def _refuse_packed(path: Path, start: bytes) -> None:
    if program := packed_by(start):
        raise UserError(f"{path}: is packed by {program}; unpack it")


def read_lines(path: Path, hint: str = "") -> Iterator[tuple[int, str]]:
    """Each line with its number, from 1, without its end (``\\n`` or ``\\r\\n``); only one is in memory.

    A byte-order mark before the first line, and empty lines after the last, are left out.

    Args:
        path: the file.
        hint: added to the sentence about a file that cannot be read.

    Raises:
        UserError: the file cannot be read, or (with the line) it is packed, or a line is not UTF-8 or longer than any
            passage is.
    """
    number = empty = 0
    with open_file(path, hint) as file:
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if number == 1:
                _refuse_packed(path, line)
                line = line.removeprefix(BOM_UTF8)
            if not line.strip():
                empty += 1
                continue
            yield from ((before, "") for before in range(number - empty, number))
            empty = 0
            if len(line) > LONGEST_LINE:
                raise UserError(f"{path}:{number}: the line is longer than {LONGEST_LINE:,} bytes")
            try:
                yield number, line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
            except UnicodeDecodeError:
                raise UserError(f"{path}:{number}: is not UTF-8 text") from None


def whole_number(text: str) -> int | None:
    """The whole number in ASCII digits, with or without a minus sign, as grades are written; None for anything else.

    ``1.0`` is one, as dataframes write it.
    """
    match = _WHOLE_NUMBER.fullmatch(text)
    return int(match[1]) if match else None
