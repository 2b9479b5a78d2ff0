"""The options that builder's commands share, each declared once, and how their results are printed."""

import json
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
Version = Annotated[str | None, option("The release's version. A published one never changes.", show_default="1.0.0")]
Json = Annotated[bool, option("Print JSON for programs.", None, "--json")]


def print_result(document: Any, lines: list[str], as_json: bool) -> None:
    """Print a command's result: as JSON, or as lines of text."""
    typer.echo(json.dumps(document, ensure_ascii=False) if as_json else "\n".join(map(printable, lines)))
