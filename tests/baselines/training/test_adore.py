"""ADORE: its loss and what it finds beside plain numpy; it learns, moves only queries, and resumes after a kill."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

from baselines import config, systems
from baselines.cell import Cell
from baselines.grid import grid
from baselines.grid.work import attempt
from baselines.training.adore import Found, with_found
from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.runs.names import RunName
from eval_kit.search import shards
from tests.baselines.tiny_cells import tiny_options

STAR = {
    "backbone": {"layers": 2, "width": 32, "heads": 2},
    "steps": 60,
    "batch_size": 16,
    "negatives": 2,
    "mine_every": 20,
    "static_negatives": 1,
}
ADORE = {"starts_from": "biencoder-star", "negatives": 0, "checkpoint_every": 5, "learning_rate": 3e-3}


def cell_of(release: Release, root: Path, steps: int) -> Cell:
    star = tiny_options("biencoder", **STAR)
    start = {"biencoder-star": star.as_json(), "biencoder": {**star.as_json(), **ADORE, "steps": steps}}
    for name in ("mine_every", "static_negatives"):
        del start["biencoder"][name]
    options = config.parse({"systems": start}, "test").systems
    name = RunName("biencoder", "topic", "c0")
    return Cell(name, release, options["biencoder"], root, start=options["biencoder-star"])


@pytest.mark.parametrize("store", [np.float32, np.float16])
def test_the_loss_and_what_is_found_are_numpys(tmp_path: Path, store: Any) -> None:
    random, depth = np.random.default_rng(4), 50
    names = [f"p{number}" for number in random.permutation(400)]
    vectors = random.normal(size=(400, 8)).astype(store)
    made = shards.write(zip(names, names, strict=True), tmp_path, _encoder(dict(zip(names, vectors, strict=True))), "x")
    queries = torch.tensor(random.normal(size=(3, 8)), dtype=torch.float32, requires_grad=True)
    scores = queries.detach().numpy() @ vectors.astype(np.float32).T
    order = np.argsort(-scores, axis=1)
    relevant = [[order[0, 2], order[0, 40]], [order[1, 300]], [order[2, 0], order[2, 399]]]  # found, not found, in part
    positives = [[names[row] for row in rows] for rows in relevant]
    module = with_found(None, Found(made, positives, depth))
    loss = module.compute_loss_from_embeddings([queries], torch.tensor([0, 1, 2]))
    expected = []
    for number in range(3):
        ranks = {row: rank for rank, row in enumerate(order[number, :depth], start=1)}
        good = [row for row in relevant[number] if row in ranks] or relevant[number]
        pairs = []
        for one in good:
            for other in ranks.keys() - {*good}:
                worth = abs((1 / ranks[one] if one in ranks else 0) - 1 / ranks[other])
                pairs.append(worth * np.log1p(np.exp(scores[number, other] - scores[number, one])))
        expected.append(np.mean(pairs))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)
    loss.backward()
    assert queries.grad is not None and queries.grad.abs().sum() > 0
    found = Found(made, positives, depth).candidates(queries.detach().numpy(), [0, 1, 2])
    for number, (of_query, _, _) in enumerate(found):
        assert np.array_equal(of_query[:depth], vectors[order[number, :depth]].astype(np.float32))


def _encoder(vectors: dict[str, Any]) -> Any:
    probe = np.zeros_like(next(iter(vectors.values())))
    return lambda texts: {"vectors": np.stack([vectors.get(text, probe) for text in texts])}


class Stop(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 7:
            raise KeyboardInterrupt


def test_it_learns_moves_only_queries_and_resumes(trainable_release: Release, tmp_path: Path) -> None:
    whole = cell_of(trainable_release, tmp_path, 80)
    assert attempt(whole) is None  # and before it, the cell that it starts from
    assert whole.beginning.is_finished and whole.beginning.published_run.is_file() and whole.published_run.is_file()
    facts = systems.system("biencoder").train(whole)
    losses = [*facts["losses"].values()]
    assert np.mean(losses[-4:]) < 0.9 * np.mean(losses[:4])
    model, start = (SentenceTransformer(str(cell.model)) for cell in (whole, whole.beginning))
    texts = ["a text", "and another one"]
    assert np.array_equal(model.encode_document(texts), start.encode_document(texts))
    assert not np.allclose(model.encode_query(texts), start.encode_query(texts), atol=1e-3)
    again = [replace(cell_of(trainable_release, tmp_path, 10), root=tmp_path / name) for name in ("once", "twice")]
    for cell in again:
        (tmp_path / cell.root.name).mkdir()
        cell.beginning.folder.symlink_to(whole.beginning.folder)
    systems.system("biencoder").train(again[0])
    with pytest.raises(KeyboardInterrupt):
        systems.system("biencoder").train(again[1], [Stop()])
    assert not again[1].model.exists()
    systems.system("biencoder").train(again[1])
    once, twice = ({path.name: path.read_bytes() for path in cell.model.rglob("*.safetensors")} for cell in again)
    assert once == twice and once


def test_a_grid_names_its_start_and_its_digest(trainable_release: Release, tmp_path: Path) -> None:
    plan = config.read("cikm2022-tables8-9").systems
    star, adore = grid.cells(
        {name: plan[name] for name in ("biencoder-star", "biencoder-adore")}, trainable_release, tmp_path, ["topic"]
    )[:2]
    star, adore = (replace(cell, resolved={"backbone": "0"}) for cell in (star, adore))
    assert (adore.beginning.name, adore.beginning.options) == (star.name, star.options)
    with pytest.raises(UserError, match=r"biencoder-adore .*--system biencoder-star"):
        config.choose("cikm2022-tables8-9", ["biencoder-adore"])
