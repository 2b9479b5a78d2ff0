"""Strategies: a valid input, and what a stranger may make of it."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

RUN = b"".join(
    b"%d Q0 %d %d %f t\n" % (query, passage, 1, 1 / passage) for query in (1, 2, 10, 30) for passage in (7, 8)
)
TOKENS = [
    *(b"", b"\n", b"\r\n", b"\t", b" ", b"\0", b"\x1b[31m", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe"),
    *(b"nan", b"inf", b"1e400", b"-1", b"0x1", b"99999999999999999999", "١".encode(), "\u202e".encode(), b"=1+1"),
    *(b'"', b"'", b"{", b"\\", b"../..", b"a" * 10_000, b"\x1f\x8b", b"\x28\xb5\x2f\xfd"),
    *(b"x^", b"PAR1", b"\x93NUMPY", b"<script>", b"$(id)", b"%s", b"\n" * 20_000),
]
VALUES: list[Any] = [
    *(None, True, 0, -1, 1, 1.5, 377.0, 2**31, 2**63 - 1, 2**63, 2**70, -(2**63), 1e308, float("inf"), float("nan")),
    *("", " ", "\0", "\x1b[31m", "\u202e", "\n", "a" * 100_000, "../../etc/passwd", "/dev/zero", "=1+1"),
    *([], {}, [[]], [{}], {"a": 1}, [None], ["a", "a"], "RR@10", "1.0.0\n", "<b>", "0" * 64),
]


def texts(base: bytes) -> st.SearchStrategy[bytes]:
    """``base`` cut, repeated, with tokens put in or over it somewhere; or bytes of no sense."""
    places = st.integers(0, len(base))
    edit = st.tuples(places, st.integers(0, 20), st.sampled_from(TOKENS) | st.binary(max_size=6))
    return st.one_of(
        st.lists(edit, min_size=1, max_size=3).map(lambda edits: _edited(base, edits)),
        places.map(lambda end: base[:end]),
        st.binary(max_size=200),
        st.sampled_from(TOKENS).map(lambda token: token * 50),
    )


def _edited(base: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for place, length, token in edits:
        base = base[:place] + token + base[place + length :]
    return base


@st.composite
def documents(draw: st.DrawFn, base: Any) -> bytes:
    """The JSON document with up to three values, keys or elements changed, left out or doubled; or broken text."""
    document = copy.deepcopy(base)
    for _ in range(draw(st.integers(1, 3))):
        holders = list(_holders(document))
        holder = holders[draw(st.integers(0, len(holders) - 1))]
        key = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        how = draw(st.sampled_from(["change", "change", "change", "remove", "double"]))
        if how == "remove":
            del holder[key]
        elif how == "double" and isinstance(holder, list):
            holder.append(holder[key])
        else:
            holder[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        if not list(_holders(document)):
            break
    text = json.dumps(document).encode()
    return draw(texts(text)) if draw(st.integers(0, 5)) == 0 else text


def _holders(value: Any) -> Iterator[Any]:
    """The value and all in it that hold something."""
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)
