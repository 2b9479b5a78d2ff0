"""Late interaction: the sum, over a query's tokens, of the greatest similarity to any token of the passage (MaxSim).

The shards hold ``tokens`` (those of all passages, one after the other) and ``lengths`` (tokens of each passage).
``exact`` scores every passage; ``plaid`` is fast-plaid's PLAID, for GPU boxes.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.search.retriever import best_first
from eval_kit.search.shards import Shards, building, is_built
from eval_kit.search.topk import Ranking, TopK, device_of

ENGINES = ("exact", "plaid")
MANY_PASSAGES = 1_000_000
"""From this many on, an exact search takes hours."""
GROUP = 32
"""Queries scored at once."""
BLOCK, BLOCK_ON_CPU = 20_000, 1_500
"""Tokens of passages, padded, that a group of queries meets at once; those of a processor stay in its cache."""
_PLAID_BITS = 4
SEED = 13

type Tokens = Sequence[NDArray[np.float32]]
"""For each text its tokens, (length, d)."""


def build(shards: Shards, engine: str, folder: Path) -> None:
    """Make the index of ``engine`` (of ``ENGINES``) in ``folder``, unless it is there; an exact search needs none.

    Once PLAID's index is built the tokens are no longer needed, and are removed.
    """
    if engine == "exact":
        shards.array("tokens")
        return
    with building(folder, "plaid", shards.key, ["plaid"]) as missing:
        if missing:
            _plaid(shards, folder)
    (shards.folder / "tokens.npy").unlink(missing_ok=True)


def engine_for(passages: int, engine: str | None) -> str:
    """The named engine, else the default for this many passages."""
    return engine or ("plaid" if passages >= MANY_PASSAGES else "exact")


def load(shards: Shards, folder: Path) -> Any:
    """PLAID's index, in memory."""
    if not is_built(folder, "plaid", shards.key):
        raise UserError(f"{folder} has no plaid index of these passages", do="Index them first")
    from fast_plaid.search import FastPlaid  # type: ignore[import-untyped]

    return FastPlaid(str(folder / "plaid"), device=str(device_of(None)))


def exact(
    queries: Tokens, shards: Shards, depth: int, device: str | None = None, least: float | None = None
) -> Ranking:
    """Every passage scored, but those without tokens; no similarity of a query's token counts less than ``least``.

    ``sentence_transformers.util.maxsim`` takes three times as long on a processor: it pads queries, and multiplies one
    by one.
    """
    import torch

    device_name = device_of(device)
    top = TopK(depth, torch.from_numpy(shards.rank).to(device_name))
    groups = [queries[first : first + GROUP] for first in range(0, len(queries), GROUP)]
    for start, arrays in shards:
        lengths = arrays["lengths"].astype(np.int64)
        order = np.argsort(lengths, kind="stable")[np.count_nonzero(lengths == 0) :]
        blocks = _blocks((lengths.cumsum() - lengths)[order], lengths[order], device_name)
        tokens = torch.from_numpy(np.array(arrays["tokens"])).to(device_name).float()
        rows = torch.from_numpy(start + order).to(device_name)
        for number, group in enumerate(groups):
            top.add(number, _maxsim(group, tokens, blocks, least), rows)
    return top.hits(shards.ids)


def _blocks(first: NDArray[np.int64], lengths: NDArray[np.int64], device: Any) -> list[Any]:
    """For passages in ascending order of length, (passages, greatest length) positions of tokens, block by block.

    A shorter passage has its last token again and again, which leaves every maximum as it is.
    """
    import torch

    size = BLOCK_ON_CPU if device.type == "cpu" else BLOCK
    blocks: list[Any] = []
    start = 0
    while start < len(lengths):
        most = lengths[start : start + size]
        fits = most * np.arange(1, len(most) + 1) <= size
        stop = start + max(1, int(np.count_nonzero(fits)))
        columns = np.minimum(np.arange(lengths[stop - 1]), lengths[start:stop, None] - 1)
        blocks.append(torch.from_numpy(first[start:stop, None] + columns).to(device))
        start = stop
    return blocks


def _maxsim(queries: Tokens, tokens: Any, blocks: list[Any], least: float | None) -> Any:
    """Scores (queries, passages), float32."""
    import torch

    together = torch.from_numpy(np.concatenate(queries)).to(tokens)
    scores = together.new_empty(len(queries), sum(map(len, blocks)))
    owners = np.repeat(np.eye(len(queries), dtype=np.float32), list(map(len, queries)), axis=0)
    by_query, start = torch.from_numpy(owners).to(tokens), 0
    for block in blocks:
        greatest = (tokens[block] @ together.T).amax(1)  # (passages, tokens of all queries)
        if least is not None:
            greatest.clamp_(min=least)
        scores[:, start : start + len(block)] = (greatest @ by_query).T
        start += len(block)
    return scores


def plaid(queries: Tokens, index: Any, shards: Shards, depth: int) -> Ranking:
    """The passages that PLAID finds, with its approximate scores."""
    import torch

    size = GROUP if device_of(None).type == "cpu" else max(1, len(queries))
    for first in range(0, len(queries), size):
        group = list(map(torch.from_numpy, queries[first : first + size]))
        results = index.search(group, top_k=depth, n_full_scores=max(4096, 4 * depth), show_progress=False)
        for hits in results:
            yield best_first((shards.ids[row].decode(), float(score)) for row, score in hits)


def _plaid(shards: Shards, folder: Path) -> None:
    """fast-plaid reads half-precision tokens from the disk when it needs them; others must all be in memory."""
    import torch
    from fast_plaid.search import FastPlaid

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tokens: Any = torch.from_numpy(np.asarray(shards.array("tokens"), np.float16))
    passages = tokens.split(np.diff(shards.offsets).tolist())
    with atomic.folder(folder / "plaid") as staging:
        index = FastPlaid(str(staging), device=str(device_of(None)))
        try:
            index.create(list(passages), nbits=_PLAID_BITS, seed=SEED)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in its Rust code is not an Exception
            why = str(error).replace("\\n", "\n").strip().partition("\n")[0] or type(error).__name__
            raise UserError(f"fast-plaid could not build the index in {folder}", why) from error
