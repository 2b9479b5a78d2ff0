"""``python -m baselines``: the reference systems. Every command only calls the library."""

from pathlib import Path
from typing import Annotated

import typer

from eval_kit.errors import reported

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the release, the index and the run.")] = Path("demo"),
) -> None:
    """Mini release, BM25, scores."""
    from baselines.demo import demo as run
    from eval_kit.outputs import screen

    run(out, screen())


@app.command()
def search(
    system: Annotated[str, typer.Argument(help="The system; bm25 so far.")],
    release: Annotated[str | None, typer.Option(help="Release folder or Hub id; else as for eval_kit.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the index and the run.")] = Path("runs"),
) -> None:
    """Search every test query of a release and write one run."""
    from rich.console import Console

    from baselines.search import search as make_run
    from eval_kit.release import open as open_release

    typer.echo(str(make_run(system, open_release(release), out, Console(stderr=True))))


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2."""
    with reported("baselines"):
        app()
