"""Messages are sentences: what happened, why, what to do. Read from the source, as nobody provokes all of them."""

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_kit.errors import UserError, choices
from eval_kit.sentences import counted, joined

_ROOT = Path(__file__).parents[1]
_ERRORS = {"UserError", "ReleaseError", "NoReleaseError", "RunError", "UnavailableError"}
_OWN_NAME = re.compile(
    r"\w+\.\w|\w+ (must|is|are) |ir_datasets|lsa |k-means|polars|pandas|fast-plaid|sentence-transformers"
)
"""An option or a program, which keep their small letter."""
_NAME = "‹›"
"""Stands for what a message quotes."""


def _messages() -> Iterator[tuple[str, list[str]]]:
    for package in ("eval_kit", "builder", "baselines"):
        for path in sorted((_ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ERRORS:
                    sentences = [*node.args, *(keyword.value for keyword in node.keywords)]
                    yield f"{path.relative_to(_ROOT)}:{node.lineno}", [_text(each) for each in sentences]


def _text(node: ast.expr) -> str:
    """What is written in the source of a sentence, with what it quotes shown as :data:`_NAME`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(each.value if isinstance(each, ast.Constant) else _NAME for each in node.values)
    return _NAME


def test_each_message_is_made_of_sentences() -> None:
    faults = []
    for place, sentences in _messages():
        for text in filter(None, sentences):
            if ";" in text and "faults.py" not in place:
                faults.append(f"{place}: two ideas in one sentence: {text}")
            if re.match(rf"{_NAME}( {_NAME})?: (is|has|holds|gives|lacks|cannot|not|no|a|its|there)\b", text):
                faults.append(f"{place}: a verb without a subject: {text}")
            if text.endswith("."):
                faults.append(f"{place}: the full stop is the program's: {text}")
            if re.match("[a-z]", text) and not _OWN_NAME.match(text):
                faults.append(f"{place}: begins with a small letter: {text}")
            if re.search(r"\b(holds|likewise|beside|remarks?|wordings?)\b", text):
                faults.append(f"{place}: a word of the house: {text}")
    assert not faults, "\n".join(faults)


def test_a_message_keeps_its_sentences_between_processes() -> None:
    error = UserError("No runs were given", "The command needs them", "Add RUN files")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error).count(". ") == 2
    assert str(UserError("No runs were given", do="Add RUN files")).count(". ") == 1


@pytest.mark.parametrize(("number", "text"), [(0, "0 queries"), (1, "1 query"), (1_200, "1,200 queries")])
def test_numbers_agree_with_their_nouns(number: int, text: str) -> None:
    assert counted(number, "query") == text


def test_lists_of_names_are_short() -> None:
    assert choices(["a", "b"]) == "a, b"
    assert choices(range(30)).endswith("and 22 more")
    assert [joined(list(names)) for names in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
