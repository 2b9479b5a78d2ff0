"""``python -m baselines``: the reference systems. Every command only calls the library."""

import typer

from baselines import cost_cli, grid_cli, search_cli, table_cli
from eval_kit.errors import reported

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)
app.add_typer(grid_cli.app, name="grid")
app.command()(table_cli.table)
app.command()(cost_cli.cost)
app.command()(search_cli.search)


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2."""
    with reported("baselines"):
        app()
