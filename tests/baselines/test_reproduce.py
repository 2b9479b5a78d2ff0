"""Commands whose figures are known from elsewhere give them: ``make reproduce``."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from eval_kit.release import Release
from tests.conftest import Run

ROWS = json.loads(Path(__file__).with_name("reproductions.json").read_text(encoding="utf-8"))
"""Commands with ``{shared}``, ``{release}``, ``{out}`` for folders; each figure to four decimals, or as tolerated."""


def wrong(values: dict[str, float], figures: list[dict[str, Any]]) -> list[str]:
    """The figures that did not come out as expected."""
    found = []
    for figure in figures:
        value, expected = values.get(figure["measure"], -1.0), figure["expected"]
        if f"{value:.4f}" != f"{expected:.4f}" and abs(value - expected) > figure.get("tolerance", 0):
            found.append(f"{figure['measure']} is {value}, not {expected}")
    return found


def test_every_tolerance_has_its_reason_and_every_row_its_source() -> None:
    assert len({row["command"] for row in ROWS}) == len(ROWS) >= 10
    for row in ROWS:
        assert row["source"]
        assert row["figures"]
        assert all(figure["reason"] for figure in row["figures"] if figure.get("tolerance"))


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[f"{row['test_set']}-{number}" for number, row in enumerate(ROWS)])
def test_a_command_gives_the_figures_known_from_elsewhere(
    row: dict[str, Any], command: Run, shared: Path, published_release: Release, tmp_path: Path
) -> None:
    if "{release}" in row["command"] and row["test_set"] not in published_release.test_sets:
        pytest.skip(f"the release has no test set {row['test_set']}")
    folders = {"shared": shared, "release": published_release.folder, "out": tmp_path}
    for line in filter(None, (row.get("before"), row["command"])):
        done = command(*(word.format(**folders) for word in shlex.split(line)))
        assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    values = {one["measure"]: one["value"] for one in document["measures"] if one["test_set"] == row["test_set"]}
    assert not wrong(values, row["figures"])
