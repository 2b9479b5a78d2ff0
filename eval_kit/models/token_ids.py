"""Models of sentence-transformers that read passages as token ids, as :mod:`eval_kit.search.tokens` makes them.

The special tokens are put around a passage's ids when a batch is made, and the batch is bit for bit what the model's
tokenizer makes of the text, in a third of the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.search import tokens
from eval_kit.search.retriever import Passages
from eval_kit.search.texts import PassageTexts
from eval_kit.search.tokens import Ids, PassageTokens

SAMPLE = 16
"""Passages on which a model's input from ids is compared with its input from texts."""
SHORT = 12
"""A shorter limit, in tokens, under which they are compared again, so that truncation is compared too."""
QUERY = "what is a query"


def read[Source: Passages](model: Any, passages: Source, prompt: str | None = None) -> Source | PassageTokens:
    """The passages as token ids, where a grid stores their texts and the model can read ids; else unchanged.

    The ``preprocess`` of the model, one of sentence-transformers, takes ids from now on, alone or paired with a query's
    text. The prompt is what the model puts before a passage.
    """
    if not isinstance(passages, PassageTexts) or (reader := _reader(model, passages, prompt)) is None:
        return passages
    model.preprocess = reader
    return PassageTokens(passages, tokens.tokenizer_json(model.tokenizer), prompt or "")


def prompt_of(model: Any, role: str = "document") -> str | None:
    """The prompt that sentence-transformers adds by default to a ``query`` or a ``document``."""
    names = ("query",) if role == "query" else ("document", "passage", "corpus")
    name = next((name for name in names if name in model.prompts), None)
    prompt: str | None = model.prompts.get(name or model.default_prompt_name)
    return prompt


@dataclass(frozen=True)
class _Form:
    """How a tokenizer puts one text, or two, between special tokens.

    Attributes:
        special: token ids before the first text, after it, and after the second one.
        types: the token type of each text and the special tokens after it.
    """

    special: Sequence[Sequence[int]]
    types: Sequence[int]


class _Reader:
    """A model's ``preprocess`` that takes token ids as well as texts."""

    def __init__(self, model: Any, prompt: str | None) -> None:
        self.of_texts = model.preprocess
        self._prompt = prompt or ""
        self._transformer, self._tokenizer = model[0], model.tokenizer
        self._backend = tokens.load(tokens.tokenizer_json(model.tokenizer))
        self._forms = [_form(self._backend.encode("a")), _form(self._backend.encode("a", "a"))]
        self._prompt_lengths: dict[Any, Any] = {}

    def __call__(self, inputs: Sequence[Any], prompt: str | None = None, **options: Any) -> dict[str, Any]:
        """What ``preprocess`` returns for the texts, and their lengths; in pairs the query is always a text."""
        from eval_kit.models import lengths

        features = self._features(inputs, prompt, **options)
        mask = features.get("attention_mask")
        return features if mask is None else features | {lengths.KEY: lengths.of(mask)}

    def _features(self, inputs: Sequence[Any], prompt: str | None = None, **options: Any) -> dict[str, Any]:
        is_pairs = isinstance(inputs[0], tuple | list)
        if isinstance(inputs[0][1] if is_pairs else inputs[0], str):
            return dict(self.of_texts(inputs, prompt=prompt, **options))
        import torch

        if (prompt or "") != self._prompt:
            raise ValueError(f"the passages were tokenised after {self._prompt!r}, not after {prompt!r}")
        columns = self._pairs(inputs) if is_pairs else [inputs]
        length = options.get("max_length") or self._length(options.get("task"))
        arrays = _batch(columns, self._forms[is_pairs], length, self._tokenizer.pad_token_id)
        features: dict[str, Any] = {
            name: torch.from_numpy(arrays[name]) for name in self._tokenizer.model_input_names if name in arrays
        }
        features["modality"] = "text"
        if prompt:
            features["prompt_length"] = self._prompt_length(prompt, options.get("task"))
        return features

    def agrees(self, texts: list[str], is_pairs: bool) -> bool:
        """Whether the texts' ids give the same features as the texts themselves."""
        of_ids: list[Any] = [
            np.array(self._backend.encode(self._prompt + text, add_special_tokens=False).ids) for text in texts
        ]
        inputs: list[list[Any]] = [texts, of_ids]
        if is_pairs:
            inputs = [list(product([QUERY], contents)) for contents in inputs]
        for options in ({"task": "document"}, {"task": "document", "max_length": SHORT}):
            library_output, actual = (self(contents, prompt=self._prompt or None, **options) for contents in inputs)
            if not _same(library_output, actual):
                return False
        return True

    def _length(self, task: str | None) -> int:
        length = self._transformer.document_length if task == "document" else None  # ids are of passages alone
        return int(length or min(self._tokenizer.model_max_length, 1 << 30))  # without a limit it is 1e30

    def _pairs(self, pairs: Sequence[tuple[str, Ids]]) -> list[Sequence[Ids]]:
        queries, passages = zip(*pairs, strict=True)
        distinct = list(dict.fromkeys(queries))
        encodings = self._backend.encode_batch_fast(distinct, add_special_tokens=False)
        ids = {query: np.array(encoding.ids) for query, encoding in zip(distinct, encodings, strict=True)}
        return [list(map(ids.__getitem__, queries)), passages]

    def _prompt_length(self, prompt: str, task: str | None) -> Any:
        """The value that the model's own preprocessing gives."""
        if task not in self._prompt_lengths:
            self._prompt_lengths[task] = self.of_texts(["a"], prompt=prompt, task=task).get("prompt_length")
        return self._prompt_lengths[task]


def _reader(model: Any, texts: PassageTexts, prompt: str | None) -> _Reader | None:
    """A reader that agrees with the model's own preprocessing; None where they differ, or for slow tokenizers."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer

    is_pairs = isinstance(model, CrossEncoder)
    if not isinstance(model[0], Transformer) or not getattr(model.tokenizer, "is_fast", False) or (is_pairs and prompt):
        return None
    if isinstance(model.preprocess, _Reader):
        model.preprocess = model.preprocess.of_texts
    reader = _Reader(model, prompt)
    if [len(form.types) for form in reader._forms] != [1, 2]:  # "a" is no single token, as in some Japanese models
        return None
    sample = [text for _, text in islice(texts, SAMPLE)]
    return reader if reader.agrees(sample, is_pairs) else None


def _form(encoding: Any) -> _Form:
    """From the encoding of texts of one token each."""
    special: list[list[int]] = [[]]
    types = []
    for token, text, kind in zip(encoding.ids, encoding.sequence_ids, encoding.type_ids, strict=True):
        if text is None:
            special[-1].append(token)
        else:
            special.append([])
            types.append(kind)
    return _Form(special, types)


def _batch(columns: Sequence[Sequence[Ids]], form: _Form, length: int, pad: int) -> Mapping[str, NDArray[np.int64]]:
    """Texts with their special tokens, padded on the right to the longest.

    Args:
        columns: token ids of the texts, or of the first and the second texts of pairs.
        form: of one text, or of two.
        length: tokens after which a text or pair is cut, special ones included.
        pad: padding token.

    Returns:
        ``input_ids``, ``attention_mask`` and ``token_type_ids``, each (n, longest).
    """
    rows = len(columns[0])
    sizes = _cut([np.array(list(map(len, column))) for column in columns], length - sum(map(len, form.special)))
    total = np.sum(sizes, axis=0) + sum(map(len, form.special))
    every = np.arange(rows)
    ids = np.full((rows, int(total.max())), pad, np.int64)
    types = np.zeros_like(ids)
    ids[:, : len(form.special[0])] = form.special[0]
    start = np.full(rows, len(form.special[0]))
    for column, size, behind, kind in zip(columns, sizes, form.special[1:], form.types, strict=True):
        flat = np.concatenate(
            [content[:token_count] for content, token_count in zip(column, size.tolist(), strict=True)]
        )
        line = np.repeat(every, size)
        ids[line, np.arange(len(flat)) + np.repeat(start - np.cumsum(size) + size, size)] = flat
        end = start + size
        for token in behind:
            ids[every, end] = token
            end = end + 1
        if kind:
            position = np.arange(ids.shape[1])
            types[(position >= start[:, None]) & (position < end[:, None])] = kind
        start = end
    mask = (np.arange(ids.shape[1]) < total[:, None]).astype(np.int64)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def _cut(sizes: list[NDArray[np.int64]], length: int) -> list[NDArray[np.int64]]:
    """How many tokens of each text are kept, ``length`` in all: the longer of two is cut first, to the other's length.

    Like the truncation ``longest_first`` of the library tokenizers.
    """
    if len(sizes) == 1:
        return [np.minimum(sizes[0], length)]
    short, long = np.minimum(*sizes), np.maximum(*sizes)
    kept_long = np.where(short > length, short, np.minimum(long, np.maximum(short, length - short)))
    over = short + kept_long > length
    kept_short = np.where(over, length // 2, short)
    kept_long = np.where(over, length // 2 + length % 2, kept_long)
    first_is_short = sizes[0] <= sizes[1]
    return [np.where(first_is_short, kept_short, kept_long), np.where(first_is_short, kept_long, kept_short)]


def _same(library_output: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    import torch

    return library_output.keys() == actual.keys() and all(
        torch.equal(value, actual[name]) if isinstance(value, torch.Tensor) else value == actual[name]
        for name, value in library_output.items()
    )
