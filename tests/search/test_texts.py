"""Texts are found by their ids, whatever the ids and texts are."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_kit.errors import UserError
from eval_kit.search import shards, texts
from eval_kit.search.texts import PassageTexts

PASSAGES = [(f"{number}", f"text é {number}" * (number % 5)) for number in range(1, 101)]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_text_is_found_by_its_id(data: st.DataObject, tmp_path_factory):
    ids = data.draw(st.lists(st.text("01é-x", min_size=1, max_size=6), min_size=1, max_size=30, unique=True))
    written = {passage_id: data.draw(st.text(max_size=9)) for passage_id in ids}
    wanted = data.draw(st.lists(st.sampled_from(ids), max_size=40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD", data.draw(st.integers(1, 12)))
        stored = texts.write(written.items(), tmp_path_factory.mktemp("texts"))
        assert list(stored) == list(written.items()) and len(stored) == len(ids)
    assert stored.of(wanted) == [written[passage_id] for passage_id in wanted]


def test_an_id_that_is_not_there_is_one_sentence(tmp_path: Path):
    stored = texts.write(PASSAGES, tmp_path)
    for absent in ("0", "101", "1001", "longer than every id that is there", "5 "):
        with pytest.raises(UserError, match=f"^{tmp_path} has no passage {absent}$"):
            stored.of(["7", absent, "8"])


@pytest.mark.parametrize("name", ["text", "offsets", "sorted", "order"])
def test_a_file_that_is_missing_is_one_sentence(name: str, tmp_path: Path):
    texts.write(PASSAGES, tmp_path)
    (tmp_path / f"{name}.npy").unlink()
    with pytest.raises(UserError, match=rf"^{name}\.npy is missing in {tmp_path}"):
        PassageTexts(tmp_path).of(["7"])


def test_the_key_tells_ids_and_texts(tmp_path: Path):
    def key(name: str, passages: list[tuple[str, str]]) -> str:
        return texts.write(passages, tmp_path / name).key

    first = key("first", PASSAGES)
    assert key("first", PASSAGES) == first == key("second", PASSAGES)
    assert key("first", [*PASSAGES[:9], ("10", "another"), *PASSAGES[10:]]) != first
    assert PassageTexts(tmp_path / "first").of(["10", "11"]) == ["another", PASSAGES[10][1]]


def test_another_process_is_sent_the_folder_only(tmp_path: Path):
    sent = pickle.dumps(texts.write(PASSAGES, tmp_path))
    assert len(sent) < 300
    assert pickle.loads(sent).of(["3", "4"]) == [PASSAGES[2][1], PASSAGES[3][1]]


@pytest.mark.slow
def test_a_look_up_takes_no_memory_for_the_other_texts(tmp_path: Path):
    """200 MB of texts, looked up within a limit of 50 MB more than Python and numpy take."""
    stored = texts.write(((f"{number}", "x" * 20_000) for number in range(10_000)), tmp_path)
    program = """
import resource, sys, numpy
from pathlib import Path
from eval_kit.search.texts import PassageTexts
taken = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (taken + (50 << 20),) * 2)
stored = PassageTexts(Path(sys.argv[1]))
assert [len(text) for text in stored.of([str(number) for number in range(0, 10_000, 100)])] == [20_000] * 100
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert isinstance(stored._shards.array("text"), np.memmap)
