"""Query vectors, from a file or from a sentence-transformers model, checked once on the way in.

A file is ``NAME.npy``, a (queries, dimensions) array, with its query ids in ``NAME.ids.txt`` beside it, one per line.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.errors import UserError, first_line
from eval_kit.files import checkpoint
from eval_kit.files.text import read_lines

ENDING = ".npy"
IDS_ENDING = ".ids.txt"

type Matrix = NDArray[np.floating[Any]]

_ROWS_AT_ONCE = 8_192


@dataclass(frozen=True)
class Vectors:
    """Finite vectors of one dimension with unique query ids.

    Attributes:
        source: the file or model, for messages and provenance.
        query_ids: strings, one per row of ``values``.
        values: (queries, dimensions), floating point.
    """

    source: str
    query_ids: pl.Series
    values: Matrix

    def __post_init__(self) -> None:
        """Check all that the class promises."""
        ids, values = self.query_ids, self.values
        if values.ndim != 2 or not values.size or not np.issubdtype(values.dtype, np.floating):
            raise UserError(
                f"{self.source} is not a table of floating-point vectors, but {values.dtype} of shape {values.shape}"
            )
        if len(ids) != len(values):
            raise UserError(f"{self.source} has {len(values):,} vectors, but {len(ids):,} query ids")
        if (empty := (ids.is_null() | (ids == ""))).any():
            raise UserError(f"Vector {(empty.arg_max() or 0) + 1} of {self.source} has no query id")
        check_ids(ids, f"{self.source}: ")
        finite = pl.Series(np.concatenate([np.isfinite(block).all(axis=1) for block in blocks(values)]))
        if not finite.all():
            raise UserError(f"The vector of query {ids.filter(~finite)[0]} in {self.source} contains NaN or infinity")

    def __len__(self) -> int:
        return len(self.query_ids)

    def of(self, query_ids: pl.Series) -> Matrix:
        """The vectors of these queries: (queries, dimensions), in their order."""
        row_numbers = pl.DataFrame({"query_id": self.query_ids}).with_row_index("row")
        rows = query_ids.to_frame("query_id").join(row_numbers, on="query_id", how="left", maintain_order="left")["row"]
        if rows.null_count():
            absent = query_ids.filter(rows.is_null())
            raise UserError(
                f"{self.source} lacks vectors of {len(absent):,} of {len(query_ids):,} queries",
                f"The first is {absent[0]}",
            )
        values: Matrix = self.values[rows.to_numpy()]
        return values


def check_ids(query_ids: pl.Series, where: str = "") -> None:
    """Refuse query ids that occur twice."""
    repeats = query_ids.filter(~query_ids.is_first_distinct())
    if len(repeats):
        raise UserError(f"{where}The query id {repeats[0]!r} appears more than once")


def get(source: str | Path, queries: pl.DataFrame) -> Vectors:
    """Read a vector file (``.npy``), or encode the queries with the model of that name or folder.

    Args:
        source: a file, a model's folder, or a model's name on the Hub; the latter with ``:cls`` for the [CLS] vector.
        queries: ``query_id`` and ``text``; a query that appears twice is encoded once.
    """
    return read(Path(source)) if Path(source).suffix == ENDING else encode(str(source), queries)


def read(path: Path) -> Vectors:
    """Read a ``.npy`` file with its ``.ids.txt``."""
    try:
        values = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy reads the header as Python, with errors of every kind
        raise UserError(f"Could not read {path} as vectors: {first_line(error)}") from error
    beside = path.with_suffix(IDS_ENDING)
    if not beside.is_file():
        raise UserError(f"The query ids of {path} are missing", do=f"Write them to {beside}, one a line")
    ids = [line for _, line in read_lines(beside)]
    return Vectors(str(path), pl.Series("query_id", ids, pl.String), values)


def encode(model: str, queries: pl.DataFrame) -> Vectors:
    """Encode queries with a sentence-transformers model, as queries (with the model's query prompt, if it has one).

    Args:
        model: Hub id or folder; with ``:cls``, as the papers take it, the bare transformer's [CLS].
        queries: as for :func:`get`.

    Warns:
        UserWarning: the model comes without a pooling (a bare ``bert-base-uncased``), and none was asked for, so that
            sentence-transformers takes the mean.
    """
    name, pooling = checkpoint.name_and_pooling(model)
    checkpoint.check(name, "dense", bare=True)  # refuses before the slow import
    if pooling is None and checkpoint.kind(name) in checkpoint.BARE:
        instead = f"Write {model}:cls for [CLS], as the papers do"
        warnings.warn(f"{model} has no pooling, so the kit takes the mean of all tokens. {instead}", stacklevel=2)
    encoder = checkpoint.open_model(name, "SentenceTransformer", pooling=pooling)
    once = queries.unique("query_id", keep="first", maintain_order=True)
    values = encoder.encode_query(once["text"].to_list(), convert_to_numpy=True)
    return Vectors(model, once["query_id"], np.asarray(values))


def blocks(values: Matrix) -> Iterator[Matrix]:
    """The rows, some thousands at a time, so that what is computed from them stays small."""
    for start in range(0, len(values), _ROWS_AT_ONCE):
        yield values[start : start + _ROWS_AT_ONCE]
