"""The figures of many submissions, scored, as rows of the leaderboard."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.exchange.submission import DOCUMENT, Submission, open_submission
from eval_kit.measures.score import score
from eval_kit.pages.leaderboard import Entry
from eval_kit.protocols.grid_results import protocols
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS


def entries(
    folder: Path,
    release: Release,
    allow_missing: bool = False,
    on_run: Callable[[Path], object] = lambda run: None,
) -> list[Entry]:
    """Score every submission of a folder.

    Args:
        folder: holds submissions, each a folder with ``submission.json``.
        release: that all of them must have been made for.
        allow_missing: as for :func:`eval_kit.measures.score.score`.
        on_run: called with each run before it is read.

    Warns:
        UserWarning: a submission with a fault, which is left out (``eval_kit validate`` tells all its faults).

    Raises:
        UserError: no submission there, or none without a fault.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder")
    paths = sorted(path for path in folder.iterdir() if (path / DOCUMENT).is_file())
    if not paths:
        raise UserError(f"{folder}: holds no submission (a folder with {DOCUMENT})")
    board: list[Entry] = []
    for path in paths:
        try:
            board += _entries(path.name, open_submission(path, release), release, allow_missing, on_run)
        except UserError as error:
            warnings.warn(f"left out the submission {path.name}: {error}", stacklevel=2)
    if not board:
        raise UserError(f"{folder}: holds no submission without a fault")
    return board


def _entries(
    source: str, submission: Submission, release: Release, allow_missing: bool, on_run: Callable[[Path], object]
) -> Iterator[Entry]:
    grid = [run for run, cell in submission.runs.items() if cell is not None and SHIFTS[cell.shift].clustered]
    single = [run for run, cell in submission.runs.items() if cell is None]

    def declared(run: Path) -> list[str]:
        return submission.training_data

    def entry(shift: str, test_set: str, measure: str, trained_on: str, figure: str, *values: float | None) -> Entry:
        value, low, high = values
        assert value is not None
        return Entry(
            system=submission.system,
            team=str(submission.document["team"]),
            architecture=str(submission.document["architecture"]),
            shift=shift,
            test_set=test_set,
            measure=measure,
            figure=figure,
            value=value,
            low=low,
            high=high,
            release_digest=release.digest,
            release_version=release.version,
            trained_on=trained_on,
            source=source,
        )

    if grid:
        results_of = protocols(grid, release, allow_missing=allow_missing, on_run=on_run, declared=declared).results
        for shift, results in results_of.items():
            for row in results.filter(pl.col("rel_loss").is_not_null()).iter_rows(named=True):
                for figure in ("avg_in", "out", "rel_loss"):
                    values = (row[figure], row[f"{figure}_low"], row[f"{figure}_high"])
                    yield entry(shift, f"{shift}.{row['cluster']}", row["measure"], row["trained_on"], figure, *values)
    if single:
        test_sets = release.test_sets
        for scored in score(single, release, allow_missing, on_run, declared=declared).figures:
            about = (test_sets[scored.test_set].shift, scored.test_set, scored.measure, scored.trained_on)
            yield entry(*about, "value", scored.value, None, None)
