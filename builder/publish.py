"""Publish a release folder on the Hugging Face Hub: checked, on the head that was read, read back, tagged last.

A tag never moves. Whatever fails before it leaves nothing tagged; the same command again finishes, or finds nothing to
do.
"""

import hashlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from builder import reports
from builder.card import CARD
from builder.permission import permitted_part
from builder.release import copy, files
from builder.verify import verify
from eval_kit.documents import Manifest
from eval_kit.errors import UserError
from eval_kit.files import atomic, hub, strict_json
from eval_kit.release import MANIFEST, NAME, read_manifest
from eval_kit.sentences import counted

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_OF_THE_HUB = {".gitattributes"}
"""Files that every dataset has from the start, and keeps: ``upload_folder`` never deletes them."""

_UNTAGGED = "Nothing is tagged yet. Run the same command again to finish"
_NOTHING_CHANGED = "Nothing was changed"


@dataclass(frozen=True)
class Publication:
    """What was published, or, in a dry run, what would be.

    ``commit`` holds the release; before it is made, main's head (None for a new dataset). Files ``kept`` are on main
    too, and sent where they differ. ``done``: the tag existed for this content already, so that nothing was or would be
    sent.
    """

    repo_id: str
    tag: str
    commit: str | None = None
    added: Sequence[str] = ()
    kept: Sequence[str] = ()
    removed: Sequence[str] = ()
    done: bool = False

    def lines(self, dry_run: bool) -> list[str]:
        """What happened, or in a dry run what would happen, as text."""
        if self.done:
            return [f"{self.repo_id} already has {self.tag}. There is nothing to do"]
        counts = f"{len(self.added)} files added, {len(self.removed)} removed, {len(self.kept)} sent where they differ"
        if not dry_run:
            return [f"{self.repo_id}: published {self.tag} at commit {self.commit}: {counts}"]
        signs = {"+": self.added, "~": self.kept, "-": self.removed}
        listed = [f"  {sign} {path}" for sign, paths in signs.items() for path in paths]
        return [f"{self.repo_id}: would tag {self.tag}: {counts}", *listed]


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
) -> Publication:
    """Put the release in ``folder`` on the Hub as dataset ``repo_id``, and ``tag`` it.

    ``dry_run`` changes nothing and reports what would change. An existing dataset must be ``private`` already. Authors
    permit the publication of sources ``permitted``, which state no licence; parts of sources ``left_out`` are not
    published.
    """
    manifest = read_manifest(folder)
    if tag != f"v{manifest.version}":
        raise UserError(f"{folder} is version {manifest.version}, whose tag is v{manifest.version}, not {tag}")
    if manifest.missing and not allow_partial:
        raise UserError(
            f"{folder} is a partial release",
            f"It lacks {counted(len(manifest.missing), 'part')}, such as {manifest.missing[0].what}",
            "Build it whole, or publish it as it is with --allow-partial",
        )
    try:
        part = permitted_part(manifest, permitted, left_out)
    except UserError as error:
        raise UserError(f"Could not publish {folder}", f"{error}") from error
    with atomic.lock(folder.resolve()):
        ids = _ids(folder, manifest)  # before it is verified: what changes later is another file
        if faults := [check for check in verify(folder) if check.fault]:
            raise UserError(
                f"{counted(len(faults), 'check')} of {folder} {'fails' if len(faults) == 1 else 'fail'}",
                f"The first is {faults[0].what}: {faults[0].fault}",
                "Build it again",
            )
        if outdated := reports.read(folder, manifest).outdated:
            raise UserError(f"{folder / outdated[0]} describes another version of the release", do="Make it again")
        if part == manifest:
            return _publish(folder, part, ids, repo_id, tag, dry_run, private)
        with TemporaryDirectory() as temporary:
            whole = Path(temporary) / folder.resolve().name
            copy(folder, whole, part, with_reports=part.digest == manifest.digest)
            return _publish(whole, part, _ids(whole, part), repo_id, tag, dry_run, private)


def _ids(folder: Path, manifest: Manifest) -> dict[str, set[str]]:
    """What git and LFS call the content of each file of a release; nothing for one that is missing."""
    ids: dict[str, set[str]] = {name: set() for name in files(folder, manifest)}
    for name in ids:
        with suppress(OSError):  # verify says so
            data = (folder / name).read_bytes()
            ids[name] = {hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(), hashlib.sha256(data).hexdigest()}
    return ids


def _publish(
    folder: Path, manifest: Manifest, ids: dict[str, set[str]], repo_id: str, tag: str, dry_run: bool, private: bool
) -> Publication:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api, paths, state = HfApi(library_name=NAME), list(ids), _NOTHING_CHANGED
    try:
        if not dry_run:
            made = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True).repo_id
            if made != repo_id:
                raise UserError(f"The Hub calls {repo_id} by another name, {made}", do="Use that name")
            state = _UNTAGGED
        plan = _plan(api, manifest, paths, repo_id, tag, private)
        if dry_run or plan.done:
            return plan
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            repo_type="dataset",
            allow_patterns=paths,
            delete_patterns="*",
            commit_message=f"Release {manifest.version}",
            commit_description=f"Content digest {manifest.digest}.",
            parent_commit=plan.commit,
        ).oid
        tree = api.list_repo_tree(repo_id, recursive=True, revision=commit, repo_type="dataset")
        held = {each.path: each.lfs.sha256 if each.lfs else each.blob_id for each in tree if isinstance(each, RepoFile)}
        if wrong := sorted(path for path in {*ids, *held} - _OF_THE_HUB if held.get(path) not in ids.get(path, ())):
            raise UserError(f"{repo_id} does not hold the release that was verified: {wrong[0]} differs", state)
        api.create_tag(repo_id, tag=tag, revision=commit, repo_type="dataset")
        if _tags(api, repo_id).get(tag) != commit:
            raise UserError(f"The Hub did not keep the tag of {repo_id}", state)
        return replace(plan, commit=commit)
    except UserError:
        raise
    except Exception as error:  # the client raises errors of every kind, where an answer is not the Hub's too
        if (why := hub.reason(error)) is None:
            why, state = hub.UNREADABLE, _UNTAGGED
        state = state.partition(".")[0] if why == hub.TOO_LARGE else state  # again, it would be too
        raise UserError(f"Could not publish {repo_id}", why, state) from error


def _plan(api: "HfApi", manifest: Manifest, paths: list[str], repo_id: str, tag: str, private: bool) -> Publication:
    """What to do to the dataset as it is; refuses to replace what must not be replaced."""
    if not api.repo_exists(repo_id, repo_type="dataset"):
        return Publication(repo_id, tag, added=paths)
    info = api.dataset_info(repo_id)
    if private and not info.private:
        raise UserError(f"{repo_id} is already public", do="Make it private in its settings, or leave out --private")
    tags = _tags(api, repo_id)
    if tag in tags:
        if _published(api, repo_id, tags[tag])[1] != manifest.digest:
            raise UserError(
                f"{repo_id} has {tag} with other content, and a published version never changes",
                _NOTHING_CHANGED,
                "Give the release a new version",
            )
        return Publication(repo_id, tag, tags[tag], done=True)
    version, _ = _published(api, repo_id, str(info.sha))
    there = {file.rfilename for file in info.siblings or ()} - _OF_THE_HUB
    # an upload that was cut off may have left some of the release's files; the Hub makes a card for a new dataset
    if not version and (foreign := sorted(there - {CARD, *paths})):
        raise UserError(
            f"{repo_id} contains {foreign[0]}, which publishing would remove",
            _NOTHING_CHANGED,
            "Choose another dataset",
        )
    if _number(version) > _number(manifest.version):
        raise UserError(
            f"{repo_id} has version {version}, which is newer than {manifest.version}",
            _NOTHING_CHANGED,
            "Give the release a higher version",
        )
    added, kept = sorted(set(paths) - there), sorted(there.intersection(paths))
    return Publication(repo_id, tag, info.sha, added, kept, sorted(there.difference(paths)))


def _tags(api: "HfApi", repo_id: str) -> dict[str, str]:
    """The commit of each tag."""
    return {ref.name: ref.target_commit for ref in api.list_repo_refs(repo_id, repo_type="dataset").tags}


def _published(api: "HfApi", repo_id: str, commit: str) -> tuple[str, str]:
    """Version and digest of the release at a commit; both empty if there is none of ours."""
    from huggingface_hub.errors import EntryNotFoundError

    try:
        document = strict_json.read(Path(api.hf_hub_download(repo_id, MANIFEST, repo_type="dataset", revision=commit)))
    except (EntryNotFoundError, UserError):
        return "", ""
    ours = isinstance(document, dict) and document.get("name") == NAME
    return (str(document["version"]), str(document["digest"])) if ours else ("", "")


def _number(version: str) -> tuple[int, ...]:
    """A version as numbers, which compare as versions do."""
    return tuple(map(int, version.split("."))) if version else ()
