"""Make runs: over the test queries of a release, and over other wordings of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from eval_kit.console import counting, with_count
from eval_kit.errors import UserError, choices, did_you_mean
from eval_kit.models import finished
from eval_kit.models.bm25 import Bm25
from eval_kit.models.typos import TYPO
from eval_kit.protocols.scoring import named
from eval_kit.release import Release
from eval_kit.runs import writer
from eval_kit.search.passages import Collection
from eval_kit.search.retriever import Hits, Retriever, lines

DEPTH = 1000


def make_runs(
    retriever: Retriever,
    collection: Collection,
    queries: Mapping[Path, pl.DataFrame],
    index: Path,
    depth: int = DEPTH,
    first: Path | None = None,
) -> tuple[int, dict[Path, str]]:
    """Index once, then search and write each run; after a kill, the next call resumes from the passages encoded so far.

    A run that the same search has made (:mod:`eval_kit.models.finished`) stays as it is. Each of the ``queries`` is for
    a run: a file, whole or not at all, whose name without ``.trec`` is the tag of its lines. ``first`` is the run that
    is re-ranked, if any. Returns how many of the runs were there, and what each is made of, as
    :mod:`eval_kit.models.finished` has it.
    """
    made_by = finished.maker(retriever, collection.key, depth, first)
    made_of = {run: finished.identity(made_by, texts) for run, texts in queries.items()}
    missing = [run for run in queries if not finished.is_finished(run, index, made_of[run])]
    if missing:
        passages = collection.read()
        if isinstance(retriever, Bm25):
            passages = with_count(passages, "indexing passages", "passages")
        retriever.index(passages, index)
    for run in missing:
        _search(retriever, queries[run], run, index, depth)
        finished.record(run, index, made_of[run])
    return len(queries) - len(missing), made_of


def _search(retriever: Retriever, queries: pl.DataFrame, run: Path, index: Path, depth: int) -> None:
    def hits() -> Hits:
        with counting(f"searching for {run.stem}", "queries", queries.height) as advance:
            for found in retriever.search(queries, index, depth):
                yield found
                advance(1)

    writer.write(lines(hits()), run, tag=run.stem)


def test_queries(release: Release) -> pl.DataFrame:
    """``query_id`` and ``text`` of the queries of all test sets, each once."""
    tables = {(test_set.config, test_set.split) for test_set in release.manifest.test_sets}
    texts = [release.table(*table).select("query_id", "text") for table in sorted(tables)]
    return pl.concat(texts).unique("query_id", maintain_order=True)


def only(release: Release, test_sets: Sequence[str]) -> pl.DataFrame:
    """``query_id`` and ``text`` of the queries of some test sets (by default all) of a release, each query once."""
    queries = test_queries(release)
    if not test_sets:
        return queries
    query_ids = pl.concat([test_set.queries for test_set in named(release.test_sets, test_sets).values()])
    return queries.filter(pl.col("query_id").is_in(query_ids.implode()))


def variation_queries(
    release: Release, names: Sequence[str], test_sets: Sequence[str], makes_typos: bool = False
) -> dict[str, pl.DataFrame]:
    """``query_id`` and ``text`` of a release's variations of some test sets (by default all), by full name.

    The names are full ones, or their first words (``dl19.typo``: every replica); or without the method
    (``test.typo.1``: the first replica of each); or ``all``. With ``makes_typos`` :func:`with_typos` went before.
    """
    queries: dict[str, pl.DataFrame] = {}
    for name in names:
        begins = f"{name}.".removeprefix("all.")
        found = []
        for each in release.variations.values():
            if f"{each.full_name}.".startswith(begins) or f"{each.base}.{each.family}.{each.replica}" == name:
                found.append(each)
        if not found:
            there_are = dict.fromkeys(f"{each.base}.{each.family}" for each in release.variations.values())
            there_are |= dict.fromkeys(f"{base}.{TYPO}" for base in release.test_sets if makes_typos)
            what = f"{release.folder} has no query variation {name!r:.40}{did_you_mean(name, there_are)}"
            raise UserError(what, do=f"Choose from: {choices(there_are)}" if there_are else "Leave it out")
        searched = [each for each in found if not test_sets or each.base in test_sets]
        if not searched:
            why = f"--test-set {test_sets[0]} leaves out {found[0].base}"
            raise UserError(why, do=f"Try --variation {test_sets[0]}.typo, not {name}")
        queries |= {each.full_name: release.wordings(each) for each in searched}
    return queries
