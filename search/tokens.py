"""Passages as token ids on the disk: tokenised once per tokenizer, whatever model reads them.

A folder of :mod:`search.shards` that holds the ids of all tokens one passage after the other, without special tokens
and without a limit of length, as uint16 where the vocabulary allows it; ``tokens.json`` names the collection and the
tokenizer. All are memory maps, so that processes share them.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError
from search import shards
from search.retriever import Passages


def write(passages: Passages, folder: Path, tokenizer: Any, collection: str) -> "PassageTokens":
    """Tokenise passages into ``folder``, as far as that is not done. A second process waits for the first.

    Args:
        passages: ``(passage id, text)`` pairs, which are not read where the folder is complete.
        folder: created if need be; ``root / collection / digest(tokenizer)`` keeps all apart.
        tokenizer: of transformers, a fast one.
        collection: what names the passages, see :func:`search.passages.collection_key`.

    Raises:
        UserError: a slow tokenizer, no passages, a full disk, a folder with the tokens of other passages or by another
            tokenizer.
    """
    state = {"collection": collection, "tokenizer": digest(tokenizer)}
    _check(folder, state)
    with shards.building(folder, "tokens", state) as missing:
        if missing:
            encode = _Encoder(tokenizer)
            shards.write(passages, folder, encode, json.dumps(state), "tokenising passages")
    return PassageTokens(folder)


def read(folder: Path, tokenizer: Any, collection: str) -> "PassageTokens":
    """Open the tokens that :func:`write` made.

    Raises:
        UserError: there are none, or they are of other passages or by another tokenizer.
    """
    state = {"collection": collection, "tokenizer": digest(tokenizer)}
    _check(folder, state)
    if not shards.is_built(folder, "tokens", state):
        raise UserError(f"{folder}: holds no tokens, or not all of them; tokenise the passages first")
    return PassageTokens(folder)


def digest(tokenizer: Any) -> str:
    """The sha256 of everything that decides the tokens of a text.

    Raises:
        UserError: a tokenizer without a description of itself.
    """
    return hashlib.sha256(json.dumps(_described(tokenizer), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class PassageTokens:
    """Token ids by row: the position of a passage in the order in which they were written.

    Attributes:
        folder: that :func:`write` made.
    """

    folder: Path

    def __len__(self) -> int:
        return len(self._shards)

    def batch(
        self, rows: NDArray[np.int64], length: int, before: Sequence[int], after: Sequence[int], pad: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A batch as a model reads it, padded on the right to its longest passage.

        Args:
            rows: (n,) of the passages.
            length: tokens after which a passage is cut, those of ``before`` and ``after`` counted.
            before: ids of the tokens that come first, as [CLS].
            after: ids of the tokens that come last, as [SEP].
            pad: id of the token that fills up.

        Returns:
            ``input_ids`` and ``attention_mask``, both (n, longest).
        """
        tokens, offsets = self._shards.array("tokens"), self._shards.offsets
        starts = offsets[rows]
        own = np.minimum(offsets[rows + 1] - starts, length - len(before) - len(after))
        line = np.repeat(np.arange(len(rows)), own)
        column = np.arange(len(line)) - np.repeat(np.cumsum(own) - own, own)
        sizes = own + len(before) + len(after)
        ids = np.full((len(rows), int(sizes.max())), pad, np.int64)
        ids[:, : len(before)] = before
        ids[line, len(before) + column] = tokens[np.repeat(starts, own) + column]
        for position, token in enumerate(after):
            ids[np.arange(len(rows)), len(before) + own + position] = token
        return ids, (np.arange(ids.shape[1]) < sizes[:, None]).astype(np.int64)

    def __reduce__(self) -> tuple[type["PassageTokens"], tuple[Path]]:
        """Another process opens the files again, instead of being sent what they hold."""
        return PassageTokens, (self.folder,)

    @cached_property
    def _shards(self) -> shards.Shards:
        return shards.read(self.folder)


class _Encoder:
    """Texts to token ids."""

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_str(json.dumps(_described(tokenizer)))
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        self._dtype = np.uint16 if largest <= np.iinfo(np.uint16).max else np.uint32

    def __call__(self, texts: list[str]) -> shards.Arrays:
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        lengths = np.array([len(tokens) for tokens in ids], np.int32)
        return {"tokens": np.concatenate([np.array(tokens, self._dtype) for tokens in ids]), "lengths": lengths}


def _described(tokenizer: Any) -> dict[str, Any]:
    """The tokenizer without what its last call has set: where to cut, and how to fill up."""
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(f"{type(tokenizer).__name__}: is no fast tokenizer; passages are tokenised by fast ones only")
    described: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return described | {"truncation": None, "padding": None}


def _check(folder: Path, state: dict[str, str]) -> None:
    known = shards.state_of(folder, "tokens")
    if known and known != state:
        which = "of another collection" if known["collection"] != state["collection"] else "by another tokenizer"
        raise UserError(f"{folder}: holds tokens {which}; name another folder")
