import numpy as np
import polars as pl
import pytest

from builder.embedded import Embedded
from eval_kit.errors import UserError


def test_embedded_refuses_duplicate_ids_nan_and_wrong_shapes() -> None:
    vectors = np.zeros((3, 2), np.float32)
    with pytest.raises(UserError, match=r"^query id '1' comes more than once$"):
        Embedded(pl.Series(["1", "2", "1"]), vectors)
    with pytest.raises(UserError, match="2 queries cannot have vectors of shape"):
        Embedded(pl.Series(["1", "2"]), vectors)
    vectors[1, 1] = np.nan
    with pytest.raises(UserError, match="the vector of query '2' holds NaN or infinity"):
        Embedded(pl.Series(["1", "2", "3"]), vectors)
