"""``python -m builder``: build, verify, diff, export and publish releases. Every command only calls the library."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from builder.build_cli import build
from builder.data_cli import audit, negatives, pictures
from builder.fidelity_cli import fidelity
from builder.publish_cli import card, change_lines, pack, publish
from eval_kit.errors import reported

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class Format(StrEnum):
    """What a release can be exported to."""

    beir = "beir"
    trec = "trec"


app.command()(build)
app.command()(fidelity)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A release folder.")] = Path("ms-marco-shift"), as_json: Json = False
) -> None:
    """Recompute every digest, count and rule; exit status 1 if one does not hold."""
    from builder.verify import verify as check

    checks = check(folder)
    faults = [one for one in checks if one.fault]
    if as_json:
        rows = [{"check": one.what, "fault": one.fault or None} for one in checks]
        typer.echo(json.dumps({"folder": str(folder), "faults": len(faults), "checks": rows}, ensure_ascii=False))
    else:
        for one in checks:
            typer.echo(f"{'WRONG' if one.fault else 'ok   '} {one.what}{': ' + one.fault if one.fault else ''}")
        typer.echo(f"{folder}: {len(checks)} checks, {len(faults)} faults")
    if faults:
        raise typer.Exit(1)


@app.command()
def diff(
    old: Annotated[str, typer.Argument(help="A release: folder or Hub id.")],
    new: Annotated[str, typer.Argument(help="Another release.")],
    as_json: Json = False,
) -> None:
    """Tell which queries entered, left or moved; exit status 1 if anything differs."""
    from builder.diff import diff as compare
    from eval_kit.release import open_release

    changes = compare(open_release(old), open_release(new))
    if as_json:
        typer.echo(json.dumps([one.as_json() for one in changes], ensure_ascii=False))
    for one in changes if not as_json else []:
        for line in change_lines(one):
            typer.echo(line)
    if changes:
        raise typer.Exit(1)
    if not as_json:
        typer.echo("the releases have the same content")


@app.command()
def export(
    release: Annotated[str, typer.Argument(help="A release: folder or Hub id.")] = "ms-marco-shift",
    out: Annotated[Path, typer.Option(help="Folder to write the test sets to.")] = Path("export"),
    format: Annotated[Format, typer.Option("--format")] = Format.beir,
) -> None:
    """Write each test set as a BEIR folder, or as TREC topics and qrels."""
    from builder.export import export as write
    from eval_kit.release import open_release

    opened = open_release(release)
    folders = write(opened, out, format.value)
    typer.echo(f"{out}: {len(folders)} test sets in {format.value} format")
    if format is Format.beir and "passages" not in opened.configs:
        typer.echo(f"  no corpus.jsonl: the passages are ir_datasets {opened.manifest['collection']}")


app.command()(card)
app.command()(pack)
app.command()(publish)
app.command()(negatives)
app.command()(audit)
app.command()(pictures)


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2."""
    with reported("builder"):
        app()
