"""Progress where there is no terminal: a line now and then, and none for what is soon done."""

from eval_kit import console


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    seconds = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: seconds[0])
    with console.counting("indexing \x1b[31m", "passages", 30_005) as advance:
        for _ in range(8):
            seconds[0] += 10
            advance(500)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        r"indexing \x1b[31m: 2,000 of 30,005 passages, 0:09:20 left",
        r"indexing \x1b[31m: 4,000 of 30,005 passages, 0:08:40 left",
    ]


def test_what_is_soon_done_says_nothing(capsys):
    assert list(console.with_count(range(5_000), "reading", "lines")) == list(range(5_000))
    assert capsys.readouterr().err == ""
