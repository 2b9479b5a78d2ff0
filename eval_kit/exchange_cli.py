"""The commands about other people's results: validate, compare, leaderboard, align, beir."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from eval_kit.errors import EXIT_USER_ERROR

Release = Annotated[str | None, typer.Option(help="Release folder or Hub id, as for score.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON ('-': to the screen).")
]
AllowMissing = Annotated[
    bool, typer.Option("--allow-missing", help="Accept runs that lack more than 1 % of a test set's queries.")
]


class Format(StrEnum):
    """What a comparison can be written as."""

    table = "table"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


def validate(
    submission: Annotated[Path, typer.Argument(help="A folder with submission.json and its runs.")],
    release: Release = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Say all that is wrong with a submission, at once; exit status 2 if anything is."""
    import json

    from eval_kit.exchange.submission import validate as check
    from eval_kit.release import open_release

    faults = check(submission, open_release(release))
    if as_json:
        typer.echo(json.dumps({"submission": str(submission), "faults": faults}, ensure_ascii=False))
    else:
        for fault in faults:
            typer.echo(fault, err=True)
        typer.echo(f"{submission}: {len(faults)} fault{'s' * (len(faults) != 1)}")
    if faults:
        raise typer.Exit(EXIT_USER_ERROR)


def compare(
    systems: Annotated[
        list[Path], typer.Argument(metavar="SYSTEM...", help="Runs, submissions, or scores (x.json with x.tsv beside).")
    ],
    baseline: Annotated[str | None, typer.Option(help="What the others are tested against; else the first.")] = None,
    release: Release = None,
    format: Annotated[Format, typer.Option(help="How to print the comparison.")] = Format.table,
    json_file: JsonFile = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    allow_missing: AllowMissing = False,
) -> None:
    """Systems side by side on the same test sets, with paired tests; refuses to mix releases."""
    from rich.console import Console

    from eval_kit.console import screen, write_json
    from eval_kit.exchange.compare import compare as compare_systems
    from eval_kit.exchange.sources import load
    from eval_kit.release import open_release
    from eval_kit.tables import comparison as compare_tables

    with Console(stderr=True).status("reading runs") as status:
        sources = load(
            systems, lambda: open_release(release), allow_missing, lambda run: status.update(f"reading {run.name}")
        )
        found = compare_systems(sources, baseline=baseline, seed=seed)
    if write_json(found.as_json(), json_file):
        return
    if format is Format.table:
        compare_tables.show(found, screen())
    else:
        typer.echo(compare_tables.FORMATS[format.value](found), nl=False)


def leaderboard(
    submissions: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of submissions.")],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("leaderboard.html"),
    release: Release = None,
) -> None:
    """A static page over many submissions, beside the published figures of the reference systems."""
    from rich.console import Console

    from eval_kit.exchange.entries import entries
    from eval_kit.pages.leaderboard import published_entries, write_leaderboard
    from eval_kit.release import open_release

    with Console(stderr=True).status("scoring submissions") as status:
        found = entries(submissions, open_release(release), lambda run: status.update(f"reading {run.name}"))
    write_leaderboard([*found, *published_entries()], out)
    typer.echo(str(out))


def align(
    scores: Annotated[
        Path, typer.Argument(help="CSV (system, training, score, then one column a BEIR dataset) or JSON.")
    ],
    json_file: JsonFile = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
) -> None:
    """How interpolation and extrapolation scores go with BEIR scores: Spearman and Kendall."""
    from eval_kit.console import screen, write_json
    from eval_kit.protocols.align import align_file

    found = align_file(scores, seed=seed)
    if not write_json(found.as_json(), json_file):
        found.print(screen())


def beir(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One run a dataset.")],
    dataset: Annotated[list[Path], typer.Option(metavar="DIR", help="BEIR-format folder; one a run, in their order.")],
    bm25: Annotated[list[Path] | None, typer.Option(metavar="RUN", help="BM25's runs in the same order.")] = None,
    json_file: JsonFile = None,
    allow_missing: AllowMissing = False,
) -> None:
    """nDCG@10, R_cap@100 and hole@10 on BEIR-format datasets, and the average against BM25."""
    from rich.console import Console

    from eval_kit.console import screen, write_json
    from eval_kit.measures.beir import report

    with Console(stderr=True).status("reading runs") as status:
        found = report(
            runs, dataset, bm25 or [], allow_missing, on_run=lambda run: status.update(f"reading {run.name}")
        )
    if not write_json(found.as_json(), json_file):
        found.print(screen())
