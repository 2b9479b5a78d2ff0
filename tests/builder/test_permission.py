"""What may be published of a release whose parts have no licence."""

from dataclasses import replace
from pathlib import Path

import pytest
from drafts import small_draft
from msgspec import structs

from builder import release as releases
from builder.permission import publishable
from builder.verify import verify
from eval_kit.documents import Input, Rule
from eval_kit.errors import UserError
from eval_kit.release import open_release, read_manifest

LONG = "somebody/lists"


def record(id: str, licence: str) -> Input:
    return Input(id=id, url=id, bytes=1, sha256="0" * 64, licence=licence)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two test sets of one draft, of which that of the validation table comes from an unlicensed list."""
    draft = small_draft()
    lists = Rule("theirs", LONG, [f"{LONG}/long.tsv", "licensed/judgements.tsv"])
    table = replace(draft.tables[0], config="wh", rule=lists)
    [short, long] = draft.test_sets
    draft = replace(
        draft,
        kind="rebuilt",
        built_from="own",
        tables=[*draft.tables, table],
        test_sets=[short, structs.replace(long, name="wh.long", shift="wh", config="wh")],
        inputs=[record(f"{LONG}/long.tsv", "none stated"), record("licensed/judgements.tsv", "MIT")],
    )
    releases.write(draft, tmp_path / "own-shift")
    return tmp_path / "own-shift"


def test_an_unlicensed_part_needs_a_word(folder: Path) -> None:
    manifest = read_manifest(folder)
    for permitted, left_out, words in (
        ([], [], f"no licence is stated by {LONG}"),
        (["licensed/judgements.tsv"], [], "is no source without a stated licence"),
        ([LONG], [LONG], "is both permitted and left out"),
    ):
        with pytest.raises(UserError, match=words), publishable(folder, manifest, permitted, left_out):
            pass


def test_with_permission_the_content_is_the_same_and_the_card_says_so(folder: Path) -> None:
    with publishable(folder, read_manifest(folder), [LONG], []) as whole:
        assert [check for check in verify(whole) if check.fault] == []
        assert open_release(whole).digest == open_release(folder).digest and whole.name == folder.name
        assert f"- {LONG} states no licence; its authors permit" in (whole / "README.md").read_text()
        assert (whole / "reports/note.tsv").is_file()
    assert not whole.exists()


def test_left_out_is_out_of_tables_test_sets_and_sources_and_listed_as_missing(folder: Path) -> None:
    with publishable(folder, read_manifest(folder), [], [LONG, LONG]) as part:
        assert [check for check in verify(part) if check.fault] == []
        release = open_release(part)
        assert list(release.test_sets) == ["length.short"] and "wh" not in release.configs
        assert release.digest != read_manifest(folder).digest
        assert release.manifest.inputs == [] and not (part / "reports").exists()
        assert (part / "README.md").read_text().count(f"> - the parts of {LONG}:") == 1


def test_not_everything_can_be_left_out_and_what_is_licensed_stays_as_it_is(folder: Path) -> None:
    manifest = read_manifest(folder)
    theirs = [structs.replace(table, rule=manifest.tables[-1].rule) for table in manifest.tables]
    with (
        pytest.raises(UserError, match="no test set is left"),
        publishable(folder, structs.replace(manifest, tables=theirs), [], [LONG]),
    ):
        pass
    with publishable(folder, structs.replace(manifest, tables=manifest.tables[:-1]), [], []) as whole:
        assert whole == folder
