"""Query vectors, from a file or from a sentence-transformers model, checked once on the way in.

A file is ``NAME.npy``, a (queries, dimensions) array, with its query ids in ``NAME.ids.txt`` beside it, one per line.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.errors import UserError, in_one_sentence
from eval_kit.files import checkpoint
from eval_kit.files.opening import is_file
from eval_kit.files.text import read_lines

ENDING = ".npy"
IDS_ENDING = ".ids.txt"

type Matrix = NDArray[np.floating[Any]]

_ROWS_AT_ONCE = 8_192


class VectorsError(UserError):
    """Vectors that cannot be used: ``file: what is wrong``."""


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
        """Check all that the class promises.

        Raises:
            VectorsError: naming the first thing that is wrong, and how many more.
        """
        ids, values = self.query_ids, self.values
        if values.ndim != 2 or not values.size:
            raise VectorsError(f"{self.source}: not a table of vectors: its shape is {values.shape}")
        if not np.issubdtype(values.dtype, np.floating):
            raise VectorsError(f"{self.source}: the vectors are {values.dtype}, not floating-point numbers")
        if len(ids) != len(values):
            raise VectorsError(f"{self.source}: {len(values):,} vectors, but {len(ids):,} query ids")
        if ids.null_count() or (ids == "").any():
            first = (ids.is_null() | (ids == "")).arg_max() or 0
            raise VectorsError(f"{self.source}: vector {first + 1} has no query id")
        if len(repeats := _repeats(ids)):
            raise VectorsError(f"{self.source}: query {repeats[0]}{_more(len(repeats))} appears twice")
        finite = pl.Series(np.concatenate([np.isfinite(block).all(axis=1) for block in blocks(values)]))
        if not finite.all():
            bad = ids.filter(~finite)
            raise VectorsError(f"{self.source}: the vector of query {bad[0]}{_more(len(bad))} holds NaN or infinity")

    def __len__(self) -> int:
        return len(self.query_ids)

    def of(self, query_ids: pl.Series) -> Matrix:
        """The vectors of these queries: (queries, dimensions), in their order.

        Raises:
            VectorsError: queries without a vector.
        """
        row_numbers = pl.DataFrame({"query_id": self.query_ids}).with_row_index("row")
        rows = query_ids.to_frame("query_id").join(row_numbers, on="query_id", how="left", maintain_order="left")["row"]
        if rows.null_count():
            absent = query_ids.filter(rows.is_null())
            query = f"{absent[0]}{_more(len(absent))}"
            raise VectorsError(f"{self.source}: no vector of query {query} ({len(query_ids):,} are needed)")
        values: Matrix = self.values[rows.to_numpy()]
        return values


def check_ids(query_ids: pl.Series) -> None:
    """Refuse query ids that occur twice.

    Raises:
        VectorsError: naming the first of them.
    """
    if len(repeats := _repeats(query_ids)):
        raise VectorsError(f"query id {repeats[0]!r} appears more than once{_more(repeats.n_unique())}")


def get(source: str | Path, queries: pl.DataFrame) -> Vectors:
    """Read a vector file (``.npy``), or encode the queries with the model of that name or folder.

    Args:
        source: a file, a model's folder, or a model's name on the Hub.
        queries: ``query_id`` and ``text``; a query that appears twice is encoded once.

    Raises:
        VectorsError: see :func:`read` and :func:`encode`.
    """
    if Path(source).suffix == ENDING:
        return read(Path(source))
    if Path(source).is_file():
        raise VectorsError(f"{source}: neither a model's folder nor a {ENDING} file")
    return encode(str(source), queries)


def read(path: Path) -> Vectors:
    """Read a ``.npy`` file with its ``.ids.txt``.

    Raises:
        VectorsError: a file that is missing or unreadable, NaN, ids that are missing or appear twice.
    """
    if not is_file(path):
        raise VectorsError(f"{path}: there is no such file")
    beside = path.with_suffix(IDS_ENDING)
    if not beside.is_file():
        raise VectorsError(f"{path}: its query ids are missing: {beside} should hold them, one per line")
    ids = [line for _, line in read_lines(beside)]
    try:
        values = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy reads the header as Python, with errors of every kind
        raise VectorsError(f"{path}: not readable: {in_one_sentence(error)}") from error
    return Vectors(str(path), pl.Series("query_id", ids, pl.String), values)


def encode(model: str, queries: pl.DataFrame) -> Vectors:
    """Encode queries with a sentence-transformers model, as queries (with the model's query prompt, if it has one).

    The papers take the [CLS] vector. A model that comes without its own pooling (a bare ``bert-base-uncased``)
    gets mean pooling from sentence-transformers; give it a folder with a [CLS] pooling module, or a file of vectors.

    Raises:
        VectorsError: sentence-transformers is not installed.
        UserError: there is no such model, or it lacks files.
    """
    if find_spec("sentence_transformers") is None:
        needs = "encoding needs the package sentence-transformers; install it, or give a file of vectors"
        raise VectorsError(f"{model}: {needs}")
    checkpoint.kind(model)  # refuses before the slow import
    encoder = checkpoint.open_model(model, "SentenceTransformer")
    once = queries.unique("query_id", keep="first", maintain_order=True)
    values = encoder.encode_query(once["text"].to_list(), convert_to_numpy=True)
    return Vectors(model, once["query_id"], np.asarray(values))


def blocks(values: Matrix) -> Iterator[Matrix]:
    """The rows, some thousands at a time, so that what is computed from them stays small."""
    for start in range(0, len(values), _ROWS_AT_ONCE):
        yield values[start : start + _ROWS_AT_ONCE]


def _repeats(query_ids: pl.Series) -> pl.Series:
    return query_ids.filter(~query_ids.is_first_distinct())


def _more(count: int) -> str:
    return f" (and {count - 1:,} more)" if count > 1 else ""
