"""Where a run ranks the judged passages: all that any measure needs, in one pass over the run.

The order is trec_eval's: score descending, then passage id descending, compared as bytes. No sort of the whole run
is needed for it: a passage's rank is one more than the number of passages before it.
"""

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.runs import Faults, read_pieces

TIE_RULE = "score descending (MS MARCO runs: rank ascending), then passage id descending as bytes (as trec_eval)"

QUERIES_SCHEMA = {"query_id": pl.String(), "retrieved": pl.UInt32()}
JUDGED_SCHEMA = {
    "query_id": pl.String(),
    "passage_id": pl.String(),
    "rank": pl.UInt32(),
    "tied_from": pl.UInt32(),
    "tied_to": pl.UInt32(),
}


@dataclass(frozen=True)
class RankedRun:
    """What is kept of a run.

    Attributes:
        path: the file.
        sha256: of the file's bytes as they are.
        lines: how many lines it has.
        queries: one row a query: ``query_id``, ``retrieved`` (passages), and for each cutoff k
            ``tied_across_k`` (whether passages at ranks k and k + 1 have one score).
        judged: one row a judged passage that the run holds: ``query_id``, ``passage_id``, ``rank`` (from 1),
            and the first and last rank of the passages that share its score, ``tied_from`` and ``tied_to``.
    """

    path: Path
    sha256: str
    lines: int
    queries: pl.DataFrame
    judged: pl.DataFrame


def rank_judged(path: Path, judged: pl.DataFrame, cutoffs: Iterable[int] = ()) -> RankedRun:
    """Read a run once and rank the judged passages in it.

    Args:
        path: a run file (see :mod:`eval_kit.runs`).
        judged: ``query_id`` and ``passage_id`` of the passages whose rank is wanted.
        cutoffs: ranks at which ties are looked for.

    Raises:
        RunError: whatever is wrong with the file; a passage, or in an MS MARCO run a rank, that comes twice
            for a query.
    """
    ranker = _Ranker(path, judged.select("query_id", "passage_id").unique(), sorted(set(cutoffs)))
    digest = _Sha256()
    pieces = read_pieces(path, digest=digest)
    try:
        queries, hits, lines = ranker.rank(_whole_queries(pieces))
    except _ScatteredError:
        pieces.close()
        digest = _Sha256()
        whole = pl.concat(read_pieces(path, digest=digest)).with_row_index("line", offset=1)
        queries, hits, lines = ranker.rank(iter([whole.sort("query_id", maintain_order=True)]))
    return RankedRun(path, digest.hexdigest(), lines, queries, hits)


class _Sha256:
    """A sha256 that is computed beside the reading, in a thread of its own."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1)

    def update(self, data: bytes, /) -> None:
        self._thread.submit(self._digest.update, data)

    def hexdigest(self) -> str:
        self._thread.shutdown()
        return self._digest.hexdigest()


class _ScatteredError(Exception):
    """A query's lines do not stand together; they must be grouped first."""


class _Ranker:
    def __init__(self, path: Path, judged: pl.DataFrame, cutoffs: list[int]) -> None:
        self.path = path
        self.judged = judged
        self.cutoffs = cutoffs

    def rank(self, frames: Iterator[pl.DataFrame]) -> tuple[pl.DataFrame, pl.DataFrame, int]:
        queries = [pl.DataFrame(schema=QUERIES_SCHEMA | {f"tied_across_{k}": pl.Boolean() for k in self.cutoffs})]
        hits = [pl.DataFrame(schema=JUDGED_SCHEMA)]
        seen: set[str] = set()
        lines = 0
        repeats: list[Future[list[tuple[int, str]]]] = []
        with ThreadPoolExecutor(1) as beside:
            for frame in frames:
                block = frame["query_id"].rle_id()
                starts = _starts(block.to_numpy())
                names = frame["query_id"].gather(starts)
                before = len(seen)
                seen.update(names)
                if len(seen) - before < len(names):
                    raise _ScatteredError
                for column in ("passage_id", "rank"):
                    if column in frame.columns:
                        repeats.append(beside.submit(_repeats, frame, block, column, lines))
                queries_here, hits_here = self._rank_frame(frame, block, starts, names)
                queries.append(queries_here)
                hits.append(hits_here)
                lines += frame.height
        faults = Faults(self.path)
        for found in repeats:
            for line, what in found.result():
                faults.add(line, what)
        faults.raise_any()
        return pl.concat(queries), pl.concat(hits), lines

    def _rank_frame(
        self, frame: pl.DataFrame, block: pl.Series, starts: NDArray[np.int64], names: pl.Series
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        scores = frame["score"].to_numpy()
        blocks = block.to_numpy()
        if np.any((scores[1:] > scores[:-1]) & (blocks[1:] == blocks[:-1])):
            order = np.lexsort((-scores, blocks))
            frame, scores = frame[order], scores[order]  # block ids stay, they are sorted already
        ends = np.append(starts[1:], frame.height)
        new_score = np.append(True, (scores[1:] != scores[:-1]) | (blocks[1:] != blocks[:-1]))
        tie_starts = np.flatnonzero(new_score)
        tie_ends = np.append(tie_starts[1:], frame.height)

        queries = pl.DataFrame({"query_id": names, "retrieved": (ends - starts).astype(np.uint32)})
        for k in self.cutoffs:
            after = np.minimum(starts + k, frame.height - 1)
            queries = queries.with_columns(pl.Series(f"tied_across_{k}", (starts + k < ends) & ~new_score[after]))

        wanted = self.judged.filter(pl.col("query_id").is_in(names.implode()))
        rows = (
            frame.lazy()
            .select("query_id", "passage_id")
            .with_row_index("row")
            .filter(pl.col("passage_id").is_in(wanted["passage_id"].implode()))
            .join(wanted.lazy(), on=["query_id", "passage_id"], how="semi")
            .collect()
            .sort("row")
        )
        row = rows["row"].to_numpy().astype(np.int64)
        start = starts[blocks[row] - blocks[0]] if len(row) else row
        tie = np.searchsorted(tie_starts, row, side="right") - 1
        first, last = tie_starts[tie], tie_ends[tie]
        ahead = _greater_ids(frame["passage_id"], row, first, last)
        hits = rows.select("query_id", "passage_id").with_columns(
            pl.Series("rank", (first - start + 1 + ahead).astype(np.uint32)),
            pl.Series("tied_from", (first - start + 1).astype(np.uint32)),
            pl.Series("tied_to", (last - start).astype(np.uint32)),
        )
        return queries, hits


def _repeats(frame: pl.DataFrame, block: pl.Series, column: str, lines_before: int) -> list[tuple[int, str]]:
    """Each line whose value in ``column`` an earlier line of its query has, and what to say of it."""
    keys = frame[column].hash() ^ (block.cast(pl.UInt64) * _ODD)
    if keys.n_unique() == frame.height:
        return []
    lines = frame if "line" in frame.columns else frame.with_row_index("line", offset=lines_before + 1)
    repeats = lines.filter(~pl.struct("query_id", column).is_first_distinct()).sort("line")
    name = column.removesuffix("_id")
    return [
        (line, f"{name} {value} comes twice for query {query}")
        for line, query, value in repeats.select("line", "query_id", column).iter_rows()
    ]


_ODD = 0x9E3779B97F4A7C15
"""Spreads block numbers over 64 bits, so that equal keys are equal pairs but for one chance in billions."""


def _whole_queries(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Cut frames anew, so that the last query of each is complete."""
    rest: pl.DataFrame | None = None
    for frame in frames:
        joined = frame if rest is None else pl.concat([rest, frame], rechunk=True)
        last = joined["query_id"].rle_id()
        length = int((last == last[-1]).sum())
        rest = joined.tail(length)
        if length < joined.height:
            yield joined.head(joined.height - length)
    if rest is not None:
        yield rest


def _starts(blocks: NDArray[np.uint32]) -> NDArray[np.int64]:
    return np.append(0, np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).astype(np.int64)


def _greater_ids(
    ids: pl.Series, rows: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each row, how many ids among rows ``first`` to ``last`` (exclusive) are greater than its own, as bytes."""
    ahead = np.zeros(len(rows), np.int64)
    tied = np.flatnonzero(last - first > 1)
    if not len(tied):
        return ahead
    pairs = (
        pl.DataFrame({"hit": tied, "row": rows[tied], "first": first[tied], "last": last[tied]})
        .with_columns(other=pl.int_ranges("first", "last"))
        .explode("other")
    )
    greater = ids.gather(pairs["other"]) > ids.gather(pairs["row"])
    np.add.at(ahead, pairs["hit"].filter(greater).to_numpy(), 1)
    return ahead
