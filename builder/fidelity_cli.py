"""``python -m builder fidelity``: a rebuilt release beside a published one."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def fidelity(
    rebuilt: Annotated[str, typer.Argument(help="A rebuilt release: folder or Hub id.")],
    against: Annotated[str, typer.Option(help="The published release: folder or Hub id.")],
    out: Annotated[Path | None, typer.Option(help="Write the page (Markdown) to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Tell how far the same queries are in the same clusters, and what cannot be reproduced."""
    from builder.fidelity import compare
    from eval_kit.files import atomic
    from eval_kit.release import open_release

    opened = [open_release(one) for one in (rebuilt, against)]
    with Console(stderr=True).status("comparing the releases"):
        report = compare(*opened)
    if out is not None:
        atomic.write_text(out, report.as_markdown())
    if as_json:
        typer.echo(json.dumps(report.as_json(), ensure_ascii=False))
    elif out is None:
        typer.echo(report.as_markdown())
    else:
        typer.echo(f"{out}: {len(report.agreements)} divisions compared")
