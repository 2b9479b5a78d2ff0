"""The options that builder's commands share, each declared once."""

from pathlib import Path
from typing import Annotated

import typer

RELEASE = Path("ms-marco-shift")
Folder = Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder.")]
Out = Annotated[Path, typer.Option(help="The release folder to write.")]
Cache = Annotated[
    Path | None, typer.Option(help="Folder for indexes, vectors and unfinished work. Default: the user's cache folder.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of every draw.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
