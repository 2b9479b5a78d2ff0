"""Passages as token ids, tokenised as they are read.

The ids are those of all tokens of a text, without special tokens and without a limit of length, so that every model
with the same tokenizer can cut them as it wants. A tokenizer called by transformers spends two thirds of its time in
Python; called directly it works in threads, ahead of the model that reads the ids.
"""

import functools
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import batched, chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.search.processes import cores, map_in_order
from eval_kit.search.texts import PassageTexts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

AT_ONCE = 128
"""Texts given to a thread at once; fewer than that are tokenised where they are asked for."""

type Ids = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class PassageTokens:
    """Token ids of texts, each after the prompt, by the tokenizer that :func:`tokenizer_json` describes."""

    texts: PassageTexts
    tokenizer_json: str
    prompt: str = ""

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[tuple[str, Ids]]:
        """``(passage id, token ids)`` pairs in the order of the texts, tokenised ahead of their reader."""
        batches = ((batch,) for batch in batched(self.texts, AT_ONCE))
        with ThreadPoolExecutor(cores()) as executor:
            yield from chain.from_iterable(map_in_order(executor, self._pairs, batches))

    def of(self, ids: Sequence[str]) -> list[Ids]:
        """The token ids of the passages, in the order of ``ids``.

        Raises:
            UserError: an id that is not among the passages'.
        """
        texts = self.texts.of(ids)
        if len(texts) <= AT_ONCE:
            return self._tokenise(texts)
        with ThreadPoolExecutor(cores()) as executor:
            return list(chain.from_iterable(executor.map(self._tokenise, batched(texts, AT_ONCE))))

    def _pairs(self, batch: Sequence[tuple[str, str]]) -> list[tuple[str, Ids]]:
        passage_ids, texts = zip(*batch, strict=True)
        return list(zip(passage_ids, self._tokenise(texts), strict=True))

    def _tokenise(self, texts: Sequence[str]) -> list[Ids]:
        with_prompt = [self.prompt + text for text in texts]
        encodings = load(self.tokenizer_json).encode_batch_fast(with_prompt, add_special_tokens=False)
        return [np.array(encoding.ids, self._dtype) for encoding in encodings]

    @cached_property
    def _dtype(self) -> Any:
        largest = max(load(self.tokenizer_json).get_vocab(with_added_tokens=True).values())
        return np.uint16 if largest <= np.iinfo(np.uint16).max else np.uint32


def tokenizer_json(tokenizer: Any) -> str:
    """The JSON of a fast tokenizer without the truncation and padding that its last call has set.

    Raises:
        UserError: it is not a fast one.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(f"{type(tokenizer).__name__}: is not a fast tokenizer; passages need a fast one")
    state: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return json.dumps(state | {"truncation": None, "padding": None}, sort_keys=True)


@functools.lru_cache(maxsize=2)
def load(description: str) -> "Tokenizer":
    """The tokenizer itself, which neither truncates nor pads."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(description)
