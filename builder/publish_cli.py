"""``python -m builder publish``: put a release on the Hugging Face Hub, and tell what that changed."""

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


def publish(
    repo_id: Annotated[str, typer.Option("--repo-id", metavar="ORG/NAME", help="The dataset on the Hub.")],
    tag: Annotated[str, typer.Option(help="v and the release's version, such as v1.0.0.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A release folder.")] = Path("ms-marco-shift"),
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
