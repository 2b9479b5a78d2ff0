"""What the tests do on the shadow device, each in a process of its own.

Arguments: the folder of the compiled device, the scenario, and its arguments as JSON. Prints JSON. Scenarios ask only
``torch.cuda``, so any make-believe device will do: ``SHADOW_CUDA`` names the module of another (see
:mod:`tests.shadow_cuda.device`), or is ``none`` to take the GPU that is there.
"""

import gc
import importlib
import json
import logging
import math
import os
import signal
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import sentence_transformers.util
import torch
from accelerate import Accelerator
from sentence_transformers.base.losses import gradcache
from transformers import Trainer, TrainerCallback

from baselines.systems import system as system_named
from baselines.training import batches, trainer
from eval_kit.errors import UserError
from eval_kit.models.opening import retriever as retriever_of
from eval_kit.release import open_release
from tests.baselines.tiny_cells import tiny_cell
from tests.shadow_cuda import bounds
from tests.shadow_cuda.waiting import Waits


def train(release: str, jobs: list[Any], kill: int = 0, disturb: bool = False, window: int = batches.WINDOW) -> Any:
    """Train cells one after the other: (system, root, options) of each, with batches of one length in each window."""
    batches.WINDOW = window
    tokens: list[int] = []
    norms: list[float] = []
    scored: list[str] = []
    clip, maxsim = Accelerator.clip_grad_norm_, sentence_transformers.util.maxsim

    def clipped(self: Any, *arguments: Any, **options: Any) -> Any:
        norms.append(float(norm := clip(self, *arguments, **options)))
        return norm

    def watched(*sides: Any, **options: Any) -> Any:
        scored.append(str(options.get("device")))
        return maxsim(*sides, **options)

    Accelerator.clip_grad_norm_, sentence_transformers.util.maxsim = clipped, watched

    def counted(module: Any, inputs: Any) -> None:
        if type(module).__name__ == "Transformer" and module.training:
            tokens.append(inputs[0]["input_ids"].numel())

    torch.nn.modules.module.register_module_forward_pre_hook(counted)

    class Kill(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == kill:
                os.kill(os.getpid(), signal.SIGKILL)

    if disturb:
        torch.cuda.manual_seed_all(999)
        torch.manual_seed(999)
    opened, facts = open_release(release), []
    for system, root, options in jobs:
        torch.cuda.reset_peak_memory_stats(0)
        norms.clear()
        scored.clear()
        tokens.clear()
        facts.append(system_named(system).train(tiny_cell(system, opened, Path(root), **options), [Kill()]))
        facts[-1] |= {
            "peak": torch.cuda.max_memory_allocated(0),
            "norms": [*norms],
            "teacher": sorted({*scored}),
            "tokens": sum(tokens),
        }
    return facts


def waits(release: str, jobs: list[Any]) -> Any:
    """Where each training's steps, and the making of their batches, wait for the device: (file, operator) → times."""
    opened, places = open_release(release), []
    for system, root, options in jobs:
        seen = Waits()
        originals = {name: getattr(Trainer, name) for name in ("training_step", "get_batch_samples")}
        for name, original in originals.items():
            setattr(Trainer, name, seen.during(original))
        system_named(system).train(tiny_cell(system, opened, Path(root), **options))
        for name, original in originals.items():
            setattr(Trainer, name, original)
        places.append({"steps": seen.steps, "waits": dict(seen.places)})
    return places


def search(models: list[Any], passages: list[Any], queries: list[Any], folder: str) -> Any:
    """The ranking of each model, (architecture, folder): the memory that it took on the device, and the hits."""
    frame = pl.DataFrame(queries, {"query_id": pl.String, "text": pl.String}, orient="row")
    rankings = {}
    for architecture, model in models:
        torch.cuda.reset_peak_memory_stats(0)
        before = torch.cuda.memory_allocated(0)
        retriever = retriever_of(architecture, model, {})
        index = Path(folder) / architecture
        retriever.index(passages, index)
        hits = {query: list(hits) for query, hits in retriever.search(frame, index, 10)}
        rankings[architecture] = {"taken": torch.cuda.max_memory_allocated(0) - before, "hits": hits}
    return rankings


def limits(release: str, systems: list[str], folder: str, shares: list[float]) -> Any:
    """Train with memory for a share of what a step takes beyond what the model and its optimiser keep."""
    return {system: _limits(release, system, Path(folder) / system, shares) for system in systems}


def _limits(release: str, system: str, folder: Path, shares: list[float]) -> Any:
    opened, rows = open_release(release), []
    options = {"steps": 2, "batch_size": 16, "precision": "bfloat16"}

    def attempt(name: str, limit: float) -> dict[str, Any]:
        gc.collect()
        start = torch.cuda.memory_allocated(0)
        torch.cuda.reset_peak_memory_stats(0)
        _limit(start + limit)
        cell = tiny_cell(system, opened, folder / name, **options)
        try:
            facts = system_named(system).train(cell)
        except UserError as error:
            facts = {"sentence": str(error)}
        facts |= {"peak": torch.cuda.max_memory_allocated(0) - start}
        _limit(math.inf)
        gc.collect()
        return facts | {"left": torch.cuda.memory_allocated(0) - start}

    whole = attempt("whole", math.inf)
    for share in shares:
        rows.append({"share": share} | attempt(str(share), share * whole["peak"]))
    return {"whole": whole, "limited": rows}


def replay(release: str, systems: list[str], folder: str, backbone: str) -> Any:
    """Greatest difference between the two embeddings of GradCache's passes, with dropout.

    The control does not set the device's random state for the second pass.
    """
    passes: list[Any] = []

    def record(module: Any, _: Any, output: Any) -> None:
        if type(module).__name__ == "BertEncoder" and module.training:
            passes.append(output.last_hidden_state.detach().float().cpu())

    torch.nn.modules.module.register_module_forward_hook(record)
    options = {"steps": 1, "backbone": backbone, "precision": "bfloat16"}
    opened, seen = open_release(release), {}
    for system in systems:
        for kind in ("real", "control"):
            passes.clear()
            cell = tiny_cell(system, opened, Path(folder, system, kind), **options)
            (cell.folder / "training").mkdir(parents=True)
            (cell.folder / "training" / trainer.MINI_BATCH).write_text("4")
            with ExitStack() as patches:
                for module in (torch.utils.checkpoint, gradcache) if kind == "control" else ():
                    patches.enter_context(patch.object(module, "set_device_states", lambda *_, **__: None))
                system_named(system).train(cell)
            half = len(passes) // 2
            pairs = zip(passes[:half], passes[half:], strict=True)
            differences = [float((first - second).abs().max()) for first, second in pairs]
            seen[f"{system} {kind}"] = {"passes": len(passes), "difference": max(differences)}
    return seen


def full_size(steps: list[Any], folder: str) -> Any:
    """What the first step of each (config, system) takes at the paper's size."""
    return [bounds.step(config, system, Path(folder)) for config, system in steps]


def device_itself() -> Any:
    """What the shadow promises, asked of it directly."""

    def refusal(call: Any) -> str:
        try:
            call()
        except RuntimeError as error:
            return str(error)
        return ""

    model, text = torch.nn.Linear(4, 2).to("cuda"), torch.randn(3, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        of_autocast = model(text)
    of_autocast.float().sum().backward()
    mixed = refusal(lambda: model(torch.randn(3, 4)))
    two = refusal(lambda: text + torch.randn(3, 4, device="cuda:1"))
    state, host = torch.cuda.get_rng_state(), torch.get_rng_state()
    draws = [torch.nn.functional.dropout(text, 0.5)]
    torch.cuda.set_rng_state(state)
    draws.append(torch.nn.functional.dropout(text, 0.5))
    used = torch.cuda.memory_allocated(0)
    _limit(used + 1_000)
    full = refusal(lambda: torch.zeros(1_000, device="cuda"))
    left = torch.cuda.memory_allocated(0) - used
    _limit(math.inf)
    sparse = torch.eye(4).to_sparse_csr().cuda()
    product = sparse @ text.T
    return {
        "autocast": str(of_autocast.dtype),
        "gradient": str(model.weight.grad.device),
        "mixed": mixed,
        "two": two,
        "repeated": bool((draws[0] == draws[1]).all()),
        "host": bool((torch.get_rng_state() == host).all()),
        "full": full,
        "left": left,
        "sparse": bool((product == text.T).all()) and str(product.device),
    }


def _limit(size: float) -> None:
    """Let the device have no more memory than so many bytes."""
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, size / whole), 0)


if __name__ == "__main__":
    build, scenario, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    installed = arguments.pop("install", {})
    logging.disable(logging.WARNING)  # the dispatcher's remarks
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if (name := os.environ.get("SHADOW_CUDA", "tests.shadow_cuda.device")) != "none":
        importlib.import_module(name).install(Path(build), **installed)
    print(json.dumps(globals()[scenario](**arguments)), flush=True)
    os._exit(0)
