"""Arrays on the disk."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray


def write_array(path: Path, array: NDArray[Any]) -> None:
    """``numpy.save`` for arrays of one dimension or more, in one write, which fails when the disk is full.

    numpy's own, given a real file, misses a full disk in the last bytes.
    """
    whole = np.ascontiguousarray(array)
    with path.open("wb") as file:
        npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(whole))
        file.write(whole)


def create_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> None:
    """Create an array of zeros, which takes no room on the disk until :func:`put_rows` fills it."""
    descr = npy.dtype_to_descr(np.dtype(dtype))
    with path.open("wb") as file:
        npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + math.prod(shape) * np.dtype(dtype).itemsize)


def put_rows(path: Path, start: int, rows: NDArray[Any]) -> None:
    """Overwrite the rows from ``start`` on, and flush them to the disk."""
    array = np.load(path, mmap_mode="r")
    row_bytes = math.prod(array.shape[1:]) * array.itemsize
    with path.open("r+b") as file:
        file.seek(array.offset + start * row_bytes)
        file.write(np.ascontiguousarray(rows, array.dtype))
        os.fsync(file.fileno())
