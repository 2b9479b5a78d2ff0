"""Expected figures: commands whose results are known from elsewhere, run and compared.

A figure is OK if it is the expected one to four decimals, OK within tolerance if it differs for the reason given with
its tolerance, and FAIL otherwise, as in Anserini's and Pyserini's reproductions.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from eval_kit.release import Release
from eval_kit.tables.table import Cell, Column, Table

DATA = Path(__file__).parent / "reproductions.json"
DECIMALS = 4
TIMEOUT_SECONDS = 600


class Verdict(StrEnum):
    """Whether a figure is the expected one."""

    OK = "OK"
    WITHIN_TOLERANCE = "OK within tolerance"
    FAIL = "FAIL"
    NOT_AT_HAND = "not at hand"


STYLES = {Verdict.OK: "green", Verdict.WITHIN_TOLERANCE: "green", Verdict.FAIL: "bold red", Verdict.NOT_AT_HAND: "dim"}


@dataclass(frozen=True)
class Figure:
    """The value expected on one measure; ``reason`` says why it may differ by up to ``tolerance``."""

    measure: str
    expected: float
    tolerance: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Reproduction:
    """A command and the figures that it should give.

    Attributes:
        command: of this kit, with ``{shared}``, ``{release}`` and ``{out}`` (an empty folder) for the folders; prints
            the JSON of ``eval_kit score``.
        test_set: the one that the figures are for.
        source: where the expected figures are from.
        figures: one per measure.
        before: command that makes the run to score; empty where the run is in the folder ``shared``.
    """

    command: str
    test_set: str
    source: str
    figures: Sequence[Figure]
    before: str = ""


@dataclass(frozen=True)
class Result:
    """One figure as it came out.

    Attributes:
        run: the file.
        test_set: scored on.
        measure: scored with.
        expected: the figure.
        value: None where nothing was run.
        verdict: on the value.
        digest: SHA-256 of the run.
        note: the reason for the tolerance, or why there is no value.
    """

    run: str
    test_set: str
    measure: str
    expected: float
    value: float | None
    verdict: Verdict
    digest: str = ""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def reproductions(path: Path = DATA) -> list[Reproduction]:
    """The expected figures of a data file."""
    reproductions = []
    for row in json.loads(path.read_text(encoding="utf-8")):
        figures = [Figure(**figure) for figure in row.pop("figures")]
        reproductions.append(Reproduction(**row, figures=figures))
    return reproductions


def reproduced(expected: Sequence[Reproduction], shared: Path, release: Release) -> Iterator[Result]:
    """Run every command whose files are available.

    Args:
        expected: from :func:`reproductions`.
        shared: folder with the runs that the commands name.
        release: the one they are scored on.
    """
    for reproduction in expected:
        with TemporaryDirectory() as out:
            folders = {"{shared}": str(shared), "{release}": str(release.folder), "{out}": out}
            commands = [_words(command, folders) for command in (reproduction.before, reproduction.command) if command]
            needed = next(Path(word) for word in commands[0] if word.startswith(str(shared)))
            if not needed.exists():
                yield from _without_value(reproduction, needed, Verdict.NOT_AT_HAND, "it is not there")
            elif "{release}" in reproduction.command and reproduction.test_set not in release.test_sets:
                lacking = f"the release has no test set {reproduction.test_set}"
                yield from _without_value(reproduction, needed, Verdict.NOT_AT_HAND, lacking)
            else:
                yield from _results(reproduction, needed, commands)


def verdict(value: float, figure: Figure) -> Verdict:
    """Whether a value is the expected one."""
    if f"{value:.{DECIMALS}f}" == f"{figure.expected:.{DECIMALS}f}":
        return Verdict.OK
    return Verdict.WITHIN_TOLERANCE if abs(value - figure.expected) <= figure.tolerance else Verdict.FAIL


def table(results: Sequence[Result], release: Release) -> Table:
    """One row per figure."""
    columns = [Column(name, wrap="never") for name in ("run", "test set", "measure")]
    columns += [Column(name, "number", wrap="never") for name in ("expected", "value")]
    columns += [Column("", wrap="never"), Column("sha256", wrap="never")]
    lines: list[list[Cell | str]] = []
    for result in results:
        value = "-" if result.value is None else f"{result.value:.{DECIMALS}f}"
        verdict = Cell(result.verdict, style=STYLES[result.verdict])
        expected = f"{result.expected:.{DECIMALS}f}"
        lines.append([result.run, result.test_set, result.measure, expected, value, verdict, result.digest[:12]])
    notes = [f"{release.manifest.kind} release {release.version}, digest {release.digest}"]
    notes += dict.fromkeys(f"{result.run}: {result.note}" for result in results if result.note)
    return Table(columns, [lines], notes=notes)


def _words(command: str, folders: Mapping[str, str]) -> list[str]:
    words = shlex.split(command)
    for name, folder in folders.items():
        words = [word.replace(name, folder) for word in words]
    return words


def _results(reproduction: Reproduction, run: Path, commands: Sequence[Sequence[str]]) -> Iterator[Result]:
    """Run the commands; the last one prints the figures."""
    for words in commands:
        done = subprocess.run(
            [sys.executable, "-m", *words], capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
        )
        if done.returncode:
            yield from _without_value(reproduction, run, Verdict.FAIL, done.stderr.strip().splitlines()[-1])
            return
    document = json.loads(done.stdout)
    values = {(row["test_set"], row["measure"]): row["value"] for row in document["measures"]}
    digest = document["provenance"]["runs"][0]["sha256"]
    for figure in reproduction.figures:
        at = (run.name, reproduction.test_set, figure.measure, figure.expected)
        value = values.get((reproduction.test_set, figure.measure))
        if value is None:
            yield Result(*at, None, Verdict.FAIL, digest, f"no {figure.measure} came out")
            continue
        outcome = verdict(value, figure)
        yield Result(*at, value, outcome, digest, figure.reason if outcome is Verdict.WITHIN_TOLERANCE else "")


def _without_value(reproduction: Reproduction, run: Path, outcome: Verdict, note: str) -> Iterator[Result]:
    for figure in reproduction.figures:
        yield Result(run.name, reproduction.test_set, figure.measure, figure.expected, None, outcome, note=note)
