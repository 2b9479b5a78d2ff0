"""The kit's main job end to end on the embedded data: release, five systems, the papers' table, a report."""

from functools import partial
from pathlib import Path

from rich.console import Console

from baselines import config, grid
from baselines.grid_display import watched
from baselines.runners import local
from baselines.table import results
from eval_kit.errors import UserError
from eval_kit.release import open as open_release

QUERIES = 2_500
"""A quarter of the mini release's usual size: what a laptop trains on in minutes."""
SHIFT = "topic"


def demo(folder: Path, console: Console) -> None:
    """Build a mini release, train the five systems without each topic in turn, and compare them, below ``folder``.

    A demo that was killed goes on where it stopped.

    Raises:
        UserError: a cell failed, or ``folder`` cannot be written.
    """
    from builder import planted
    from builder import release as releases
    from eval_kit.report import write_report

    console.rule("1. build the mini release, and draw BM25 negatives")
    place = folder / "ms-marco-shift"
    options = config.load("mini")
    if not (place / "data" / "negatives").exists():
        releases.write(planted.draft(queries=QUERIES), place)
    release = grid.with_negatives(open_release(place), options.values(), threads=2)
    tables, test_sets = len(release.manifest["tables"]), len(release.manifest["test_sets"])
    console.print(f"{place}: {tables} tables, {test_sets} test sets, digest {release.digest[:16]}", highlight=False)

    cells = grid.cells(options, release, folder / "grid", [SHIFT])
    console.rule(f"2. {len(options)} systems, each trained without one of the topics: {len(cells)} cells")
    runner = partial(local.run, workers=local.most_workers(1), threads=1)
    if failed := watched(cells, runner, Console(stderr=True)):
        raise UserError(f"{failed[0].place.file}: {failed[0].reason}")

    console.rule("3. the papers' table (as ECIR 2023, Table 2), and the report")
    found = results(folder / "grid" / "runs", release)
    found.print(console)
    report = folder / "report.html"
    write_report(found.protocols, release, report)
    console.print(f"{report}", highlight=False)
