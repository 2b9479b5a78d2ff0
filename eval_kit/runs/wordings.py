"""Runs of query variations: which wording of the queries a run searched, from its name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_kit.errors import UserError
from eval_kit.release import Release, Variation
from eval_kit.runs.given import Run
from eval_kit.runs.names import cell_of, run_name
from eval_kit.shifts import main_split


@dataclass(frozen=True)
class WordedRun:
    """A run of a system on the original wording of some queries (``variation`` is None) or on a variation of them."""

    run: Run
    system: str
    variation: Variation | None


def wordings_of(runs: Sequence[Run], release: Release) -> list[WordedRun]:
    """The wording that each run searched, from its file name.

    Runs of a variation are named ``<system>.<base>.<variation>.trec``, such as ``bm25.dl19.typo.3.trec``; runs of the
    original queries ``<system>.trec`` or ``<system>.<base>.trec``. They are in the order of the runs.
    """
    if not release.variations:
        base = main_split(release.test_sets) or next(iter(release.test_sets))
        raise UserError(
            f"No query variations come with {release.name}",
            do=f"Build a release (make release), or make typos: eval_kit run MODEL --variation {base}.typo",
        )
    files: dict[str, Run] = {}
    for run in runs:
        if run.own_name in files:
            raise UserError(f"{run} is a second run of {run.own_name}", do="Give one of the two")
        files[run.own_name] = run
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
                f"The name of {run} does not say which query variation it is of",
                do=f"Name it <system>.<base>.<variation>.trec, such as {name}.{next(iter(release.variations))}.trec",
            )
        if len(bases := sorted(systems.get(name, ()))) > 1:
            raise UserError(
                f"{run} could be of the original queries of {' or of '.join(bases)}",
                do="Rename the runs of one of them",
            )
    return [of_variations.get(name) or WordedRun(run, next(iter(systems[name])), None) for name, run in files.items()]


def grid_and_worded(runs: Sequence[Run], release: Release) -> tuple[list[Run], list[Run]]:
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
        is_original = run.own_name in names
        if run not in of_variations and is_original:
            originals.append(run)
        if run not in of_variations and (run.cell or not is_original):
            of_grid.append(run)
    return of_grid, [*originals, *dict.fromkeys(of_variations)]


def original_of(worded_run: WordedRun, runs: Iterable[WordedRun]) -> WordedRun:
    """The run of the same system on the original wording."""
    names = _original_names(worded_run)
    originals = {run.run.own_name: run for run in runs if run.variation is None}
    for name in names:
        if name in originals:
            return originals[name]
    raise UserError(
        f"{worded_run.system} has no run on the original queries to compare {worded_run.run} with",
        do=f"Add {names[0]}.trec or {names[1]}.trec",
    )


def contradicts(tag: str, run: Run, release: Release) -> bool:
    """Whether a run's tag names another variation, or another cell of a grid, than its file name does."""
    name = run_name(Path(tag))
    of_tag, of_name = _meaning(Run(None, name, name, cell_of(name)), release), _meaning(run, release)
    return of_tag is not None and of_tag != of_name and (of_name is not None or isinstance(of_tag, Variation))


def _meaning(run: Run, release: Release) -> Variation | tuple[str, str, int] | None:
    """What a name says of a run beside its system: its variation, or its cell."""
    if worded_run := _varied_run(run, release):
        return worded_run.variation
    return (run.cell.shift, run.cell.held_out, run.cell.seed) if run.cell else None


def _varied_run(run: Run, release: Release) -> WordedRun | None:
    """The run of a variation that a name gives, or None for any other run."""
    name = run.own_name
    for full_name in sorted(release.variations, key=len, reverse=True):
        if name.endswith(f".{full_name}"):
            return WordedRun(run, name.removesuffix(f".{full_name}"), release.variations[full_name])
    return None


def _original_names(worded_run: WordedRun) -> list[str]:
    """The possible names of the same system's run on the original queries, the more specific first."""
    assert worded_run.variation
    return [f"{worded_run.system}.{worded_run.variation.base}", worded_run.system]
