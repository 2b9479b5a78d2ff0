"""Query vectors, from a file or from a sentence-transformers model, checked once on the way in.

Files are ``NAME.npy``, a (queries, dimensions) array, with its query ids in ``NAME.ids.txt`` beside it, one per line,
or a ``.parquet`` table with the columns ``query_id`` and ``vector`` (a list of numbers).
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

FILE_ENDINGS = (".npy", ".parquet")
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
            raise VectorsError(f"{self.source}: vector {_first(ids.is_null() | (ids == '')) + 1} has no query id")
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
    """Read a vector file (``.npy``, ``.parquet``), or encode the queries with the model of that name or folder.

    Args:
        source: a file, a model's folder, or a model's name on the Hub.
        queries: ``query_id`` and ``text``; a query that appears twice is encoded once.

    Raises:
        VectorsError: see :func:`read` and :func:`encode`.
    """
    if Path(source).suffix in FILE_ENDINGS:
        return read(Path(source))
    if Path(source).is_file():
        raise VectorsError(f"{source}: neither a model's folder nor a {' or '.join(FILE_ENDINGS)} file")
    return encode(str(source), queries)


def read(path: Path) -> Vectors:
    """Read a ``.npy`` file with its ``.ids.txt``, or a ``.parquet`` file.

    Raises:
        VectorsError: a file that is missing or unreadable, vectors of different lengths, NaN, ids that are missing
            or appear twice.
    """
    if not is_file(path):
        raise VectorsError(f"{path}: there is no such file")
    return _read_parquet(path) if path.suffix == ".parquet" else _read_npy(path)


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


def _read_npy(path: Path) -> Vectors:
    beside = path.with_suffix(IDS_ENDING)
    if not beside.is_file():
        raise VectorsError(f"{path}: its query ids are missing: {beside} should hold them, one per line")
    ids = [line for _, line in read_lines(beside)]
    try:
        values = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy reads the header as Python, with errors of every kind
        raise VectorsError(f"{path}: not readable: {in_one_sentence(error)}") from error
    return Vectors(str(path), pl.Series("query_id", ids, pl.String), values)


def _read_parquet(path: Path) -> Vectors:
    try:
        frame = pl.read_parquet(path, columns=["query_id", "vector"], hive_partitioning=False)
        ids, vectors = frame["query_id"].cast(pl.String), frame["vector"]
    except pl.exceptions.ColumnNotFoundError as error:
        raise VectorsError(f"{path}: lacks a column; query_id and vector are needed") from error
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise VectorsError(f"{path}: not a readable parquet file: {in_one_sentence(error)}") from error
    if not isinstance(vectors.dtype, (pl.List, pl.Array)) or not vectors.dtype.inner.is_numeric():
        raise VectorsError(f"{path}: the column vector holds {vectors.dtype}, not lists of numbers")
    lists = vectors.cast(pl.List(vectors.dtype.inner))
    sizes = lists.list.len().fill_null(0)
    usual = max(sizes.mode().to_list(), default=0)
    if not usual:
        raise VectorsError(f"{path}: holds no vectors")
    if (unusual := sizes != usual).any():
        first = _first(unusual)
        query = f"the vector of query {ids[first]}{_more(int(unusual.sum()))}"
        raise VectorsError(f"{path}: {query} has {sizes[first]} dimensions, not {usual}")
    numbers = lists.list.explode()
    if numbers.null_count():
        holds_null = lists.list.eval(pl.element().is_null()).list.any()
        raise VectorsError(f"{path}: the vector of query {ids[_first(holds_null)]} holds an empty value")
    return Vectors(str(path), ids, numbers.to_numpy().reshape(len(lists), -1))


def _repeats(query_ids: pl.Series) -> pl.Series:
    return query_ids.filter(~query_ids.is_first_distinct())


def _first(mask: pl.Series) -> int:
    position = mask.arg_max()
    assert position is not None
    return position


def _more(count: int) -> str:
    return f" (and {count - 1:,} more)" if count > 1 else ""
