"""``python -m builder`` ``card``, ``pack`` and ``publish``: from a release folder to what others can get."""

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal

from builder.diff import TableDiff
from builder.publish import TIMEOUT_SECONDS, Publication

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A release folder.")]
DEFAULT_FOLDER = Path("ms-marco-shift")


def card(
    folder: Folder = DEFAULT_FOLDER,
    previous: Annotated[
        str | None, typer.Option(help="The version before: folder or Hub id@revision; the card tells what changed.")
    ] = None,
) -> None:
    """Write the card again, with what stands in the release's reports: audit, pictures, version history."""
    from builder import card as cards
    from builder import history, reports
    from eval_kit.release import open_release, read_manifest

    if previous is not None:
        source, revision = (previous, None) if Path(previous).exists() else _at(previous)
        history.write(open_release(folder), open_release(source, revision))
    cards.write(folder)
    typer.echo(f"{folder / cards.CARD}: written")
    for name in reports.read(folder, read_manifest(folder)).outdated:
        typer.echo(f"  remark: left out {name}, which was made of other content; make it again")


def pack(
    folder: Folder = DEFAULT_FOLDER,
    out: Annotated[Path, typer.Option(help="The folder to write the archive to.")] = Path(),
) -> None:
    """Pack a release as one .tar.gz, with a .sha256 beside it; the same release gives the same bytes."""
    from builder.pack import pack as write

    with Console(stderr=True).status(f"packing {folder}"):
        packed = write(folder, out)
    typer.echo(f"{packed.path}: {decimal(packed.path.stat().st_size)}, sha256 {packed.sha256}")


def publish(
    repo_id: Annotated[str, typer.Option("--repo-id", metavar="ORG/NAME", help="The dataset on the Hub.")],
    tag: Annotated[str, typer.Option(help="v and the release's version, such as v1.0.0.")],
    folder: Folder = DEFAULT_FOLDER,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would change.")] = False,
    private: Annotated[bool, typer.Option("--private", help="Create the dataset as a private one.")] = False,
    allow_partial: Annotated[bool, typer.Option("--allow-partial", help="Publish a release that lacks parts.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer of the Hub.")] = TIMEOUT_SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
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
        done = publishing.publish(
            folder, repo_id, tag, dry_run=dry_run, private=private, allow_partial=allow_partial, timeout=timeout
        )
    if as_json:
        typer.echo(json.dumps(asdict(done), ensure_ascii=False))
    else:
        for line in _dry(done) if dry_run and not done.done else _report(done):
            typer.echo(line)


def change_lines(change: TableDiff) -> list[str]:
    """A table's changes for people: a headline, then one line for each query."""
    counts = f"{len(change.entered)} entered, {len(change.left)} left, {len(change.moved)} moved"
    signed = (("+", change.entered), ("-", change.left), ("~", change.moved))
    rows = [f"  {sign} {row}" for sign, rows in signed for row in rows]
    return [f"{change.config}/{change.split}: {change.whole or counts}", *rows]


def _at(previous: str) -> tuple[str, str | None]:
    source, at, revision = previous.partition("@")
    return source, revision if at else None


def _report(done: Publication) -> list[str]:
    if done.done:
        return [f"{done.repo_id}: {done.tag} is published already; nothing to do", *_remarks(done)]
    size, rate = decimal(done.uploaded_bytes), decimal(int(done.uploaded_bytes / done.seconds))
    sent = f"{len(done.changes.uploads)} files, {size} in {done.seconds:.1f} s ({rate}/s)"
    removed = f", {len(done.changes.removed)} removed" if done.changes.removed else ""
    what = sent + removed if done.changes else "nothing to upload"
    return [
        f"{done.repo_id}: published {done.tag} at commit {done.commit}: {what}; checksums agree",
        *_remarks(done),
    ]


def _dry(plan: Publication) -> list[str]:
    lines = [f"{plan.repo_id}: would create the dataset"] if plan.creates else []
    files = [
        *(f"  + {path}" for path in plan.changes.added),
        *(f"  ~ {path}" for path in plan.changes.changed),
        *(f"  - {path}" for path in plan.changes.removed),
    ]
    what = f"commit {len(files)} files ({decimal(plan.uploaded_bytes)} to upload) and tag" if files else "tag main"
    lines += [f"{plan.repo_id}: would {what} {plan.tag}", *files]
    return [*lines, *(line for change in plan.tables for line in change_lines(change)), *_remarks(plan)]


def _remarks(done: Publication) -> list[str]:
    return [f"  remark: {remark}" for remark in done.remarks]
