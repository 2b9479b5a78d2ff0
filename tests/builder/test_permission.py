"""What may be published of a release whose parts have no licence."""

from dataclasses import replace
from pathlib import Path

import pytest
from drafts import small_draft, written
from msgspec import structs

from builder.permission import permitted_part
from builder.release import copy
from builder.verify import verify
from eval_kit.documents import Input, Rule
from eval_kit.errors import UserError
from eval_kit.release import Release, open_release

LONG = "somebody/lists"


def record(id: str, licence: str) -> Input:
    return Input(id=id, url=id, bytes=1, sha256="0" * 64, licence=licence)


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """Two test sets, of which wh.long comes from an unlicensed list."""
    draft = small_draft()
    lists = Rule("theirs", LONG, [f"{LONG}/long.tsv", "licensed/judgements.tsv"])
    [short, long] = draft.test_sets
    draft = replace(
        draft,
        kind="rebuilt",
        built_from="own",
        tables=[*draft.tables, replace(draft.tables[0], config="wh", rule=lists)],
        test_sets=[short, structs.replace(long, name="wh.long", shift="wh", config="wh")],
        inputs=[record(f"{LONG}/long.tsv", "none stated"), record("licensed/judgements.tsv", "MIT")],
    )
    return written(tmp_path / "own-shift", draft)


def published(release: Release, folder: Path, permitted: list[str], left_out: list[str]) -> Release:
    """The part that may be published, written as it is published."""
    part = permitted_part(release.manifest, permitted, left_out)
    copy(release.folder, folder, part, with_reports=part.digest == release.digest)
    assert [check for check in verify(folder) if check.fault] == []
    return open_release(folder)


@pytest.mark.parametrize(
    ("permitted", "left_out", "names"),
    [([], [], LONG), (["licensed/judgements.tsv"], [], "licensed"), ([LONG], [LONG], "both")],
)
def test_an_unlicensed_part_needs_a_word(
    permitted: list[str], left_out: list[str], names: str, release: Release
) -> None:
    with pytest.raises(UserError, match=names):
        permitted_part(release.manifest, permitted, left_out)


def test_with_permission_the_content_is_the_same_and_the_card_says_so(release: Release, tmp_path: Path) -> None:
    whole = published(release, tmp_path / "whole-shift", [LONG], [])
    assert whole.digest == release.digest and (whole.folder / "reports/given.tsv").is_file()
    assert f"- {LONG} states no licence; its authors permit" in (whole.folder / "README.md").read_text()


def test_left_out_is_out_of_tables_test_sets_and_sources_and_listed_as_missing(
    release: Release, tmp_path: Path
) -> None:
    part = published(release, tmp_path / "part-shift", [], [LONG, LONG])
    assert list(part.test_sets) == ["length.short"] and "wh" not in part.configs
    assert part.digest != release.digest and part.manifest.inputs == [] and not (part.folder / "reports").exists()
    assert (part.folder / "README.md").read_text().count(f"> - the parts of {LONG}:") == 1


def test_not_everything_can_be_left_out_and_what_is_licensed_stays_as_it_is(release: Release) -> None:
    manifest = release.manifest
    theirs = [structs.replace(table, rule=manifest.tables[-1].rule) for table in manifest.tables]
    with pytest.raises(UserError, match="no test set"):
        permitted_part(structs.replace(manifest, tables=theirs), [], [LONG])
    licensed = structs.replace(manifest, tables=manifest.tables[:-1])
    assert permitted_part(licensed, [], []) is licensed
