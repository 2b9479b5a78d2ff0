"""Arrays on the disk."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


def write_array(path: Path, array: NDArray[Any]) -> None:
    """``numpy.save`` for arrays of one dimension or more, in one write, which fails when the disk is full.

    numpy's own, given a real file, does not see that of the last bytes.
    """
    whole = np.ascontiguousarray(array)
    with path.open("wb") as file:
        npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(whole))
        file.write(whole)
