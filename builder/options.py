"""The options that builder's commands share, each declared once, and how their results are printed."""

from pathlib import Path
from typing import Annotated, Any

import typer

from eval_kit.errors import printable
from eval_kit.options import argument, option

RELEASE = Path("ms-marco-shift")
Folder = Annotated[Path, argument("A release folder.", "RELEASE")]
Out = Annotated[Path, option("The release folder to write.")]
Cache = Annotated[
    Path | None, option("Folder for indexes, vectors and unfinished work. Default: the user's cache folder.")
]
Seed = Annotated[int, option("Random seed of every draw.", min=0, max=2**32 - 1)]
Version = Annotated[str | None, option("The release's version; a published one never changes. Default: 1.0.0.")]


def print_result(document: Any, lines: list[str], json_file: Path | None) -> None:
    """Print a command's result as lines of text, and write it as JSON to the file of ``--json``; ``-`` prints that."""
    from eval_kit.console import write_json

    if not write_json(document, json_file):
        typer.echo("\n".join(map(printable, lines)))
