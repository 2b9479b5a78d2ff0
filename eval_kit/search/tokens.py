"""Passages as token ids on the disk: tokenised once per tokenizer, whatever model reads them.

Beside the texts (:mod:`eval_kit.search.texts`), in ``tokens/`` and a folder named by the tokenizer's digest: shards of
:mod:`eval_kit.search.shards` with the ids of all tokens, one passage after the other, without special tokens and
without a limit of length, as uint16 where the vocabulary allows it. ``tokens.json`` names the collection and the
tokenizer. All are memory maps, so that processes share them.
"""

import functools
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.search import shards
from eval_kit.search.processes import cores, map_here, map_in_order, pool
from eval_kit.search.texts import PassageTexts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MANY = 100_000
"""From this many passages on, they are tokenised by one process per core."""

type Ids = NDArray[np.unsignedinteger[Any]]


def write(texts: PassageTexts, tokenizer: Any, prompt: str = "") -> "PassageTokens":
    """Tokenise the passages that are not tokenised yet. A second process waits for the first.

    Args:
        texts: the passages; their tokens are kept in a folder within theirs.
        tokenizer: a fast one of transformers.
        prompt: put before each text.

    Raises:
        UserError: a slow tokenizer, a full disk, a folder with the tokens of other passages or by another tokenizer.
    """
    described = _described(tokenizer)
    name = hashlib.sha256(json.dumps([described, prompt]).encode()).hexdigest()
    folder = texts.folder / "tokens" / name[:16]
    state = {"collection": texts.key, "tokenizer": name}
    if (known := shards.state_of(folder, "tokens")) and known != state:
        which = "of another collection" if known["collection"] != state["collection"] else "by another tokenizer"
        raise UserError(f"{folder}: holds tokens {which}; remove it")
    with shards.building(folder, "tokens", state) as missing:
        if missing:
            encode = functools.partial(_encode, described, prompt)
            with ExitStack() as stack:
                spread: shards.Spread = map_here
                if len(texts) >= MANY:
                    spread = functools.partial(map_in_order, stack.enter_context(pool(cores())))
                shards.write(texts, folder, encode, json.dumps(state), "tokenising passages", spread=spread)
    return PassageTokens(texts, folder)


@dataclass(frozen=True)
class PassageTokens:
    """Token ids of passages.

    Attributes:
        texts: that were tokenised.
        folder: that :func:`write` made.
    """

    texts: PassageTexts
    folder: Path

    def __len__(self) -> int:
        return len(self._shards)

    def __iter__(self) -> Iterator[tuple[str, Ids]]:
        """``(passage id, token ids)`` pairs in the order of the texts."""
        tokens = np.asarray(self._shards.array("tokens"))
        for start in range(0, len(self), shards.SHARD):
            ends = self._shards.offsets[start : start + shards.SHARD + 1].tolist()
            ids = self._shards.ids[start : start + shards.SHARD].tolist()
            for passage_id, first, last in zip(ids, ends[:-1], ends[1:], strict=True):
                yield passage_id.decode(), tokens[first:last]

    def of(self, ids: Sequence[str]) -> list[Ids]:
        """The token ids of the passages, in the order of ``ids``: views of the memory map.

        Raises:
            UserError: an id that is not among the passages'.
        """
        rows = self.texts.rows(ids)
        tokens, offsets = np.asarray(self._shards.array("tokens")), self._shards.offsets
        ends = zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True)
        return [tokens[first:last] for first, last in ends]

    def __reduce__(self) -> tuple[type["PassageTokens"], tuple[PassageTexts, Path]]:
        """Another process opens the files again, instead of receiving their content."""
        return PassageTokens, (self.texts, self.folder)

    @cached_property
    def _shards(self) -> shards.Shards:
        return shards.read(self.folder)


def backend(tokenizer: Any) -> "Tokenizer":
    """The tokenizer itself, which neither truncates nor pads, whatever the last call of transformers' has set.

    Raises:
        UserError: it is not a fast one.
    """
    return _loaded(_described(tokenizer))


def _described(tokenizer: Any) -> str:
    """The JSON of a fast tokenizer without the truncation and padding that its last call has set."""
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(f"{type(tokenizer).__name__}: is not a fast tokenizer; passages need a fast one")
    described: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return json.dumps(described | {"truncation": None, "padding": None}, sort_keys=True)


@functools.lru_cache(maxsize=2)
def _loaded(described: str) -> "Tokenizer":
    from tokenizers import Tokenizer

    return Tokenizer.from_str(described)


def _encode(described: str, prompt: str, texts: list[str]) -> shards.Arrays:
    """Token ids of all texts, one after the other, and ``lengths`` (n,)."""
    tokenizer = _loaded(described)
    encodings = tokenizer.encode_batch_fast([prompt + text for text in texts], add_special_tokens=False)
    lengths = np.array([len(encoding) for encoding in encodings], np.int32)
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values())
    dtype = np.uint16 if largest <= np.iinfo(np.uint16).max else np.uint32
    return {"tokens": np.concatenate([np.array(encoding.ids, dtype) for encoding in encodings]), "lengths": lengths}
