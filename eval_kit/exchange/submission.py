"""Submissions: a folder of runs, with a ``submission.json`` or ``ir-metadata.yml`` that describes them.

:func:`validate` lists all faults at once. Submissions come from strangers: :mod:`eval_kit.exchange.safety` keeps them
inside their folders.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import polars as pl
from rich.console import Console
from rich.text import Text

from eval_kit import __version__, documents
from eval_kit.errors import UserError, printable
from eval_kit.exchange import ir_metadata
from eval_kit.exchange.safety import folder_faults, leads_outside, leaves
from eval_kit.files import strict_json
from eval_kit.files.opening import is_file
from eval_kit.files.schemas import faults_of
from eval_kit.release import Release
from eval_kit.results import Result
from eval_kit.runs.contamination import declaration
from eval_kit.runs.covered_test_sets import coverage_of
from eval_kit.runs.names import RunName, cell_of
from eval_kit.runs.ranks import rank_judged
from eval_kit.shifts import SHIFTS
from eval_kit.tables.table import Column, Table

DOCUMENT = "submission.json"
LARGEST_DOCUMENT = 1 << 20
SHOWN_FAULTS = 5

_NOTHING = pl.DataFrame(schema={"query_id": pl.String(), "passage_id": pl.String()})


@dataclass(frozen=True)
class Submission:
    """A submission whose document has no fault.

    Attributes:
        folder: the one that holds it.
        document: its content (submission.schema.json).
        runs: each run's file and, where it belongs to a grid, its cell.
    """

    folder: Path
    document: documents.Submission
    runs: dict[Path, RunName | None]


def validate(folder: Path, release: Release, allow_missing: bool = False) -> list[str]:
    """All faults of a submission, one sentence each; an empty list if there are none.

    One call finds them all: links that leave the folder, faults by the document's schema, a wrong release, files that
    are missing or not listed, faults of each run, cells that are missing from a grid, and runs that do not cover the
    shift that they are listed for.

    Args:
        folder: the submission.
        release: the one that the runs were made for.
        allow_missing: as for :func:`eval_kit.protocols.scoring.score`.

    Warns:
        UserWarning: what an ``ir-metadata.yml`` does not say.

    Raises:
        UserError: there is no such folder.
    """
    document, runs, faults = _inspect(folder, release)
    if document is not None and document_of(folder) == DOCUMENT:
        faults += _files_not_listed(folder, document)
    plain: dict[str, str] = {}
    for run, cell in runs.items():
        faults += _run_faults(folder, run, cell, release, allow_missing, plain)
    return faults


@dataclass(frozen=True, repr=False)
class Checked(Result):
    """What is wrong with submissions.

    Attributes:
        faults: of each folder, from :func:`validate`.
        provenance: the release that they were checked against.
    """

    title = "Faults of submissions"

    faults: Mapping[Path, list[str]]
    provenance: Mapping[str, Any]

    @property
    def failed(self) -> bool:
        """Whether any has a fault."""
        return any(self.faults.values())

    def to_polars(self) -> pl.DataFrame:
        """A row for each fault: ``submission`` and ``fault``."""
        rows: list[tuple[str, str]] = []
        for folder, faults in self.faults.items():
            rows += product([str(folder)], faults)
        return pl.DataFrame(rows, {"submission": pl.String, "fault": pl.String}, orient="row")

    def tables(self) -> list[Table]:
        """The faults of each submission."""
        columns = [Column("fault")]
        return [Table(columns, [[[fault] for fault in faults]], str(folder)) for folder, faults in self.faults.items()]

    def notes(self) -> list[str]:
        """How many faults each has."""
        return [f"{folder}: {len(faults)} fault{'s' * (len(faults) != 1)}" for folder, faults in self.faults.items()]

    def show(self, console: Console) -> None:
        """Print a line for each fault, and how many there are."""
        for line in [*self.to_polars()["fault"], *self.notes()]:
            console.print(Text(printable(line)), soft_wrap=True)


def check(folders: Sequence[Path], release: Release, allow_missing: bool = False) -> Checked:
    """The faults of several submissions; see :func:`validate`."""
    faults = {folder: validate(folder, release, allow_missing) for folder in folders}
    return Checked(faults, {"kit_version": __version__, "release": release.identity})


def document_of(folder: Path) -> str:
    """The document that describes a submission: ``submission.json``, or ``ir-metadata.yml`` where that is alone."""
    is_ir_metadata = is_file(folder / ir_metadata.DOCUMENT) and not is_file(folder / DOCUMENT)
    return ir_metadata.DOCUMENT if is_ir_metadata else DOCUMENT


def open_submission(folder: Path, release: Release) -> Submission:
    """Open a submission. The runs themselves are not read; scoring finds their faults.

    Warns:
        UserWarning: what an ``ir-metadata.yml`` does not say.

    Raises:
        UserError: not safe to open, or a faulty document; with the first faults and how many more there are.
    """
    document, runs, faults = _inspect(folder, release)
    if faults:
        more = f"; and {len(faults) - SHOWN_FAULTS:,} more" if len(faults) > SHOWN_FAULTS else ""
        raise UserError(f"{folder}: {'; '.join(faults[:SHOWN_FAULTS])}{more}")
    return Submission(folder, msgspec.convert(document, documents.Submission), runs)


def _inspect(folder: Path, release: Release) -> tuple[Any, dict[Path, RunName | None], list[str]]:
    """The document, its runs, and every fault that needs no run to be read."""
    if not folder.is_dir():
        what = f"expected a folder with {DOCUMENT} and its runs" if folder.exists() else "there is no such folder"
        raise UserError(f"{folder}: {what}")
    name = document_of(folder)
    document, faults = _read(folder, name, release)
    faults = folder_faults(folder) + faults
    if document is None:
        return None, {}, faults
    runs, of_runs = _runs_of(folder, document, name)
    of_grid = _grid_faults(list(filter(None, runs.values())), release)
    return document, runs, faults + of_runs + _release_faults(document, release) + of_grid


def _read(folder: Path, name: str, release: Release) -> tuple[Any, list[str]]:
    """The document, with all that its schema finds wrong; None where it cannot be read at all."""
    path = folder / name
    if not is_file(path) or leads_outside(path, folder):
        return None, [f"there is no {name}"]
    try:
        if name == ir_metadata.DOCUMENT:
            document, lacking = ir_metadata.read(folder, release, LARGEST_DOCUMENT)
            if lacking:
                return None, lacking
            warnings.warn(f"{path} {ir_metadata.GAPS}", stacklevel=3)
        else:
            document = strict_json.read(path, LARGEST_DOCUMENT)
    except UserError as error:
        return None, [str(error).replace(f"{folder}/", "")]
    faults = faults_of("submission", document)
    said = [f"{name}: {fault.json_path}: {_reason(fault)}" for fault in faults]
    if not isinstance(document, dict):
        return None, said
    for field in ("system", "team"):
        if not str(document.get(field, "")).isprintable():
            said.append(f"{name}: $.{field}: holds control characters")
    return document, said


def _reason(fault: Any) -> str:
    if fault.validator == "pattern" and str(fault.json_path).endswith(".file"):
        return f"{fault.instance[:100]!r} is absolute, leaves the folder or holds a backslash"
    return str(fault.message)[:200]


def _entries(document: Mapping[str, Any]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Number, file and entry of each run that names its file; entries that the schema refuses are passed over."""
    runs = document.get("runs")
    for number, entry in enumerate(runs if isinstance(runs, list) else []):
        if isinstance(entry, dict) and isinstance(entry.get("file"), str) and not leaves(entry["file"]):
            yield number, entry["file"], entry


def _runs_of(
    folder: Path, document: Mapping[str, Any], document_name: str
) -> tuple[dict[Path, RunName | None], list[str]]:
    """The runs that can be read, each with its cell, and what is wrong with the list."""
    faults = []
    runs: dict[Path, RunName | None] = {}
    for number, name, entry in _entries(document):
        where, path = f"{document_name}: $.runs[{number}]", folder / PurePosixPath(name)
        path_text = printable(name)
        if path in runs:
            faults.append(f"{where}: {path_text} is listed twice")
        elif leads_outside(path, folder):
            faults.append(f"{where}: {path_text} leaves the folder")
        elif not is_file(path):
            faults.append(f"{where}: there is no file {path_text}")
        else:
            cell, of_name = _cell(entry, document), cell_of(path)
            if cell and of_name and of_name.place != cell.place:
                faults.append(
                    f"{where}: is listed as {cell.shift}.{cell.held_out} with seed {cell.seed}, but its name "
                    f"{path_text} says {of_name.shift}.{of_name.held_out} with seed {of_name.seed}"
                )
            cell = cell or of_name
            if cell and any(other and other.place == cell.place for other in runs.values()):
                faults.append(f"{where}: {path_text} is a second run of {cell.shift}.{cell.held_out}, seed {cell.seed}")
                cell = None
            runs[path] = cell
    return runs, faults


def _cell(entry: Mapping[str, Any], document: Mapping[str, Any]) -> RunName | None:
    shift, held_out, seed = entry.get("shift"), entry.get("held_out"), entry.get("seed", 0)
    if not isinstance(shift, str) or not isinstance(held_out, str) or not isinstance(seed, int):
        return None
    of_name = cell_of(Path(PurePosixPath(entry["file"]).name))
    return RunName(of_name.system if of_name else str(document.get("system", "")), shift, held_out, seed)


def _release_faults(document: Mapping[str, Any], release: Release) -> list[str]:
    made_for = document.get("release")
    if not isinstance(made_for, dict):
        return []
    faults = []
    for name, value in {"version": release.version, "digest": release.digest}.items():
        claim = made_for.get(name)
        if isinstance(claim, str) and claim != value:
            difference = f"the runs were made for {printable(claim)[:80]}, this release has {value}"
            faults.append(f"{DOCUMENT}: $.release.{name}: {difference}")
    return faults


def _files_not_listed(folder: Path, document: Mapping[str, Any]) -> list[str]:
    runs = {folder / PurePosixPath(name) for _, name, _ in _entries(document)}
    known_files = runs | {folder / DOCUMENT, folder / ir_metadata.DOCUMENT} | set(map(declaration, runs))
    faults = []
    for path in sorted(folder.rglob("*")):
        if path not in known_files and is_file(path):
            faults.append(f"{printable(str(path.relative_to(folder)))}: is not listed in {DOCUMENT}")
    return faults


def _grid_faults(cells: list[RunName], release: Release) -> list[str]:
    """Parts that a shift does not have, and runs that its grid lacks, for every seed."""
    faults = []
    seeds: dict[tuple[str, int], list[RunName]] = {}
    for cell in sorted(cells):
        seeds.setdefault((cell.shift, cell.seed), []).append(cell)
    for (shift, seed), members in seeds.items():
        try:
            have = SHIFTS[shift].parts(release)
        except (KeyError, UserError):
            faults.append(f"the release holds no {printable(shift)} shift, which a run is listed for")
            continue
        held_out = {cell.held_out for cell in members}
        for unknown in sorted(held_out - set(have)):
            fault = f"the {shift} shift has no {printable(unknown)}, which a run is listed for"
            faults.append(f"{fault}; it has {', '.join(have)}")
        lacking = set(SHIFTS[shift].complete(held_out, release)) - held_out
        for part in have:
            if part in lacking:
                file_name = printable(RunName(members[0].system, shift, part, seed).file)
                faults.append(f"the grid on {shift} lacks a run: expected {file_name}")
    return faults


def second_run(first: str, second: str, test_set: str) -> str:
    """The fault of two runs that belong to no grid and cover the same test set."""
    return f"{printable(first)} and {printable(second)} are both runs of {test_set}; submit one, or a grid"


def _run_faults(
    folder: Path, run: Path, cell: RunName | None, release: Release, allow_missing: bool, plain: dict[str, str]
) -> list[str]:
    """A run's own faults, and those of the test sets it covers; ``plain`` collects those of runs without a grid."""
    name = printable(str(run.relative_to(folder)))
    try:
        queries = rank_judged(run, _NOTHING).queries["query_id"]
        coverage = coverage_of(run, queries, release.test_sets, release.known_queries, allow_missing)
    except UserError as error:
        return [printable(str(error).replace(f"{folder}/", ""))]
    covers = [test_set.name for test_set in coverage.test_sets]
    if cell is None:
        before = {plain.setdefault(test_set, name): test_set for test_set in covers}
        return [second_run(first, name, test_set) for first, test_set in before.items() if first != name]
    try:
        shift = SHIFTS[cell.shift]
        test_sets = shift.test_sets(release)  # of ReSTrain's, one will do
    except (KeyError, UserError):  # which :func:`_grid_faults` reports
        return []
    lacking = [test_set for test_set in test_sets if test_set not in covers]
    if not lacking or (not shift.all_test_sets_needed and len(lacking) < len(test_sets)):
        return []
    if len(lacking) == len(test_sets):
        return [f"{name}: is listed for the {cell.shift} shift, but covers none of its test sets: {', '.join(covers)}"]
    return [f"{name}: does not cover {', '.join(lacking)}, which the {cell.shift} shift is evaluated on"]
