"""Runs of a training grid: which system, trained without which part of which shift, made a run."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_kit.errors import UserError
from eval_kit.release import Release, Variation
from eval_kit.shifts import SHIFTS, check_names

_NAME = re.compile(rf"(?P<system>.+?)\.(?P<shift>{'|'.join(SHIFTS)})\.(?P<held_out>[a-z0-9_]+)(?:\.seed(?P<seed>\d+))?")


@dataclass(frozen=True, order=True)
class Cell:
    """One training: a system that never saw ``held_out`` (for ReSTrain: that was trained on that set)."""

    system: str
    shift: str
    held_out: str
    seed: int = 0

    @property
    def file(self) -> str:
        """The run's file name: ``<system>.<shift>.<held-out>.trec``, with ``.seed<n>`` where there are several."""
        seed = f".seed{self.seed}" if self.seed else ""
        return f"{self.system}.{self.shift}.{self.held_out}{seed}.trec"


def run_name(run: Path) -> str:
    """The file name without the endings of runs and compressed files: ``bm25.dl19`` for ``bm25.dl19.trec.gz``."""
    name = run.name
    for ending in (".gz", ".zst", ".trec", ".res", ".run", ".txt", ".tsv"):
        name = name.removesuffix(ending) or name
    return name


def cell_of(run: Path) -> Cell | None:
    """The cell that a run's file name tells of, or None for a run outside a grid."""
    match = _NAME.fullmatch(run_name(run))
    return Cell(match["system"], match["shift"], match["held_out"], int(match["seed"] or 0)) if match else None


def grid(cells: Iterable[Cell], release: Release) -> dict[tuple[str, str], list[Cell]]:
    """Group cells by shift and system, each group complete.

    Returns:
        ``(shift, system)`` → its cells, every part of the shift once for every seed.

    Raises:
        UserError: a part that the shift does not have; a cell that is missing, with the file name expected.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in sorted(cells):
        SHIFTS[cell.shift].check_part(release, cell.held_out, cell.file)
        groups.setdefault((cell.shift, cell.system), []).append(cell)
    for (shift, system), members in groups.items():
        needed = SHIFTS[shift].complete([cell.held_out for cell in members], release)
        for seed in sorted({cell.seed for cell in members}):
            for part in needed:
                needed_cell = Cell(system, shift, part, seed)
                if needed_cell not in members:
                    raise UserError(f"the grid of {system} on {shift} lacks a run: expected {needed_cell.file}")
    return groups


def named(
    runs: Sequence[Path],
    systems: Sequence[str] = (),
    shifts: Sequence[str] = (),
    held_outs: Sequence[str] = (),
) -> dict[Path, Cell]:
    """The cell of each run: as the three lists say, else from its file name.

    Args:
        runs: run files.
        systems: of each run, in the order of the runs, or one for all of them.
        shifts: likewise.
        held_outs: likewise; the three come together, or none of them.

    Raises:
        UserError: lists that do not fit the runs; a file name that tells no cell; two runs of one cell.
    """
    given = {"--system": systems, "--shift": shifts, "--held-out": held_outs}
    cells_of_runs = _told(len(runs), given) if any(given.values()) else map(_of_name, runs)
    cells: dict[Path, Cell] = {}
    for run, cell in zip(runs, cells_of_runs, strict=True):
        if cell in cells.values():
            raise UserError(f"{run}: a second run of the cell {cell.file}")
        cells[run] = cell
    return cells


@dataclass(frozen=True)
class WordedRun:
    """A run of a system on the original wording of some queries (``variation`` is None) or on a variation of them."""

    path: Path
    system: str
    variation: Variation | None


def worded(runs: Sequence[Path], release: Release) -> list[WordedRun]:
    """The wording that each run searched, as its file name tells.

    Runs of a variation are named ``<system>.<base>.<variation>.trec``, such as ``bm25.dl19.typo.3.trec``; runs of the
    original queries ``<system>.trec`` or ``<system>.<base>.trec``.

    Returns:
        In the order of the runs.

    Raises:
        UserError: the release has no variations; two runs of one system and wording; a run of the original queries of
            a system without any run of a variation, as its file name may have been meant to tell one.
    """
    if not release.variations:
        raise UserError(f"{release.folder}: has no query variations")
    bases = dict.fromkeys(variation.base for variation in release.variations.values())
    worded_runs: dict[str, WordedRun] = {}
    for run in runs:
        name = run_name(run)
        if name in worded_runs:
            raise UserError(f"{run}: a second run of {name}")
        named_for = [full_name for full_name in release.variations if name.endswith(f".{full_name}")]
        ending = max(named_for, default="", key=len) or next((base for base in bases if name.endswith(f".{base}")), "")
        system = name.removesuffix(f".{ending}")
        worded_runs[name] = WordedRun(run, system, release.variations.get(ending))
    varied = {run.system for run in worded_runs.values() if run.variation}
    for worded_run in worded_runs.values():
        if worded_run.system not in varied:
            raise UserError(
                f"{worded_run.path}: its name tells no variation; if it is of one, name it "
                f"<system>.<base>.<variation>.trec, such as {worded_run.system}.{next(iter(release.variations))}.trec"
            )
    return list(worded_runs.values())


def original_of(worded_run: WordedRun, runs: Iterable[WordedRun]) -> WordedRun:
    """The run of the same system on the original wording.

    Raises:
        UserError: there is none; with the file names expected.
    """
    assert worded_run.variation
    names = [f"{worded_run.system}.{worded_run.variation.base}", worded_run.system]
    originals = {run_name(run.path): run for run in runs if run.variation is None}
    for name in names:
        if name in originals:
            return originals[name]
    raise UserError(
        f"{worded_run.path}: no run of {worded_run.system} on the original queries is given to compare with; "
        f"expected {names[0]}.trec or {names[1]}.trec"
    )


def _told(runs: int, given: Mapping[str, Sequence[str]]) -> list[Cell]:
    for option, values in given.items():
        if not values:
            raise UserError(f"{option} is missing: --system, --shift and --held-out come together, or none of them")
        if len(values) not in (1, runs):
            raise UserError(
                f"{option} is given {len(values)} times for {runs} run{'s' * (runs != 1)}; "
                "give it once for all of them, or once for each, in their order"
            )
    check_names(given["--shift"])
    columns = [values if len(values) == runs else list(values) * runs for values in given.values()]
    return [Cell(*row) for row in zip(*columns, strict=True)]


def _of_name(run: Path) -> Cell:
    cell = cell_of(run)
    if cell is None:
        raise UserError(
            f"{run}: its name is not <system>.<shift>.<held-out>.trec, with a shift of {', '.join(SHIFTS)}; "
            "rename it, or give --system, --shift and --held-out"
        )
    return cell
