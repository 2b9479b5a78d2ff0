"""The ranks of judged passages in a run: all that any measure needs, in one pass over the run.

The order is trec_eval's: score descending, then passage id descending, compared as bytes. No sort of the whole run
is needed for it: a passage's rank is one more than the number of passages before it.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import polars as pl

from eval_kit.files.faults import MOST_FAULTS, Faults, RunError
from eval_kit.runs.given import Run
from eval_kit.runs.reader import HIGHEST_RANK, MS_MARCO, TREC

TIE_RULE = "score descending (MS MARCO runs: rank ascending), then passage id descending as bytes (as trec_eval)"

LINES_AT_ONCE = 2_000_000
"""Lines of an unordered run that are sorted together."""

QUERIES_SCHEMA = {"query_id": pl.String(), "retrieved": pl.UInt32(), "one_score": pl.Boolean()}
JUDGED_SCHEMA = {
    **dict.fromkeys(("query_id", "passage_id"), pl.String()),
    **dict.fromkeys(("rank", "tied_from", "tied_to"), pl.UInt32()),
}


@dataclass(frozen=True)
class RankedRun:
    """What is kept of a run.

    Attributes:
        run: which.
        sha256: of the file's bytes as they are; of a run in memory, of the file that ``write_run`` would write.
        lines: how many lines it has.
        queries: one row per query: ``query_id``, ``retrieved`` (passages), and ``one_score``: whether all of several
            passages share it.
        contradictions: queries in which the run states a better rank for a passage than for one of higher score; all
            of several passages where the run gives a query's passages one score and different ranks. In an MS MARCO
            run, queries with a rank that is there twice (its last line counts, as in MS MARCO's script) or that is
            better than that of a line before.
        judged: one row per judged passage that the run holds: ``query_id``, ``passage_id``, ``rank`` (from 1; in
            an MS MARCO run the stated one, or one more in queries that begin at 0), and the first and last rank of the
            passages that share its score, ``tied_from`` and ``tied_to``.
        own_left_out: of how many queries the passage with the query's own id was left out.
        tags: that of its first line, and a few different ones where its lines have several; empty without tags.
    """

    run: Run
    sha256: str
    lines: int
    contradictions: int
    queries: pl.DataFrame
    judged: pl.DataFrame
    own_left_out: int = 0
    tags: Sequence[str] = ()


def rank_judged(run: Run, pairs: pl.DataFrame, own_kept: pl.Series | None = None) -> RankedRun:
    """Read a run once and rank the judged passages in it.

    Args:
        run: from :func:`eval_kit.runs.given.take`.
        pairs: ``query_id`` and ``passage_id`` of the passages whose rank is wanted; without
            ``query_id``, their rank is wanted in every query.
        own_kept: if given, a passage with the query's own id is left out of the ranking, but for these queries.

    Raises:
        RunError: whatever is wrong with the file; a passage that appears twice for a query; scores where an MS MARCO
            run has ranks.
    """
    columns = pairs.select({"query_id", "passage_id"}.intersection(pairs.columns))

    def rank(in_queries: Callable[[Iterator[pl.DataFrame]], Iterator[pl.DataFrame]]) -> RankedRun:
        digest, tags = hashlib.sha256(), list[str]()
        with ThreadPoolExecutor(1) as beside:  # computes the digest during the reading
            pieces = run.pieces(lambda data: beside.submit(digest.update, data), tags)
            ranking = _ranking(run, in_queries(pieces), columns, own_kept)
        return replace(ranking, sha256=digest.hexdigest(), tags=tags)

    # nearly every run has a query's lines together: only the others are read again, and cost a sort
    try:
        return rank(partial(_whole_queries, run))
    except _ScatteredError:
        return rank(lambda pieces: _groups(pl.concat(pieces)))


class _ScatteredError(Exception):
    """A query's lines do not stand together; they must be grouped first."""


def _ranking(run: Run, frames: Iterator[pl.DataFrame], pairs: pl.DataFrame, own_kept: pl.Series | None) -> RankedRun:
    """The run of frames of whole queries; its digest is known once all of them are read."""
    queries = [pl.DataFrame(schema=QUERIES_SCHEMA)]
    hits = [pl.DataFrame(schema=JUDGED_SCHEMA)]
    ranks = []
    query_ids: set[str] = set()
    lines = contradictions = own_left_out = 0
    one_score, has_order = True, False
    repeats: list[Future[list[tuple[int, str]]]] = []
    with ThreadPoolExecutor(1) as beside:
        for frame in frames:
            blocks = _blocks(frame)
            before = len(query_ids)
            query_ids.update(blocks["query_id"])
            if len(query_ids) - before < blocks.height:
                raise _ScatteredError
            frame = frame.with_columns(block=pl.col("query_id").rle_id())
            # it hashes every passage id, which costs no time beside the ranking
            repeats.append(beside.submit(_repeats, frame, lines))
            lines += frame.height
            if "rank" in frame.columns:
                ranks.append(_ranks_by_query(frame))
                contradictions += int(ranks[-1]["reorders"].sum())
                if ranks[-1]["reorders"].any():
                    frame = frame.unique(["block", "rank"], keep="last", maintain_order=True)
                    blocks = _blocks(frame)
                # some tools count from 0, where the first passage would have no reciprocal rank
                starts_at_0 = pl.col("rank").min().over("block") == 0
                frame = frame.with_columns(rank=pl.col("rank") + starts_at_0)
            if own_kept is not None:
                keeps = pl.col("query_id").is_in(own_kept.implode())
                is_own = (pl.col("query_id") == pl.col("passage_id")) & ~keeps
                if "rank" in frame.columns:  # those after it move up
                    own_rank = pl.col("rank").filter(is_own).min().over("block")
                    frame = frame.with_columns(rank=pl.col("rank") - (pl.col("rank") > own_rank).fill_null(False))
                others = frame.filter(~is_own)
                own_left_out += frame.height - others.height
                frame, blocks = others, _blocks(others)
            frame = _by_score(frame)
            if "stated_rank" in frame.columns:
                contradictions += _contradictions(frame)
                one_score = one_score and frame["tied"].sum() == frame.height - blocks.height
                has_order = has_order or (one_score and frame["stated_rank"].drop_nulls().n_unique() > 1)
            queries.append(_queries(blocks, frame["tied"]))
            hits.append(_hits(blocks, frame, pairs))
    faults = Faults(run)
    if ranks and _look_like_scores(pl.concat(ranks)):
        faults.add(1, f"column 3 looks like a score, not a rank. Use {MS_MARCO}, or {TREC}")
        faults.raise_any()
    for line, what in sorted(chain.from_iterable(repeat.result() for repeat in repeats)):
        faults.add(line, what)
    faults.raise_any()
    if one_score and has_order:  # a system that gives ranks alone
        contradictions = int((pl.concat(queries)["retrieved"] > 1).sum())
    return RankedRun(run, "", lines, contradictions, pl.concat(queries), pl.concat(hits), own_left_out)


def _queries(blocks: pl.DataFrame, ties: pl.Series) -> pl.DataFrame:
    """The rows of :attr:`RankedRun.queries`."""
    before = pl.lit(ties.cast(pl.UInt32).cum_sum())  # ties up to a line
    start, others = pl.col("start"), pl.col("retrieved") - 1
    all_tied = before.gather(start + others) - before.gather(start) == others
    return blocks.select("query_id", "retrieved", one_score=(others > 0) & all_tied)


def _hits(blocks: pl.DataFrame, frame: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """The rows of :attr:`RankedRun.judged` among the lines of ``frame``."""
    if "query_id" in pairs.columns:
        pairs = pairs.filter(pl.col("query_id").is_in(blocks["query_id"].implode()))
    hits = (
        frame.lazy()
        .select("query_id", "passage_id")
        .with_row_index("row")
        # one column first: it leaves few of a run's lines for the join on both
        .filter(pl.col("passage_id").is_in(pairs["passage_id"].implode()))
        .join(pairs.lazy(), on=pairs.columns, how="semi")
        .join(blocks.lazy().select("query_id", "start"), on="query_id")
        .sort("row")
        .collect()
    )
    if "rank" in frame.columns:
        stated = frame["rank"].gather(hits["row"]).cast(pl.UInt32)
        return hits.select("query_id", "passage_id", rank=stated, tied_from=stated, tied_to=stated)
    ties = (~frame["tied"]).arg_true()  # where each run of equal scores begins
    tie = ties.search_sorted(hits["row"], side="right")
    with_rank = hits.lazy().with_columns(
        first=ties.gather(tie - 1), end=ties.append(pl.Series([frame.height], dtype=ties.dtype)).gather(tie)
    )
    first_rank = pl.col("first") - pl.col("start") + 1
    ahead = _ahead_in_tie(with_rank, frame["passage_id"])
    ranking = with_rank.join(ahead, on="row", how="left", maintain_order="left").select(
        "query_id",
        "passage_id",
        rank=first_rank + pl.col("ahead").fill_null(0),
        tied_from=first_rank,
        tied_to=pl.col("end") - pl.col("start"),
    )
    return ranking.collect()


def _blocks(frame: pl.DataFrame) -> pl.DataFrame:
    """One row per query of ``frame``, whose lines stand together: its first row, ``start``, and how many it has."""
    return (
        frame["query_id"]
        .rle()
        .struct.unnest()
        .select(query_id="value", retrieved="len", start=pl.col("len").cum_sum() - pl.col("len"))
    )


def _by_score(frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with each block's scores descending, and ``tied``: whether a line has the score of the one before."""
    same = pl.col("block") == pl.col("block").shift()
    before = pl.col("score").shift()
    # most runs are in order, and looking is much cheaper than sorting
    if frame.select((same & (pl.col("score") > before)).any()).item():
        frame = frame.sort("block", "score", descending=[False, True])
    return frame.with_columns(tied=(same & (pl.col("score") == before)).fill_null(False))


def _contradictions(frame: pl.DataFrame) -> int:
    """How many queries have stated ranks that fall somewhere as scores descend; ties may have any order."""
    same = pl.col("block") == pl.col("block").shift()
    falls = pl.col("stated_rank") < pl.col("stated_rank").shift()
    blocks_at_fault = frame.lazy().filter(same & falls & ~pl.col("tied")).select(pl.col("block").unique())
    return blocks_at_fault.collect().height


def _ranks_by_query(frame: pl.DataFrame) -> pl.DataFrame:
    """Of each query's ``rank``: the best, and whether they have a ``gap``, ``fall`` line by line, are ``several``.

    They ``reorders`` the lines where one is not greater than that of the line before.
    """
    rank = pl.col("rank")
    return frame.group_by("block").agg(
        rank.min(),
        gap=rank.max() - rank.min() >= pl.len(),
        fall=(rank.diff() < 0).all() & (pl.len() > 1),
        several=pl.len() > 1,
        reorders=(rank.diff() <= 0).any() | (rank.n_unique() < pl.len()),
    )


def _look_like_scores(ranks: pl.DataFrame) -> bool:
    """Whether the ranks of all queries fall from line to line, with gaps; or some fall, and none is 0 or 1."""
    several = ranks.filter("several")
    falls = bool((several["fall"] & several["gap"]).all())
    return bool(several.height and (falls or (several["reorders"].any() and (ranks["rank"] > 1).all())))


def _repeats(frame: pl.DataFrame, lines_before: int) -> list[tuple[int, str]]:
    """Each line that repeats a passage of an earlier line of its query, and what to say of it."""
    distinct = frame.lazy().group_by("block").agg(pl.col("passage_id").hash().n_unique())
    if distinct.select(pl.col("passage_id").sum()).collect().item() == frame.height:
        return []  # equal hashes of unequal values only cost a second look
    lines = frame if "line" in frame.columns else frame.with_row_index("line", offset=lines_before + 1)
    repeats = lines.filter(~pl.struct("query_id", "passage_id").is_first_distinct()).sort("line")
    return [
        (line, f"passage {passage} appears twice for query {query}")
        for line, query, passage in repeats.select("line", "query_id", "passage_id").head(MOST_FAULTS).iter_rows()
    ]


def _groups(lines_apart: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The lines grouped by query, some of the queries at a time, so that only a part is copied."""
    lines = lines_apart.with_row_index("line", offset=1)
    parts = lines.height // LINES_AT_ONCE + 1
    part_of = (lines["query_id"].hash() % parts).cast(pl.UInt16)
    for part in range(parts):
        group = lines.filter(part_of == part)
        if group.height:
            ids = pl.Enum(group["query_id"].unique().sort())
            number = pl.col("query_id").cast(ids).to_physical()  # sorted four times as fast as texts
            yield group.sort(number, maintain_order=True)


def _whole_queries(run: Run, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Divide frames anew, so that the last query of each is complete.

    Raises:
        RunError: a query with more lines than a run has ranks.
    """
    before: pl.DataFrame | None = None
    last = 0
    for frame in frames:
        if before is not None:
            if last < before.height:
                yield before.head(before.height - last)
            frame = pl.concat([before.tail(last), frame])
        before, last = frame, frame["query_id"].rle().struct.field("len")[-1]
        if last > HIGHEST_RANK:
            raise RunError(f"Query {frame['query_id'][-1]} has more than {HIGHEST_RANK:,} lines in {run}")
    if before is not None:
        yield before


def _ahead_in_tie(hits: pl.LazyFrame, ids: pl.Series) -> pl.LazyFrame:
    """``row`` and ``ahead`` of tied hits: how many ids from row ``first`` to ``end`` (exclusive) exceed its own.

    Each tie is sorted once, however many hits are in it: a run may tie everything.
    """
    ties = hits.filter(pl.col("end") - pl.col("first") > 1).select("first", "end").unique()
    rows = ties.select("first", row=pl.int_ranges("first", "end", dtype=pl.UInt32)).explode("row")
    by_id = rows.with_columns(id=pl.lit(ids).gather("row")).sort("first", "id", descending=[False, True])  # as bytes
    return by_id.select("row", ahead=pl.int_range(pl.len(), dtype=pl.UInt32).over("first"))
