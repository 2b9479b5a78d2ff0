"""The memory that Java wants: asked for before Java would end the process, and as much as the user says."""

import pytest

from eval_kit.errors import UserError
from eval_kit.search import lucene


def test_memory_that_cannot_be_had_is_said_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    assert lucene._heap() == ["-Xmx8g"]
    monkeypatch.setattr(lucene, "_RESERVED_BYTES", 1 << 60)
    with pytest.raises(UserError, match=r"8 GB.*JAVA_TOOL_OPTIONS=-Xmx2g"):
        lucene._heap()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx2g")
    assert lucene._heap() == []
