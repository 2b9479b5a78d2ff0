"""What would stop a grid after hours is one sentence before it starts."""

from pathlib import Path

import pytest
import torch
from rich.console import Console
from tiny_checkpoints import tiny
from typer.testing import CliRunner

from baselines import beir, config
from baselines.cells.cell import Cell
from baselines.cli import app
from baselines.efficiency import efficiency
from baselines.grid.stages import run_cell
from baselines.runners import checks
from builder import encoders
from eval_kit.errors import UserError
from eval_kit.models.multivector import MultiVector
from eval_kit.release import Release
from eval_kit.runs import names
from eval_kit.search import gpus, late
from tests.baselines.tiny_cells import tiny_options


def cell(release: Release, root: Path, system: str = "biencoder", **options: object) -> Cell:
    return Cell(names.RunName(system, "topic", "c0"), release, tiny_options(system, depth=1000, **options), root)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A machine with one GPU, of the compute capability and memory that are given."""

    def of(capability: str, mebibytes: str = "[N/A]") -> None:
        command = tmp_path / "nvidia-smi"
        command.write_text(f'#!/bin/sh\ncase "$*" in *compute_cap*) echo {capability};; *) echo "{mebibytes}";; esac\n')
        command.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80", "sm_120", "compute_120"])

    return of


def test_a_gpu_that_torch_has_no_code_for(gpu):
    gpu("7.0")
    with pytest.raises(UserError, match=r"GPU 0 has compute capability 7\.0, and torch .* needs 7\.5 or more"):
        gpus.refuse_old_gpus(bfloat16=False)
    gpu("7.5")
    gpus.refuse_old_gpus(bfloat16=False)
    with pytest.raises(UserError, match=r"bfloat16 needs 8\.0 or more; leave out --precision, or take float16"):
        gpus.refuse_old_gpus(bfloat16=True)
    gpu("9.0")
    gpus.refuse_old_gpus(bfloat16=True)


@pytest.mark.parametrize(
    ("capability", "precision"), [("9.0", "bfloat16"), ("8.0", "bfloat16"), ("7.5", "float16"), ("6.1", "float32")]
)
def test_a_card_without_bfloat16_trains_in_the_widest_that_it_has(gpu, capability: str, precision: str):
    gpu(capability)
    of_card = gpus.instead_of_bfloat16()
    chosen = config.choose("day", instead_of_bfloat16=of_card)
    assert {name: own.precision for name, own in chosen.items() if name != "bm25"} == dict.fromkeys(
        ("biencoder", "splade", "colbert", "monobert"), precision
    )
    assert config.choose("mini", ["biencoder"], None, None, of_card)["biencoder"].precision == "float32"
    for name in ("mini", "day"):
        forced = config.choose(name, ["splade"], precision="float32", instead_of_bfloat16=of_card)
        assert forced["splade"].precision == "float32"


def test_a_gpu_with_too_little_memory_for_plaid(
    gpu, mini_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    need = mini_release.table("passages", "passages").height * 70 * 65
    by_plaid, by_number = (
        [cell(mini_release, tmp_path, "colbert", engine=engine, dimensions=128, store="float16")]
        for engine in ("plaid", None)
    )
    gpu("9.0", str(need >> 20))
    with pytest.raises(UserError, match=r"PLAID's index of .* takes about .* GB of a GPU's memory, and GPU 0 has"):
        checks.refuse(by_plaid)
    checks.refuse(by_number)
    monkeypatch.setattr(late, "MANY_PASSAGES", 1)
    with pytest.raises(UserError, match="takes about"):
        checks.refuse(by_number)
    for memory in (str((need >> 20) + 1), "[N/A]"):
        gpu("9.0", memory)
        checks.refuse(by_plaid)
    gpu("9.0", "1")
    monkeypatch.setattr(late, "build", lambda *_: None)
    retriever = MultiVector(str(tiny("multivector")), engine="plaid")
    with pytest.raises(UserError, match="and GPU 0 has 0; set the engine to exact"):
        retriever.index([(f"p{number}", "alpha") for number in range(231)], tmp_path / "index")


def test_what_runs_a_model_refuses_gpus_that_torch_does_not_see(
    gpu, mini_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    gpu("9.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    progress, model = Console(), str(tiny("dense"))
    for start in (
        lambda: beir.search(["bm25", "tas-b"], [tmp_path / "nfcorpus"], tmp_path / "runs", 101, progress),
        lambda: efficiency(["tas-b"], tmp_path / "nfcorpus", 10, tmp_path / "efficiency"),
        lambda: encoders.Model(model).model(),
        lambda: CliRunner().invoke(app, ["search", model], catch_exceptions=False),
    ):
        with pytest.raises(UserError, match=r"lists 1 GPUs, but torch .* sees none"):
            start()
    outcome = run_cell(cell(mini_release, tmp_path / "grid", backbone=model))
    assert outcome.state == "failed" and "lists 1 GPUs" in str(outcome.reason)
    assert not (tmp_path / "runs").exists() and not (tmp_path / "efficiency").exists()


def test_a_backbone_or_teacher_that_is_nowhere(mini_release: Release, tmp_path: Path):
    for model in (str(tmp_path / "nowhere"), "nobody/no-such-model"):
        for options in ({"backbone": model}, {"teacher": model, "distillation": "kl"}):
            with pytest.raises(UserError, match=r"cannot be loaded: there is no such folder"):
                checks.refuse([cell(mini_release, tmp_path / "grid", **options)])
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "modules.json").write_text("[]")
    with pytest.raises(UserError, match="words: is no transformer, which a training starts from"):
        checks.refuse([cell(mini_release, tmp_path / "grid", backbone=str(tmp_path / "words"))])
    wrong = cell(mini_release, tmp_path / "grid", teacher=str(tiny("cross")), distillation="kl")
    with pytest.raises(UserError, match=r"is a cross-encoder .*, not a late-interaction encoder"):
        checks.refuse([wrong])
    assert not (tmp_path / "grid").exists()
