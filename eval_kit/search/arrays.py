"""Arrays on the disk."""

import io
import math
import os
import tokenize
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from eval_kit.files import atomic


def write_array(path: Path, array: NDArray[Any]) -> None:
    """``numpy.save`` for arrays of one dimension or more, whole or not at all, and failing when the disk is full.

    numpy's own, given a real file, misses a full disk in the last bytes.
    """
    whole = np.ascontiguousarray(array)
    with atomic.whole(path) as part, part.open("wb") as file:
        npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(whole))
        file.write(whole)


def append_rows(path: Path, before: int, rows: NDArray[Any]) -> None:
    """Write rows after the first ``before`` rows of an array, or as a new file, and flush them to the disk.

    The header keeps its size, as numpy leaves room in it for the number of rows to grow.
    """
    if before:
        with path.open("rb") as file:
            rows = rows.astype(_header(file)[1], copy=False)
    _write_rows(path, "r+b" if before else "wb", before, rows)


def _write_rows(path: Path, mode: str, before: int, rows: NDArray[Any]) -> None:
    header = io.BytesIO()
    shape = (before + len(rows), *rows.shape[1:])
    about = {"descr": npy.dtype_to_descr(rows.dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(header, about)
    with path.open(mode) as file:
        file.seek(header.tell() + before * math.prod(shape[1:]) * rows.itemsize)
        file.write(np.ascontiguousarray(rows))
        file.seek(0)
        file.write(header.getvalue())
        file.flush()
        os.fsync(file.fileno())


def row_count(path: Path) -> int:
    """The rows of an array's file, as many as its header says and its bytes hold; -1 where it is none."""
    try:
        with path.open("rb") as file:
            shape, dtype = _header(file)
            held = path.stat().st_size - file.tell()
            return min(shape[0], held // max(1, math.prod(shape[1:]) * dtype.itemsize))
    except (OSError, ValueError, IndexError, tokenize.TokenError):  # the last one of numpy's own reader
        return -1


def _header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type of an array, up to whose first row the file is read."""
    npy.read_magic(file)
    shape, _, dtype = npy.read_array_header_1_0(file)
    return shape, dtype


def cut_rows(path: Path, count: int) -> None:
    """Keep the first ``count`` rows of an array, which must be there; the file may end before its last."""
    with path.open("rb") as file:
        shape, dtype = _header(file)
        end = file.tell() + count * math.prod(shape[1:]) * dtype.itemsize
    if shape[0] > count:
        _write_rows(path, "r+b", count, np.empty((0, *shape[1:]), dtype))
    os.truncate(path, end)
