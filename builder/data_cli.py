"""``python -m builder negatives``, ``audit`` and ``pictures``: what is made of a release's data once it stands."""

import json
from pathlib import Path
from typing import Annotated

import typer

from eval_kit.release import Release, verified_manifest

Folder = Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Cache = Annotated[
    Path | None, typer.Option(help="Where the index and unfinished work are kept; the user's cache folder without it.")
]
DEFAULT = Path("ms-marco-shift")


def negatives(
    folder: Folder = DEFAULT,
    depth: Annotated[int, typer.Option(min=1, help="How many passages BM25 ranks for a query.")] = 1_000,
    sample: Annotated[int, typer.Option(min=1, help="How many of them are drawn.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 13,
    threads: Annotated[int, typer.Option(min=1, help="Of Lucene; without influence on the result.")] = 2,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Draw BM25 negatives for every training query, and add them to the release; goes on where it was stopped."""
    from builder import negatives as drawing

    release = drawing.add(folder, drawing.Parameters(depth, sample, seed), cache, threads)
    table = release.table(drawing.CONFIG, drawing.SPLIT)
    report = {
        "folder": str(folder),
        "queries": table.height,
        "negatives": int(table["passage_ids"].list.len().sum()),
        "fewer": int((table["passage_ids"].list.len() < sample).sum()),
        "digest": release.digest,
    }
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False))
    else:
        typer.echo(
            f"{folder}: {report['negatives']:,} negatives of {report['queries']:,} queries "
            f"({report['fewer']:,} with fewer than {sample}); the release's digest is now {release.digest[:16]}"
        )


def audit(
    folder: Folder = DEFAULT,
    near: Annotated[float, typer.Option(help="The cosine from which two queries are near-duplicates.")] = 0.95,
    encoder: Annotated[
        str, typer.Option(help="words, lsa, or a model: Hub id or folder, with :cls for the bare [CLS].")
    ] = "words",
    out: Annotated[
        Path | None, typer.Option(help="Write the report here; reports/audit.json in the release without it.")
    ] = None,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Count the test queries that leak into training: equal, normalised, near-duplicate, or by a shared passage."""
    from builder import audit as auditing
    from builder.reports import AUDIT
    from builder.sources.fetch import cache_folder
    from eval_kit.console import screen
    from eval_kit.files import atomic

    release = _opened(folder)
    place = out or folder / AUDIT
    found = auditing.audit(release, near, encoder, (cache or cache_folder()) / "vectors")
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if out is None:
        place.parent.mkdir(exist_ok=True)
    atomic.write_text(place, text)
    if as_json:
        typer.echo(text, nl=False)
    else:
        screen().print(auditing.table(found))
        typer.echo(f"{found['headline']}\n{place}")


def pictures(
    folder: Folder = DEFAULT,
    encoder: Annotated[str, typer.Option(help="lsa, or a model: Hub id or folder, with :cls for the bare [CLS].")] = (
        "lsa"
    ),
    cache: Cache = None,
) -> None:
    """Draw how alike the clusters are, and where the topics lie, into the release's reports/."""
    from rich.console import Console

    from builder.pictures import pictures as draw
    from builder.sources.fetch import cache_folder

    release = _opened(folder)
    with Console(stderr=True).status("drawing pictures"):
        written = draw(release, encoder, (cache or cache_folder()) / "vectors")
    for path in written:
        typer.echo(str(path))


def _opened(folder: Path) -> Release:
    return Release(folder, verified_manifest(folder))
