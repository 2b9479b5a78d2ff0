"""From a model to its figures in one command."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

import eval_kit
from eval_kit.errors import UserError
from eval_kit.models.dense import Dense
from eval_kit.models.opening import open_retriever
from eval_kit.models.run import run as run_model
from eval_kit.protocols.scoring import scores_of
from eval_kit.release import Release
from eval_kit.runs import contamination
from tests import schemas
from tests.conftest import Run
from tests.tiny_checkpoints import tiny


@pytest.mark.parametrize("architecture", ["dense", "sparse", "multivector", "cross"])
def test_a_model_of_any_kind_is_searched_scored_and_compared(
    trainable_release: Release, tmp_path: Path, command: Run, inside: Run, architecture: str
) -> None:
    run = command if architecture == "dense" else inside
    out, page = tmp_path / "runs", tmp_path / "card.html"
    arguments = ["--release", trainable_release.folder, "--test-set", "dl19", "--out", out, "--name", "mine"]
    done = run("eval_kit", "run", tiny(architecture), *arguments, "--json", "-", "--page", page)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["comparison"]
    scores = eval_kit.score([out / "bm25.trec", out / "mine.trec"], trainable_release, allow_missing=True)
    for run, test_set, measure, value in scores.to_polars().select("run", "test_set", "measure", "value").iter_rows():
        [row] = [row for row in rows if (row["system"], row["test_set"], row["measure"]) == (run, test_set, measure)]
        assert row["value"] == value  # to the last bit
    assert "mine" in page.read_text()


OWN = """
import hashlib, numpy
class Words:
    def encode(self, texts):
        vectors = numpy.zeros((len(texts), 256), numpy.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                vectors[row, hashlib.md5(word.encode()).digest()[0]] += 1
        return vectors
model = Words()
class Wrong:
    def encode(self, texts):
        return [[1.0]]
wrong = Wrong()
class Uneven:
    def encode_query(self, texts):
        return numpy.ones((len(texts), 3))
    def encode_document(self, texts):
        return numpy.ones((len(texts), 4))
uneven = Uneven()
"""


def test_no_run_replaces_a_pivot_or_another_output(trainable_release: Release, tmp_path: Path, inside: Run) -> None:
    out = tmp_path / "runs"
    out.mkdir()
    (out / "mine.trec").write_text("theirs\n")
    arguments = ["--release", trainable_release.folder, "--out", out]
    for name, more in (("mine", ["--pivot", out / "mine.trec"]), ("bm25", ["--json", out / "bm25.trec"])):
        done = inside("eval_kit", "run", "bm25", *arguments, "--name", name, *more)
        assert done.returncode == 2
        assert "already reads or writes" in done.stderr
    assert [path.name for path in out.iterdir()] == ["mine.trec"]
    assert (out / "mine.trec").read_text() == "theirs\n"


def test_a_model_of_ones_own_is_searched(
    trainable_release: Release, tmp_path: Path, command: Run, inside: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    arguments = ["--release", trainable_release.folder, "--test-set", "dl19", "--out", "runs"]
    done = command("eval_kit", "run", "mine:model", *arguments, "--json", "-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    values = {row["system"]: row["value"] for row in document["comparison"] if row["measure"] == "nDCG@10"}
    assert document["training_data"] is None
    assert values["mine.model"] > 0.05
    for name, sentence in (
        ("mine:wrong", "encode of mine:wrong returned (1, 1)"),
        ("mine:uneven", "gives 3 numbers, and the model of the passages 4"),
        ("mine:nothing", "Could not import mine:nothing"),
        ("nowhere:model", "Could not import nowhere:model"),
    ):
        done = inside("eval_kit", "run", name, *arguments, cwd=tmp_path)
        sys.modules.pop("mine", None)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        assert sentence in done.stderr.splitlines()[-1]


class Slow:
    """A model that lets another command of its name begin while it searches, and, if told, finish."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile = meanwhile

    def encode_document(self, texts: list[str]) -> Any:
        return np.array([[crc32(text.encode()) % 97, len(text)] for text in texts], np.float32)

    def encode_query(self, texts: list[str]) -> Any:
        self.meanwhile()
        return self.encode_document(texts)


def test_two_commands_of_one_name_at_once_each_print_their_own_figures(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def figures(depth: int, folder: str, meanwhile: Callable[[], object] = lambda: None) -> Any:
        options: Any = {"pivots": [], "test_sets": ["dl19"], "depth": depth, "name": "mine"}
        return run_model(Slow(meanwhile), trainable_release, tmp_path / folder, **options).to_polars().rows()

    alone = {depth: figures(depth, f"alone{depth}") for depth in (2, 20)}
    assert alone[2] != alone[20]
    with ThreadPoolExecutor() as pool:
        others: list[Future[Any]] = []

        def meanwhile() -> None:
            others.append(pool.submit(figures, 2, "both"))
            wait(others, 0.5)

        assert figures(20, "both", meanwhile) == alone[20]
        assert [other.result() for other in others] == [alone[2]] * len(others)

    def edited(*runs: Any, **options: Any) -> Any:
        with (tmp_path / "edited" / "mine.trec").open("a") as file:
            file.write("x Q0 y 1 1.0 mine\n")
        return scores_of(*runs, **options)

    monkeypatch.setattr("eval_kit.models.run.scores_of", edited)
    with pytest.raises(UserError, match="while it was scored"):
        figures(2, "edited")


def test_other_wordings_are_searched_and_their_cost_is_in_the_card(
    published_release: Release, shared: Path, tmp_path: Path, inside: Run
) -> None:
    """Of real MS MARCO queries, in passages that somebody has: the released typos of TREC DL 2019."""
    held = shared / "beir" / "msmarco-pieces"
    done = inside("builder", "lite", published_release.folder, "--collection", held, "--out", tmp_path / "pieces")
    assert done.returncode == 0, done.stderr
    release = eval_kit.open_release(tmp_path / "pieces")
    assert {"dev", "length.short", "resttest.b1", "dl19"} <= set(release.test_sets)
    assert "topic.c0" not in release.test_sets
    assert len(release.test_sets["dev"].queries) == 6_980
    dev = release.test_sets["dev"]
    assert contamination.trained_on(["s2orc", "ms_marco"], dev, release) == "no"
    assert contamination.trained_on(["ms_marco dev"], dev, release) == "yes"
    arguments = ["--test-set", "dl19", "--variation", "dl19.typo.1", "--out", tmp_path / "runs", "--json", "-"]
    done = inside("eval_kit", "run", "bm25", "--release", tmp_path / "pieces", *arguments)
    assert done.returncode == 0, done.stderr
    [row] = [row for row in json.loads(done.stdout)["variations"]["variations"] if row["measure"] == "nDCG@10"]
    assert row["clean"] > row["varied"] + 0.1


def test_typos_are_made_where_a_release_has_none(trainable_release: Release, tmp_path: Path) -> None:
    arguments = {"test_sets": ["dl20"], "out": tmp_path / "runs"}
    card = run_model("bm25", trainable_release, variations=["dl20.typo.1"], **arguments)
    assert card.variations is not None
    methods = card.variations.results["method"].unique().to_list()
    assert sorted(methods) == [
        f"typo.{kind}" for kind in ("delete", "insert", "substitute", "swap_adjacent", "swap_key")
    ]


def test_a_run_of_a_grids_cell_says_which_runs_are_still_to_be_made(trainable_release: Release, tmp_path: Path) -> None:
    parts = [name.partition(".")[2] for name in trainable_release.test_sets if name.startswith("wh.")]
    for part in parts:
        card = run_model("bm25", trainable_release, tmp_path, name=f"mine.wh.{part}", test_sets=["wh"], pivots=())
    for made in (len(parts), 1):
        [following] = [fact for fact in card.facts() if "protocol" in fact.command]
        named = [f"mine.wh.{part}.trec" for part in parts]
        assert [Path(word).name for word in following.command[2:-2]] == named
        assert [name for name in named if name in following.about] == (named[:-1] if made == 1 else [])
        for name in named[:-1]:
            (tmp_path / name).unlink(missing_ok=True)


def test_what_is_typed_wrongly_is_told_before_anything_is_searched(trainable_release: Release, tmp_path: Path) -> None:
    for options, sentence in (
        ({"by": ["topc"]}, "topc"),
        ({"by": ["distance"]}, "distance"),
        ({"variations": ["dl20.tpyo"]}, r"did you mean dl20\.typo"),
        ({"variations": ["dl20.typo.2"]}, r"dl20\.typo\.2"),
        ({"test_sets": ["topics"]}, "topics"),
    ):
        with pytest.raises(UserError, match=sentence):
            run_model("bm25", trainable_release, tmp_path / "runs", **options)
    assert not (tmp_path / "runs").exists()


def test_what_cannot_be_searched_is_one_sentence(
    trainable_release: Release, published_release: Release, tmp_path: Path, inside: Run
) -> None:
    for model, release, sentence in (
        (tiny("bert"), trainable_release, "is a bare transformer"),
        (tiny("dense"), published_release, "Use a BEIR folder as --release"),
        (tmp_path / "nothing", trainable_release, "nothing. It is not a folder"),
    ):
        done = inside("eval_kit", "run", model, "--release", release.folder, "--out", tmp_path / "runs")
        assert done.returncode == 2
        assert sentence in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


def test_no_model_takes_the_name_of_its_pivot(trainable_release: Release, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^The name bm25 is taken"):
        run_model(str(tiny("dense")), trainable_release, tmp_path / "runs", name="bm25")
    assert not (tmp_path / "runs").exists()


class Shell:
    """Unpickled, it would leave a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def configured(model: Path, **settings: object) -> Path:
    """The model, with settings of sentence-transformers."""
    file = model / "config_sentence_transformers.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return model


def test_damaged_models_are_one_sentence_and_nothing_of_theirs_runs(
    trainable_release: Release, tmp_path: Path, inside: Run
) -> None:
    names = ("nan", "pickled", "shell", "prompt", "wordless", "deeper")
    not_numbers, pickled, shell, prompt, wordless, deeper = (
        Path(shutil.copytree(tiny("dense"), tmp_path / name)) for name in names
    )
    weights = load_file(not_numbers / "model.safetensors")
    last = [name for name in weights if name.endswith("LayerNorm.weight")][-1]
    weights[last][:] = float("nan")
    save_file(weights, not_numbers / "model.safetensors", {"format": "pt"})
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    torch.save({"weights": Shell(tmp_path / "reached")}, shell / "pytorch_model.bin")
    for model in (pickled, shell):
        (model / "model.safetensors").unlink()
    configured(prompt, default_prompt_name="search", prompts={"query": "q: "})
    for file in [*wordless.glob("tokenizer*"), *wordless.glob("vocab*")]:
        file.unlink()
    settings = json.loads((deeper / "config.json").read_text())
    layers = settings["num_hidden_layers"]
    (deeper / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": layers + 1}))
    for model, sentence in (
        (not_numbers, "nan gives NaN or infinity for a query"),
        (shell, "shell. Weights only load failed."),
        (prompt, "prompt. Default prompt name 'search' not found in the configured prompts"),
        (wordless, "wordless. The files of its tokenizer are missing"),
        (deeper, f"deeper. Its files lack weights, such as encoder.layer.{layers}."),
    ):
        arguments = ("--release", trainable_release.folder, "--test-set", "dl19", "--out", tmp_path / "runs")
        done = inside("eval_kit", "run", model, *arguments)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
        assert sentence in done.stderr.splitlines()[-1]
        assert not list((tmp_path / "runs").glob("*.trec"))
    assert not (tmp_path / "reached").exists()
    vectors = [Dense(str(model)).encode_queries(["alpha beta"]) for model in (pickled, tiny("dense"))]
    assert (vectors[0] == vectors[1]).all()
    with pytest.raises(UserError, match=r"wordless\. The files of its tokenizer are missing"):
        Dense(str(tiny("dense")), query_model=str(wordless)).encode_queries(["alpha"])


def test_prompts_that_no_text_would_get_are_named(tmp_path: Path) -> None:
    model = configured(Path(shutil.copytree(tiny("dense"), tmp_path / "mine")), prompts={"search_query": "alpha "})
    with pytest.warns(UserWarning, match=r"mine has prompts \(search_query\), but none called query"):
        plain = Dense(str(model)).encode_queries(["beta"])
    retriever, _ = open_retriever(str(model), {"query_prompt": "alpha "})
    assert isinstance(retriever, Dense)
    prompted, together = retriever.encode_queries(["beta"]), Dense(str(tiny("dense"))).encode_queries(["alpha beta"])
    assert abs(prompted - together).max() < 1e-6 < abs(prompted - plain).max()


def test_what_is_given_as_training_is_the_runs_declaration_afterwards(
    trainable_release: Release, tmp_path: Path
) -> None:
    """A file of the test's own queries, of other queries, and of one by chance; every later command says the same."""
    dl19 = trainable_release.queries("dl19")
    model, out = tiny("dense"), tmp_path / "runs"
    for name, texts, verdict in (
        ("same", [text.upper() for text in dl19["text"]], "yes"),
        ("other", ["who are you"], "no"),
        ("chance", [dl19["text"][0], "who are you"], "no"),
    ):
        file = tmp_path / f"{name}.tsv"
        file.write_text("".join(f"t{number}\t{text}\n" for number, text in enumerate(texts)))
        card = run_model(str(model), trainable_release, out, test_sets=["dl19"], trained_on=file, name=name)
        declared = contamination.training_beside(out / f"{name}.trec")
        schemas.validate("training", declared.as_json())
        assert declared.training_data == [file.name] == card.trained_on
        assert declared.compared is not None and declared.compared.test_sets["dl19"] == (
            dl19.height if verdict == "yes" else len(texts) - 1
        )
        later = eval_kit.score(out / f"{name}.trec", trainable_release, test_sets=["dl19"])
        compared = card.to_polars().filter(system=pl.lit(name))["trained_on"]
        assert {str(mean.trained_on) for mean in later.means} == set(compared) == {verdict}
        assert any("may have seen" in note for note in [*card.notes(), *later.notes()]) is False
        elsewhere = eval_kit.score(out / f"{name}.trec", trainable_release, allow_missing=True, test_sets=["dl20"])
        assert {str(mean.trained_on) for mean in elsewhere.means} == {"unknown"}, "it was not compared with these"
    assert contamination.training_beside(out / "bm25.trec").training_data == []


def test_training_data_is_what_the_card_declares_and_never_none_by_silence(tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny("dense"), tmp_path / "mine"))
    of_cards = {
        "---\ndatasets:\n- ms_marco\n---\n": ["ms_marco"],
        "---\ndatasets: ms_marco\n---\n": ["ms_marco"],
        "---\ndatasets: [\n---\n": None,
        "# A model\n": None,
    }
    for card, expected in of_cards.items():
        (model / "README.md").write_text(card)
        assert open_retriever(str(model))[1] == expected


def test_training_data_of_models_without_a_card_is_what_mteb_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval_kit.files.checkpoint.card", lambda _: None)
    monkeypatch.setattr("eval_kit.files.checkpoint.kind", lambda _: "dense")
    monkeypatch.setattr("eval_kit.models.opening.retriever", lambda *_: None)
    assert {"MSMARCO", "NQ"} <= set(open_retriever("sentence-transformers/all-MiniLM-L6-v2")[1] or [])
    assert open_retriever("somebody/unknown")[1] is None
