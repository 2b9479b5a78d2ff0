"""Test sets by name in PyTerrier, which finds the kit by its entry point."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from tomllib import loads

import pytest

from eval_kit.integrations.pyterrier import PyTerrier
from eval_kit.protocols.scoring import score
from eval_kit.release import Release, ReleaseError

ROOT = Path(__file__).parents[2]


def test_a_tool_that_lists_everything_is_not_disturbed_without_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [(group, providers)] = loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"].items()
    assert group == "pyterrier.dataset_provider"
    assert EntryPoint("shift", providers["shift"], group).load() is PyTerrier
    monkeypatch.delenv("MS_MARCO_SHIFT_RELEASE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert PyTerrier().list_dataset_names() == []
    monkeypatch.setenv("MS_MARCO_SHIFT_RELEASE", str(tmp_path / "nowhere"))
    assert PyTerrier().list_dataset_names() == []
    with pytest.raises(ReleaseError, match="nowhere"):
        PyTerrier().get_dataset("topic/c0")


EXPERIMENT = """
import json, sys
from importlib.metadata import entry_points
import ir_measures, pyterrier as pt
dataset = pt.get_dataset("shift:topic/c0")
topics, qrels = dataset.get_topicsqrels()
measures = [ir_measures.parse_measure(name) for name in dataset.irds_ref().documentation()["official_measures"]]
[row] = pt.Experiment([pt.Transformer.from_df(pt.io.read_results(sys.argv[1]))], topics, qrels, measures).to_dict("records")
[provider] = entry_points(group="pyterrier.dataset_provider", name="shift")
print(json.dumps([row, len(topics), len(list(dataset.get_corpus_iter(verbose=False))), provider.load()().list_dataset_names()]))
"""  # noqa: E501


@pytest.mark.slow
def test_pyterrier_scores_a_run_as_the_kit_does(
    mini_release: Release, tmp_path: Path, command: Callable[..., subprocess.CompletedProcess[str]], wheel: Path
) -> None:
    """In an environment of its own: PyTerrier, with the kit's wheel and its extra ``irds``."""
    uv = shutil.which("uv") or ROOT / ".bootstrap" / "bin" / "uv"
    if not Path(uv).exists():
        pytest.skip("PYTERRIER NOT TESTED: there is no uv to make an environment with")
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "env"], check=True)
    install = (uv, "pip", "install", "--quiet", "--python", python)
    kit = f"ms-marco-shift[irds] @ {wheel.as_uri()}"
    done = subprocess.run([*install, "python-terrier", kit], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"PYTERRIER NOT TESTED: it cannot be installed: {done.stderr[-500:]}")

    what = ("--release", mini_release.folder, "--test-set", "topic.c0", "--out", tmp_path)
    command("eval_kit", "run", "bm25", *what, "--no-pivot", status=0)
    run = tmp_path / "bm25.trec"
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"MS_MARCO_SHIFT_RELEASE": str(mini_release.folder), "IR_DATASETS_HOME": str(tmp_path / "irds")}
    experiment = [str(python), "-c", EXPERIMENT, str(run)]
    done = subprocess.run(experiment, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row, topics, passages, names = json.loads(done.stdout.splitlines()[-1])
    assert topics == len(mini_release.test_sets["topic.c0"].queries)
    assert passages == mini_release.table("passages", "passages").height
    assert "topic/c0" in names and "topic/not-c0" in names
    figures = {figure.measure: figure.value for figure in score([run], mini_release).means}
    assert set(row) == {"name", "RR@10", "R@1000"}
    for measure in ("RR@10", "R@1000"):
        assert row[measure] == pytest.approx(figures[measure], abs=1e-12)
