"""Many submissions, scored, as entries of the leaderboard."""

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.exchange.submission import DOCUMENT, Submission, document_of, open_submission, second_run
from eval_kit.pages.leaderboard import Entry
from eval_kit.protocols.grid_results import protocols
from eval_kit.protocols.in_out import in_and_out_by_query
from eval_kit.protocols.scoring import score
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS
from eval_kit.tables.table import significance

AT_ONCE = 2  # each holds a run in memory, and polars has threads of its own
"""Submissions that are scored at once."""


def entries(folder: Path, release: Release, allow_missing: bool = False) -> list[Entry]:
    """Score every submission of a folder.

    Args:
        folder: holds submissions, each a folder with ``submission.json`` or ``ir-metadata.yml``.
        release: the one that all of them must have been made for.
        allow_missing: as for :func:`eval_kit.protocols.scoring.score`.

    Warns:
        UserWarning: a folder that is not a submission; a submission with a fault, which is left out (``eval_kit
            compare --check`` lists all its faults).

    Raises:
        UserError: no submission there, or none without a fault.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder")
    paths: list[Path] = []
    others: list[Path] = []
    for path in sorted(filter(Path.is_dir, folder.glob("[!.]*"))):
        (paths if (path / document_of(path)).is_file() else others).append(path)
    if not paths:
        raise UserError(f"{folder}: holds no submission (a folder with {DOCUMENT})")
    for path in others:
        warnings.warn(f"{path}: is not a submission: there is no {DOCUMENT}", stacklevel=2)

    def entries_of(path: Path) -> list[Entry] | UserError:
        try:
            return list(_entries(path.name, open_submission(path, release), release, allow_missing))
        except UserError as error:
            return error

    board: list[Entry] = []
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for path, of_submission in zip(paths, threads.map(entries_of, paths), strict=True):
            if isinstance(of_submission, UserError):
                what = str(of_submission).removeprefix(f"{path}: ").replace(f"{path}/", "")
                warnings.warn(f"left out the submission {path.name}: {what}", stacklevel=2)
            else:
                board += of_submission
    if not board:
        raise UserError(f"{folder}: holds no submission without a fault")
    return board


def _entries(source: str, submission: Submission, release: Release, allow_missing: bool) -> Iterator[Entry]:
    grid: list[Path] = []
    single: list[Path] = []
    for run, cell in submission.runs.items():
        (single if cell is None else grid).append(run)
    document = submission.document
    entry = partial(
        Entry,
        system=document.system,
        team=document.team,
        architecture=document.architecture,
        release_digest=release.digest,
        release_version=release.version,
        source=source,
        document=document.as_json(),
    )
    if grid:
        results = protocols(grid, release, allow_missing=allow_missing, declaration=lambda run: document.training_data)
        for shift, of_shift in results.results.items():
            outs, group = _outs(results.values, shift, release), SHIFTS[shift].group
            for row in of_shift.filter(pl.col("rel_loss").is_not_null()).iter_rows(named=True):
                part = row[group] if group else ""
                test_set, measure = f"{shift}.{part}" if part else shift, row["measure"]
                figures = {}
                for figure in ("avg_in", "out", "rel_loss"):
                    figures[figure] = (row[figure], row[f"{figure}_low"], row[f"{figure}_high"])
                yield entry(
                    shift=shift,
                    test_set=test_set,
                    measure=measure,
                    figures=figures,
                    trained_on=row["trained_on"],
                    significance=significance(row),
                    seeds=row["seeds"],
                    per_query={test_set: outs[part, measure]},
                )
    if single:
        runs: dict[tuple[str, str], str] = {}
        for mean in score(single, release, allow_missing, declaration=lambda run: document.training_data).means:
            first = runs.setdefault((mean.test_set, mean.measure), mean.run)
            if first != mean.run:
                raise UserError(f"{submission.folder}: {second_run(first, mean.run, mean.test_set)}")
            yield entry(
                shift=release.test_sets[mean.test_set].shift,
                test_set=mean.test_set,
                measure=mean.measure,
                figures={"value": (mean.value, None, None)},
                trained_on=mean.trained_on,
                per_query={mean.test_set: mean.per_query},
            )


def _outs(values: pl.DataFrame, shift: str, release: Release) -> dict[tuple[str, str], pl.DataFrame]:
    """Each query's Out, averaged over seeds, by measure and part; ReSTTest's parts are pooled, as ''."""
    pairs = in_and_out_by_query(values, shift, release).with_columns(part="part" if SHIFTS[shift].group else pl.lit(""))
    keys = ["part", "measure", "query_id"]
    outs = pairs.group_by(keys, maintain_order=True).agg(value=pl.col("out").mean())
    return {(str(part), str(measure)): group for (part, measure), group in outs.group_by("part", "measure")}
