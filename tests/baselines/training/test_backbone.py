"""The small backbone: words match themselves before any training, and the cell's own words are added to it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_checkpoints import tiny
from transformers import AutoModelForMaskedLM, AutoTokenizer

from baselines import systems
from baselines.training.backbone import backbone
from eval_kit.errors import UserError
from eval_kit.release import Release
from tests.baselines.tiny_cells import tiny_cell
from tests.conftest import ROOT

NEW = "zzyzx"


@pytest.fixture(scope="module")
def made(trainable_release: Release, tmp_path_factory: pytest.TempPathFactory) -> str:
    cell = tiny_cell("biencoder", trainable_release, tmp_path_factory.mktemp("cells"))
    return backbone(cell, [f"what is {NEW}"])[0]


def test_each_word_of_passages_and_training_queries_is_one_token(made: str, trainable_release: Release) -> None:
    tokenizer = AutoTokenizer.from_pretrained(made)
    texts = [*trainable_release.table("passages", "passages")["text"][:50], f"what is {NEW}"]
    assert [tokenizer.tokenize(text) for text in texts] == [text.split() for text in texts]
    assert tokenizer("qqq")["input_ids"][1:-1] != tokenizer(NEW)["input_ids"][1:-1]


def test_a_word_comes_through_as_itself_and_is_near_to_itself_in_another_text(
    made: str, trainable_release: Release
) -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(made), AutoModelForMaskedLM.from_pretrained(made)
    inputs = tokenizer(trainable_release.table("passages", "passages")["text"][0], return_tensors="pt")
    ids = inputs["input_ids"][0, 1:-1]
    vectors = []
    with torch.inference_mode():
        logits = model(**inputs).logits[0, 1:-1]
        for text in (f"what is {NEW} of the", f"the {NEW} in a"):
            states = model.bert(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            vectors.append(torch.nn.functional.normalize(states, dim=-1))
    assert (logits.argmax(-1) == ids).float().mean() > 0.9
    assert (logits > 0).sum() < 2 * len(ids)
    similarity = vectors[0][3] @ vectors[1].T
    assert similarity.argmax() == 2
    assert similarity[2] > 0.7


def test_it_is_made_once_for_a_release_and_the_same_everywhere(trainable_release: Release, tmp_path: Path) -> None:
    cells = [tiny_cell("biencoder", trainable_release, tmp_path / "a", ("topic", part)) for part in ("c0", "c1")]
    first, second = (AutoModelForMaskedLM.from_pretrained(backbone(cell, [NEW])[0]).state_dict() for cell in cells)
    assert len([path for path in (tmp_path / "a" / "backbones").iterdir() if path.is_dir()]) == 1
    elsewhere = tiny_cell("biencoder", trainable_release, tmp_path / "b")
    torch.manual_seed(99)
    third = AutoModelForMaskedLM.from_pretrained(backbone(elsewhere, [NEW])[0]).state_dict()
    assert all(torch.equal(first[name], second[name]) and torch.equal(first[name], third[name]) for name in first)


def test_random_weights_keep_shape_and_vocabulary_of_a_named_backbone(
    made: str, trainable_release: Release, tmp_path: Path
) -> None:
    named = tiny_cell("biencoder", trainable_release, tmp_path, backbone=made)
    assert backbone(named, []) == (made, {})
    drawn = tiny_cell("biencoder", trainable_release, tmp_path, backbone=made, random_weights=True)
    torch.manual_seed(0)
    folder, _ = backbone(drawn, [])
    before, after = (AutoModelForMaskedLM.from_pretrained(one).state_dict() for one in (made, folder))
    assert {name: tensor.shape for name, tensor in before.items()} == {n: t.shape for n, t in after.items()}
    words = "bert.embeddings.word_embeddings.weight"
    assert not torch.equal(before[words], after[words])
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == AutoTokenizer.from_pretrained(made).get_vocab()


def test_a_damaged_backbone_of_random_weights_is_named_once(trainable_release: Release, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(tiny("bert"), damaged)
    (damaged / "tokenizer.json").write_text("{")
    cell = tiny_cell("biencoder", trainable_release, tmp_path, backbone=str(damaged), random_weights=True)
    with pytest.raises(UserError) as raised:
        systems.system("biencoder").train(cell)
    assert str(raised.value).count("Could not load") == 1


TRAIN = """
import sys
from pathlib import Path
from baselines import systems
from baselines.grid.documents import describe
from eval_kit.release import open_release
from tests.baselines.tiny_cells import tiny_cell

folder, root, hub, system = open_release(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
teacher = {"teacher": "somebody/cross", "distillation": "margin_mse"} if system == "biencoder" else {}
cell = tiny_cell(system, folder, root, backbone="somebody/bert", steps=1, **teacher)
describe(cell)
for main in hub.rglob("main"):
    main.write_text("b" * 40)
describe(cell)
systems.system(system).train(cell)
print(cell.commit("backbone"), cell.commit("teacher"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("system", ["biencoder", "monobert"])
def test_a_backbone_or_teacher_of_the_hub_is_of_one_commit_whatever_its_branch_becomes(
    trainable_release: Release, tmp_path: Path, system: str
) -> None:
    for model in ("bert", "cross"):
        cached = tmp_path / "hub" / f"models--somebody--{model}"
        shutil.copytree(tiny(model), cached / "snapshots" / ("a" * 40))
        broken = cached / "snapshots" / ("b" * 40)
        broken.mkdir()
        (broken / "config.json").write_text('{"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 7}')
        (cached / "refs").mkdir()
        (cached / "refs" / "main").write_text("a" * 40)
    ended = subprocess.run(
        [sys.executable, "-c", TRAIN, trainable_release.folder, tmp_path / "grid", tmp_path / "hub", system],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    of_teacher = "a" * 40 if system == "biencoder" else None
    assert (ended.returncode, ended.stdout) == (0, f"{'a' * 40} {of_teacher}\n"), ended.stderr
