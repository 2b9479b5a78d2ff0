"""Text from outside: UTF-8, in lines of bounded length, with its faults named by file and line."""

from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

from eval_kit.errors import UserError
from eval_kit.files.packed import blocks

LONGEST_LINE = 16 << 20
"""Bytes: the longest documents of BEIR's datasets have some hundred thousand."""
LARGEST_DOCUMENT = 64 << 20
"""Bytes of a file that is read whole, such as a config or a manifest."""
_BLOCK_BYTES = 1 << 20
"""Read at once."""


def read_utf8(path: Path, most: int = LARGEST_DOCUMENT) -> str:
    """The text of a document, line ends as they are."""
    content = b""
    try:
        for block in blocks(path, _BLOCK_BYTES):
            content += block
            if len(content) > most:
                raise UserError(f"{path} is larger than {most:,} bytes")
        return content.removeprefix(BOM_UTF8).decode("utf-8")
    except EOFError as error:
        raise UserError(f"Could not read {path}: {error}") from None
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{number}: is not UTF-8 text") from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line with its number, from 1, without its end (``\\n`` or ``\\r\\n``), of a plain or packed file.

    A byte-order mark before the first line, and empty lines after the last, are left out.
    """
    number = empty = 0
    try:
        for line in _lines(path):
            number += 1
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
            if not line.strip():
                empty += 1
                continue
            yield from ((before, "") for before in range(number - empty, number))
            empty = 0
            if len(line) > LONGEST_LINE:
                raise UserError(f"{path}:{number}: the line is longer than {LONGEST_LINE:,} bytes")
            yield number, line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path}:{number}: is not UTF-8 text") from None
    except EOFError as error:
        raise UserError(f"{path}:{number + 1}: {error}") from None


def _lines(path: Path) -> Iterator[bytes]:
    """Lines without their newlines; of one that is too long only its start."""
    rest = b""
    for block in blocks(path, _BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        if len(rest) > LONGEST_LINE:
            break
    if rest:
        yield rest
