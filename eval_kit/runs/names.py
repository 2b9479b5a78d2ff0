"""Runs of a training grid: which system, trained without which part of which shift, made a run."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from eval_kit.errors import UserError
from eval_kit.files.endings import run_name as run_name
from eval_kit.release import Release, Variation
from eval_kit.shifts import CONTROL, SHIFTS, check_names, main_split

_HIGHEST_SEED = 2**32 - 1
_NAME = re.compile(
    rf"(?P<system>.+?)\.(?P<shift>{'|'.join(SHIFTS)})\.(?P<held_out>[a-z0-9_]+)(?:\.seed(?P<seed>[0-9]+))?"
)
_CONTROL = re.compile(rf"(?P<system>.+)\.{CONTROL.name}\.none(?:\.seed(?P<seed>[0-9]+))?")


@dataclass(frozen=True, order=True)
class RunName:
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


def base(system: str) -> str:
    """The system that a variant is of: ``biencoder`` for ``biencoder-roberta``."""
    return system.partition("-")[0]


def names_of(runs: Sequence[Path]) -> dict[Path, str]:
    """What each run is called: its file name without endings, after as much of its path as tells it from others.

    The one key for a run: whatever is known of a run is looked up by it.

    Raises:
        UserError: a path that is given twice.
    """
    for run, times in Counter(runs).items():
        if times > 1:
            raise UserError(f"{run}: is given twice")
    names = dict(zip(runs, map(run_name, runs), strict=True))
    folders = {run: run.parent.parts for run in runs}
    for depth in range(1, 1 + max(map(len, folders.values()), default=0)):
        times_of = Counter(names.values())
        for run in runs:
            if times_of[names[run]] > 1:
                names[run] = "/".join((*folders[run][-depth:], run_name(run))).replace("//", "/")
    times_of = Counter(names.values())
    return {run: name if times_of[name] == 1 else str(run) for run, name in names.items()}


def cell_of(run: Path) -> RunName | None:
    """The cell that a run's file name gives, or None for a run outside a grid."""
    match = _NAME.fullmatch(run_name(run))
    return RunName(match["system"], match["shift"], match["held_out"], _seed(run, match["seed"])) if match else None


def control_of(run: Path) -> RunName | None:
    """The cell of a model that was trained on everything, ``<system>.all.none.trec``; None for any other run."""
    match = _CONTROL.fullmatch(run_name(run))
    return RunName(match["system"], CONTROL.name, "none", _seed(run, match["seed"])) if match else None


def _seed(run: Path, digits: str | None) -> int:
    digits = digits or "0"
    if len(digits) > len(str(_HIGHEST_SEED)) or int(digits) > _HIGHEST_SEED:
        raise UserError(f"{run}: its seed is beyond {_HIGHEST_SEED:,}; rename it")
    return int(digits)


def grid(cells: Iterable[RunName], release: Release) -> dict[tuple[str, str], list[RunName]]:
    """Group cells by shift and system, each group complete.

    Returns:
        ``(shift, system)`` → its cells, every part of the shift once for every seed.

    Raises:
        UserError: a part that the shift does not have; a cell that is missing, with the file name expected.
    """
    groups: dict[tuple[str, str], list[RunName]] = {}
    for cell in sorted(cells):
        SHIFTS[cell.shift].check_part(release, cell.held_out, cell.file)
        groups.setdefault((cell.shift, cell.system), []).append(cell)
    for (shift, system), members in groups.items():
        held_outs = SHIFTS[shift].complete(map(attrgetter("held_out"), members), release)
        for seed in sorted(set(map(attrgetter("seed"), members))):
            for part in held_outs:
                needed_cell = RunName(system, shift, part, seed)
                if needed_cell not in members:
                    raise UserError(f"the grid of {system} on {shift} lacks a run: expected {needed_cell.file}")
    return groups


def cells_of(
    runs: Sequence[Path], systems: Sequence[str] = (), shifts: Sequence[str] = (), held_outs: Sequence[str] = ()
) -> dict[Path, RunName]:
    """The cell of each run: from the three lists if given, else from its file name.

    Each list has an item for each run, in the order of the runs, or one for all of them; give all three or none.

    Raises:
        UserError: lists that do not fit the runs; a file name that is not a cell's; two runs of one cell.
    """
    options = {"--system": systems, "--shift": shifts, "--held-out": held_outs}
    cells_of_runs = _cells_of_options(len(runs), options) if any(options.values()) else map(_of_name, runs)
    cells: dict[Path, RunName] = {}
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


def wordings_of(runs: Sequence[Path], release: Release) -> list[WordedRun]:
    """The wording that each run searched, from its file name.

    Runs of a variation are named ``<system>.<base>.<variation>.trec``, such as ``bm25.dl19.typo.3.trec``; runs of the
    original queries ``<system>.trec`` or ``<system>.<base>.trec``.

    Returns:
        In the order of the runs.

    Raises:
        UserError: the release has no variations; two runs of one system and wording; a run whose name could mean two
            systems; a run of the original queries of a system without any run of a variation, as its file name may
            have been meant to name one.
    """
    if not release.variations:
        base = main_split(release.test_sets) or next(iter(release.test_sets))
        raise UserError(
            f"there are no query variations in {release.name}; build a release (make release), or make typos with "
            f"eval_kit run MODEL --variation {base}.typo"
        )
    files: dict[str, Path] = {}
    for run in runs:
        if run_name(run) in files:
            raise UserError(f"{run}: a second run of {run_name(run)}")
        files[run_name(run)] = run
    of_variations: dict[str, WordedRun] = {}
    systems: dict[str, set[str]] = {}
    for varied_name, run in files.items():
        if not (worded_run := _varied_run(run, release)):
            continue
        of_variations[varied_name] = worded_run
        for name in _original_names(worded_run):
            systems.setdefault(name, set()).add(worded_run.system)
    for name, run in files.items():
        if name not in of_variations and name not in systems:
            raise UserError(
                f"{run}: its name does not say which variation it is of; name it "
                f"<system>.<base>.<variation>.trec, such as {name}.{next(iter(release.variations))}.trec"
            )
        if len(bases := sorted(systems.get(name, ()))) > 1:
            raise UserError(
                f"{run}: could be of the original queries of {' or of '.join(bases)}; rename the runs of one of them"
            )
    return [of_variations.get(name) or WordedRun(run, next(iter(systems[name])), None) for name, run in files.items()]


def grid_and_worded(runs: Sequence[Path], release: Release) -> tuple[list[Path], list[Path]]:
    """Divide the runs for a report: those of a grid, and those that :func:`wordings_of` takes.

    A run of a grid's cell is in both where runs of variations need it as their original. What is neither a run of a
    variation nor the original of one counts as a grid's.
    """
    of_variations, names = [], set()
    for run in runs:
        if worded_run := _varied_run(run, release):
            of_variations.append(run)
            names.update(_original_names(worded_run))
    of_grid, originals = [], []
    for run in runs:
        is_original = run_name(run) in names
        if run not in of_variations and is_original:
            originals.append(run)
        if run not in of_variations and (cell_of(run) or not is_original):
            of_grid.append(run)
    return of_grid, [*originals, *dict.fromkeys(of_variations)]


def original_of(worded_run: WordedRun, runs: Iterable[WordedRun]) -> WordedRun:
    """The run of the same system on the original wording.

    Raises:
        UserError: there is none; with the file names expected.
    """
    names = _original_names(worded_run)
    originals = {run_name(run.path): run for run in runs if run.variation is None}
    for name in names:
        if name in originals:
            return originals[name]
    raise UserError(
        f"{worded_run.path}: no run of {worded_run.system} on the original queries is given to compare with; "
        f"expected {names[0]}.trec or {names[1]}.trec"
    )


def contradicts(tag: str, run: Path, release: Release) -> bool:
    """Whether a run's tag names another variation, or another cell of a grid, than its file name does."""
    of_tag, of_name = _meaning(Path(tag), release), _meaning(run, release)
    return of_tag is not None and of_tag != of_name and (of_name is not None or isinstance(of_tag, Variation))


def _meaning(run: Path, release: Release) -> Variation | tuple[str, str, int] | None:
    """What a name says of a run beside its system: its variation, or its cell."""
    if worded_run := _varied_run(run, release):
        return worded_run.variation
    cell = cell_of(run)
    return (cell.shift, cell.held_out, cell.seed) if cell else None


def _varied_run(run: Path, release: Release) -> WordedRun | None:
    """The run of a variation that a file name gives, or None for any other run."""
    name = run_name(run)
    for full_name in sorted(release.variations, key=len, reverse=True):
        if name.endswith(f".{full_name}"):
            return WordedRun(run, name.removesuffix(f".{full_name}"), release.variations[full_name])
    return None


def _original_names(worded_run: WordedRun) -> list[str]:
    """The possible names of the same system's run on the original queries, the more specific first."""
    assert worded_run.variation
    return [f"{worded_run.system}.{worded_run.variation.base}", worded_run.system]


def _cells_of_options(runs: int, options: Mapping[str, Sequence[str]]) -> list[RunName]:
    for option, values in options.items():
        if not values:
            raise UserError(f"{option} is missing: give --system, --shift and --held-out together, or none of them")
        if len(values) not in (1, runs):
            raise UserError(
                f"{option} is given {len(values)} times for {runs} run{'s' * (runs != 1)}; "
                "give it once for all of them, or once for each, in their order"
            )
    check_names(options["--shift"])
    columns = [values if len(values) == runs else list(values) * runs for values in options.values()]
    return [RunName(*row) for row in zip(*columns, strict=True)]


def _of_name(run: Path) -> RunName:
    cell = cell_of(run)
    if cell is None:
        absent = "" if run.exists() else "there is no such file; and "
        raise UserError(
            f"{run}: {absent}its name is not <system>.<shift>.<held-out>.trec, with a shift of {', '.join(SHIFTS)}; "
            "rename it, or give --system, --shift and --held-out"
        )
    return cell
