"""``python -m builder``: build, verify, diff, export and publish releases. Every command only calls the library."""

import json
import os
import sys
import warnings
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal

from builder import beir_cli, build_cli
from builder.build_cli import Json
from eval_kit.errors import reported

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)
Folder = Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder.")]
Cache = Annotated[
    Path | None, typer.Option(help="Where the index and unfinished work are kept; the user's cache folder without it.")
]
DEFAULT = Path("ms-marco-shift")


class Format(StrEnum):
    """What a release can be exported to."""

    beir = "beir"
    trec = "trec"


app.add_typer(build_cli.app, name="build")
app.add_typer(beir_cli.app, name="beir")


@app.command()
def fidelity(
    rebuilt: Annotated[str, typer.Argument(help="A rebuilt release: folder or Hub id.")],
    against: Annotated[str, typer.Option(help="The published release: folder or Hub id.")],
    out: Annotated[Path | None, typer.Option(help="Write the page (Markdown) to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Tell how far the same queries are in the same clusters, and what cannot be reproduced."""
    from builder.fidelity import compare
    from eval_kit.files import atomic
    from eval_kit.release import open_release

    releases = open_release(rebuilt), open_release(against)
    with Console(stderr=True).status("comparing the releases"):
        report = compare(*releases)
    if out is not None:
        atomic.write_text(out, report.as_markdown())
    if as_json:
        typer.echo(json.dumps(report.as_json()))
    elif out is None:
        typer.echo(report.as_markdown())
    else:
        typer.echo(f"{out}: {len(report.agreements)} divisions compared")


@app.command()
def verify(folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """Recompute every digest, count and rule; exit status 1 if one does not hold."""
    from builder import verify as verification

    checks = verification.verify(folder)
    faults = [check for check in checks if check.fault]
    if as_json:
        rows = [{"check": check.what, "fault": check.fault or None} for check in checks]
        typer.echo(json.dumps({"folder": str(folder), "faults": len(faults), "checks": rows}))
    else:
        for check in checks:
            typer.echo(f"{'WRONG' if check.fault else 'ok   '} {check.what}{': ' + check.fault if check.fault else ''}")
        typer.echo(f"{folder}: {len(checks)} checks, {len(faults)} faults")
    if faults:
        raise typer.Exit(1)


@app.command()
def diff(
    old: Annotated[str, typer.Argument(help="A release: folder or Hub id.")],
    new: Annotated[str, typer.Argument(help="Another release.")],
    as_json: Json = False,
) -> None:
    """Tell which queries entered, left or moved; exit status 1 if anything differs."""
    from builder import diff as comparison
    from eval_kit.release import open_release

    changes = comparison.diff(open_release(old), open_release(new))
    if as_json:
        typer.echo(json.dumps([asdict(change) for change in changes]))
    elif changes:
        for change in changes:
            typer.echo("\n".join(change.lines()))
    else:
        typer.echo("the releases have the same content")
    if changes:
        raise typer.Exit(1)


@app.command()
def export(
    release: Annotated[str, typer.Argument(help="A release: folder or Hub id.")] = "ms-marco-shift",
    out: Annotated[Path, typer.Option(help="Folder to write the test sets to.")] = Path("export"),
    format: Annotated[Format, typer.Option("--format")] = Format.beir,
) -> None:
    """Write each test set and variation as a BEIR folder, or as TREC topics and qrels."""
    from builder import export as exporting
    from eval_kit.release import open_release

    opened = open_release(release)
    folders = exporting.export(opened, out, format.value)
    typer.echo(f"{out}: {len(folders)} test sets and variations in {format.value} format")
    if format is Format.beir and "passages" not in opened.configs:
        typer.echo(f"  no corpus.jsonl: the passages are ir_datasets {opened.manifest['collection']}")


@app.command()
def card(
    folder: Folder = DEFAULT,
    previous: Annotated[
        str | None, typer.Option(help="The version before: folder or Hub id@revision; the card tells what changed.")
    ] = None,
) -> None:
    """Write the card again, with what stands in the release's reports: audit, pictures, version history."""
    from builder import card as cards
    from builder import history, reports
    from eval_kit.release import open_release, read_manifest

    if previous is not None:
        source, _, revision = (previous, "", "") if Path(previous).exists() else previous.partition("@")
        history.write(open_release(folder), open_release(source, revision or None))
    cards.write(folder)
    typer.echo(f"{folder / cards.CARD}: written")
    for name in reports.read(folder, read_manifest(folder)).outdated:
        typer.echo(f"  remark: left out {name}, which was made of other content; make it again")


@app.command()
def pack(
    folder: Folder = DEFAULT,
    out: Annotated[Path, typer.Option(help="The folder to write the archive to.")] = Path(),
) -> None:
    """Pack a release as one .tar.gz, with a .sha256 beside it; the same release gives the same bytes."""
    from builder import pack as packing

    with Console(stderr=True).status(f"packing {folder}"):
        packed = packing.pack(folder, out)
    typer.echo(f"{packed.path}: {decimal(packed.path.stat().st_size)}, sha256 {packed.sha256}")


@app.command()
def publish(
    repo_id: Annotated[str, typer.Option("--repo-id", metavar="ORG/NAME", help="The dataset on the Hub.")],
    tag: Annotated[str, typer.Option(help="v and the release's version, such as v1.0.0.")],
    folder: Folder = DEFAULT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would change.")] = False,
    private: Annotated[bool, typer.Option("--private", help="Create the dataset as a private one.")] = False,
    allow_partial: Annotated[bool, typer.Option("--allow-partial", help="Publish a release that lacks parts.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer of the Hub.")] = 120.0,
    as_json: Json = False,
) -> None:
    """Publish a release: one commit, checked, then tagged. The same command again finishes or does nothing."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from builder import publish as publishing

    warnings.filterwarnings("ignore", message="Not enough free disk space")  # the error itself says so
    if not sys.stderr.isatty():
        disable_progress_bars()
    with Console(stderr=True).status(f"publishing {folder} as {repo_id}") as status:
        if not dry_run:
            status.stop()  # the Hub's own bars show bytes and rate
        publication = publishing.publish(
            folder, repo_id, tag, dry_run=dry_run, private=private, allow_partial=allow_partial, timeout=timeout
        )
    if as_json:
        typer.echo(json.dumps(asdict(publication)))
    else:
        typer.echo("\n".join(publication.lines(dry_run)))


@app.command()
def lite(
    folder: Folder = DEFAULT,
    out: Annotated[Path, typer.Option(help="The release folder to write.")] = Path("ms-marco-shift-lite"),
    passages: Annotated[int, typer.Option(min=1, help="How many passages it will hold.")] = 1_000_000,
    depth: Annotated[int, typer.Option(min=1, help="How many of BM25's best are kept for each test query.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw of the others.")] = 13,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Write a release with a part of the passages: judged ones, BM25's best for the test queries, a random sample."""
    from builder.lite import make
    from builder.release import summary
    from eval_kit.release import open_release

    manifest = make(open_release(str(folder)), out, passages, depth, seed, cache)
    if as_json:
        typer.echo(json.dumps(manifest, ensure_ascii=False))
    else:
        typer.echo("\n".join(summary(out, manifest)))


@app.command()
def negatives(
    folder: Folder = DEFAULT,
    depth: Annotated[int, typer.Option(min=1, help="How many passages BM25 ranks for a query.")] = 1_000,
    sample: Annotated[int, typer.Option(min=1, help="How many of them are drawn.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 13,
    threads: Annotated[
        int, typer.Option(min=1, show_default="all cores", help="Threads of Java; they do not change the result.")
    ] = os.cpu_count() or 1,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Draw BM25 negatives for every training query, and add them to the release; goes on where it was stopped."""
    from builder import negatives as drawing

    release = drawing.add(folder, drawing.NegativeParameters(depth, sample, seed), cache, threads)
    drawn = release.table(drawing.CONFIG, drawing.SPLIT)["passage_ids"].list.len()
    report = {
        "folder": str(folder),
        "queries": len(drawn),
        "negatives": int(drawn.sum()),
        "fewer": int((drawn < sample).sum()),
        "digest": release.digest,
    }
    if as_json:
        typer.echo(json.dumps(report))
    else:
        typer.echo(
            f"{folder}: {report['negatives']:,} negatives of {report['queries']:,} queries "
            f"({report['fewer']:,} with fewer than {sample}); the release's digest is now {release.digest[:16]}"
        )


@app.command()
def typos(
    test_set: Annotated[
        list[str], typer.Option(metavar="NAME", help="Mistype the queries of this test set; repeatable.")
    ],
    folder: Folder = DEFAULT,
    replicas: Annotated[int, typer.Option(min=1, help="How many times each kind of typo is drawn.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 13,
) -> None:
    """Mistype one word of each query in five ways, and add the wordings to the release as variations."""
    from builder import typos as mistyping

    release = mistyping.add(folder, test_set, replicas, seed)
    for name, variation in release.variations.items():
        if variation.source == mistyping.SOURCE:
            typer.echo(name)
    typer.echo(f"{folder}: the release's digest is now {release.digest[:16]}")


@app.command()
def audit(
    folder: Folder = DEFAULT,
    near: Annotated[
        float | None,
        typer.Option(help="The cosine from which two queries are near-duplicates; without it, as docs/audit.md has."),
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="characters, words, lsa, or a model: Hub id or folder, with :cls for the bare [CLS].")
    ] = "characters",
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
    from eval_kit.release import Release, verified_manifest

    release = Release(folder, verified_manifest(folder))
    path = out or folder / AUDIT
    report = auditing.audit(release, near, encoder, (cache or cache_folder()) / "vectors")
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    if out is None:
        path.parent.mkdir(exist_ok=True)
    atomic.write_text(path, text)
    if as_json:
        typer.echo(text, nl=False)
    else:
        screen().print(auditing.table(report))
        typer.echo(f"{report['headline']}\n{path}")


@app.command(name="shared-passages")
def shared_passages(release: Folder = DEFAULT, as_json: Json = False) -> None:
    """CIKM 2022, Table 3: TREC DL queries that share relevant passages with training queries, beside the paper's."""
    from builder.shared_passages import layout, shared
    from eval_kit.console import screen
    from eval_kit.release import Release, verified_manifest

    document = shared(Release(release, verified_manifest(release)))
    if as_json:
        typer.echo(json.dumps(document, indent=1))
    else:
        screen().print(layout(document))


@app.command()
def pictures(
    folder: Folder = DEFAULT,
    encoder: Annotated[
        str, typer.Option(help="lsa, or a model: Hub id or folder, with :cls for the bare [CLS].")
    ] = "lsa",
    cache: Cache = None,
) -> None:
    """Draw how alike the clusters are, and where the topics lie, into the release's reports/."""
    from builder import pictures as drawing
    from builder.sources.fetch import cache_folder
    from eval_kit.release import Release, verified_manifest

    release = Release(folder, verified_manifest(folder))
    with Console(stderr=True).status("drawing pictures"):
        paths = drawing.pictures(release, encoder, (cache or cache_folder()) / "vectors")
    for path in paths:
        typer.echo(str(path))


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2."""
    with reported("builder"):
        app()
