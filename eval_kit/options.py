"""The options that commands share, each declared once."""

from pathlib import Path
from typing import Annotated

import typer

from eval_kit.output import Format

Release = Annotated[
    str | None,
    typer.Option(
        help="Release folder, BEIR folder or Hub id. Default: $MS_MARCO_SHIFT_RELEASE, else ./ms-marco-shift."
    ),
]
Revision = Annotated[str | None, typer.Option(help="Tag or commit of a release on the Hub.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON to this file; '-' prints them.")
]
PrintedFormat = Annotated[Format, typer.Option(help="How to print the results; csv has every number.")]
PageFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also write the tables, figures and notes to this HTML file.")
]
AllowMissing = Annotated[
    bool, typer.Option("--allow-missing", help="Also score runs that lack many queries, or are cut short.")
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "--measure",
        metavar="NAME",
        help="Score by this measure, such as P@5, instead of the test sets' own. Repeatable.",
    ),
]
TestSets = Annotated[
    list[str] | None,
    typer.Option("--test-set", metavar="NAME", help="Score on this test set alone. Repeatable."),
]
GridRuns = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN", help="Runs <system>.<shift>.<held-out>.trec; other names need the next three options."
    ),
]
Systems = Annotated[
    list[str] | None,
    typer.Option("--system", metavar="NAME", help="The system of each run, in the same order; or one for all runs."),
]
Shifts = Annotated[
    list[str] | None,
    typer.Option(
        "--shift", metavar="NAME", help="The shift of each run, likewise: topic, wh, length, resttest or restrain."
    ),
]
HeldOuts = Annotated[
    list[str] | None,
    typer.Option("--held-out", metavar="NAME", help="What each run's training held out, likewise, such as c0."),
]
Untrained = Annotated[
    list[Path] | None, typer.Option(metavar="RUN", help="A run of an untrained system, such as BM25. Repeatable.")
]
DevRuns = Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs of dev-small.")]
Page = Annotated[Path, typer.Option(metavar="FILE", help="The HTML file to write.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of the bootstrap.")]
