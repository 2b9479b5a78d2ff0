"""``python -m builder``: build, verify, diff, export and publish releases. Every command only calls the library."""

import json
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
from eval_kit import output
from eval_kit.errors import UserError, printable, reported
from eval_kit.options import JsonFile, PageFile, PrintedFormat
from eval_kit.program import Program
from eval_kit.search.processes import cores

app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Build, verify, compare, export and publish releases.",
)
Folder = Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder.")]
Cache = Annotated[
    Path | None, typer.Option(help="Folder for the index and unfinished work. Default: the user's cache folder.")
]
DEFAULT = Path("ms-marco-shift")


class Format(StrEnum):
    """Formats that a release can be exported to."""

    beir = "beir"
    trec = "trec"
    pyserini = "pyserini"
    tevatron = "tevatron"


class Trainer(StrEnum):
    """Trainers whose training files can be written."""

    sentence_transformers = "sentence-transformers"
    tevatron = "tevatron"
    pylate = "pylate"
    flag_embedding = "flag-embedding"
    colbert = "colbert"


app.add_typer(build_cli.app, name="build")
app.add_typer(beir_cli.app, name="beir")


@app.command()
def fidelity(
    release: Annotated[str, typer.Argument(help="A rebuilt release, or one with the judgements of --pool's runs.")],
    against: Annotated[str | None, typer.Option(help="The published release: folder or Hub id.")] = None,
    pool: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="A run over all passages whose best are in a pool. Repeatable."),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="A run over all passages of a system that is not in the pool. Repeatable."),
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="How many of each run's best the pool holds.")] = 100,
    out: Annotated[Path | None, typer.Option(help="Write the page (Markdown) to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Compare a rebuilt release with the published one, or systems on a pool with the same on all passages."""
    from builder.fidelity import compare
    from builder.pool import measure_fidelity, read_systems
    from eval_kit.console import screen
    from eval_kit.files import atomic
    from eval_kit.release import open_release

    if (against is None) == (not pool):
        raise UserError("give --against for a rebuilt release, or --pool for a pool of runs")
    opened = open_release(release)
    if pool:
        contributors = read_systems(pool, opened)
        systems = contributors | read_systems(run or [], opened)
        measured = measure_fidelity(systems, opened, list(contributors), depth)
        if out is not None:
            atomic.write_text(out, measured.to_markdown())
        if as_json:
            typer.echo(json.dumps(measured.as_json()))
        else:
            measured.show(screen())
        return
    with Console(stderr=True).status("comparing the releases"):
        report = compare(opened, open_release(against))
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
    """Recompute every digest, count and rule. Exit status 1 if one does not hold."""
    from builder import verify as verification

    checks = verification.verify(folder)
    faults = [check for check in checks if check.fault]
    if as_json:
        rows = [{"check": check.what, "fault": check.fault or None} for check in checks]
        typer.echo(json.dumps({"folder": str(folder), "faults": len(faults), "checks": rows}))
    else:
        for check in checks:
            said = f"{'WRONG' if check.fault else 'ok   '} {check.what}{': ' + check.fault if check.fault else ''}"
            typer.echo(printable(said))
        typer.echo(f"{folder}: {len(checks)} checks, {len(faults)} faults")
    if faults:
        raise typer.Exit(1)


@app.command()
def diff(
    old: Annotated[str, typer.Argument(help="The old release: folder or Hub id.")],
    new: Annotated[str, typer.Argument(help="The new release: folder or Hub id.")],
    summary: Annotated[bool, typer.Option("--summary", help="Print only the counts, one line per table.")] = False,
    as_json: Json = False,
) -> None:
    """List the queries that entered, left or moved. Exit status 1 if anything differs."""
    from builder import diff as comparison
    from eval_kit.release import open_release

    changes = comparison.diff(open_release(old), open_release(new))
    if as_json:
        typer.echo(json.dumps([asdict(change) for change in changes]))
    elif changes:
        for change in changes:
            typer.echo("\n".join(map(printable, [change.headline] if summary else change.lines())))
    else:
        typer.echo("the releases have the same content")
    if changes:
        raise typer.Exit(1)


@app.command()
def export(
    release: Annotated[str, typer.Argument(help="A release: folder or Hub id.")] = "ms-marco-shift",
    out: Annotated[Path, typer.Option(help="Folder to write the test sets to.")] = Path("export"),
    format: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.beir,
    test_set: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Export only this test set or variation. Repeatable.")
    ] = None,
    training_set: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Export these training queries, such as topic.not-c0. Repeatable."),
    ] = None,
    passages: Annotated[
        Path | None,
        typer.Option(metavar="TSV", help="Write the passages of this file (id, tab, text) as corpus.jsonl."),
    ] = None,
) -> None:
    """Write the test sets for BEIR, Tevatron, TREC's tools or Pyserini, a folder for each."""
    from builder import export as exporting
    from eval_kit.release import open_release

    if passages is not None and format.value not in exporting.WITH_PASSAGES:
        raise UserError("--passages is for --format beir and tevatron; topics and qrels have no passages")
    opened = open_release(release)
    folders = exporting.export(opened, out, format.value, test_set or [], training_set or [], passages)
    typer.echo(f"{out}: {len(folders)} folders in {format.value} format")
    if format.value in exporting.WITH_PASSAGES and "passages" not in opened.configs and passages is None:
        typer.echo(
            f"  no corpus.jsonl, which its loader needs: the passages are ir_datasets "
            f"{opened.manifest['collection']}; --passages collection.tsv writes them"
        )


@app.command()
def card(
    folder: Folder = DEFAULT,
    previous: Annotated[
        str | None, typer.Option(help="The previous version, to list what changed: folder or Hub id@revision.")
    ] = None,
) -> None:
    """Write the dataset card again. It quotes the release's reports: audit, pictures, version history."""
    from builder import card as cards
    from builder import history, reports
    from eval_kit.release import open_release, read_manifest

    if previous is not None:
        source, _, revision = (previous, "", "") if Path(previous).exists() else previous.partition("@")
        history.write(open_release(folder), open_release(source, revision or None))
    cards.write(folder)
    typer.echo(f"{folder / cards.CARD}: written")
    for name in reports.read(folder, read_manifest(folder)).outdated:
        typer.echo(f"  remark: left out {name}, which was made from other content; make it again")


@app.command()
def pack(
    folder: Folder = DEFAULT,
    out: Annotated[Path, typer.Option(help="The folder to write the archive to.")] = Path(),
) -> None:
    """Pack a release as one archive, with its sha256. The same release gives the same bytes."""
    from builder import pack as packing

    with Console(stderr=True).status(f"packing {folder}"):
        packed = packing.pack(folder, out)
    typer.echo(f"{packed.path}: {decimal(packed.path.stat().st_size)}, sha256 {packed.sha256}")


@app.command()
def publish(
    repo_id: Annotated[str, typer.Option("--repo-id", metavar="ORG/NAME", help="The dataset on the Hub.")],
    tag: Annotated[str, typer.Option(help="The tag: v and the release's version, such as v1.0.0.")],
    folder: Folder = DEFAULT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would change.")] = False,
    private: Annotated[bool, typer.Option("--private", help="Create the dataset as private.")] = False,
    allow_partial: Annotated[bool, typer.Option("--allow-partial", help="Publish a release that lacks parts.")] = False,
    with_permission: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A source without a licence whose authors permit it. Repeatable."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A source without a licence to leave out. Repeatable.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer from the Hub.")] = 120.0,
    as_json: Json = False,
) -> None:
    """Publish a release on the Hub. It makes one commit, checks it and tags it; run it again to finish."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from builder import publish as publishing

    warnings.filterwarnings("ignore", message="Not enough free disk space")  # the error says so too
    if not sys.stderr.isatty():
        disable_progress_bars()
    with Console(stderr=True).status(f"publishing {folder} as {repo_id}") as status:
        if not dry_run:
            status.stop()  # the Hub's own bars show bytes and rate
        publication = publishing.publish(
            folder,
            repo_id,
            tag,
            dry_run=dry_run,
            private=private,
            allow_partial=allow_partial,
            permitted=with_permission or (),
            left_out=without or (),
            timeout=timeout,
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
    depth: Annotated[int, typer.Option(min=1, help="How many of each ranker's best to keep for a test query.")] = 100,
    pool: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Keep the best of this run over all passages too, beside BM25's. Repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing the other passages.")] = 13,
    queries: Annotated[
        int | None,
        typer.Option(min=1, show_default="all", help="Queries to keep of each test set, without training data."),
    ] = None,
    collection: Annotated[
        Path | None,
        typer.Option(metavar="DIR|TSV", help="Keep the test sets that can be searched in these passages, whole."),
    ] = None,
    shift: Annotated[list[str] | None, typer.Option(help="Only test sets of this shift. Repeatable.")] = None,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Write a release with part of the passages. Judged ones, rankers' best for the test queries, a random sample."""
    from builder.lite import make, of_passages
    from builder.release import summary
    from eval_kit.release import open_release

    source, shifts, rankers = open_release(str(folder)), shift or (), pool or ()
    if collection is not None:
        manifest = of_passages(source, collection, out, shifts)
    else:
        manifest = make(source, out, passages, depth, seed, cache, queries=queries, shifts=shifts, rankers=rankers)
    if as_json:
        typer.echo(json.dumps(manifest, ensure_ascii=False))
    else:
        typer.echo("\n".join(summary(out, manifest)))


@app.command()
def negatives(
    folder: Folder = DEFAULT,
    depth: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Number of passages that BM25 ranks for a query.")
    ] = 1_000,
    sample: Annotated[int, typer.Option(min=1, help="Number of those to draw.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of the draw.")] = 13,
    threads: Annotated[
        int,
        typer.Option(
            min=1, max=1024, show_default="all cores", help="Number of Java threads; does not change the result."
        ),
    ] = cores(),
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Add BM25 negatives for every training query. An interrupted draw resumes."""
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
def triplets(
    shift: Annotated[str, typer.Option(help="topic, wh, length, resttest, restrain, or all (nothing held out).")],
    held_out: Annotated[
        str, typer.Option(metavar="NAME", help="What training holds out, such as c0; for restrain, the set trained on.")
    ],
    folder: Folder = DEFAULT,
    format: Annotated[Trainer, typer.Option("--format", help="Trainer to write for.")] = Trainer.sentence_transformers,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("triplets.jsonl"),
    negatives: Annotated[int, typer.Option(min=0, help="Number of negatives in an example.")] = 1,
    examples: Annotated[
        int, typer.Option(min=1, help="Minimum number of examples; all pairs appear once, then all again.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the draw of negatives.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Leave out the test queries of all shifts.")] = False,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Write training examples for other trainers. Our own cells train on the same examples. One JSON line each."""
    from builder import triplets as writing
    from eval_kit.release import Release, verified_manifest
    from eval_kit.shifts import TRAINED_FOR

    if shift not in TRAINED_FOR:
        raise UserError(f"--shift {shift}: there is no such shift; there are {', '.join(TRAINED_FOR)}")
    release = Release(folder, verified_manifest(folder))
    written = writing.write(release, shift, held_out, out, format.value, negatives, examples, seed, strict, cache)
    if as_json:
        typer.echo(json.dumps({"file": str(out), **asdict(written)}))
    else:
        typer.echo(f"{out}: {written.examples:,} examples of {shift} without {held_out}, sha256 {written.sha256}")


@app.command()
def typos(
    test_set: Annotated[
        list[str], typer.Option(metavar="NAME", help="Mistype the queries of this test set. Repeatable.")
    ],
    folder: Folder = DEFAULT,
    replicas: Annotated[int, typer.Option(min=1, max=1_000, help="Number of draws of each kind of typo.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of the draws.")] = 13,
) -> None:
    """Add five kinds of typo as variations. One word of each query is mistyped."""
    from builder import typos as mistyping

    release = mistyping.add(folder, test_set, replicas, seed)
    for name, variation in release.variations.items():
        if variation.source == mistyping.SOURCE:
            typer.echo(name)
    typer.echo(f"{folder}: the release's digest is now {release.digest[:16]}")


@app.command()
def wordings(
    file: Annotated[Path, typer.Argument(metavar="TSV", help="Query ids of the test set, each with another wording.")],
    base: Annotated[str, typer.Option(help="The test set that is reworded.")],
    name: Annotated[str, typer.Option(help="<family>.<method>, such as typo.mine.")],
    folder: Annotated[Path, typer.Option("--release", help="The release to add them to.")] = DEFAULT,
    replica: Annotated[int, typer.Option(min=1, help="Number of the draw, for several files of one method.")] = 1,
    licence: Annotated[str, typer.Option(help="Licence of the wordings.")] = "own",
) -> None:
    """Add your own wordings of a test set's queries as a variation."""
    from builder.wordings import add

    release = add(folder, file, base, name, replica, licence)
    typer.echo(f"{base}.{name}.{replica}")
    typer.echo(f"{folder}: the release's digest is now {release.digest[:16]}")


@app.command()
def describe(
    folder: Folder = DEFAULT,
    against: Annotated[
        Path | None, typer.Option(help="A reference log, or another release: how far the queries are from its own.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of the draws.")] = 13,
    format: PrintedFormat = output.Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
) -> None:
    """Say what the parts of a release are about: sizes, typical words, ten queries of each, near duplicates."""
    from builder.describe import describe as described

    output.emit(described(folder, against, seed), format=format, json=json_file, page=page)


@app.command()
def audit(
    folder: Folder = DEFAULT,
    near: Annotated[
        float | None,
        typer.Option(help="Minimum cosine of near-duplicate queries. Default: as measured in docs/audit.md."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the report to this file. Default: reports/audit.json in the release.")
    ] = None,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Print shared passages as in CIKM 2022, Table 3, beside the paper's, instead."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Count the test queries that leak into training. By equal or normalised text, near-duplicate or shared passage."""
    from builder import audit as auditing
    from builder import shared_passages
    from builder.reports import AUDIT
    from eval_kit.console import screen
    from eval_kit.files import atomic
    from eval_kit.release import Release, verified_manifest
    from eval_kit.stats.leaks import NEAR

    release = Release(folder, verified_manifest(folder))
    if paper:
        document = shared_passages.shared(release)
        if as_json:
            typer.echo(json.dumps(document, indent=1))
        else:
            screen().print(shared_passages.layout(document))
        return
    path = out or folder / AUDIT
    report = auditing.audit(release, NEAR if near is None else near)
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    if out is None:
        path.parent.mkdir(exist_ok=True)
    atomic.write_text(path, text)
    if as_json:
        typer.echo(text, nl=False)
    else:
        screen().print(auditing.table(report))
        typer.echo(f"{report['headline']}\n{path}")


@app.command()
def pictures(
    folder: Folder = DEFAULT,
    encoder: Annotated[
        str, typer.Option(help="lsa, or a model (Hub id or folder; append :cls for the bare [CLS]).")
    ] = "lsa",
    cache: Cache = None,
) -> None:
    """Draw similarities as a heatmap, and topics as a map. The pictures go into the release's reports/."""
    from builder import pictures as drawing
    from eval_kit.release import Release, verified_manifest
    from eval_kit.search.cache import cache_folder

    release = Release(folder, verified_manifest(folder))
    with Console(stderr=True).status("drawing pictures"):
        paths = drawing.pictures(release, encoder, (cache or cache_folder()) / "vectors")
    for path in paths:
        typer.echo(str(path))


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2."""
    with reported("builder"):
        try:
            app()
        except ModuleNotFoundError as error:
            raise UserError(
                f"a package that this command needs is missing: {error}; run: pip install '.[builder]'"
            ) from error


if __name__ == "__main__":
    main()
