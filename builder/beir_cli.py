"""``python -m builder beir``: the datasets of BEIR, listed and downloaded."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from eval_kit.errors import UserError
from eval_kit.program import Program

app = typer.Typer(
    cls=Program, no_args_is_help=True, rich_markup_mode=None, help="List and download the datasets of BEIR."
)


@app.command("list")
def show() -> None:
    """List the datasets with size and licence. Sizes are those of BEIR's Table 1."""
    from eval_kit.console import screen
    from eval_kit.release.beir_suite import datasets
    from eval_kit.tables.table import Column, Table

    columns = [Column("dataset"), Column("domain"), Column("passages", "number"), Column("queries", "number")]
    columns += [Column("licence"), Column("download")]
    rows = []
    for dataset in datasets().values():
        sizes = [f"{dataset.passages:,}", f"{dataset.queries:,}"]
        how = ("yes" if dataset.md5 else "with --md5") if dataset.url else "no"
        rows.append([dataset.name, dataset.domain, *sizes, dataset.licence, how])
    screen().print(Table(columns, [rows]))


@app.command()
def download(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Names as in the list. Default: every dataset that BEIR distributes."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to put the datasets' folders in.")] = Path("beir"),
    md5: Annotated[
        str | None, typer.Option(help="Of the zip of the one dataset that is named, if none is known.")
    ] = None,
) -> None:
    """Download datasets, verified by md5. An interrupted download resumes; a folder appears whole or not at all.

    Existing folders are kept, even those of datasets that BEIR does not have.
    """
    from builder.sources.beir_download import install, remarks
    from eval_kit.console import counting
    from eval_kit.release.beir_suite import datasets, named

    distributed = [dataset for dataset in datasets().values() if dataset.md5]
    own = [name for name in names or [] if name not in datasets() and (out / name).is_dir()]
    chosen = [named(name) for name in names if name not in own] if names else distributed
    if md5 is not None and (len(chosen) != 1 or chosen[0].md5):
        raise UserError("--md5 is for one dataset whose md5 is not known: builder beir list shows which")
    if md5 is not None:
        chosen = [replace(chosen[0], md5=md5.lower())]
    for name in own:
        typer.echo(str(out / name))
    for dataset in chosen:
        with counting(f"downloading {dataset.name}", "bytes") as advance:
            folder = install(dataset, out, advance)
        typer.echo(str(folder))
        for remark in remarks(dataset, folder):
            typer.echo(f"  remark: {remark}")
