"""``python -m baselines``: the reference systems."""

from pathlib import Path
from typing import Annotated

import typer

from eval_kit.errors import reported

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)


@app.callback()
def _callback() -> None:
    """Train, search and compare the reference systems."""


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder for the release, the index and the runs.")] = Path("demo")) -> None:
    """Mini release, BM25, scores."""
    from rich.console import Console

    from baselines.demo import demo as run

    run(out, Console())


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2."""
    with reported("baselines"):
        app()
