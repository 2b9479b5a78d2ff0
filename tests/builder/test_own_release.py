"""The release that comes by itself: the same test sets as the built one, from a folder or a server, once."""

import multiprocessing
from pathlib import Path

import pytest
from file_server import Server

import eval_kit
from eval_kit.authors import opening, release
from eval_kit.authors.sources import SourceFile, declared_files
from eval_kit.errors import UserError
from eval_kit.release import Release, open_release


@pytest.fixture(autouse=True)
def nothing_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MS_MARCO_SHIFT_RELEASE", raising=False)
    monkeypatch.delenv(release.UPSTREAM, raising=False)
    monkeypatch.setenv("MS_MARCO_SHIFT_CACHE", str(tmp_path / "cache"))


def _score(shared: Path) -> list[dict[str, object]]:
    return eval_kit.score(shared / "real-slice/runs/bm25.dl19.trec").as_json()["measures"]


def test_the_test_sets_are_those_of_a_built_release(
    shared: Path, published_release: Release, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shared / "real-slice/runs/bm25.dl19.trec"
    monkeypatch.setenv(release.UPSTREAM, str(shared / "upstream"))
    made = eval_kit.score(run, opening.open_release())
    assert made.as_json()["measures"] == eval_kit.score(run, published_release).as_json()["measures"]
    assert "CC-BY-NC-SA-4.0" in capsys.readouterr().err
    own = open_release(release.published_test_sets())
    built = {table.key: table.digest for table in published_release.manifest.tables}
    assert own.manifest.tables and all(built[table.key] == table.digest for table in own.manifest.tables)
    assert {"topic.c0", "length.short", "dl19", "dl20", "resttest.b5", "dev"} <= set(own.test_sets)
    assert not any(name.startswith("chameleons") for name in own.test_sets), "their authors state no licence"
    monkeypatch.setenv(release.UPSTREAM, "/nowhere")
    _score(shared)
    assert capsys.readouterr().err.count("once") == 0, "kept: neither web nor folder is asked again"
    monkeypatch.setenv(release.UPSTREAM, str(shared / "upstream"))
    for file in (own.folder / own.manifest.tables[0].path, own.folder / "manifest.json"):
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.warns(match="the published test sets again"):
            assert _score(shared) == made.as_json()["measures"]


def test_without_a_network_it_is_one_sentence_and_nothing_is_left(
    shared: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.status = 404
    files = declared_files()
    moved = {id: _at(server, file) for id, file in files.items()}
    monkeypatch.setattr(release, "declared_files", lambda: moved)
    with pytest.raises(UserError, match=r"--release"):
        _score(shared)
    assert not list((tmp_path / "cache").glob("test-sets-*/manifest.json"))


def test_two_processes_make_one(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(release.UPSTREAM, str(shared / "upstream"))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first, second = (pool.apply_async(release.published_test_sets) for _ in range(2))
        assert first.get(120) == second.get(120)


def _at(server: Server, file: SourceFile) -> SourceFile:
    return SourceFile(file.repository, file.commit, file.path, file.git_blob, file.licence, f"{server.url}/x")
