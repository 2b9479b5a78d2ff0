"""Grids of BM25 cells on a small mini release: in this process, by the command line, killed, and three at once."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import clients
import numpy as np
import polars as pl
import pytest
from filelock import FileLock
from msgspec.structs import replace
from tiny_checkpoints import tiny

from baselines import systems
from baselines.cell import Cell
from baselines.grid import candidates
from baselines.grid.documents import describe
from baselines.grid.encodings import keep_encodings
from baselines.grid.grid import cells, run, starts
from baselines.grid.status import changes, layout, of_grid
from baselines.grid.work import attempt
from baselines.options import Bm25, Options
from baselines.training.queries import queries_for
from builder import mini as planted
from builder import release as releases
from eval_kit.documents import FinishedCell
from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.files.cache import cache_folder
from eval_kit.files.digests import file_sha256
from eval_kit.models.dense import Dense
from eval_kit.models.sparse import Sparse
from eval_kit.protocols.grid_results import protocol
from eval_kit.protocols.variations import variations
from eval_kit.release import Release
from eval_kit.runs import contamination
from eval_kit.search import bm25
from eval_kit.search.passages import passages
from eval_kit.stats import vectors as vector_files
from tests.baselines.tiny_cells import tiny_cell, tiny_options, until
from tests.conftest import Run

BM25: dict[str, Options] = {"bm25": Bm25(depth=100)}


def undisturbed(release: Release, root: Path, shifts: list[str] | None = None) -> dict[str, bytes]:
    """The runs of a grid, done in this process."""
    assert not [failure for _, failure in run(cells(BM25, release, root, shifts=shifts)) if failure]
    return runs_of(root)


@pytest.fixture(scope="module")
def reference(release: Release, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return undisturbed(release, tmp_path_factory.mktemp("reference"))


@pytest.fixture
def start(tmp_path: Path, release: Release) -> Iterator[Callable[..., clients.Running]]:
    """Start ``grid run`` on ``tmp_path / "grid"`` in a process of its own, as a user would."""
    config = tmp_path / "bm25.json"
    config.write_text(json.dumps({"systems": {system: options.as_json() for system, options in BM25.items()}}))
    started = []

    def begin(*arguments: str) -> clients.Running:
        command = ["-m", "baselines", "grid", "run", "--config", str(config), "--release", str(release.folder)]
        options = ["--out", str(tmp_path / "grid"), *arguments]
        started.append(clients.Running([*command, *options], os.environ, neural=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()


def runs_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "runs").glob("*.trec"))}


def states(root: Path) -> Counter[str]:
    return Counter(cell["state"] for cell in of_grid(root))


def test_the_cells_of_a_grid(mini_release: Release, tmp_path: Path):
    options = {name: tiny_options(name, depth=10) for name in ("bm25", "splade")}
    grid = cells(options, mini_release, tmp_path, seeds=(0, 1))
    count = Counter((cell.name.system, cell.name.shift, cell.name.seed) for cell in grid)
    sizes = {"topic": 5, "wh": 3, "length": 2, "resttest": 5, "restrain": 6}
    assert count == {(s, shift, seed): n for s in options for shift, n in sizes.items() for seed in (0, 1)}
    assert len({cell.folder for cell in grid}) == len({cell.run.name for cell in grid}) == len(grid)


def test_a_config_may_ask_for_some_parts_of_a_shift(mini_release: Release, tmp_path: Path):
    options = {"splade": tiny_options("splade")}
    grid = cells(options, mini_release, tmp_path, shifts=["wh.how", "restrain.medium"])
    assert [cell.name.held_out for cell in grid] == ["how", "interpolate_medium", "extrapolate_medium"]
    with pytest.raises(UserError, match="has no part 45k of restrain"):
        cells(options, mini_release, tmp_path, shifts=["restrain.45k"])


def test_the_control_is_trained_on_everything_once_for_each_trained_system(mini_release: Release, tmp_path: Path):
    options = {name: tiny_options(name, depth=10) for name in ("bm25", "splade", "biencoder")}
    grid = cells(options, mini_release, tmp_path, shifts=["wh", "length"], control=True)
    control = [cell.name.file for cell in grid if cell.name.shift == "all"]
    assert control == ["splade.all.none.trec", "biencoder.all.none.trec"]
    assert len(grid) == 3 * (3 + 2) + 2
    training = queries_for(grid[-1])
    trained = {shift: set(mini_release.table(shift, "train")["query_id"]) for shift in ("topic", "wh", "length")}
    tested = set(grid[-1].test_queries()["query_id"]) | set(mini_release.table("validation", "validation")["query_id"])
    assert set.union(*trained.values()) - tested <= set(training.queries["query_id"])
    assert training.excluded == {"held-out part": 0, "test sets": 0, "validation": 0}
    assert tested.isdisjoint(training.queries["query_id"])


def test_a_config_asks_for_what_a_release_may_lack(mini_release: Release, tmp_path: Path):
    own = [entry for entry in mini_release.manifest.test_sets if entry.shift == "wh"]
    bare = Release(mini_release.folder, replace(mini_release.manifest, test_sets=own, variations=[]))
    grid = cells({"splade": tiny_options("splade")}, bare, tmp_path, shifts=["wh"], control=True, variations=["all"])
    assert {(cell.name.shift, cell.variations) for cell in grid} == {("wh", ())}
    assert set(grid[0].test_queries()["query_id"]) == set(mini_release.table("wh", "test")["query_id"])


def test_the_demo_leaves_the_benchmarks_out(mini_release: Release, tmp_path: Path):
    with_them, without = (
        cells({"splade": tiny_options("splade")}, mini_release, tmp_path, shifts=["wh"], benchmarks=benchmarks)[0]
        for benchmarks in (True, False)
    )
    benchmarks = pl.concat(mini_release.test_sets[name].queries for name in ("dev", "dl19", "dl20"))
    own = set(mini_release.table("wh", "test")["query_id"])
    assert set(with_them.test_queries()["query_id"]) == own | set(benchmarks)
    assert set(without.test_queries()["query_id"]) == own
    assert with_them.digest != without.digest


@pytest.mark.slow
def test_a_cell_searches_the_variations_of_its_test_sets(release: Release, tmp_path: Path):
    plain, varied = (
        cells(BM25, release, tmp_path, shifts=["wh"], variations=names)[0] for names in ([], ["dl19.typo.swap_key"])
    )
    assert varied.variations == ("dl19.typo.swap_key.1",)
    assert plain.folder == varied.folder
    assert attempt(plain) is None
    assert plain.is_finished and not varied.is_finished
    before = plain.run.stat().st_mtime_ns
    assert attempt(varied) is None
    assert plain.run.stat().st_mtime_ns == before
    worded = tmp_path / "variations" / "bm25.wh.wha.dl19.typo.swap_key.1.trec"
    assert worded.samefile(next(iter(varied.runs_of_variations.values())))
    done = json.loads((varied.folder / "done.json").read_text())
    assert done["variations"] == {"dl19.typo.swap_key.1": file_sha256(worded)}
    changes = variations([plain.published_run, worded], release, allow_missing=True).results
    assert changes.select("test_set", "system", "queries").unique().rows() == [("dl19", "bm25.wh.wha", 43)]
    with pytest.raises(UserError, match="has no query variation 'dl21'"):
        cells(BM25, release, tmp_path, variations=["dl21"])


def test_what_a_start_was_trained_on_is_said(release: Release, tmp_path: Path):
    for name, card in (("told", "---\ndatasets: [ms_marco, squad]\n---\n"), ("bare", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(card)
    systems = {
        f"biencoder-{name}": tiny_options("biencoder", backbone=str(tmp_path / name)) for name in ("told", "bare")
    }
    random = tiny_options("biencoder", backbone=str(tmp_path / "told"), random_weights=True)
    own = {"static": tiny_options("static"), "biencoder": random}
    told, bare = starts(cells(systems | own, release, tmp_path, shifts=["wh"]))
    assert told == f"biencoder-told starts from {tmp_path / 'told'}, which was trained on ms_marco and squad"
    assert bare == f"biencoder-bare starts from {tmp_path / 'bare'}, whose training data nobody declared"


def test_the_digest_holds_what_decides_a_result(mini_release: Release, release: Release, tmp_path: Path):
    def digests(
        options: dict, of: Release = release, root: Path = tmp_path, system: str = "bm25", **how: tuple
    ) -> set[str]:
        typed = {system: tiny_options(system, **options)}
        return {cell.digest for cell in cells(typed, of, root, shifts=["wh"], **how)}

    first = digests({"depth": 10, "k1": 0.9})
    assert first == digests({"k1": 0.9, "depth": 10}, root=tmp_path / "elsewhere") == digests({"depth": 10})
    for other in (digests({"depth": 10, "k1": 1.0}), digests({"depth": 10, "k1": 0.9}, mini_release)):
        assert not first & other
    assert not first & digests({"depth": 10, "k1": 0.9}, seeds=(1,))
    backbone = tmp_path / "backbone"
    backbone.mkdir()
    (backbone / "config.json").write_text("{}")
    named = digests({"backbone": str(backbone)}, system="biencoder")
    assert named == digests({"backbone": str(backbone)}, system="biencoder")
    (backbone / "config.json").write_text('{"hidden_size": 2}')
    assert not named & digests({"backbone": str(backbone)}, system="biencoder")
    taught = digests({"teacher": str(backbone), "distillation": "kl"}, system="biencoder")
    (backbone / "config.json").write_text('{"hidden_size": 3}')
    assert not taught & digests({"teacher": str(backbone), "distillation": "kl"}, system="biencoder")


def test_a_cell_goes_elsewhere_with_absolute_paths_and_without_its_tables(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(release.folder.parent)
    beside = Release(Path(release.folder.name), release.manifest)
    [cell, _] = cells(BM25, beside, Path("grid"), shifts=["length"])
    cell.test_queries()
    sent = cell.portable()
    assert isinstance(sent, Cell)
    assert sent.release.folder == release.folder.resolve()
    assert sent.folder == cell.folder.resolve()
    assert not sent.release._read
    assert sent.digest == cell.digest


def test_variants_of_a_system_name_their_runs_and_share_its_index(release: Release, tmp_path: Path):
    options = BM25 | {"bm25-b7": Bm25(depth=100, b=0.7)}
    assert [failure for _, failure in run(cells(options, release, tmp_path, shifts=["length"]))] == [None] * 4
    runs = runs_of(tmp_path)
    assert set(runs) == {f"{name}.length.{part}.trec" for name in options for part in ("short", "long")}
    assert runs["bm25.length.short.trec"] != runs["bm25-b7.length.short.trec"]
    assert len([path for path in (tmp_path / "indexes").iterdir() if path.is_dir()]) == 1


def test_a_grid_half_done_holds_no_run_of_other_options(release: Release, tmp_path: Path):
    old = undisturbed(release, tmp_path, ["length"])
    changed = cells({"bm25": Bm25(depth=100, b=0.1)}, release, tmp_path, shifts=["length"])
    [line] = changes(changed)
    assert "bm25.length" in line and " and 1 more" in line and "b at its default → b 0.1" in line
    (tmp_path / "runs" / "bm25.length.long.npy").touch()
    with pytest.raises(KeyboardInterrupt):
        for _ in run(changed):
            raise KeyboardInterrupt
    now = runs_of(tmp_path)
    assert now.keys() == {"bm25.length.short.trec"} and now.items().isdisjoint(old.items())
    assert not list((tmp_path / "runs").glob("*.npy"))
    kept = {(one["settings"].get("b"), one["in_runs"]) for one in of_grid(tmp_path)}
    assert kept == {(0.1, True), (0.1, False), (None, False)}
    shown = " ".join(map(str, chain.from_iterable(layout(of_grid(tmp_path)).groups[0])))
    assert shown.count("b at its default") == 2 and shown.count("b 0.1; in runs") == 1
    assert undisturbed(release, tmp_path, ["length"]) == old
    assert not changes(cells(BM25, release, tmp_path, shifts=["length"]))


def test_a_finished_cell_says_how_it_was_made_and_is_not_done_again(release: Release, tmp_path: Path):
    [cell, _] = cells(BM25, release, tmp_path, shifts=["length"])
    assert attempt(cell) is None
    done = json.loads((cell.folder / "done.json").read_text())
    assert strict_json.load(FinishedCell, cell.folder / "done.json").as_json() == done
    assert done["cell"] == {"system": "bm25", "shift": "length", "held_out": "short", "seed": 0}
    benchmarks = [len(release.test_sets[name].queries) for name in ("dev", "dl19", "dl20")]
    assert done["run"]["queries"] == len(cell.test_queries()) == sum(benchmarks) == 50 + 43 + 54
    assert done["index_bytes"] > 10_000
    assert cell.published_run.samefile(cell.run)
    assert contamination.training_beside(cell.published_run).training_data == []
    before = (cell.folder / "done.json").stat()
    assert attempt(cell) is None
    assert (cell.folder / "done.json").stat() == before
    cell.run.unlink()
    assert states(tmp_path) == {"under way": 1}
    assert attempt(cell) is None
    assert json.loads((cell.folder / "done.json").read_text())["run"] == done["run"]


def test_a_run_declares_the_queries_behind_its_model(release: Release, tmp_path: Path):
    def declared(**options: object) -> list[str] | None:
        [cell, _] = cells({"biencoder": tiny_options("biencoder", **options)}, release, tmp_path, shifts=["length"])
        return cell.training_data()

    own = "ms-marco-shift-mini/shift/length/not-short"
    assert declared() == declared(backbone="distilbert/distilbert-base-uncased") == [own]
    teacher = {"teacher": "colbert-ir/colbertv2.0", "distillation": "kl"}
    assert declared(backbone="google-bert/bert-base-uncased", **teacher) == [own, "msmarco-passage/train"]
    assert declared(teacher="some/model", distillation="kl") is None


@pytest.mark.slow
def test_three_at_once_on_one_grid_do_each_cell_once(
    command: Run, release: Release, reference: dict[str, bytes], start: Callable[..., clients.Running],
    tmp_path: Path,
):  # fmt: skip
    for process in [start(), start(), start()]:
        done = process.wait()
        assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'grid' / 'runs'}\n"), done.stderr
        assert done.stderr.splitlines()[-1].startswith("[21/21] bm25.")
    assert runs_of(tmp_path / "grid") == reference
    rows = json.loads(command("baselines", "grid", "status", tmp_path / "grid", "--json", "-").stdout)
    assert {(row["state"], row["in_runs"], row["reason"]) for row in rows} == {("done", True, None)}
    assert {row["run"] for row in rows} == set(reference)
    assert list(dict.fromkeys(row["shift"] for row in rows)) == ["topic", "wh", "length", "resttest", "restrain"]
    found = protocol(sorted((tmp_path / "grid" / "runs").glob("*.trec")), release)
    assert set(found.results) == {"topic", "wh", "length", "resttest", "restrain"}
    assert found.results["topic"]["rel_loss"].to_list() == pytest.approx([0.0] * found.results["topic"].height)
    again = command("eval_kit", "protocol", tmp_path / "grid" / "runs", "--paper", "all", "--release", release.folder)
    assert "synthetic: not comparable" in again.stdout


@pytest.mark.slow
def test_a_grid_that_is_killed_goes_on(
    reference: dict[str, bytes], start: Callable[..., clients.Running], tmp_path: Path
):
    root = tmp_path / "grid"
    process = start("--shift", "wh")
    until(lambda: root.exists() and list(root.glob("*/.lock")))
    process.kill()
    assert states(root)["under way"]
    done = start("--shift", "wh").wait()
    assert done.returncode == 0, done.stderr
    assert runs_of(root) == {name: run for name, run in reference.items() if ".wh." in name}


def test_a_cell_that_another_process_has_is_not_done_here(release: Release, tmp_path: Path):
    first, second = cells(BM25, release, tmp_path, shifts=["length"])
    first.folder.mkdir(parents=True)
    with FileLock(first.folder / ".lock"):
        going = run([first, second])
        assert next(going) == (second, None)
        assert not list(first.folder.glob("*.trec"))
    assert list(going) == [(first, None)]


def test_a_cell_that_fails_leaves_the_others_alone(
    command: Run, start: Callable[..., clients.Running], release: Release, tmp_path: Path
):
    reference = undisturbed(release, tmp_path / "undisturbed", ["wh"])
    root = tmp_path / "grid"
    broken = cells(BM25, release, root, shifts=["wh"])[1]
    broken.folder.mkdir(parents=True)
    (broken.folder / "parts").write_text("a file where a folder should be")
    ended = start("--shift", "wh").wait()
    assert ended.returncode == 1
    assert set(runs_of(root)) == {"bm25.wh.wha.trec", "bm25.wh.who.trec"}
    [reason] = [cell["reason"] for cell in of_grid(root) if cell["state"] == "failed"]
    assert "parts" in reason and f"[2/3] bm25.wh.how: failed: {reason}\n" in ended.stderr
    assert "Traceback" in (broken.folder / "error.txt").read_text()
    assert "2 done, 1 failed" in " ".join(command("baselines", "grid", "status", root).stdout.split())
    (broken.folder / "parts").unlink()
    assert start("--shift", "wh").wait().returncode == 0
    assert runs_of(root) == reference
    assert states(root) == {"done": 3}


@pytest.mark.slow
def test_the_parts_of_a_grid_are_the_grid(
    reference: dict[str, bytes], start: Callable[..., clients.Running], tmp_path: Path
):
    """Each part of an array does its own cells only."""
    for part, done in (("1/2", {"wha", "who"}), ("2/2", {"wha", "how", "who"})):
        ended = start("--shift", "wh", "--part", part).wait()
        assert ended.returncode == 0, ended.stderr
        assert {name.split(".")[2] for name in runs_of(tmp_path / "grid")} == done
    assert runs_of(tmp_path / "grid") == {name: run for name, run in reference.items() if ".wh." in name}


def test_what_a_user_gets_wrong_is_said_in_one_sentence(command: Run, release: Release, tmp_path: Path):
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"systems": {"bm25": {"depth": 100, "k2": 1}}}))
    into = ["--release", release.folder, "--out", tmp_path / "g"]
    for arguments, said in (
        (["status", tmp_path], f"{tmp_path} does not contain a grid"),
        (["run", "--config", wrong, *into], "k2"),
        (["run", "--config", "mini", "--part", "0/2", *into], "--part"),
        (["run", "--config", "mini", "--part", "3/2", *into], "--part"),
        (["run", "--config", "paper", "--config", "mini", "--system", "bm25", "--shift", "topic", *into],
         "paper and mini train the same cells"),
    ):  # fmt: skip
        done = command("baselines", "grid", *arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert said in done.stderr
    assert not (tmp_path / "g").exists()


def test_a_grid_that_trains_on_negatives_is_refused_without_them(command: Run, tmp_path: Path):
    releases.write(planted.draft(queries=500), tmp_path / "ms-marco-shift")
    arguments = ["--config", "mini", "--release", tmp_path / "ms-marco-shift", "--out", tmp_path / "grid"]
    done = command("baselines", "grid", "run", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.endswith(f": python -m builder negatives {tmp_path}/ms-marco-shift\n")
    checked = command("baselines", "grid", "run", "--check", *arguments)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    checked = command("baselines", "grid", "run", "--check", *arguments, "--backbone", tmp_path / "nowhere")
    assert (checked.returncode, checked.stdout) == (2, "")
    assert f"{tmp_path}/nowhere" in checked.stderr and checked.stderr.count("\n") == 1
    assert not (tmp_path / "grid").exists()


def test_a_training_that_goes_on_says_how_far_it_is(release: Release, tmp_path: Path) -> None:
    """By the last checkpoint that is whole; the next one may be half written."""
    cell, _ = cells({"biencoder": tiny_options("biencoder")}, release, tmp_path, shifts=["length"])
    describe(cell)
    [row] = of_grid(tmp_path)
    assert (row["state"], row["progress"], row["seconds"]) == ("open", {}, {})
    (cell.folder / ".lock").touch()
    for step, end in ((9, "}"), (10, "}"), (11, "")):
        checkpoint = cell.folder / "training" / "checkpoints" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "trainer_state.json").write_text(f'{{"global_step": {step}, "max_steps": 20{end}')
    (cell.folder / "training.json").write_text('{"first_loss": 0.5, "last_loss": NaN}')
    [row] = of_grid(tmp_path)
    assert (row["state"], row["progress"]) == ("under way", {"step": 10, "steps": 20})
    assert (row["first_loss"], row["last_loss"]) == (0.5, None)
    assert "10 of 20 steps" in [str(value) for value in layout([row]).groups[0][0]]


def test_a_bi_encoders_query_vectors(mini_release: Release, tmp_path: Path) -> None:
    cell = tiny_cell("biencoder", mini_release, tmp_path, ("wh", "who"))
    cell.folder.mkdir(parents=True)
    dense = Dense(str(tiny("dense")))
    keep_encodings(cell, dense)
    vectors = vector_files.read(cell.query_vectors[0])
    train, test = (mini_release.table("wh", split) for split in ("train", "test"))
    test_ids = set(test.filter(cluster="who")["query_id"])
    assert set(vectors.query_ids) == test_ids | set(train.filter(train["cluster"] != "who")["query_id"])
    sample = test.filter(cluster="who").head(3)
    assert vectors.of(sample["query_id"]) == pytest.approx(dense.encode_queries(sample["text"].to_list()), abs=1e-5)
    assert set(cell.outputs.values()) == {
        tmp_path / "runs" / f"biencoder.wh.who{ending}" for ending in (".trec", ".npy", ".ids.txt")
    }


@pytest.mark.slow
def test_the_sparsity_of_splade(trainable_release: Release, tmp_path: Path) -> None:
    cell = tiny_cell("splade", trainable_release, tmp_path)
    sparse = Sparse(str(tiny("sparse")))
    sparse.index(passages(cell.release), systems.index_folder(cell))
    keep_encodings(cell, sparse)
    kept = json.loads(cell.sparsity.read_text())
    texts = [text for _, text in passages(cell.release)]
    assert kept["passage"] == pytest.approx(np.mean(sparse.encode_passages(texts)["lengths"]))
    queries = sparse.encode_queries(cell.test_queries()["text"].to_list())
    assert kept["query"] == pytest.approx(np.mean((queries != 0).sum(axis=1)))
    assert cell.outputs == {cell.run: cell.published_run}


@pytest.mark.slow
def test_bm25s_cells_read_their_runs_from_what_was_found_for_re_rankers(mini_release: Release, tmp_path: Path):
    options = {"bm25": tiny_options("bm25", depth=7), "monobert": tiny_options("monobert", depth=7, candidates=5)}
    grid = cells(options, mini_release, tmp_path, ["length"], benchmarks=False)
    candidates.find([cell for cell in grid if cell.name.system == "bm25"])
    stores = list((tmp_path / "indexes").glob("*/candidates/*"))
    assert len(stores) == 1
    written = {file: file.stat().st_mtime_ns for file in stores[0].glob("*.parquet")}
    candidates.find(grid)
    assert {file: file.stat().st_mtime_ns for file in stores[0].glob("*.parquet")} == written  # searched once
    index, made = systems.shared_index(grid[0]) / "bm25", bm25.index_of(mini_release, cache_folder())
    assert all(file.samefile(index / "plain" / file.name) for file in made.iterdir())  # indexed once
    queries = grid[0].test_queries()
    expected = {query: sorted(hits) for query, hits in bm25.search(queries.rows(), index / "plain", 7)}
    shutil.rmtree(index / "plain")
    for cell in grid:
        if cell.name.system == "bm25":
            hits = systems.system("bm25").retriever(cell.model, cell.options.as_json()).search(queries, index, 7)
            assert {query: sorted(own) for query, own in hits} == expected
