"""Opening a release: what is said where there is none, where it is partial, and where it was tampered with."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from eval_kit.release import PartialRelease, Release, ReleaseError, open_release


@pytest.fixture
def copy(mini_release: Release, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mini_release.folder, tmp_path / "ms-marco-shift"))


def test_nothing_there(tmp_path: Path):
    with pytest.raises(ReleaseError, match="there is no such folder; name a release folder"):
        open_release(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReleaseError, match=r"not a release, it has no manifest\.json"):
        open_release(tmp_path / "empty")


def test_the_default_is_the_environment_then_the_folder_here(copy: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(copy.parent)
    assert open_release().folder == Path("ms-marco-shift")
    monkeypatch.setenv("MS_MARCO_SHIFT_RELEASE", str(copy))
    monkeypatch.chdir(tmp_path / "..")
    assert open_release().folder == copy
    with pytest.raises(ReleaseError, match="a folder has no revision 'v1'"):
        open_release(copy, revision="v1")


def test_a_partial_release_says_so_wherever_it_is_opened(published_release: Release, tmp_path: Path, command):
    with pytest.warns(PartialRelease, match="is a partial release: it lacks qrels/train and 9 more parts"):
        open_release(published_release.folder)
    run = tmp_path / "run.trec"
    run.write_text("".join(f"{query} Q0 1 1 1 t\n" for query in published_release.test_sets["dl19"].queries))
    done = command("eval_kit", "score", run, "--release", published_release.folder, "--json", "-")
    assert f"eval_kit: {published_release.folder} is a partial release" in done.stderr
    assert json.loads(done.stdout)["provenance"]["release"]["missing"] == published_release.missing
    assert "**This release is partial.**" in (published_release.folder / "README.md").read_text()


def test_a_changed_table_is_refused_by_name(copy: Path, mini_release: Release, command):
    path = copy / "data/wh/test-00000-of-00001.parquet"
    frame = pl.read_parquet(path)
    frame.with_columns(pl.col("text").str.replace("a", "b")).write_parquet(path)
    with pytest.raises(ReleaseError, match="table wh/test is not what the manifest says: its content digest differs"):
        open_release(copy)
    frame.write_parquet(path, compression="lz4")  # other bytes, same content
    assert open_release(copy).digest == mini_release.digest
    frame.head(5).write_parquet(path)
    with pytest.raises(ReleaseError, match="table wh/test has 5 rows, the manifest says"):
        open_release(copy)
    frame.with_columns(pl.col("query_id").cast(pl.Int64)).write_parquet(path)
    with pytest.raises(ReleaseError, match="has the columns"):
        open_release(copy)
    frame.with_columns(pl.lit(9, pl.Int64).alias("cluster")).write_parquet(path)
    with pytest.raises(ReleaseError, match="holds a label code that the manifest does not name"):
        open_release(copy)
    path.write_bytes(b"not parquet")
    with pytest.raises(ReleaseError, match="not a readable parquet file"):
        open_release(copy)
    path.unlink()
    done = command("eval_kit", "score", "any.trec", "--release", copy)
    assert done.returncode == 2
    assert done.stderr == f"eval_kit: {path}: missing, though the manifest lists it; the release is damaged\n"


def test_tables_and_test_sets(mini_release: Release):
    topic = mini_release.table("topic", "train")
    assert topic["cluster"].unique().sort().to_list() == ["c0", "c1", "c2", "c3", "c4"]
    with pytest.raises(ReleaseError, match="holds no topic/validation; it holds topic/train"):
        mini_release.table("topic", "validation")
    lesser, pygmy, veiled = (
        set(mini_release.test_sets[f"chameleons.{name}.30"].queries) for name in ("lesser", "pygmy", "veiled")
    )
    assert lesser < pygmy < veiled < set(mini_release.test_sets["dev"].queries)
