"""ECIR 2023's Figure 3 by the authors' own similarities (their notebook), with plain ranks and all orders."""

from itertools import permutations

import numpy as np
import pytest

from eval_kit.release.reference import published_cells
from eval_kit.stats.losses import spearman

SIMILARITIES = {"c0": 0.3334, "c1": 0.2632, "c2": 0.3686, "c3": 0.3217, "c4": 0.4701}
EXPECTED = {"biencoder": (-0.7, 0.233), "splade": (-1.0, 0.017), "colbert": (-0.9, 0.083), "monobert": (-0.5, 0.45)}


def _rho(x: list[float], y: list[float]) -> float:
    ranks = [np.argsort(np.argsort(side)) for side in (x, y)]
    return float(np.corrcoef(*ranks)[0, 1])


@pytest.mark.parametrize("system", EXPECTED)
def test_topics_of_figure_3(system: str) -> None:
    cells = [cell for cell in published_cells("ecir2023-table2") if cell["system"] == system]
    losses = {cell["test_set"].split(".")[-1]: float(cell["value"]) for cell in cells if cell["figure"] == "loss"}
    pairs = [(losses[name], value) for name, value in SIMILARITIES.items()]
    loss, similarity = map(list, zip(*pairs, strict=True))
    rho = _rho(loss, similarity)
    as_far = [abs(_rho(list(order), similarity)) >= abs(rho) - 1e-9 for order in permutations(loss)]
    found = spearman(loss, similarity)
    assert found.value == pytest.approx(rho) == pytest.approx(EXPECTED[system][0])
    assert found.p == pytest.approx(np.mean(as_far)) == pytest.approx(EXPECTED[system][1], abs=5e-4)
