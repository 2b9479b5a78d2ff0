"""The state of a cell: what is written is read again, and a file of another kind is refused."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from baselines.cells.journal import Journal, read
from eval_kit.errors import UserError

STATE: dict[str, Any] = {
    "state": "training",
    "attempts": 1,
    "seconds": {"training": 1.5},
    "facts": {"training": {"first_loss": 0.5, "last_loss": math.nan, "losses": {"1": 0.5}}},
    "progress": {"step": 1, "steps": 2, "loss": None},
    "reason": None,
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read(tmp_path).state == "waiting"
    journal = Journal(tmp_path)
    with journal.stage("training"):
        journal.facts["training"] = STATE["facts"]["training"]
    written = (tmp_path / "state.json").read_text()
    assert json.loads(written).keys() == STATE.keys() and json.loads(written)["progress"] == {}
    Journal(tmp_path).write("failed", reason="no disk")
    again = read(tmp_path)
    assert (again.state, again.attempts, again.reason) == ("failed", 2, "no disk")
    assert again.seconds == journal.seconds and again.facts["training"]["losses"] == {"1": 0.5}


@pytest.mark.parametrize(
    "change",
    [
        {"state": "resting"},
        {"attempts": -1},
        {"seconds": {"training": "long"}},
        {"facts": {"indexing": None}},
        {"facts": {"training": {"first_loss": "low"}}},
        {"progress": {"step": 1.5}},
        {"more": 1},
    ],
)
def test_another_document_is_refused_in_one_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(STATE))
    assert read(tmp_path).progress.steps == 2
    path.write_text(json.dumps(STATE | change))
    with pytest.raises(UserError, match=f"is not the state of a cell; remove {tmp_path} to run the cell again"):
        read(tmp_path)
