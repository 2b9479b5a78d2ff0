"""Arrays on the disk."""

import io
import math
import os
from pathlib import Path
from typing import Any

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
    dtype = np.load(path, mmap_mode="r").dtype if before else rows.dtype
    header = io.BytesIO()
    shape = (before + len(rows), *rows.shape[1:])
    about = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(header, about)
    with path.open("r+b" if before else "wb") as file:
        file.seek(header.tell() + before * math.prod(shape[1:]) * dtype.itemsize)
        file.write(np.ascontiguousarray(rows, dtype))
        file.seek(0)
        file.write(header.getvalue())
        file.flush()
        os.fsync(file.fileno())


def cut_rows(path: Path, count: int) -> None:
    """Keep the first ``count`` rows of an array."""
    array = np.load(path, mmap_mode="r")
    if len(array) > count:
        append_rows(path, count, array[:0])
    os.truncate(path, array.offset + count * math.prod(array.shape[1:]) * array.itemsize)
