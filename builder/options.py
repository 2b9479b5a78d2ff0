"""The options that builder's commands share, each declared once."""

from pathlib import Path
from typing import Annotated

from eval_kit.options import argument, option

RELEASE = Path("ms-marco-shift")
Folder = Annotated[Path, argument("A release folder.", "RELEASE")]
Out = Annotated[Path, option("The release folder to write.")]
Cache = Annotated[
    Path | None, option("Folder for indexes, vectors and unfinished work. Default: the user's cache folder.")
]
Seed = Annotated[int, option("Random seed of every draw.", min=0, max=2**32 - 1)]
Json = Annotated[bool, option("Print JSON for programs.", None, "--json")]
