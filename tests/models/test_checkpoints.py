"""The registry of published checkpoints: every entry can be searched with, and names rows that exist."""

import json
import shutil
import time
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import httpx2
import huggingface_hub
import pytest
from huggingface_hub.errors import OfflineModeIsEnabled

from eval_kit.files import checkpoint
from eval_kit.models import checkpoints, opening
from eval_kit.release import reference
from tests.tiny_checkpoints import tiny

ENTRIES = list(checkpoints.load().values())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_rows_it_belongs_to_are_rows_of_those_tables(entry):
    for row in entry.rows:
        systems = {cell["system"] for cell in reference.load(row["table"])["cells"]}
        assert row["system"] in systems, row


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_its_options_are_those_of_its_architecture(entry):
    local = {"query_model": str(tiny("dense"))}
    shorter = {key: min(value, 128) for key, value in entry.options.items() if key.endswith("_length")}
    options = {key: local.get(key, value) for key, value in (entry.options | shorter).items()}
    assert set(options) <= set(opening.options_of(entry.architecture))
    made = opening.retriever(entry.architecture, tiny(entry.architecture), options)
    if entry.architecture == "dense":
        assert made.encode_queries(["alpha beta"]).shape == (1, 32)


def test_each_system_is_listed_once():
    wanted = "dpr ance tas-b splade++ splade++-self colbert-v2 minilm-cross-encoder"
    assert set(wanted.split()) == {entry.name for entry in ENTRIES}
    assert len({entry.name for entry in ENTRIES}) == len(json.loads(checkpoints.FILE.read_text()))


def test_systems_of_beir_read_512_word_pieces():
    """BEIR §4: "the first 512 word pieces within all documents"."""
    lengths = {}
    for entry in ENTRIES:
        if any(row["table"].startswith("beir2021") for row in entry.rows):
            lengths[entry.name] = entry.options.get("passage_length", entry.options.get("pair_length"))
    assert lengths == dict.fromkeys(("dpr", "ance", "tas-b", "minilm-cross-encoder"), 512)


def test_a_digest_is_of_the_weights_and_not_of_the_card(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(tiny("dense"), copy)
    (copy / "README.md").write_text("another card")
    assert checkpoint.digest(str(copy)) == checkpoint.digest(str(tiny("dense")))
    weights = next(copy.rglob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert checkpoint.digest(str(copy)) != checkpoint.digest(str(tiny("dense")))


def test_a_model_that_the_hub_says_nothing_of_is_taken_from_the_cache(monkeypatch, request):
    def pinned(error: Exception) -> object:
        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", Mock(side_effect=error))
        checkpoint.pinned_commit.cache_clear()
        return checkpoint.pinned_commit("somebody/bert")

    request.addfinalizer(checkpoint.pinned_commit.cache_clear)
    taken = {"revision": None, "local_files_only": True}
    with pytest.warns(UserWarning, match="somebody/bert"):
        assert pinned(httpx2.ConnectError("no route")) == taken
    assert pinned(OfflineModeIsEnabled("as asked")) == taken
    with pytest.raises(ZeroDivisionError):
        pinned(ZeroDivisionError("a bug"))


ALIASES = "\n".join(f"- &{name} {' '.join([f'*{before}'] * 9)}" for before, name in pairwise("abcdefghi"))


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("datasets: ms_marco\n", ["ms_marco"]),
        ("yes: x\n2024: y\n2024-01-01: z\ndatasets:\n- a\n# and\n- b\nmodel-index:\n- name: [\n", ["a", "b"]),
        ("datasets: [a, 5]\n", ["a"]),
        ("datasets: 5\n", None),
        ("datasets: {a: b}\n", None),
        (f"datasets: {ALIASES}\n", None),
        ("datasets: " + "[" * 9_000 + "\n", None),
        ("a: " + "x" * 100_000_000 + "\ndatasets: a\n", None),
    ],
)
def test_what_a_stranger_writes_in_a_card_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, names: list[str] | None
) -> None:
    monkeypatch.setattr(checkpoints, "_registered", lambda model: None)
    card = tmp_path / "README.md"
    card.write_text(f"---\n{header}---\n")
    start = time.monotonic()
    assert checkpoints.declared_data(str(tmp_path), card) == names
    assert time.monotonic() - start < 10
