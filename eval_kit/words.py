"""Words of texts in any script: the one tokeniser of the kit.

Words stand between blanks, as in the papers. Scripts that are written without spaces (Han, Kana, Thai, Lao, Khmer,
Myanmar) have none there, so a run of their characters counts as its overlapping pairs of characters, which is how
search engines index them without a dictionary. A text without such characters is left exactly as it is.
"""

import re

import polars as pl

_CHARACTERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
SPACELESS = f"([{_CHARACTERS}]+)"
"""A run of characters of scripts without spaces, as a regular expression."""
_RUN = re.compile(SPACELESS)
_MARKS = (
    "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0dff\u0e31-\u0ebc\u1000-\u109f\u1780-\u17dd"
)
"""Vowel signs and accents that are no letters by Unicode, but stand inside words, and the scripts that need them."""
WORD = re.compile(rf"[\w{_MARKS}]{{2,}}")
"""A word of two or more letters, digits and underscores, once a text is :func:`with_spaces`."""


def with_spaces(text: str) -> str:
    """The text with a blank around each pair of characters of a script without spaces, and no other change."""
    pieces = _RUN.split(text)
    for at in range(1, len(pieces), 2):  # the runs
        run = pieces[at]
        pairs = [run[i : i + 2] for i in range(len(run) - 1)] or [run]
        pieces[at] = f" {' '.join(pairs)} "
    return "".join(pieces)


def all_spaced(texts: pl.Series) -> pl.Series:
    """:func:`with_spaces` of each text; the same series if no text changes."""
    needs_spaces = texts.str.contains(SPACELESS).fill_null(False)
    if not needs_spaces.any():
        return texts
    values = [with_spaces(text) if change else text for text, change in zip(texts, needs_spaces, strict=True)]
    return pl.Series(texts.name, values, pl.String)


def words(text: str) -> list[str]:
    """The lower-case words of two or more characters of a text, in order."""
    return WORD.findall(with_spaces(text).lower())
