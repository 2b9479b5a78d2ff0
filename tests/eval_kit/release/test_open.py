"""Opening a release: what is said where there is none, where it is partial, and where it was tampered with."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.files.digests import file_sha256
from eval_kit.release import PartialRelease, Release, ReleaseError, open_release, read_manifest
from eval_kit.release import manifest as manifest_module
from tests.eval_kit.plain_runs import plain_run
from tests.manifests import release_digest


@pytest.fixture
def copy(mini_release: Release, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mini_release.folder, tmp_path / "ms-marco-shift"))


def test_the_default_is_the_environment_then_the_folder_here(copy: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(copy.parent)
    assert open_release().folder == Path("ms-marco-shift")
    monkeypatch.setenv("MS_MARCO_SHIFT_RELEASE", str(copy))
    monkeypatch.chdir(tmp_path / "..")
    assert open_release().folder == copy
    with pytest.raises(ReleaseError, match="a release folder"):
        open_release(tmp_path / "nowhere")
    with pytest.raises(ReleaseError, match=r"has no manifest\.json"):
        open_release(tmp_path)


def test_a_partial_release_says_so_where_it_matters_and_once(published_release: Release, tmp_path: Path, command):
    release = open_release(published_release.folder)
    release.queries("dl19")
    for config, split, sentence in (
        ("qrels", "train", "qrels/train: ir_datasets msmarco-passage"),
        ("wh", "train", "without topic/train, wh/train and length/train: naver/ms-marco-shift/TR"),
        ("wh", "dev", f"^{published_release.folder} has no wh/dev"),
    ):
        with pytest.raises(ReleaseError, match=sentence):
            release.table(config, split)
    with pytest.warns(PartialRelease) as warned:
        for _ in range(2):
            texts = release.table("restrain", "extrapolate_14k")["text"]
    assert len(warned) == 1 and "without text of 12,720 of 13,763 queries of restrain" in str(warned[0].message)
    assert texts.null_count() == 12_720
    run = tmp_path / "run.trec"
    run.write_text(plain_run(published_release, "dl19"))
    done = command("eval_kit", "score", run, "--release", published_release.folder, "--json", "-")
    assert "partial" not in done.stderr
    assert json.loads(done.stdout)["provenance"]["release"]["missing"] == published_release.missing
    assert "**This release is partial.**" in (published_release.folder / "README.md").read_text()


def test_a_changed_table_is_refused_by_name(copy: Path, mini_release: Release):
    path = copy / "data/wh/test-00000-of-00001.parquet"
    frame = pl.read_parquet(path)
    assert set(frame["cluster"]) == {"wha", "how", "who"}  # what any reader of parquet finds
    label = "a label that the manifest does not name"
    for changed, sentence in (
        (frame.with_columns(pl.col("text").str.replace("a", "b")), "content digest"),
        (frame.head(5), "table wh/test .* has 5 rows"),
        (frame.with_columns(pl.col("query_id").cast(pl.Int64)), "has the columns"),
        (frame.with_columns(pl.lit(9, pl.Int64).alias("cluster")), label),
        (frame.with_columns(pl.lit("why").alias("cluster")), label),
    ):
        changed.write_parquet(path)
        with pytest.raises(ReleaseError, match=sentence):
            open_release(copy)
    numbers = {"wha": 0, "how": 1, "who": 2}  # as the files of releases before this one hold them
    for same in (frame, frame.with_columns(pl.col("cluster").replace_strict(numbers).cast(pl.Int64))):
        same.write_parquet(path, compression="lz4")  # other bytes, same content
        assert open_release(copy).digest == mini_release.digest
        assert open_release(copy).table("wh", "test").equals(mini_release.table("wh", "test"))
    path.write_bytes(b"not parquet")
    with pytest.raises(ReleaseError, match=r"Could not read .* as Parquet"):
        open_release(copy)
    path.unlink()
    path.symlink_to("gone")
    with pytest.raises(ReleaseError, match="release is damaged"):
        open_release(copy)


def edited(folder: Path, change) -> dict:
    """The manifest, changed, and with the digest that fits the change."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest["digest"] = release_digest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return manifest


def listed(manifest: dict, config: str, split: str) -> dict:
    return next(table for table in manifest["tables"] if (table["config"], table["split"]) == (config, split))


def swapped(folder: Path, config: str, split: str, change) -> dict:
    """The manifest, edited to fit a table that was changed, but for its content digest."""
    path = folder / f"data/{config}/{split}-00000-of-00001.parquet"
    change(pl.read_parquet(path)).write_parquet(path, statistics=False)  # which repeat long texts
    return edited(folder, lambda manifest: listed(manifest, config, split).update(sha256=file_sha256(path)))


def test_a_swapped_table_is_never_scored_though_its_file_digest_was_edited_to_fit(
    copy: Path, mini_release: Release, command
):
    test_set = next(iter(mini_release.test_sets.values()))
    manifest = swapped(copy, "qrels", test_set.qrels, lambda frame: frame.with_columns(pl.col("corpus-id").reverse()))
    assert manifest["digest"] == mini_release.digest, "the digests of files are not in the digest of the release"
    run = copy.parent / "run.trec"
    run.write_text(plain_run(mini_release, test_set.name))
    done = command("eval_kit", "score", run, "--release", copy)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"qrels/{test_set.qrels} of {copy}" in done.stderr and "digest" in done.stderr


def test_a_table_is_proved_once_for_the_same_bytes(copy: Path, monkeypatch):
    table = open_release(copy).configs["qrels"][0]
    open_release(copy).table("qrels", table)
    monkeypatch.setattr(manifest_module, "table_digest", lambda *_: "")
    assert open_release(copy).table("qrels", table).height
    monkeypatch.setenv("MS_MARCO_SHIFT_CACHE", str(copy.parent / "another"))
    with pytest.raises(ReleaseError, match="content digest"):
        open_release(copy).table("qrels", table)


def test_what_is_printed_beside_a_figure_is_covered_by_the_digest(copy: Path):
    manifest = json.loads((copy / "manifest.json").read_text())
    for change in ({"kind": "rebuilt"}, {"version": "7.7.7"}, {"collection": "msmarco-passage"}):
        (copy / "manifest.json").write_text(json.dumps(manifest | change))
        with pytest.raises(ReleaseError, match="the tables"):
            open_release(copy)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: m["tables"].append(m["tables"][0]), "listed twice"),
        (lambda m: m["tables"][0]["columns"].append(m["tables"][0]["columns"][0]), "listed twice"),
        (lambda m: m["test_sets"].append(m["test_sets"][0]), "listed twice"),
        (lambda m: m["test_sets"][0].update(name="dl19\n"), r"\$\.test_sets\[0\]\.name"),
        (lambda m: m.update(kind="lite\n"), r"\$\.kind"),
        (lambda m: m.update(kind="published"), "published"),
        (lambda m: m.update(schema_version="\ud800"), "surrogate"),
        (lambda m: m["tables"][0]["columns"][2].update(labels=["a", "a"]), "listed twice"),
        (lambda m: m["test_sets"][0].update(split="nowhere"), "needs .*/nowhere with the column query_id"),
        (lambda m: m["test_sets"][0].update(column="shoe_size", values=["a"]), "with the column shoe_size"),
        (lambda m: m["test_sets"][0].update(qrels="nowhere"), "needs qrels/nowhere with the column query-id"),
        (lambda m: m["test_sets"][0].update(measures=["nDCG@4294967297"]), "measure 'nDCG@4294967297'"),
        (lambda m: m["test_sets"][0].update(measures=["R(rel=99999999999999999999999)@10"]), "measure"),
        (lambda m: m.update(version="1.0"), r"\$\.version"),
        (lambda m: m["test_sets"][0].update(column="form", values=None), "column"),
        (lambda m: m["tables"][0].update(rows=377.0), r"\$\.tables\[0\]\.rows"),
        (lambda m: m.update(seed=2**70), "not a finite"),
    ],
)
def test_a_manifest_that_scoring_could_not_use_is_refused(mini_release: Release, tmp_path: Path, change, sentence: str):
    manifest = mini_release.manifest.as_json()
    change(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ReleaseError, match=sentence):
        read_manifest(tmp_path)


def test_a_table_that_holds_more_than_it_may_is_not_read(copy: Path, monkeypatch):
    """More rows than the manifest says, or more text than any."""
    with monkeypatch.context() as patch:
        swapped(copy, "wh", "test", lambda frame: pl.concat([frame] * 3))
        opened = open_release(copy)
        patch.setattr("eval_kit.release.manifest.table_digest", None)  # which needs the rows
        with pytest.raises(ReleaseError, match="table wh/test"):
            opened.table("wh", "test")
    texts = pl.lit("a" * (1 << 20))
    swapped(copy, "wh", "test", lambda frame: frame.head(frame.height // 3).with_columns(text=texts))
    with pytest.raises(ReleaseError, match="unpacks to more than 100 times its size"):
        open_release(copy).table("wh", "test")


def test_a_part_of_a_release_is_used_as_far_as_it_goes(copy: Path):
    for table in read_manifest(copy).tables:
        if table.config not in ("length", "qrels"):
            (copy / table.path).unlink()
    with pytest.warns(UserWarning, match="were not downloaded"):
        release = open_release(copy)
    assert release.test_sets and {each.shift for each in release.test_sets.values()} == {"length"}
    assert release.queries("length.short").height
    with pytest.raises(ReleaseError, match=r"topic/test-.*was not downloaded"):
        release.table("topic", "test")
    path = copy / "data/length/test-00000-of-00001.parquet"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(UserError, match="Git LFS pointer"):
        open_release(copy)
