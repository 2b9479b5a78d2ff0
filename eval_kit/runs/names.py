"""Names of a grid's runs: which system, trained without which part of which shift, made a run."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from eval_kit.errors import UserError
from eval_kit.files.endings import run_name as run_name
from eval_kit.release import Release
from eval_kit.shifts import CONTROL, SHIFTS

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


def cell_of(name: str) -> RunName | None:
    """The cell that a run's name, without endings, gives; None for a run outside a grid."""
    match = _NAME.fullmatch(name)
    return RunName(match["system"], match["shift"], match["held_out"], _seed(name, match["seed"])) if match else None


def control_of(name: str) -> RunName | None:
    """The cell of a model that was trained on everything, ``<system>.all.none``; None for any other run."""
    match = _CONTROL.fullmatch(name)
    return RunName(match["system"], CONTROL.name, "none", _seed(name, match["seed"])) if match else None


def _seed(name: str, digits: str | None) -> int:
    digits = digits or "0"
    if len(digits) > len(str(_HIGHEST_SEED)) or int(digits) > _HIGHEST_SEED:
        raise UserError(f"The seed in {name} is beyond {_HIGHEST_SEED:,}", do="Rename it")
    return int(digits)


def grid(cells: Iterable[RunName], release: Release) -> dict[tuple[str, str], list[RunName]]:
    """Group cells by shift and system, each group complete.

    Returns ``(shift, system)`` → its cells, every part of the shift once for every seed.
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
                    raise UserError(f"{system} has no run for every {shift} part", f"{needed_cell.file} is missing")
    return groups
