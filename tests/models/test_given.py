"""The model that is searched is the model that was given: odd models at every door, beside a few lines of numpy."""

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from operator import length_hint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import eval_kit
from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.models import checkpoints
from eval_kit.models.opening import open_retriever
from eval_kit.release import Release
from eval_kit.search.passages import collection_of, with_titles
from tests.beir_folders import beir_folder
from tests.tiny_checkpoints import passages, texts, tiny

PASSAGES = passages(60)
QUERIES = texts(8, 1, longest=8)


def hits(name: str, folder: Path, options: dict[str, Any] | None = None, **how: Any) -> dict[str, dict[str, float]]:
    """What a search of the passages finds, by query."""
    import polars as pl

    retriever, _ = open_retriever(name, options, **how)
    retriever.index(PASSAGES, folder)
    queries = pl.DataFrame({"query_id": [f"q{row}" for row in range(len(QUERIES))], "text": QUERIES})
    return {query: dict(found) for query, found in retriever.search(queries, folder, 60)}


def agree(found: dict[str, dict[str, float]], scores: Any, tolerance: float = 1e-4) -> None:
    """The same scores, in an order that is right but for ties, of all that the search finds."""
    wanted = np.asarray(scores, np.float64)
    bound = tolerance * np.abs(wanted).max()
    for row, ranked in enumerate(found.values()):
        columns = [int(passage[1:]) for passage in ranked]
        assert len(columns) >= 10
        assert np.allclose(list(ranked.values()), wanted[row, columns], rtol=0, atol=bound)
        assert (np.sort(wanted[row])[::-1][:10] <= wanted[row, columns[:10]] + bound).all()


def own_scores(model: Any) -> Any:
    """By the model's own similarity, of vectors of 32 bits."""
    queries, documents = (
        encode(batch, convert_to_tensor=True).float()
        for encode, batch in ((model.encode_query, QUERIES), (model.encode_document, [text for _, text in PASSAGES]))
    )
    return model.similarity(queries, documents).to_dense()


def dense(folder: Path, **how: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    dtype = how.pop("dtype", torch.float32)
    model = SentenceTransformer(str(tiny("dense")), **how).to(dtype)
    model.save(str(folder))
    return model


def router(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    two = [SentenceTransformer(str(tiny("dense"))) for _ in range(2)]
    model = SentenceTransformer(modules=[Router.for_query_document([*two[0]], [*two[1]])])
    model.save(str(folder))
    return model


def sparse(folder: Path, **how: Any) -> Any:
    from sentence_transformers import SparseEncoder

    model = SparseEncoder(str(tiny("sparse")), **how)
    model.save(str(folder))
    return model


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_arithmetic_has_the_precision_that_was_asked(stored: torch.dtype, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    dense(tmp_path / "model", dtype=stored)
    model = SentenceTransformer(str(tmp_path / "model")).float()
    found = hits(str(tmp_path / "model"), tmp_path / "index", {"encode_precision": "float32"})
    agree(found, own_scores(model), 1e-5)
    with pytest.warns(UserWarning, match=str(stored).removeprefix("torch.")):
        hits(str(tmp_path / "model"), tmp_path / "other")


def test_whatever_makes_the_vectors_changed_they_are_made_again(tmp_path: Path, monkeypatch: Any) -> None:
    dense(tmp_path / "model", similarity_fn_name="dot")
    pooling = next(tmp_path.glob("model/1_*"))
    shutil.move(pooling, tmp_path / "linked")
    pooling.symlink_to(tmp_path / "linked", target_is_directory=True)
    config = next(tmp_path.glob("linked/*.json"))
    before = hits(str(tmp_path / "model"), tmp_path / "index")
    config.write_text(config.read_text().replace('"mean"', '"cls"'))
    after = hits(str(tmp_path / "model"), tmp_path / "index")
    assert after == hits(str(tmp_path / "model"), tmp_path / "fresh") != before

    monkeypatch.setattr(OBJECT, "scale", np.arange(1.0, 25.0))
    one = hits("mine", tmp_path / "object", loaded=OBJECT)
    monkeypatch.setattr(OBJECT, "scale", np.arange(24.0, 0.0, -1.0))  # which no list of files shows
    with pytest.warns(UserWarning, match="again"):
        assert hits("mine", tmp_path / "object", loaded=OBJECT) != one


def with_head(folder: Path, seed: int = 1) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense

    torch.manual_seed(seed)
    SentenceTransformer(modules=[*SentenceTransformer(str(tiny("dense"))), Dense(32, 12)]).save(str(folder))


def of_json(name: str, **values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        [file] = folder.glob(name)
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    return change


def of_weights(name: str, dtype: Any = None) -> Callable[[Path], None]:
    from safetensors.torch import load_file, save_file

    def change(folder: Path) -> None:
        [file] = folder.glob(name)
        weights = {key: tensor.to(dtype) if dtype else tensor.flip(0) for key, tensor in load_file(file).items()}
        save_file(weights, file, {"format": "pt"})

    return change


IN_PLACE = {
    "weights": of_weights("model.safetensors"),
    "head": of_weights("2_Dense/model.safetensors"),
    "stored precision": of_weights("model.safetensors", torch.bfloat16),
    "length": of_json("sentence_bert_config.json", max_seq_length=5),
    "pooling": of_json("1_Pooling/config.json", pooling_mode="cls"),
    "similarity": of_json("config_sentence_transformers.json", similarity_fn_name="euclidean"),
    "prompt of queries": of_json("config_sentence_transformers.json", prompts={"query": "alpha beta "}),
    "prompt of passages": of_json("config_sentence_transformers.json", prompts={"document": "alpha beta "}),
    "dimensions": of_json("config_sentence_transformers.json", truncate_dim=4),
}


@pytest.mark.parametrize("what", IN_PLACE)
def test_what_changes_in_place_changes_the_next_run(what: str, tmp_path: Path) -> None:
    with_head(tmp_path / "model")
    before = hits(str(tmp_path / "model"), tmp_path / "index")
    IN_PLACE[what](tmp_path / "model")
    after = hits(str(tmp_path / "model"), tmp_path / "index")
    assert after == hits(str(tmp_path / "model"), tmp_path / "fresh") != before


def test_options_code_and_passages_that_change_change_the_next_run(tmp_path: Path, monkeypatch: Any) -> None:
    with_head(tmp_path / "model")
    before = hits(str(tmp_path / "model"), tmp_path / "index")
    for options in ({"encode_precision": "bfloat16"}, {"passage_length": 4}, {"passage_prompt": "psi "}):
        after = hits(str(tmp_path / "model"), tmp_path / "index", options)
        assert after == hits(str(tmp_path / "model"), tmp_path / str(options), options) != before
    monkeypatch.setattr(sys.modules[__name__], "PASSAGES", [*PASSAGES[:-1], (PASSAGES[-1][0], "omega")])
    after = hits(str(tmp_path / "model"), tmp_path / "index")
    assert after == hits(str(tmp_path / "model"), tmp_path / "fresh") != before

    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for folder, word in (("one", "alpha"), ("one", "beta"), ("two", "beta")):
        encode = f"lambda _, texts: numpy.array([[text.count('{word}'), 1] for text in texts])"
        code = f"import numpy\nclass Mine:\n    encode = {encode}\nmine = Mine()\n"
        (tmp_path / "its_code.py").write_text(code)
        sys.modules.pop("its_code", None)
        importlib.invalidate_caches()
        found.append(hits("its_code:mine", tmp_path / folder))
    assert found[1] == found[2] != found[0]


def test_prefixes_that_only_a_card_tells_are_those_of_mteb(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("mteb")
    model = dense(tmp_path / "model")
    name = "intfloat/e5-small-v2"
    monkeypatch.setattr(checkpoint, "kind", lambda *_: "dense")
    monkeypatch.setattr(checkpoint, "card", lambda *_: None)
    monkeypatch.setattr(checkpoint, "digest", lambda *_: "weights")
    monkeypatch.setattr(checkpoint, "_json", lambda *_: {})
    monkeypatch.setattr(checkpoint, "open_model", lambda *_, **how: dense(tmp_path / "copy"))
    bare = hits(name, tmp_path / "index", {"query_prompt": "", "passage_prompt": ""})
    agree(bare, own_scores(model))
    with pytest.warns(UserWarning, match="registry"):
        found = hits(name, tmp_path / "index")
    model.prompts = {"query": "query: ", "document": "passage: "}
    agree(found, own_scores(model))
    assert found != bare
    monkeypatch.setattr(checkpoints, "_registered", lambda _: None)  # mteb is not there
    with pytest.warns(UserWarning, match="query_prompt"):
        assert hits(name, tmp_path / "index") == bare


class Counts:
    """Letters of a text."""

    scale: Any = 1.0

    def vectors(self, batch: Any) -> Any:
        return np.array([[text.count(letter) for letter in "abcdefghiklmnoprstuvwxyz"] for text in batch]) * self.scale


OBJECT = Counts()


class Plain(Counts):
    def encode(self, batch: Any) -> Any:
        return self.vectors(batch)


class Cosine(Plain):
    similarity_fn_name = "cosine"


class Near(Plain):
    similarity_fn_name = "euclidean"


class Tensors(Counts):
    def encode(self, batch: Any) -> Any:
        return torch.nn.Parameter(torch.from_numpy(self.vectors(batch))).bfloat16()


class Beir(Counts):
    def encode_queries(self, batch: Any) -> Any:
        return self.vectors(batch)

    def encode_corpus(self, batch: Any) -> Any:
        return self.vectors([passage["title"] + passage["text"] for passage in batch])


class LangChain(Counts):
    def embed_query(self, text: str) -> Any:
        return self.vectors([text])[0].tolist()

    def embed_documents(self, batch: Any) -> Any:
        return self.vectors(batch).tolist()


class Packed(Counts):
    def encode(self, batch: Any) -> Any:
        return np.packbits(self.vectors(batch) > 1, axis=1)


class Measured(Plain):
    def similarity(self, queries: Any, passages: Any) -> Any:
        return -torch.cdist(queries, passages, p=1)


Counts.encode = Counts.vectors  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Plain, Cosine, Near, Measured, Tensors, Beir, LangChain, Packed])
def test_objects_of_any_make_are_searched_by_the_similarity_that_they_declare(kind: Any, tmp_path: Path) -> None:
    counts = Counts()
    queries, documents = counts.vectors(QUERIES), counts.vectors([text for _, text in PASSAGES])
    scores = queries @ documents.T
    if kind is Cosine:
        scores = scores / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(documents, axis=1)
    elif kind is Near:
        scores = -np.linalg.norm(queries[:, None] - documents[None], axis=2)
    elif kind is Measured:
        scores = -np.abs(queries[:, None] - documents[None]).sum(2)
    elif kind is Packed:
        scores = 24.0 - 2 * ((queries > 1)[:, None] != (documents > 1)[None]).sum(2)
    agree(hits("mine", tmp_path / "index", loaded=kind()), scores)


def test_lengths_and_dimensions_are_options(tmp_path: Path) -> None:
    router(tmp_path / "router")
    whole = hits(str(tmp_path / "router"), tmp_path / "index")
    assert hits(str(tmp_path / "router"), tmp_path / "index", {"query_length": 4}) != whole
    dense(tmp_path / "model")
    model = dense(tmp_path / "short", truncate_dim=8)
    agree(hits(str(tmp_path / "model"), tmp_path / "truncated", {"truncate_dim": 8}), own_scores(model))
    with pytest.raises(UserError, match="truncate_dim"):
        hits(str(tmp_path / "model"), tmp_path / "truncated", {"truncate_dim": 800})


def test_the_passages_of_a_folder_or_file_are_counted_for_the_time_that_is_left(tmp_path: Path) -> None:
    rows = [{"_id": passage, "title": "", "text": text} for passage, text in PASSAGES]
    folder = beir_folder(tmp_path / "beir", rows, {"q0": QUERIES[0]}, [("q0", "p0")])
    (tmp_path / "one.tsv").write_text("\n".join(map("\t".join, PASSAGES)))  # without an end of the last line
    release = eval_kit.open_release(folder)
    for collection in (collection_of(release), collection_of(release, str(tmp_path / "one.tsv"))):
        assert length_hint(with_titles(collection, ". ").read()) == len(list(collection.read())) == len(PASSAGES)


def test_what_is_no_re_ranker_is_refused_before_anything_is_searched(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="3 scores"):
        open_retriever(str(tiny("classes")))
    (tmp_path / "config.json").write_text('{"architectures": ["T5ForConditionalGeneration"]}')
    with pytest.raises(UserError, match="generative"):
        open_retriever(str(tmp_path))
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    with pytest.warns(UserWarning, match="re-ranker"):
        open_retriever(str(tmp_path))
    (tmp_path / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
    assert checkpoint.labels(str(tmp_path)) == 2


def test_what_modules_are_called_shows_a_kind(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text('[{"type": "pylate.models.Dense.Dense"}]')
    assert checkpoint.kind(str(tmp_path)) == "multivector"
    (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
    assert open_retriever(str(tmp_path), kind="late")[0].__class__.__name__ == "MultiVector"
    with pytest.raises(UserError, match="kind"):
        open_retriever(str(tmp_path), kind="colbert")


def test_runs_of_folders_of_one_name_are_told_apart_and_none_replaces_anothers(
    trainable_release: Release, tmp_path: Path
) -> None:
    search = partial(eval_kit.run, release=trainable_release, out=tmp_path / "runs", pivots=[], test_sets=["dl19"])
    for parent in ("a", "b"):
        dense(tmp_path / parent / "checkpoint-500")
        search(str(tmp_path / parent / "checkpoint-500"))
    assert {file.name for file in (tmp_path / "runs").glob("*.trec")} == {
        "a-checkpoint-500.trec",
        "b-checkpoint-500.trec",
    }
    first, model = tmp_path / "runs" / "a-checkpoint-500.trec", sparse(tmp_path / "other")
    before = first.read_bytes()
    with pytest.raises(UserError, match="replace"):
        search(model, name="a-checkpoint-500")
    assert first.read_bytes() == before
    search(model, name="a-checkpoint-500", replace=True)
    assert first.read_bytes() != before


def by_mteb(model: Any, release: Release) -> Any:
    import mteb

    from eval_kit.integrations.mteb import tasks

    return mteb.evaluate(model, tasks(release, "topic"), cache=None, show_progress_bar=False)


def test_two_scores_a_pair_and_whole_numbers_are_told_at_every_door(trainable_release: Release, tmp_path: Path) -> None:
    pytest.importorskip("mteb")
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from eval_kit.integrations.sentence_transformers import ShiftEvaluator

    class Quantised(SentenceTransformer):
        kind = "ubinary"

        def encode(self, *texts: Any, **how: Any) -> Any:
            return super().encode(*texts, **how | {"precision": self.kind, "convert_to_tensor": False})

    many, bits = CrossEncoder(str(tiny("classes"))), Quantised(str(tiny("dense")))
    queries = trainable_release.test_sets["topic.c0"].queries
    passage = trainable_release.table("passages", "passages")["passage_id"][0]
    candidates = {query: {passage: 1.0} for query in queries}
    search = partial(eval_kit.run, release=trainable_release, pivots=[], test_sets=["topic.c0"])
    for refused in (
        lambda: search(many, out=tmp_path),
        lambda: ShiftEvaluator(trainable_release, "topic", candidates)(many),
        lambda: by_mteb(many, trainable_release),
    ):
        with pytest.raises(UserError, match="3 scores"):
            refused()
    assert not list(tmp_path.iterdir())
    for bits.kind, said in (("ubinary", "Hamming"), ("binary", "numbers"), ("int8", "numbers")):
        for warned in (
            lambda: search(bits, out=tmp_path / bits.kind),
            lambda: ShiftEvaluator(trainable_release, "topic")(bits),
        ):
            with pytest.warns(UserWarning, match=said):
                warned()
        with pytest.raises(UserError, match="int8"):
            by_mteb(bits, trainable_release)
