"""Publish a release folder on the Hugging Face Hub: whole, checked and tagged, or not at all.

The order ensures that a failure at any point leaves nothing half-done that a reader could take for the release:
check the folder → create the dataset → read its head and tags → refuse a tag that exists for other content → one
commit with all additions and removals, on that head → compare the remote checksums → tag. Running the command again
finishes an interrupted publication, or finds nothing to do.
"""

import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal

from builder import reports
from builder.card import CARD, check_card
from builder.diff import TableDiff, diff
from builder.permission import publishable
from builder.release import files
from builder.verify import verify
from eval_kit.documents import VERSION, Manifest
from eval_kit.errors import UserError
from eval_kit.files import hub, strict_json
from eval_kit.files.hub import UNCHANGED
from eval_kit.release import MANIFEST, NAME, Release, open_release, read_manifest

if TYPE_CHECKING:
    from huggingface_hub import HfApi

HUB_FILES = {".gitattributes"}  # the Hub's own; neither deleted nor counted as a difference

COMMITTING = "main is as it was, or holds the whole release; nothing is tagged; run the same command again to finish"
COMMITTED = "main holds the release, without the tag; run the same command again to finish"


@dataclass(frozen=True)
class Changes:
    """How a folder differs from a commit, file by file."""

    added: Sequence[str] = ()
    changed: Sequence[str] = ()
    removed: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    @property
    def uploads(self) -> list[str]:
        """The files to upload."""
        return sorted([*self.added, *self.changed])


@dataclass(frozen=True)
class Publication:
    """What was published, or, in a dry run, what would be.

    ``done`` says that the tag existed for this content already; then nothing was or would be sent. ``tables`` (dry runs
    only) lists how the tables differ from those on main, query by query.
    """

    repo_id: str
    tag: str
    commit: str | None
    changes: Changes = field(default_factory=Changes)
    uploaded_bytes: int = 0
    seconds: float = 0.0
    done: bool = False
    creates: bool = False
    tables: Sequence[TableDiff] = ()
    remarks: Sequence[str] = ()

    def lines(self, dry_run: bool) -> list[str]:
        """What happened, or in a dry run what would happen, as text."""
        if self.done:
            outcome = [f"{self.repo_id}: {self.tag} is published already; nothing to do"]
        else:
            outcome = self._plan() if dry_run else [self._outcome()]
        return [*outcome, *(f"  remark: {remark}" for remark in self.remarks)]

    def _outcome(self) -> str:
        size, rate = decimal(self.uploaded_bytes), decimal(int(self.uploaded_bytes / self.seconds))
        upload = f"{len(self.changes.uploads)} files, {size} in {self.seconds:.1f} s ({rate}/s)"
        removal = f", {len(self.changes.removed)} removed" if self.changes.removed else ""
        what = upload + removal if self.changes else "nothing to upload"
        return f"{self.repo_id}: published {self.tag} at commit {self.commit}: {what}; checksums agree"

    def _plan(self) -> list[str]:
        lines = [f"{self.repo_id}: would create the dataset"] if self.creates else []
        files = []
        for sign, paths in {"+": self.changes.added, "~": self.changes.changed, "-": self.changes.removed}.items():
            files += [f"  {sign} {path}" for path in paths]
        what = f"commit {len(files)} files ({decimal(self.uploaded_bytes)} to upload) and tag" if files else "tag main"
        lines += [f"{self.repo_id}: would {what} {self.tag}", *files]
        for table in self.tables:
            lines += table.lines()
        return lines


def publish(
    folder: Path,
    repo_id: str,
    tag: str,
    *,
    dry_run: bool = False,
    private: bool = False,
    allow_partial: bool = False,
    permitted: Collection[str] = (),
    left_out: Collection[str] = (),
    timeout: float,
) -> Publication:
    """Put the release in ``folder`` on the Hub as dataset ``repo_id``, and ``tag`` it.

    Args:
        repo_id: ``namespace/name``; created if it does not exist.
        tag: ``v`` and the release's version.
        dry_run: change nothing, report what would change.
        private: create the dataset as private; an existing one must be private already.
        allow_partial: publish a release that lacks parts.
        permitted: sources that state no licence, and whose authors permit the publication.
        left_out: such sources whose parts are not published.
        timeout: seconds without an answer after which a request is given up.

    Raises:
        UserError: why it cannot be published, what is on the Hub now, and what to do.
    """
    manifest = check_folder(folder, tag, allow_partial)
    with publishable(folder, manifest, permitted, left_out) as whole, hub.patience(timeout):
        if whole != folder:
            manifest = check_folder(whole, tag, allow_partial=True)
        return _publish(whole, repo_id, tag, dry_run, private, manifest)


def _publish(folder: Path, repo_id: str, tag: str, dry_run: bool, private: bool, manifest: Manifest) -> Publication:
    from huggingface_hub import HfApi

    api = HfApi(library_name=NAME)
    with hub.explaining(repo_id, UNCHANGED):
        if not dry_run:
            hub.check_may_write(repo_id)
            api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True)
        plan = _plan(api, folder, repo_id, tag, private, dry_run, manifest)
    if plan.done:
        return plan
    if dry_run:
        if plan.creates or MANIFEST in plan.changes.added:  # there is no release yet
            return plan
        with hub.explaining(repo_id, UNCHANGED):
            return replace(plan, tables=diff(open_release(repo_id, plan.commit), Release(folder, manifest)))
    start = time.monotonic()
    commit = str(plan.commit)
    if plan.changes:
        with hub.explaining(repo_id, COMMITTING):
            commit = _commit(api, folder, plan, manifest)
    with hub.explaining(repo_id, COMMITTED):
        if differing := compare(api, folder, repo_id, commit):
            raise UserError(
                f"{repo_id}: what the Hub holds at commit {commit} is not what was sent ({_listing(differing)}); "
                "it is not tagged; run the same command again to send those files"
            )
        _tag(api, folder, plan, commit)
    return replace(plan, commit=commit, seconds=time.monotonic() - start)


def check_folder(folder: Path, tag: str, allow_partial: bool) -> Manifest:
    """Check, without the Hub, that the folder is a release fit to be published under ``tag``.

    Raises:
        UserError: naming the first fault.
    """
    manifest = read_manifest(folder)
    if tag != f"v{manifest.version}":
        raise UserError(f"{folder}: holds version {manifest.version}, so its tag is v{manifest.version}, not {tag}")
    if manifest.missing and not allow_partial:
        raise UserError(
            f"{folder}: the release is partial, it lacks {len(manifest.missing)} parts (first "
            f"{manifest.missing[0].what}); build it whole, or publish it as it is with --allow-partial"
        )
    faults = [check for check in verify(folder) if check.fault]
    if faults:
        raise UserError(
            f"{folder}: {len(faults)} checks fail, first {faults[0].what}: {faults[0].fault}; build it again"
        )
    files(folder, manifest)
    if reports_of_old := reports.read(folder, manifest).outdated:
        raise UserError(f"{folder / reports_of_old[0]}: was made from content other than the release's; make it again")
    check_card(folder, manifest)
    return manifest


def compare(api: "HfApi", folder: Path, repo_id: str, revision: str) -> Changes:
    """How the folder differs from what the Hub holds, by the checksums of both."""
    checksums = api.verify_repo_checksums(repo_id, repo_type="dataset", revision=revision, local_dir=folder)
    return Changes(
        added=checksums.extra_paths,
        changed=sorted(mismatch["path"] for mismatch in checksums.mismatches),
        removed=[path for path in checksums.missing_paths if path not in HUB_FILES],
    )


def _plan(
    api: "HfApi", folder: Path, repo_id: str, tag: str, private: bool, dry_run: bool, manifest: Manifest
) -> Publication:
    """Compare the folder with main and with the tag; refuse what must not be replaced."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        if private and not api.dataset_info(repo_id).private:
            raise UserError(f"{repo_id}: is public already; make it private in its settings, or leave out --private")
        refs = api.list_repo_refs(repo_id, repo_type="dataset")
    except RepositoryNotFoundError:
        if not dry_run:
            raise
        paths = files(folder, manifest)
        return Publication(repo_id, tag, None, Changes(added=paths), uploaded_bytes=_size(folder, paths), creates=True)
    tags = {ref.name: ref.target_commit for ref in refs.tags}
    if tag in tags:
        remark = _differences(api, folder, repo_id, tag, tags[tag], manifest)
        return Publication(repo_id, tag, tags[tag], done=True, remarks=[remark] if remark else [])
    head = next(branch.target_commit for branch in refs.branches if branch.name == "main")
    changes = compare(api, folder, repo_id, head)
    _refuse_to_replace(api, folder, repo_id, head, changes, manifest)
    return Publication(repo_id, tag, head, changes, uploaded_bytes=_size(folder, changes.uploads))


def _differences(api: "HfApi", folder: Path, repo_id: str, tag: str, commit: str, manifest: Manifest) -> str:
    """What differs, if only in bytes, from the existing tag, which must not be for other content."""
    differing = compare(api, folder, repo_id, commit)
    if not differing:
        return ""
    manifest_there = _remote_manifest(api, repo_id, commit)
    if manifest_there is None or manifest_there.get("digest") != manifest.digest:
        raise UserError(
            f"{repo_id}: {tag} is published with other content ({_listing(differing)}); a published version never "
            f"changes: give the release a new version; {UNCHANGED}"
        )
    return f"the same content in other bytes ({_listing(differing)}) is published, and stays as it is"


def _refuse_to_replace(
    api: "HfApi", folder: Path, repo_id: str, head: str, changes: Changes, manifest: Manifest
) -> None:
    """Refuse to replace somebody else's files, or a newer version.

    A commit removes whatever is not in the release.
    """
    manifest_there = _remote_manifest(api, repo_id, head)
    if manifest_there is None:
        if foreign := [path for path in changes.removed if path != CARD]:  # the Hub makes one for a new dataset
            more = f" and {len(foreign) - 1} more" if foreign[1:] else ""
            raise UserError(
                f"{repo_id}: holds something else ({foreign[0]}{more}) that publishing would remove; "
                f"name another dataset; {UNCHANGED}"
            )
        return
    version = manifest_there["version"]
    if _number(version) > _number(manifest.version):
        raise UserError(
            f"{repo_id}: holds version {version} already, which is newer than {manifest.version}; "
            f"give the release a higher version; {UNCHANGED}"
        )
    if manifest_there["digest"] == manifest.digest:
        return
    if version == manifest.version:
        raise UserError(
            f"{repo_id}: holds other content as version {version} already; give the release a higher version; "
            f"{UNCHANGED}"
        )


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _remote_manifest(api: "HfApi", repo_id: str, commit: str) -> dict[str, Any] | None:
    """The manifest of the release at a commit; None if there is none of ours."""
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        path = api.hf_hub_download(repo_id, MANIFEST, repo_type="dataset", revision=commit)
        manifest = strict_json.read(Path(path))
    except (RemoteEntryNotFoundError, UserError):
        return None
    ours = isinstance(manifest, dict) and manifest.get("name") == NAME and isinstance(manifest.get("digest"), str)
    return manifest if ours and re.fullmatch(VERSION, str(manifest.get("version"))) else None


def _commit(api: "HfApi", folder: Path, plan: Publication, manifest: Manifest) -> str:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    operations: list[Any] = [
        *(CommitOperationAdd(path, folder / path) for path in plan.changes.uploads),
        *map(CommitOperationDelete, plan.changes.removed),
    ]
    message, description = f"Release {manifest.version}", f"Content digest {manifest.digest}."
    return hub.commit(api, plan.repo_id, "dataset", operations, message, description, str(plan.commit))


def _tag(api: "HfApi", folder: Path, plan: Publication, commit: str) -> None:
    try:
        api.create_tag(plan.repo_id, tag=plan.tag, revision=commit, repo_type="dataset")
    except OSError as error:
        if hub.status(error) != 409:
            raise
        if differing := compare(api, folder, plan.repo_id, plan.tag):
            raise UserError(
                f"{plan.repo_id}: somebody else published other content as {plan.tag} meanwhile "
                f"({_listing(differing)}); give the release a new version"
            ) from error


def _size(folder: Path, files: Sequence[str]) -> int:
    return sum((folder / path).stat().st_size for path in files)


def _listing(changes: Changes) -> str:
    files = [*changes.uploads, *changes.removed]
    return f"{len(files)} files differ, first {files[0]}"
