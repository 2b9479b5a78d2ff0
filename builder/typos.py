"""Synthetic typos on any test set: one mistyped word in each query, as in the papers on typos in dense retrieval.

The five kinds, one edit per query, in words of at least three characters that are no stop words: Zhuang and Zuccon,
EMNLP 2021, and SIGIR 2022 (CharacterBERT-DR). Their stop words are NLTK's, these are scikit-learn's.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from pathlib import Path
from string import ascii_lowercase

import polars as pl

from builder.release import VARIATIONS, Rule, Table, add_variations
from eval_kit.errors import UserError
from eval_kit.release import Release, Variation, verified_manifest

FAMILY = "typo"
SOURCE = "builder/typos.py"
PAPERS = "Zhuang and Zuccon, EMNLP 2021; SIGIR 2022"
LICENCE = "that of the base's queries"
SHORTEST = 3
"""Length of the shortest word that is mistyped, in characters."""

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_WORD = re.compile(r"[^\W_]+")

type Edits = list[tuple[int, int, str]]
"""Start and end of the replaced part, and its replacement."""


def typos(queries: pl.DataFrame, kind: str, replica: int = 1, seed: int = 13) -> pl.DataFrame:
    """Mistype one word of each query.

    Args:
        queries: ``query_id`` and ``text``.
        kind: one of :data:`KINDS`.
        replica: each replica is a new draw.
        seed: of the draw, which depends only on these three and the query id, not on the order of the queries.

    Returns:
        The same columns and rows; a query without an eligible word keeps its text.
    """
    texts = [
        _mistyped(text, KINDS[kind], random.Random(f"{seed}\t{kind}\t{replica}\t{query_id}"))
        for query_id, text in queries.select("query_id", "text").iter_rows()
    ]
    return pl.DataFrame({"query_id": queries["query_id"], "text": texts})


def planted(base: str, queries: pl.DataFrame, replicas: int = 1, seed: int = 13) -> Iterator[tuple[Variation, Table]]:
    """Every kind of typo in the queries of a test set, ``replicas`` times."""
    for kind in KINDS:
        for replica in range(1, replicas + 1):
            split = f"{base}_{FAMILY}_{kind}_{replica}".replace(".", "_")
            rule = Rule(f"{_DOES[kind]} one word of each query", PAPERS, (), {"seed": seed, "replica": replica})
            variation = Variation(base, FAMILY, kind, replica, split, None, SOURCE, LICENCE)
            yield variation, Table(VARIATIONS, split, typos(queries, kind, replica, seed), rule)


def add(folder: Path, test_sets: Iterable[str], replicas: int, seed: int) -> Release:
    """Add typos of every kind to a release, as variations of some of its test sets.

    Raises:
        UserError: the release has no such test set, is damaged, or cannot be written.
    """
    release = Release(folder, verified_manifest(folder))
    variations: list[Variation] = []
    tables: list[Table] = []
    for name in test_sets:
        if name not in release.test_sets:
            raise UserError(f"{folder}: has no test set {name!r}; it has {', '.join(release.test_sets)}")
        for variation, table in planted(name, release.queries(name), replicas, seed):
            variations.append(variation)
            tables.append(table)
    return Release(folder, add_variations(folder, variations, tables))


def _mistyped(text: str, edits_of: Callable[[str], Edits], draw: random.Random) -> str:
    words = [word for word in _WORD.finditer(text) if _may_change(word[0]) and edits_of(word[0].lower())]
    if not words:
        return text
    word = draw.choice(words)
    start, end, new = draw.choice(edits_of(word[0].lower()))
    return text[: word.start() + start] + new + text[word.start() + end :]


def _may_change(word: str) -> bool:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return len(word) >= SHORTEST and word.lower() not in ENGLISH_STOP_WORDS


def _delete(word: str) -> Edits:
    return [(at, at + 1, "") for at in range(len(word))]


def _insert(word: str) -> Edits:
    return [(at, at, letter) for at in range(len(word) + 1) for letter in ascii_lowercase]


def _substitute(word: str) -> Edits:
    return [(at, at + 1, letter) for at, old in enumerate(word) for letter in ascii_lowercase if letter != old]


def _swap_adjacent(word: str) -> Edits:
    return [(at, at + 2, word[at + 1] + word[at]) for at in range(len(word) - 1) if word[at] != word[at + 1]]


def _swap_key(word: str) -> Edits:
    return [(at, at + 1, key) for at, old in enumerate(word) for key in _NEIGHBOURS.get(old, "")]


def _neighbours() -> dict[str, str]:
    """Keys beside each letter on a QWERTY keyboard: in its row and, half a key apart, in the rows above and below."""
    at = {key: (row, column + row / 2) for row, keys in enumerate(_ROWS) for column, key in enumerate(keys)}
    neighbours = dict.fromkeys(at, "")
    for key, near in permutations(at, 2):
        (row, column), (near_row, near_column) = at[key], at[near]
        if abs(near_row - row) + abs(near_column - column) <= 1.5:
            neighbours[key] += near
    return neighbours


_NEIGHBOURS = _neighbours()
KINDS: dict[str, Callable[[str], Edits]] = {
    "delete": _delete,
    "insert": _insert,
    "substitute": _substitute,
    "swap_adjacent": _swap_adjacent,
    "swap_key": _swap_key,
}
"""Each kind of typo: all ways to make it in a lower-case word."""
_DOES = {
    "delete": "a character deleted from",
    "insert": "a letter inserted into",
    "substitute": "a character replaced by another letter in",
    "swap_adjacent": "two adjacent characters swapped in",
    "swap_key": "a letter replaced by one of a neighbouring key in",
}
