"""What may be published of a release whose parts have no licence."""

from dataclasses import replace
from pathlib import Path

import pytest
from drafts import small_draft
from msgspec import structs

from builder import release as releases
from builder.permission import publishable
from builder.publish import check_folder
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
    judgements = "licensed/judgements.tsv"
    for permitted, left_out, words in (
        ([], [], f"{LONG}, the source of wh, states no licence; say of each --with-permission NAME"),
        ([judgements], [], f"is no source without a stated licence; those that do not are {LONG}"),
        ([LONG], [LONG], "is both permitted and left out"),
    ):
        with pytest.raises(UserError, match=words), publishable(folder, read_manifest(folder), permitted, left_out):
            pass


def test_the_parts_of_an_unlicensed_source_are_named_in_the_same_order_at_every_run(folder: Path) -> None:
    manifest = read_manifest(folder)
    tables = [structs.replace(manifest.tables[-1], config=name) for name in ("wh", "length", "topic", "given")]
    of_one_source = structs.replace(manifest, tables=tables)
    words = f"{LONG}, the source of given, length, topic, wh, states"
    with pytest.raises(UserError, match=words), publishable(folder, of_one_source, [], []):
        pass


def test_with_permission_the_content_is_the_same_and_the_card_says_so(folder: Path) -> None:
    with publishable(folder, read_manifest(folder), [LONG], []) as whole:
        check_folder(whole, "v1.0.0", allow_partial=False)
        assert open_release(whole).digest == open_release(folder).digest and whole.name == folder.name
        assert f"- {LONG} states no licence; its authors permit" in (whole / "README.md").read_text()
        assert (whole / "reports/note.tsv").is_file()
    assert not whole.exists()


def test_left_out_is_out_of_tables_test_sets_and_sources_and_listed_as_missing(folder: Path) -> None:
    with publishable(folder, read_manifest(folder), [], [LONG, LONG]) as part:
        check_folder(part, "v1.0.0", allow_partial=True)
        release = open_release(part)
        assert list(release.test_sets) == ["length.short"] and "wh" not in release.configs
        assert release.digest != read_manifest(folder).digest
        assert release.manifest.inputs == [] and not (part / "reports").exists()
        assert (part / "README.md").read_text().count(f"> - the parts of {LONG}:") == 1


def test_a_collection_of_no_licence_cannot_be_left_out_whole(tmp_path: Path) -> None:
    draft = replace(small_draft(), kind="rebuilt", built_from="own")
    ours = Rule("ours", "us", ["own/corpus.jsonl"])
    draft = replace(draft, tables=[replace(table, rule=ours) for table in draft.tables])
    draft = replace(draft, inputs=[record("own/corpus.jsonl", "not stated in the folder")])
    releases.write(draft, folder := tmp_path / "own-shift")
    with (
        pytest.raises(UserError, match="without own no test set is left"),
        publishable(folder, read_manifest(folder), [], ["own"]),
    ):
        pass


def test_a_licensed_release_is_published_as_it_is(tmp_path: Path) -> None:
    releases.write(small_draft(), tmp_path / "ms-marco-shift")
    with publishable(tmp_path / "ms-marco-shift", read_manifest(tmp_path / "ms-marco-shift"), [], []) as whole:
        assert whole == tmp_path / "ms-marco-shift"
