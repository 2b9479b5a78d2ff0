"""``python -m baselines table``: a grid's figures beside the papers'."""

from pathlib import Path
from typing import Annotated

import typer


def table(
    runs: Annotated[Path, typer.Option(help="The folder of a grid's runs.")] = Path("runs"),
    release: Annotated[str | None, typer.Option(help="Release folder or Hub id; else as for eval_kit.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON ('-': to the screen).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
) -> None:
    """In, Out and Rel Loss of a grid, beside the papers' own figures."""
    from rich.console import Console

    from baselines.table import results
    from eval_kit.console import refuse_overwriting, screen, write_json
    from eval_kit.release import open_release

    refuse_overwriting(list(runs.glob("*.trec*")), [json_file])
    with Console(stderr=True).status("reading runs"):
        found = results(runs, open_release(release), seed)
    if not write_json(found.as_json(), json_file):
        found.print(screen())
