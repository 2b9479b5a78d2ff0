"""The kit's main job end to end on the embedded data: release, five systems, the papers' table, a report, and typos."""

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from rich.console import Console

from baselines import config
from baselines.cell import Cell
from baselines.environment import environment, restrict
from baselines.grid import candidates, grid
from baselines.options import Options
from builder import mini, negatives
from builder import release as releases
from eval_kit.console import screen
from eval_kit.errors import UserError, reporting
from eval_kit.files import atomic
from eval_kit.models.run import run
from eval_kit.pages.page import result_page
from eval_kit.pages.report import Report
from eval_kit.papers.beside import results
from eval_kit.release import open_release
from eval_kit.search.processes import cores, pool

QUERIES = 2_500
"""A quarter of the mini release's usual size: small enough to train on a laptop in minutes."""
SHIFT = "wh"
"""Of three parts: each system is trained three times."""
MODEL = "biencoder"
"""The system whose first model gets a card."""


def demo(
    folder: Path,
    console: Console,
    queries: int = QUERIES,
    shift: str = SHIFT,
    options: Mapping[str, Options] | None = None,
) -> None:
    """Build a mini release, train systems without each part of a shift in turn, and compare them; then one's card.

    A killed demo resumes where it stopped. Without ``options``, it trains the five systems of the config ``mini``.
    """
    console.rule("1. build the mini release, and draw BM25 negatives")
    release_folder = folder / "ms-marco-shift"
    options = options or config.read("mini").systems
    if not (release_folder / "data" / "negatives").exists():
        releases.write(mini.draft(queries=queries), release_folder)
    release = open_release(release_folder)
    if "negatives" not in release.configs:
        release = negatives.add(release_folder)
    counts = f"{len(release.manifest.tables)} tables, {len(release.manifest.test_sets)} test sets"
    console.print(f"{release_folder}: {counts}, digest {release.digest[:16]}", highlight=False)

    cells = grid.cells(options, release, folder / "grid", [shift], benchmarks=False)
    console.rule(f"2. {len(options)} systems, each trained without a part of {shift}: {len(cells)} cells")
    candidates.find(cells)
    parts = cores()  # as grid run --part does them, at once
    os.environ.update(environment(threads=1))  # libraries read it as they are imported
    with pool(parts) as processes:
        shares = [[cell.portable() for cell in cells[number::parts]] for number in range(parts)]
        failures = list(chain.from_iterable(processes.map(_failures, range(parts), shares)))
    if failures:
        raise UserError(failures[0])

    console.rule("3. the papers' table (as ECIR 2023, Table 2)")
    of_trained = results(folder / "grid" / "runs", release)
    of_trained.show(console)

    console.rule("4. a model that is trained already: its card beside BM25, and what a typo in each query costs")
    model = next(cell.model for cell in cells if cell.name.system == MODEL)
    card = run(str(model), release, folder / "card", test_sets=["dl19"], variations=["dl19.typo"], name=MODEL)
    card.show(console)
    report = folder / "report.html"
    atomic.write_text(report, result_page(Report(of_trained.grid, card.variations, release)))
    console.print(f"{report}", highlight=False)


def _failures(part: int, cells: Sequence[Cell]) -> list[str]:
    """Do some cells, and say how those ended that failed."""
    restrict(threads=1, place=part)
    failures = []
    for cell, failure in grid.run(cells):
        gc.freeze()  # each training collects garbage, and would look for it among all that the first one imported
        print(grid.ended(cell, failure), file=sys.stderr, flush=True)
        failures += [grid.ended(cell, failure)] if failure is not None else []
    return failures


if __name__ == "__main__":
    with reporting("demo"):
        demo(Path("demo"), screen())
