"""The kit in Python: the functions that ``eval_kit`` exports, each like the command of the same name.

A run is a path, ``{query: {passage: score}}``, ``{query: [(passage, score)]}``, what ``ir_measures.read_trec_run``
gives, a ``ranx.Run``, MTEB's predictions, a polars (lazy too), pandas or Arrow table, or rows: a list, generator or
Hugging Face Dataset of dictionaries. Columns may be called as usual tools call them, in any pairing: ``query_id``,
``qid``, ``topic`` …; ``passage_id``, ``doc_id``, ``docno``, ``corpus-id`` … (:mod:`eval_kit.runs.rows`); ``score``.
Several runs are a list, or a dictionary of names and runs. In any form a run must follow the rules for run files, and
it scores exactly as the file would.
"""

import gzip
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path

import polars as pl

from eval_kit.authors.opening import open_release
from eval_kit.divisions import Parts
from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic
from eval_kit.files.formats import QUERIES_SCHEMA
from eval_kit.protocols import by_part, grid_results, scoring
from eval_kit.protocols import clean as cleaning
from eval_kit.protocols import compare as comparisons
from eval_kit.protocols import generalise as generalisation
from eval_kit.protocols import scores as score_results
from eval_kit.protocols import similarity as similarities
from eval_kit.protocols import snapshots as snapshot_results
from eval_kit.protocols import variations as variation_results
from eval_kit.release import Release
from eval_kit.runs import folders, in_memory, rows, training
from eval_kit.runs.in_memory import Run, Runs, as_files
from eval_kit.runs.names import cells_of, run_name
from eval_kit.runs.ranks import JUDGED_SCHEMA, rank_judged
from eval_kit.runs.reader import zstd
from eval_kit.stats.leaks import NEAR

type ReleaseSource = Release | str | PathLike[str] | None
"""An open release, a folder or Hub id; None: ``$MS_MARCO_SHIFT_RELEASE``, else ``./ms-marco-shift``."""

UNREADABLE = (".bz2", ".xz", ".lz4", ".zip", ".7z", ".parquet", ".parq", ".json", ".csv")
"""Endings of files that a run would not be, as it is text, only packed by gzip or zstd."""

__all__ = [
    "UserError",
    "clean",
    "compare",
    "generalise",
    "open_release",
    "protocol",
    "report",
    "score",
    "similarity",
    "snapshots",
    "variations",
    "write_run",
]


def score(
    runs: Runs,
    release: ReleaseSource = None,
    measures: Collection[str] = (),
    allow_missing: bool = False,
    test_sets: Collection[str] = (),
    clean: str | PathLike[str] | None = None,
    by: Sequence[str | Parts] = (),
) -> score_results.Scores:
    """Score runs on every test set that they cover.

    Args:
        runs: one run, a list, or names and runs (see :mod:`eval_kit.api`); a path may be that of a folder of runs.
        release: what to score on.
        measures: such as ``["P@5", "Judged@10"]``, in place of the test sets' own; ``map`` and ``ndcg_cut_10``, and
            objects of ir_measures, mean what they mean elsewhere.
        allow_missing: score test sets that a run covers only in part.
        test_sets: names of those to score on, whatever else a run holds; by default all that it covers.
        clean: the file of ``clean(...).as_json()``, to score leaked and clean queries apart as well.
        by: divisions of the queries, to show each part as well: names or files, dictionaries or tables of query id and
            part (:func:`eval_kit.divisions.divide`).

    Raises:
        UserError: a run, release or measure that cannot be used; nothing is scored then.
    """
    opened_release = open_release(release)
    all_test_sets = opened_release.test_sets if clean is None else cleaning.twins(Path(clean), opened_release)
    with_measures = scoring.with_measures(all_test_sets, measures)
    with as_files(_in_folders(runs)) as files:
        scores = scoring.score(list(files), opened_release, allow_missing, test_sets=with_measures, only=test_sets)
        if clean is not None:
            scores = cleaning.with_effects(scores, opened_release, with_measures, allow_missing)
        if by:
            scores = by_part.scores_by_part(scores, by, opened_release)
        for source in scores.provenance["runs"]:
            source["file"] = files[Path(source["file"])]  # as the caller names it
        return scores


def _in_folders(runs: Runs) -> Runs:
    """The runs, each path of a folder replaced by the runs in it."""
    if isinstance(runs, str | PathLike | list | tuple):
        return folders.run_files([runs] if isinstance(runs, str | PathLike) else runs)
    return runs


def protocol(
    runs: Runs, release: ReleaseSource = None, untrained: Runs = (), seed: int = 0, allow_missing: bool = False
) -> grid_results.Protocols:
    """Avg In, Out and Rel Loss of a grid's runs (ECIR 2023 §3.2); Inter., Extra. and delta (CIKM 2022 §4.1).

    Args:
        runs: of complete grids, named ``<system>.<shift>.<held-out>``.
        release: what to score on.
        untrained: runs of systems that nothing was held out from, such as BM25.
        seed: for the bootstrap.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: a name that is no cell's, a cell that is missing, or a run that cannot be used.
    """
    opened_release = open_release(release)
    with as_files(runs) as files, as_files(untrained, "untrained") as untrained_files:
        return grid_results.protocols(cells_of(list(files)), opened_release, list(untrained_files), seed, allow_missing)


def compare(
    systems: Runs,
    release: ReleaseSource = None,
    baseline: str | None = None,
    measures: Collection[str] = (),
    seed: int = 0,
    allow_missing: bool = False,
    test_sets: Collection[str] = (),
    by: Sequence[str | Parts] = (),
    no_worse_than: float | None = None,
) -> comparisons.Comparison:
    """Systems side by side on the same test sets, with paired tests against a baseline.

    Args:
        systems: runs of two or more (see :mod:`eval_kit.api`); a path may be that of a folder of runs.
        release: what to score on.
        baseline: the name of the system that the others are tested against; by default the first.
        measures: such as ``["P@5"]``, in place of the test sets' own.
        seed: for the bootstrap.
        allow_missing: score test sets that a run covers only in part.
        test_sets: names of those to compare on, whatever else the runs hold; by default all that they cover.
        by: divisions of the queries, to compare in each part as well (:func:`eval_kit.divisions.divide`).
        no_worse_than: of a gate: the result's ``verdict`` says whether each system loses less than this.

    Raises:
        UserError: systems that cannot be compared.
    """
    opened_release = open_release(release)
    with as_files(_in_folders(systems), "systems") as files:
        return comparisons.compare(
            list(files),
            opened_release,
            baseline,
            measures,
            test_sets,
            seed=seed,
            allow_missing=allow_missing,
            by=by,
            margin=no_worse_than,
        )


def snapshots(
    systems: Runs,
    release: ReleaseSource,
    systems_after: Runs,
    after: ReleaseSource,
    pivot: str | None = None,
    measures: Collection[str] = (),
    test_sets: Collection[str] = (),
    allow_missing: bool = False,
) -> snapshot_results.Snapshots:
    """What systems keep from one snapshot of the queries to another, as ``eval_kit compare --against``.

    Args:
        systems: runs of one or more on the first snapshot.
        release: the first snapshot.
        systems_after: runs of the same systems on the second, with the same names, or else in the same order.
        after: the second snapshot.
        pivot: the system that the others stand beside; by default the first.
        measures: in place of the test sets' own.
        test_sets: names of those to compare on.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: runs, test sets or measures that the snapshots do not share.
    """
    with as_files(_in_folders(systems), "systems") as files, as_files(_in_folders(systems_after), "after") as later:
        releases = open_release(release), open_release(after)
        return snapshot_results.snapshots(
            list(files), releases[0], list(later), releases[1], pivot, measures, test_sets, allow_missing
        )


def similarity(
    release: ReleaseSource = None, runs: Runs = (), vectors: str | None = None, allow_missing: bool = False
) -> similarities.Similarities:
    """Measure how near each cluster is to the others (weighted Jaccard, cosine), and how losses correlate with that.

    Args:
        release: the one whose clusters are compared.
        runs: of complete grids, to correlate their losses with the similarities (ECIR 2023 §5.2).
        vectors: model or file for the cosine, as :func:`eval_kit.stats.vectors.get` takes.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: no clusters in the release; vectors or runs that cannot be used.
    """
    with as_files(runs) as files:
        return similarities.similarities(open_release(release), vectors, list(files), allow_missing)


def variations(
    runs: Runs,
    release: ReleaseSource = None,
    test_set: str | None = None,
    pivot: str | None = None,
    rankers: Mapping[str, str] | None = None,
    seed: int = 0,
    allow_missing: bool = False,
) -> variation_results.Variations:
    """Measure what systems lose when the same queries are mistyped, reformulated or paraphrased, paired by query.

    Args:
        runs: named ``<system>.<base>.<variation>``, and ``<system>`` for those of the original queries.
        release: the one that holds the variations and judgements.
        test_set: compare on this part of the varied queries only.
        pivot: a system among the runs, for LongEval's effect ratio and ΔRI.
        rankers: system → the ranker of CIKM 2021, Table 7, to show beside it; by default the one of the same name.
        seed: for the bootstrap.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: a run that cannot be used or lacks its counterpart, or an unknown test set, pivot or ranker.
    """
    opened_release = open_release(release)
    with as_files(runs) as files:
        return variation_results.variations(list(files), opened_release, test_set, pivot, rankers, seed, allow_missing)


def generalise(
    runs: Runs,
    pivots: Runs,
    release: ReleaseSource = None,
    test_set: str | None = None,
    trained_on: Sequence[str] | str | PathLike[str] | None = None,
    by: Sequence[str | Parts] = (),
    far: Sequence[str] = (),
    seed: int = 0,
    allow_missing: bool = False,
    vectors: str | None = None,
) -> generalisation.Generalisation:
    """Say what a shift costs models that are trained already: degrades, does not, or cannot tell.

    Args:
        runs: of trained systems, over the test set.
        pivots: runs of untrained systems over the same queries, such as BM25's.
        release: the one that holds the judgements.
        test_set: whose queries are divided into near and far; by default dev, else test, else the only one.
        trained_on: texts of the training queries, from which nearness is measured, or a file of them as for
            :func:`clean`.
        by: divisions of the queries (:func:`eval_kit.divisions.divide`).
        far: which of their parts training held out; by default the farther half.
        seed: of the division into parts by similarity.
        allow_missing: score test sets that a run covers only in part.
        vectors: model or file that distances are taken by, as for :func:`similarity`; by default trigrams.

    Raises:
        UserError: no pivot, no such test set, a query without a part, or a run that cannot be used.
    """
    opened_release = open_release(release)
    train = None
    if isinstance(trained_on, str | PathLike):
        train = training.read(Path(trained_on)).queries
    elif trained_on is not None:
        ids = [f"training query {number}" for number in range(1, len(trained_on) + 1)]
        train = pl.DataFrame({"query_id": ids, "text": list(trained_on)}, QUERIES_SCHEMA)
    with as_files(runs) as files, as_files(pivots, "pivots") as pivot_files:
        return generalisation.generalise(
            list(files), opened_release, list(pivot_files), test_set, train, by, far, seed, allow_missing, vectors
        )


def clean(
    train: str | PathLike[str],
    release: ReleaseSource = None,
    test_sets: Collection[str] = (),
    near: float = NEAR,
    shared_passages: bool = False,
) -> cleaning.Clean:
    """Find the test queries that a model's training gives away.

    Args:
        train: queries, triplets, a release or a BEIR folder (:func:`eval_kit.runs.training.read`).
        release: whose queries are tested.
        test_sets: names; by default all.
        near: the cosine of trigrams from which two queries are near-duplicates.
        shared_passages: whether a query leaks whose relevant passage was relevant in training.

    Raises:
        UserError: no such test set, or training data that cannot be read.
    """
    return cleaning.clean(open_release(release), training.read(Path(train)), list(test_sets), near, shared_passages)


def report(
    runs: Runs,
    out: str | PathLike[str] = "report.html",
    release: ReleaseSource = None,
    untrained: Runs = (),
    vectors: str | None = None,
    seed: int = 0,
    allow_missing: bool = False,
) -> Path:
    """Write one self-contained HTML page about a grid, query variations, or both: summary, tables, figures, queries.

    Args:
        runs: as for :func:`protocol`; or of variations, recognised by name: ``<system>.<base>.<variation>`` and
            ``<system>`` for the original queries. ``release``, ``untrained``, ``seed`` and ``allow_missing`` are as for
            :func:`protocol` too.
        out: the file to write.
        vectors: model or file for the figures about R, as for :func:`similarity`; by default those beside the runs.

    Returns:
        The file.

    Raises:
        UserError: as :func:`protocol`.
    """
    from eval_kit.pages.page import result_page
    from eval_kit.pages.report import report as report_on

    opened_release = open_release(release)
    with as_files(runs) as files, as_files(untrained, "untrained") as untrained_files:
        result = report_on(list(files), opened_release, list(untrained_files), seed, allow_missing, vectors)
        atomic.write_text(Path(out), result_page(result))
    return Path(out)


def write_run(run: Run, path: str | PathLike[str]) -> None:
    """Write a run as the TREC file that the commands read: its lines by query and rank, its name as their tag.

    Args:
        run: a dictionary, dataframe or another tool's run (see :mod:`eval_kit.api`).
        path: the file, packed if its name ends in ``.gz`` or ``.zst``; an existing one is replaced. Name it
            ``<system>.<shift>.<held-out>.trec`` for a grid.

    Raises:
        UserError: ``run`` is not a run, no command would read it, or the file cannot be written.
    """
    path = Path(path)
    if isinstance(run, str | PathLike):
        raise UserError(f"run: {run} is a file already; copy it")
    if "\0" in str(path):
        raise UserError(f"{str(path)!r}: holds a zero byte, which no file name may")
    if path.suffix.lower() in UNREADABLE:
        raise UserError(f"{path}: runs are not written so; let the name end in .trec, .trec.gz or .trec.zst")
    frame = in_memory.ranking(rows.lines("run", run))
    with as_files({"run": frame}) as files:
        rank_judged(next(iter(files)), pl.DataFrame(schema=JUDGED_SCHEMA))  # for what it refuses
    with disk_errors(path), atomic.whole(path) as part:
        in_memory.write(frame, part, run_name(path))
        if path.suffix.lower() == ".gz":
            part.write_bytes(gzip.compress(part.read_bytes(), mtime=0))
        elif path.suffix.lower() == ".zst":
            part.write_bytes(zstd().compress(part.read_bytes()))
