"""Publish a release folder on the Hugging Face Hub: checked, in one commit on the head that was read, tagged last.

A tag never moves. Whatever fails before it leaves main as it was, or holding the whole release; the same command again
finishes, or finds nothing to do.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from builder import reports
from builder.card import CARD
from builder.permission import publishable
from builder.release import files
from builder.verify import verify
from eval_kit.documents import Manifest
from eval_kit.errors import UserError
from eval_kit.files import hub, strict_json
from eval_kit.release import MANIFEST, NAME, read_manifest

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_OF_THE_HUB = {".gitattributes"}
"""Files that every dataset has from the start, and keeps."""


@dataclass(frozen=True)
class Publication:
    """What was published, or, in a dry run, what would be.

    Attributes:
        commit: the one that holds the release; before it is made, main's head (None if that is not known).
        kept: the release's files that main has too, and that are sent where they differ.
        done: the tag existed for this content already; nothing was or would be sent.
        remark: what a dry run could not find out.
    """

    repo_id: str
    tag: str
    commit: str | None = None
    added: Sequence[str] = ()
    kept: Sequence[str] = ()
    removed: Sequence[str] = ()
    done: bool = False
    remark: str = ""

    def lines(self, dry_run: bool) -> list[str]:
        """What happened, or in a dry run what would happen, as text."""
        if self.done:
            return [f"{self.repo_id}: {self.tag} is published already; nothing to do"]
        counts = f"{len(self.added)} files added, {len(self.removed)} removed, {len(self.kept)} sent where they differ"
        if not dry_run:
            return [f"{self.repo_id}: published {self.tag} at commit {self.commit}: {counts}"]
        lines = [f"{self.repo_id}: would tag {self.tag}: {counts}"]
        for sign, paths in {"+": self.added, "~": self.kept, "-": self.removed}.items():
            lines += [f"  {sign} {path}" for path in paths]
        return [*lines, f"  remark: {self.remark}"] if self.remark else lines


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

    Args:
        repo_id: ``namespace/name``; created if it does not exist.
        tag: ``v`` and the release's version.
        dry_run: change nothing, report what would change; also where the Hub cannot be asked.
        private: create the dataset as private; an existing one must be private already.
        allow_partial: publish a release that lacks parts.
        permitted: sources that state no licence, and whose authors permit the publication.
        left_out: such sources whose parts are not published.

    Raises:
        UserError: why it cannot be published, what is on the Hub now, and what to do.
    """
    manifest = read_manifest(folder)
    if tag != f"v{manifest.version}":
        raise UserError(f"{folder}: holds version {manifest.version}, so its tag is v{manifest.version}, not {tag}")
    if manifest.missing and not allow_partial:
        raise UserError(
            f"{folder}: the release is partial, it lacks {len(manifest.missing)} parts (first "
            f"{manifest.missing[0].what}); build it whole, or publish it as it is with --allow-partial"
        )
    with publishable(folder, manifest, permitted, left_out) as whole:
        _check(whole, folder)
        return _publish(whole, repo_id, tag, dry_run, private)


def _check(whole: Path, folder: Path) -> None:
    faults = [check for check in verify(whole) if check.fault]
    if faults:
        what = f"{len(faults)} checks fail, first {faults[0].what}: {faults[0].fault}; build it again"
        raise UserError(f"{folder}: {what.replace(str(whole), str(folder))}")
    if outdated := reports.read(whole, read_manifest(whole)).outdated:
        raise UserError(f"{folder / outdated[0]}: was made from content other than the release's; make it again")


def _publish(folder: Path, repo_id: str, tag: str, dry_run: bool, private: bool) -> Publication:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api, manifest = HfApi(library_name=NAME), read_manifest(folder)
    paths, state = files(folder, manifest), "nothing was changed"
    try:
        if not dry_run:
            repo_id = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True).repo_id
        plan = _plan(api, manifest, paths, Publication(repo_id, tag, added=paths), private)
        if dry_run or plan.done:
            return plan
        state = "nothing is tagged; run the same command again to finish"
        commit = str(plan.commit)
        if plan.added or plan.kept:
            additions = [CommitOperationAdd(path, folder / path) for path in paths]
            commit = api.create_commit(
                repo_id,
                [*additions, *map(CommitOperationDelete, plan.removed)],
                commit_message=f"Release {manifest.version}",
                commit_description=f"Content digest {manifest.digest}.",
                repo_type="dataset",
                parent_commit=commit,
            ).oid
        api.create_tag(repo_id, tag=tag, revision=commit, repo_type="dataset")
        return replace(plan, commit=commit)
    except UserError:
        raise
    except Exception as error:  # the client raises errors of every kind
        if (why := hub.reason(error)) is None:
            raise
        if not dry_run:
            raise UserError(f"{repo_id}: {why}; {state}") from error
        remark = f"the Hub could not be asked ({why}); whatever else it holds would be removed"
        return Publication(repo_id, tag, added=paths, remark=remark)


def _plan(api: "HfApi", manifest: Manifest, paths: list[str], new: Publication, private: bool) -> Publication:
    """What to do to the dataset as it is; refuses to replace what must not be replaced."""
    repo_id, tag = new.repo_id, new.tag
    if not api.repo_exists(repo_id, repo_type="dataset"):
        return new
    if private and not api.dataset_info(repo_id).private:
        raise UserError(f"{repo_id}: is public already; make it private in its settings, or leave out --private")
    refs = api.list_repo_refs(repo_id, repo_type="dataset")
    tags = {ref.name: ref.target_commit for ref in refs.tags}
    if tag in tags:
        if _published(api, repo_id, tags[tag])[1] != manifest.digest:
            raise UserError(
                f"{repo_id}: {tag} is published with other content, and a published version never changes; "
                "give the release a new version; nothing was changed"
            )
        return Publication(repo_id, tag, tags[tag], done=True)
    head = next(branch.target_commit for branch in refs.branches if branch.name == "main")
    version, digest = _published(api, repo_id, head)
    if digest == manifest.digest:  # an earlier run was cut off before its tag
        return Publication(repo_id, tag, head)
    there = set(api.list_repo_files(repo_id, repo_type="dataset", revision=head)) - _OF_THE_HUB
    if foreign := sorted(there - {CARD}) if not version else []:  # the Hub makes a card for a new dataset
        raise UserError(
            f"{repo_id}: holds something else ({foreign[0]}), which publishing would remove; name another dataset; "
            "nothing was changed"
        )
    if _number(version) > _number(manifest.version):
        raise UserError(
            f"{repo_id}: holds version {version} already, which is newer than {manifest.version}; give the release "
            "a higher version; nothing was changed"
        )
    added, kept = sorted(set(paths) - there), sorted(there.intersection(paths))
    return Publication(repo_id, tag, head, added, kept, sorted(there.difference(paths)))


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
