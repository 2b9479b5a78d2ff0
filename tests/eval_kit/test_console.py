"""Progress where there is no terminal: a line now and then, and none for what is soon done."""

import pytest

from eval_kit import console


@pytest.fixture
def clock(monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: seconds[0])
    return seconds


def test_a_log_gets_a_line_now_and_then(clock, capsys):
    with console.counting("indexing", "passages", 30_005) as advance:
        advance(1_000, is_total=True)
        for _ in range(8):
            clock[0] += 10
            advance(500)
    assert capsys.readouterr().err.splitlines() == [
        "indexing: 3,000 of 30,005 passages, 50 passages/s, 9 min left",
        "indexing: 5,000 of 30,005 passages, 50 passages/s, 8 min left",
    ]


def test_what_is_soon_done_says_nothing(clock, capsys):
    assert list(console.with_count(range(5_000), "reading", "lines")) == list(range(5_000))
    assert capsys.readouterr().err == ""


def test_the_first_step_has_no_speed_as_it_waits_for_a_model_or_a_batch(clock, capsys):
    with console.counting("searching", "queries", 600) as advance:
        clock[0] += 45
        advance(1)
    assert capsys.readouterr().err == "searching: 1 of 600 queries\n"
