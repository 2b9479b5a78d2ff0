"""How models of sentence-transformers are loaded and run batch by batch, whatever they encode."""

import gc
import hashlib
import io
import logging
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError

LOG = logging.getLogger(__name__)
_PRECISIONS = ("float32", "bfloat16", "float16")
_STORES = ("float32", "float16")
_POSITIONS = re.compile(r"(^|\.)(position_embeddings|embed_positions|wpe)$")
"""Names of modules that hold a vector for each absolute position."""
ENDLESS = 1e9
"""From this length on, a tokenizer means that it cuts nothing."""


@dataclass
class Batch:
    """How many units are encoded at once: the size given, else that for a CPU or a GPU; less after a full memory."""

    size: int | None
    on_cpu: int = 16
    on_gpu: int = 256
    unit: str = "texts"

    def of[Encoded](self, device: Any, encode: Callable[[int], Encoded]) -> Encoded:
        """What ``encode`` returns with such batches."""
        self.size = self.size or (self.on_cpu if device.type == "cpu" else self.on_gpu)
        while True:
            try:
                return encode(self.size)
            except IndexError as error:  # torch's, of a position
                raise UserError("A text is longer than the model has positions", do="Set its max_seq_length") from error
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if self.size == 1:
                    raise UserError(
                        "A single text does not fit into the GPU's memory", do="Shorten the texts"
                    ) from error
            half = self.size // 2
            LOG.warning("out of memory at %d %s in a batch; continuing with %d", self.size, self.unit, half)
            self.size = half
            free_memory()


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether a GPU was full: in this process, or in one whose traceback is all that arrives here."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or "OutOfMemoryError" in str(error)


def free_memory() -> None:
    """Release the GPU memory that this process holds but does not use."""
    import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def precision_of(name: str | None, stored: str = "float32") -> str:
    """The precision of a model's arithmetic: the one named, else that stored, but ``float16`` for 32 bits on a GPU."""
    import torch

    if name not in (None, *_PRECISIONS):
        raise UserError(f"Unknown precision {name!r}", do=f"Choose from: {', '.join(_PRECISIONS)}")
    return name or ("float16" if stored == "float32" and torch.cuda.is_available() else stored)


def dtype_of(model: Any) -> str:
    """The precision that most of a model's weights have, such as ``bfloat16``; T5 keeps some in 32 bits."""
    sizes = Counter[str]()
    for weights in model.parameters():
        if weights.is_floating_point():
            sizes[str(weights.dtype).removeprefix("torch.")] += weights.numel()
    return max(sizes, key=lambda dtype: sizes[dtype], default="float32")


@contextmanager
def exact_head(model: Any) -> Iterator[None]:
    """Meanwhile the last layer of a cross-encoder computes in float32: 16-bit scores would be full of ties."""
    from torch.nn import Linear

    linear = [name for name, module in model.named_modules() if type(module) is Linear]
    is_generative = any("LogitScore" in type(module).__name__ for module in model)
    own = model.keep_in_fp32_modules or []
    # the last layer of a generative model is the embeddings of its words too
    model.set_keep_in_fp32_modules(own if is_generative or "16" not in dtype_of(model) else [*own, *linear[-1:]])
    try:
        yield
    finally:
        model.set_keep_in_fp32_modules(own)


def weights_digest(model: Any) -> str:
    """The sha256 of a torch module: its structure and all its weights, packed ones of 8 bits too."""
    import torch

    sha256 = hashlib.sha256(repr(model).encode())
    for name, weights in model.state_dict().items():
        sha256.update(f"{name} {getattr(weights, 'dtype', '')}".encode())
        try:
            sha256.update(weights.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        except (AttributeError, RuntimeError, TypeError):  # a type, a pair, or a tensor of another make
            torch.save(weights, packed := io.BytesIO())
            sha256.update(packed.getvalue())
    return sha256.hexdigest()


def store_of(name: str | None, precision: str | None) -> str:
    """The type of vectors on disk: the one named, else ``float16`` where a GPU's arithmetic has 16 bits too."""
    import torch

    if name not in (None, *_STORES):
        raise UserError(f"Vectors cannot be stored as {name!r}", do=f"Choose from: {', '.join(_STORES)}")
    is_half_on_gpu = precision_of(precision) != "float32" and torch.cuda.is_available()
    return name or ("float16" if is_half_on_gpu else "float32")


def _longest_first(lengths: Sequence[int], size: int) -> Iterator[NDArray[np.int64]]:
    """Positions of inputs of these lengths, ``size`` at a time."""
    order = np.argsort(-np.array(lengths, np.int64), kind="stable")
    for start in range(0, len(order), size):
        yield order[start : start + size]


def batches(
    encode: Callable[..., Any],
    inputs: Sequence[Any],
    size: int,
    pool: Any = None,
    lengths: Sequence[int] | None = None,
    **options: Any,
) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """What a method of sentence-transformers makes of the inputs, longest first, so that batches are always the same.

    The library sorts them too, but inputs of one length in an order that differs between processors.
    ``encode`` is ``encode_document``, say, or ``predict``, and inputs are texts or pairs; each process of a ``pool`` of
    the library's is given a batch. Without ``lengths``, texts are as long as their characters. Yields positions among
    the inputs, and the method's output for them.
    """
    lengths = lengths or [sum(map(len, _parts(one))) for one in inputs]
    options |= {"batch_size": size, "show_progress_bar": False, "pool": pool, "chunk_size": size}
    for rows in _longest_first(lengths, size * (len(pool["processes"]) if pool else 1)):
        yield rows, encode([inputs[row] for row in rows], **options)


def token_counts(model: Any, role: str, inputs: Sequence[Any]) -> list[int] | None:
    """The tokens of each text, or pair of texts, as far as the model reads them; None if its tokenizer cannot tell.

    Batches by characters are a quarter padding: as long a text may be 60 tokens or 90.
    """
    tokenizer: Any = getattr(transformer_of(model, role), "tokenizer", None)
    if not hasattr(tokenizer, "all_special_ids"):
        return None
    most = length_of(model, role) or math.inf
    cut = {"truncation": True, "max_length": int(most)} if most < ENDLESS else {}
    known = list(dict.fromkeys(chain.from_iterable(map(_parts, inputs))))
    ids = tokenizer(known, add_special_tokens=False, **cut)["input_ids"] if known else []
    counts = dict(zip(known, map(len, ids), strict=True))
    return [int(min(most, sum(map(counts.__getitem__, _parts(one))))) for one in inputs]


def _parts(one: str | Sequence[str]) -> Sequence[str]:
    """A text, or both of a pair."""
    return [one] if isinstance(one, str) else one


def transformer_of(model: Any, role: str) -> Any:
    """The module of a model of sentence-transformers that reads texts: queries, or each ``document``."""
    routes = getattr(model[0], "sub_modules", {})  # of a Router: each role's own modules
    return routes[role][0] if role in routes else model[0]


def length_of(model: Any, role: str) -> float | None:
    """The tokens after which a model cuts texts; None where it does not say."""
    transformer = transformer_of(model, role)
    expansion = (getattr(transformer, "query_expansion", None) if role == "query" else None) or {}
    own = expansion.get("length") or getattr(transformer, f"{role}_length", None)
    length: float | None = own or getattr(transformer, "max_seq_length", None)
    return length


def with_suffix(
    texts: Sequence[str], suffix: str, tokenizer: Any, length: float | None, before: str = "", pair: Sequence[str] = ()
) -> list[str]:
    """Each text with a suffix; a text is cut where prompt, text and suffix together have more tokens than are read.

    ``before`` is the prompt; ``pair`` has of each text the one that is read together with it, and before it. A
    tokenizer that is not of transformers cuts no text.
    """
    if not hasattr(tokenizer, "all_special_ids") or length is None:
        return [text + suffix for text in texts]
    found = []
    for row, text in enumerate(texts):
        first = [pair[row]] if pair else []
        while text and (surplus := len(tokenizer(*first, before + text + suffix)["input_ids"]) - int(length)) > 0:
            if not tokenizer.is_fast:  # in Python, without offsets: by characters, of which bytes are up to four tokens
                text = text[: -max(1, surplus // 4)].rstrip()
                continue
            ends = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            text = text[: ends[-surplus][0]].rstrip() if surplus < len(ends) else ""
        found.append(text + suffix)
    return found


def set_lengths(model: Any, lengths: Mapping[str, int | None]) -> None:
    """Set the tokens after which texts are cut, by role (``query``, ``document``); None keeps the model's length."""
    for role, length in lengths.items():
        transformer = transformer_of(model, role)
        keep_to_positions(transformer)
        if length is None:
            continue
        if not hasattr(transformer, f"{role}_length"):
            raise UserError(
                "This model reads whole texts", do=f"Leave {role.replace('document', 'passage')}_length out"
            )
        check_length(transformer, length)
        expansion = getattr(transformer, "query_expansion", None) if role == "query" else None
        if expansion is not None:
            transformer.query_expansion = {**expansion, "length": length}
        else:
            setattr(transformer, f"{role}_length", length)


def check_length(model: Any, length: int) -> None:
    """Refuse more tokens than a model has absolute positions for."""
    if length > (most := _positions(model)):
        raise UserError(f"{length:,} tokens are more than the model's {most:,} positions")


def keep_to_positions(transformer: Any) -> None:
    """Cut texts after the last absolute position where the tokenizer would not, as its files name no length.

    Warns:
        UserWarning: after how many tokens.
    """
    most = _positions(transformer)
    if (getattr(transformer, "max_seq_length", None) or 0) > most:
        transformer.max_seq_length = most
        warnings.warn(f"The kit cuts texts after {most:,} tokens, as the model has no more positions", stacklevel=2)


def _positions(model: Any) -> float:
    """The tokens for which a model has absolute positions; relative and rotary ones have no end."""
    for name, module in model.named_modules():
        if _POSITIONS.search(name) and hasattr(module, "num_embeddings"):
            unused = 0 if module.padding_idx is None else module.padding_idx + 1  # RoBERTa's begin there
            most: int = module.num_embeddings - getattr(module, "offset", unused)  # BART and OPT say where
            return most
    return math.inf
