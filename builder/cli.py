"""``python -m builder``: build, verify, export and publish releases. Every command only calls the library."""

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from builder import build_cli, lite_cli
from builder.options import RELEASE, Cache, Folder, Seed, print_result
from eval_kit.errors import UserError, disk_errors, reporting
from eval_kit.options import JsonFile, argument, option
from eval_kit.program import commands
from eval_kit.search.processes import cores

app = commands("Build, verify, export and publish releases.")
app.add_typer(build_cli.app, name="build")


class Format(StrEnum):  # the oldest typer that is allowed knows no literals
    """Formats that a release can be exported to: test sets first, then the examples that trainers read."""

    beir = "beir"
    tevatron = "tevatron"
    sentence_transformers = "sentence-transformers"
    tevatron_train = "tevatron-train"


@app.command()
def beir(
    names: Annotated[
        list[str] | None, argument("Datasets to download, or all: every one that BEIR distributes.", "NAME")
    ] = None,
    out: Annotated[Path, option("The folder to put the datasets' folders in.")] = Path("beir"),
) -> None:
    """List the datasets of BEIR, or download those named.

    Downloads are verified by md5, and an interrupted one resumes. What fails leaves no folder behind.
    Existing folders are kept, even those of datasets that BEIR does not have. The list has size, as in BEIR's Table 1,
    and licence.
    """
    from builder.sources import beir_download
    from eval_kit.console import counting, screen
    from eval_kit.release.beir_suite import dataset_named, datasets
    from eval_kit.tables import terminal

    if not names:
        terminal.show(beir_download.dataset_table(), screen())
    if names == ["all"]:
        names = [name for name, dataset in datasets().items() if dataset.md5]
    at_hand = [name for name in names or [] if name not in datasets() and (out / name).is_dir()]
    downloads = [dataset_named(name) for name in names or [] if name not in at_hand]
    for name in at_hand:
        typer.echo(str(out / name))
    for dataset in downloads:
        with counting(f"downloading {dataset.name}", "bytes") as advance:
            typer.echo(str(beir_download.install(dataset, out, advance)))
        for remark in dataset.remarks:
            typer.echo(f"  remark: {remark}")


@app.command()
def verify(
    release: Annotated[
        str, argument("Release folder to check; with --against, a Hub id will do too.", "RELEASE")
    ] = str(RELEASE),
    against: Annotated[
        str | None,
        option("List what entered, left or moved since this older release instead (folder or Hub id[@revision])."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Check every digest, count and rule. Exit status 1 if one does not hold, or if two releases differ."""
    from builder import diff as comparison
    from builder import verify as verification
    from eval_kit.release import open_release

    if against is not None:
        changes = comparison.diff(open_release(against), open_release(release))
        lines = [line for change in changes for line in change.lines()]
        print_result(list(map(asdict, changes)), lines or ["the releases have the same content"], json_file)
        raise typer.Exit(bool(changes))
    checks = verification.verify(Path(release))
    faults, rows, lines = 0, [], []
    for check in checks:
        faults += bool(check.fault)
        rows.append({"check": check.what, "fault": check.fault or None})
        lines.append(f"WRONG {check.what}: {check.fault}" if check.fault else f"ok    {check.what}")
    answer = f"{release}: {len(checks)} checks, {faults} faults"
    print_result({"folder": release, "faults": faults, "checks": rows}, [answer, *lines], json_file)
    raise typer.Exit(bool(faults))


@app.command()
def export(
    release: Annotated[str, argument("Release to export: folder or Hub id.", "RELEASE")] = str(RELEASE),
    out: Annotated[Path, option("Folder to write the sets to.")] = Path("export"),
    format: Annotated[
        Format, option("Form to write: for evaluation tools, or for a trainer.", None, "--format")
    ] = Format.beir,
    test_set: Annotated[list[str] | None, option("Export only this test set or variation. Repeatable.", "NAME")] = None,
    training_set: Annotated[
        list[str] | None, option("Export these training queries, such as topic.not-c0. Repeatable.", "NAME")
    ] = None,
    passages: Annotated[
        Path | None, option("Write the passages of this file (id, tab, text) as corpus.jsonl.", "TSV")
    ] = None,
    negatives: Annotated[int, option("Number of negatives in each training example.", min=0)] = 1,
    examples: Annotated[
        int, option("Minimum number of training examples; every pair appears once before any appears again.", min=1)
    ] = 1,
    seed: Annotated[int, option("Random seed for drawing the negatives of training examples.", min=0)] = 0,
    strict: Annotated[
        bool, option("Leave the test queries of all shifts out of training queries.", None, "--strict")
    ] = False,
    cache: Cache = None,
    json_file: JsonFile = None,
) -> None:
    """Write test sets or training examples for other tools.

    For BEIR and Tevatron, each set is a folder. For sentence-transformers and Tevatron (tevatron-train), each training
    set becomes one JSON Lines file; the baselines train on the same examples.
    """
    from builder import export as exporting
    from builder import triplets
    from eval_kit.release import open_release
    from eval_kit.search.passages import has_passages

    if passages is not None and format in triplets.FORMATS:
        raise UserError("Only --format beir and tevatron have --passages of their own", do="Leave --passages out")
    opened_release = open_release(release)
    if format in triplets.FORMATS:
        if test_set or not training_set:
            raise UserError(f"--format {format} is for training queries", do="Name them with --training-set")
        rows, lines = [], []
        for name, (shift, part) in exporting.trainable(opened_release, training_set).items():
            file = out / f"{name}.jsonl"
            result = triplets.write(
                opened_release, shift.name, part, file, format, negatives, examples, seed, strict, cache
            )
            rows.append({"file": str(file), **asdict(result)})
            lines.append(f"{file}: {result.examples:,} examples of {name}, sha256 {result.sha256}")
        print_result(rows, lines, json_file)
        return
    folders = exporting.export(opened_release, out, format, test_set or [], training_set or [], passages, strict)
    lines = [f"{out}: {len(folders)} folders in {format} format"]
    if not has_passages(opened_release) and passages is None:
        collection = opened_release.manifest.collection
        where = f"ir_datasets {collection}" if collection else "not in the release"
        lines.append(
            f"  No corpus.jsonl was written, and its loader needs one. The passages are {where}. Add --passages"
        )
    print_result([{"folder": str(folder)} for folder in folders], lines, json_file)


@app.command()
def card(folder: Folder = RELEASE) -> None:
    """Write the dataset card again. It quotes the release's audit."""
    from builder import card as cards
    from builder import reports
    from eval_kit.release import read_manifest

    cards.write(folder)
    typer.echo(f"{folder / cards.CARD}: written")
    for name in reports.read(folder, read_manifest(folder)).outdated:
        typer.echo(f"  Skipped {name}: it describes another version of this release. Make it again")


@app.command()
def publish(
    repo_id: Annotated[str, option("Dataset on the Hub to publish to.", "ORG/NAME", "--repo-id")],
    tag: Annotated[str, option("Tag to make: v and the release's version, such as v1.0.0.")],
    folder: Folder = RELEASE,
    dry_run: Annotated[bool, option("Print what would change, and change nothing.", None, "--dry-run")] = False,
    private: Annotated[bool, option("Create the dataset as private.", None, "--private")] = False,
    allow_partial: Annotated[bool, option("Publish a release that lacks parts.", None, "--allow-partial")] = False,
    with_permission: Annotated[
        list[str] | None,
        option(
            "Publish the lists of this source, which states no licence but whose authors permit it. Repeatable.", "NAME"
        ),
    ] = None,
    without: Annotated[
        list[str] | None, option("Leave out the lists of this source, which states no licence. Repeatable.", "NAME")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Publish a release on the Hub. It uploads the release and tags it last; run it again to finish."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from builder import publish as publishing

    if not sys.stderr.isatty():
        disable_progress_bars()
    publication = publishing.publish(
        folder,
        repo_id,
        tag,
        dry_run=dry_run,
        private=private,
        allow_partial=allow_partial,
        permitted=with_permission or (),
        left_out=without or (),
    )
    print_result(asdict(publication), publication.lines(dry_run), json_file)


@app.command()
def negatives(
    folder: Folder = RELEASE,
    depth: Annotated[int, option("Number of passages that BM25 ranks for a query.", min=1, max=1_000_000)] = 1_000,
    sample: Annotated[int, option("Number of negatives to draw from those passages for each query.", min=1)] = 100,
    seed: Seed = 13,
    threads: Annotated[
        int, option("Number of Java threads; does not change the result.", min=1, max=1024, show_default="all cores")
    ] = cores(),
    cache: Cache = None,
    json_file: JsonFile = None,
) -> None:
    """Add BM25 negatives for every training query. An interrupted draw resumes."""
    from builder import negatives as drawing

    release = drawing.add(folder, drawing.NegativeParameters(depth, sample, seed), cache, threads)
    sizes = release.table(drawing.CONFIG, drawing.SPLIT)["passage_ids"].list.len()
    count, fewer = int(sizes.sum()), int((sizes < sample).sum())
    report = {"folder": str(folder), "queries": len(sizes), "negatives": count, "fewer": fewer}
    line = (
        f"{folder}: {count:,} negatives of {len(sizes):,} queries ({fewer:,} with fewer than {sample}); "
        f"the release's digest is now {release.digest[:16]}"
    )
    print_result(report | {"digest": release.digest}, [line], json_file)


@app.command()
def variations(
    test_set: Annotated[list[str], option("Vary the queries of this test set. Repeatable.", "NAME")],
    folder: Folder = RELEASE,
    texts: Annotated[
        list[Path] | None, option("TSV of query id and your wording. Repeat for more replicas.", "TSV")
    ] = None,
    name: Annotated[str, option("Name of your texts, <family>.<method>, such as typo.mine.")] = "",
    licence: Annotated[str, option("Licence of your texts.")] = "own",
    replicas: Annotated[int, option("Number of draws of each kind of typo.", min=1, max=1_000)] = 1,
    seed: Seed = 13,
) -> None:
    """Add typos, or texts of your own, as query variations.

    A typo is one of five edits of a word.
    """
    from builder import variations as varying

    if texts:
        if len(test_set) > 1:
            raise UserError("--texts is for the queries of one test set", do="Add one --test-set")
        release, names = varying.add_texts(folder, texts, test_set[0], name, licence)
    else:
        release, names = varying.add_typos(folder, test_set, replicas, seed)
    typer.echo("\n".join(names))
    typer.echo(f"{folder}: the release's digest is now {release.digest[:16]}")


@app.command()
def audit(
    folder: Folder = RELEASE,
    json_file: Annotated[
        Path | None,
        option("Write the report here, not to the release's reports/audit.json; '-' prints it.", "FILE", "--json"),
    ] = None,
) -> None:
    """Count the test queries that leak into training.

    By equal or normalised text, as a near-duplicate, or by a shared passage.
    """
    from builder import audit as auditing
    from builder.reports import AUDIT
    from eval_kit.console import as_text, screen, write_json
    from eval_kit.files import atomic
    from eval_kit.release import Release, verified_manifest
    from eval_kit.tables import terminal

    release = Release(folder, verified_manifest(folder))
    path = json_file or folder / AUDIT
    report = auditing.audit(release)
    if json_file is None:
        with disk_errors(path):
            path.parent.mkdir(exist_ok=True)
        atomic.write_inside(folder, AUDIT, as_text(report))
    if not write_json(report, json_file):
        terminal.show(auditing.table(report), screen())
        typer.echo(f"{report['headline']}\n{path}")


for command in (lite_cli.lite, lite_cli.fidelity):
    app.command()(command)


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2."""
    with reporting("builder"):
        app()


if __name__ == "__main__":
    main()
