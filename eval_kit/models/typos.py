"""Synthetic typos on any test set: one mistyped word in each query, as in the papers on typos in dense retrieval.

The five kinds, one edit per query, in words of at least three characters that are no stop words: Zhuang and Zuccon,
EMNLP 2021, and SIGIR 2022 (CharacterBERT-DR). Their stop words are NLTK's, these are scikit-learn's. Queries in another
script get the three kinds that need no keyboard; the stop words of another language are its most frequent words.
"""

import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import polars as pl
from msgspec import structs

from eval_kit import languages
from eval_kit.authors.draft import Table
from eval_kit.documents import Rule
from eval_kit.question_words import ENGLISH
from eval_kit.release import Release, Variation
from eval_kit.sentences import counted
from eval_kit.words import WORD

TYPO = "typo"
SOURCE = "builder/typos.py"
"""Where this stood first: releases have it in their digests."""
_PAPERS = "Zhuang and Zuccon, EMNLP 2021; SIGIR 2022"
_LICENCE = "that of the base's queries"
_SHORTEST = 3
"""Length of the shortest word that is mistyped, in characters."""

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_WITHOUT_KEYBOARD = ("delete", "substitute", "swap_adjacent")
"""The kinds for scripts other than Latin, with the letters that the queries have."""
_WORD = re.compile(r"[^\W_]+")

type Edits = list[tuple[int, int, str]]
"""Start and end of the replaced part, and its replacement."""


@dataclass(frozen=True)
class Keyboard:
    """What queries are typed with.

    ``language`` is empty if it is unknown; ``letters`` can be put in by a slip, and ``neighbours`` are the keys beside
    each. ``word`` says what a word is; ``stop_words`` are not mistyped.
    """

    language: str
    letters: str
    neighbours: dict[str, str]
    kinds: tuple[str, ...]
    word: re.Pattern[str]
    stop_words: frozenset[str]


def keyboard(texts: pl.Series) -> Keyboard:
    """The keyboard for queries: QWERTY for Latin letters; their stop words are those of their likely language."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    language = languages.likely(texts) or ""
    characters = texts.str.to_lowercase().str.extract_all(r"\p{L}").explode().drop_nulls()
    latin = 2 * int(characters.str.contains(r"\p{Latin}").sum()) >= len(characters)
    if latin and not language:
        language = ENGLISH
    english = language == ENGLISH
    return Keyboard(
        language,
        letters="".join(sorted("".join(_ROWS) if latin else characters.unique())),
        neighbours=_neighbours(_ROWS) if latin else {},
        kinds=tuple(KINDS) if latin else _WITHOUT_KEYBOARD,
        word=_WORD if english else WORD,
        stop_words=frozenset(ENGLISH_STOP_WORDS if english else languages.frequent(language)),
    )


def plant(base: str, queries: pl.DataFrame, replicas: int = 1, seed: int = 13) -> Iterator[tuple[Variation, Table]]:
    """Every kind of typo that their keyboard allows in the queries of a test set, ``replicas`` times.

    One word of each query is mistyped; one without an eligible word keeps its text. A draw depends only on the seed,
    the kind, the replica and the query id, not on the order of the queries.
    """
    board = keyboard(queries["text"])
    if lacking := sorted(KINDS.keys() - board.kinds):
        warnings.warn(
            f"The kit makes no {', '.join(lacking)} of {base}, whose queries are not in Latin letters", stacklevel=2
        )
    of_language = {} if board.language == ENGLISH else {"language": board.language}
    for kind in board.kinds:
        for replica in range(1, replicas + 1):
            split = f"{base}_{TYPO}_{kind}_{replica}".replace(".", "_")
            parameters = {"seed": seed, "replica": replica} | of_language
            rule = Rule(f"{KINDS[kind][0]} one word of each query", _PAPERS, parameters=parameters)
            variation = Variation(base, TYPO, kind, replica, split, None, SOURCE, _LICENCE, queries.height)
            texts = []
            for query_id, text in queries.select("query_id", "text").iter_rows():
                draw = random.Random(f"{seed}\t{kind}\t{replica}\t{query_id}")
                texts.append(_mistype(text, board, kind, draw))
            wordings = pl.DataFrame({"query_id": queries["query_id"], "text": texts})
            if 2 * (same := int((wordings["text"] == queries["text"]).sum())) > queries.height:
                warnings.warn(
                    f"{same:,} of the {counted(queries.height, 'query')} of {base} have no word that {kind} can change",
                    stacklevel=2,
                )
            yield variation, Table("variations", split, wordings, rule)


def with_typos(release: Release, names: Sequence[str]) -> Release:
    """The release, with typos made for each ``<test set>.typo`` among the names, or kind of it, that it has none of."""
    variations, tables = list(release.manifest.variations), {}
    for base, test_set in release.test_sets.items():
        name = f"{base}.{TYPO}"
        is_asked, is_there = (
            any(f"{each}.".startswith(f"{name}.") for each in some) for some in (names, release.variations)
        )
        if is_asked and not is_there:
            for variation, table in plant(test_set.name, release.queries(base)):
                variations.append(variation)
                tables[table.config, table.split] = table.frame
    if not tables:
        return release
    manifest = structs.replace(release.manifest, variations=variations)
    return replace(release, manifest=manifest, _read={**release._read, **tables})


def _mistype(text: str, board: Keyboard, kind: str, draw: random.Random) -> str:
    _, edits_of = KINDS[kind]
    words = []
    for word in board.word.finditer(text):
        lower = "".join(sign if len(sign.lower()) > 1 else sign.lower() for sign in word[0])  # of the same length
        if len(word[0]) >= _SHORTEST and lower not in board.stop_words and (edits := edits_of(lower, board)):
            words.append((word.start(), edits))
    if not words:
        return text
    position, edits = draw.choice(words)
    start, end, new = draw.choice(edits)
    return text[: position + start] + new + text[position + end :]


def _delete(word: str, board: Keyboard) -> Edits:
    return [(at, at + 1, "") for at in range(len(word))]


def _insert(word: str, board: Keyboard) -> Edits:
    return [(at, at, letter) for at in range(len(word) + 1) for letter in board.letters]


def _substitute(word: str, board: Keyboard) -> Edits:
    return [(at, at + 1, letter) for at, old in enumerate(word) for letter in board.letters if letter != old]


def _swap_adjacent(word: str, board: Keyboard) -> Edits:
    return [(at, at + 2, word[at + 1] + word[at]) for at in range(len(word) - 1) if word[at] != word[at + 1]]


def _swap_key(word: str, board: Keyboard) -> Edits:
    return [(at, at + 1, key) for at, old in enumerate(word) for key in board.neighbours.get(old, "")]


def _neighbours(rows: Sequence[str]) -> dict[str, str]:
    """Keys beside each letter on a keyboard: in its row and, half a key apart, in the rows above and below."""
    at = {key: (row, column + row / 2) for row, keys in enumerate(rows) for column, key in enumerate(keys)}
    neighbours = dict.fromkeys(at, "")
    for key, near in permutations(at, 2):
        (row, column), (near_row, near_column) = at[key], at[near]
        if abs(near_row - row) + abs(near_column - column) <= 1.5:
            neighbours[key] += near
    return neighbours


KINDS: dict[str, tuple[str, Callable[[str, Keyboard], Edits]]] = {
    "delete": ("a character deleted from", _delete),
    "insert": ("a letter inserted into", _insert),
    "substitute": ("a character replaced by another letter in", _substitute),
    "swap_adjacent": ("two adjacent characters swapped in", _swap_adjacent),
    "swap_key": ("a letter replaced by one of a neighbouring key in", _swap_key),
}
"""Each kind of typo: in words, and the function that gives all ways to make it in a lower-case word."""
