"""Where we differ: both pages are made of one file, its values are the configs', and what shows a row runs."""

import ast
import inspect
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

from baselines import config
from baselines.training import trainer
from builder.build_cli import rebuilt
from builder.negatives import NegativeParameters
from eval_kit.release.reference import published_cells
from eval_kit.search import bm25

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import differences  # noqa: E402

SOURCE = json.loads(differences.SOURCE.read_text(encoding="utf-8"))
STATES = {"same": {"why", "held"}, "differs": {"compare", "says"}, "not here": {"why"}, "data only": {"why"}}
"""Each state of a row, and what it must have."""
OPERATION = {
    "loader_processes", "checkpoint_every", "evaluate_every", "encode_precision", "depth", "index", "engine", "store",
}  # fmt: skip
"""Options that say how a grid is run."""
HELD = sorted({one for row in SOURCE["rows"] for one in row.get("held", [])})
CODE = [row["code"] for row in SOURCE["recipes"] if "code" in row]
TESTS = [one for one in HELD if one.startswith("tests/")]


def test_both_pages_are_made_of_the_rows() -> None:
    for path, text in differences.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run python docs/differences.py"


def test_every_row_has_a_state_and_what_it_needs() -> None:
    """A difference is values: the paper's, its code's where it has one, and ours, which a config or a test holds."""
    for row in SOURCE["rows"]:
        assert row["part"] and all(row[one] for one in STATES[row["state"]]), row
        if row["state"] == "differs":
            assert "why" not in row and ("options" in row or (row["kit"] and row["held"])), row
            assert all(differences.here(*option.split()) is not None for option in row.get("options", ())), row
    assert len({(row["paper"], row["part"]) for row in SOURCE["rows"]}) == len(SOURCE["rows"])


def test_what_a_repository_has_is_named_by_file_and_key() -> None:
    for code in [*(one for row in SOURCE["rows"] for one in row.get("code", ())), *CODE]:
        file, key, value = code
        assert re.fullmatch(r"[\w-]+/[\w-]+ [\w./+-]+\.(py|yaml|md)", file) and key and value not in (None, ""), code


@pytest.mark.parametrize("name", TESTS)
def test_a_test_that_a_row_names_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("words", [one for one in HELD if one not in TESTS])
def test_a_command_that_a_row_names_runs(words: str, command: Any) -> None:
    assert command(*shlex.split(words), status=0).stdout


@pytest.mark.parametrize("row", SOURCE["recipes"], ids=lambda row: f"{row['config']} {row['option']}")
def test_a_recipe_has_the_papers_value_or_its_codes_or_differs_on_both_pages(row: dict[str, Any]) -> None:
    value = differences.here(row["config"], row["option"])
    assert value is not None, "the config has no such option"
    assert {"as", "states", "says", "code"} & row.keys() and "why" not in row
    if "as" in row:
        assert value == differences.here(row["as"], row["option"])
    if not differences.agrees(row):
        said = {option.rpartition(".")[2] for one in SOURCE["rows"] for option in one.get("options", ())}
        assert row["option"].rpartition(".")[2] in said
    assert "/" not in str(row.get("states", "")), "a paper names no checkpoint of the Hub"


def test_agreement_is_of_values() -> None:
    warmup = {"config": "paper", "option": "biencoder.warmup"}
    assert differences.agrees({**warmup, "code": ["", "", 6_000], "of": 100_000})
    assert not differences.agrees({**warmup, "code": ["", "", 7_000], "of": 100_000})
    assert not differences.agrees({**warmup, "states": 0.1})
    assert differences.agrees({**warmup, "states": 0.06, "code": ["", "", 0.1]})


@pytest.mark.parametrize("name", ["paper", "paper-cikm2022"])
def test_every_option_that_decides_a_weight_or_a_rank_has_its_row(name: str) -> None:
    listed = [row["option"] for row in SOURCE["recipes"] if row["config"] == name]
    options = differences.options(name)
    assert sorted(listed) == sorted(
        f"{system}.{key}" for system, chosen in options.items() for key in chosen if key not in OPERATION
    )


def test_what_a_training_and_a_rebuild_have(tmp_path: Path) -> None:
    """Values that rows state and that no option of a config holds."""
    rows = {row["part"]: row["kit"] for row in SOURCE["rows"] if "kit" in row}
    drawn, bm25_here = NegativeParameters(), f"k1 {bm25.K1:g} and b {bm25.B:g}"
    negatives = rows["§3.1 100 BM25 negatives a query"]
    assert f"{drawn.sample} negatives" in negatives and f"first {drawn.depth:,}" in negatives and bm25_here in negatives
    assert bm25_here in rows["§5.1 negatives"]
    arguments = trainer._arguments(config.read("paper").systems["biencoder"], 0, 1, tmp_path)
    clipping = SentenceTransformerTrainingArguments(str(tmp_path)).max_grad_norm
    assert "max_grad_norm" not in arguments and f"a norm of {clipping}" in rows["§4 gradient clipping, not stated"]
    assert issubclass(arguments["batch_sampler"], NoDuplicatesBatchSampler)
    for name in ("paper", "paper-cikm2022"):
        for own in list(differences.options(name).values())[1:]:
            assert (own["precision"], own["encode_precision"]) == ("bfloat16", "float16")
    assert inspect.signature(rebuilt).parameters["encoder"].default == "lsa"
    assert differences.here("paper", "biencoder.learning_rate") == 1e-5
    ernie = differences.here("cikm2022-tables8-9", "biencoder-ernie2.backbone")
    assert f"`{ernie}`" in rows["Table 9: ERNIE 2.0"]


def test_in_domain_figures_tell_those_on_beir() -> None:
    """Spearman of MS MARCO and the mean of the 18 datasets, over ten systems, and over the nine that are trained."""
    of_systems: dict[str, dict[str, float]] = {}
    for cell in published_cells("beir2021-table2"):
        if cell["figure"] == "value" and cell["test_set"] != "beir":
            of_systems.setdefault(cell["system"], {})[cell["test_set"]] = cell["value"]
    pairs = {
        system: (cells.pop("beir.ms-marco"), sum(cells.values()) / len(cells)) for system, cells in of_systems.items()
    }
    trained = {system: pair for system, pair in pairs.items() if system != "bm25"}
    [row] = [row for row in SOURCE["rows"] if row["part"].startswith("§5, finding 1")]
    for systems, count in ((pairs, "ten"), (trained, "nine")):
        rho = spearmanr(*zip(*systems.values(), strict=True)).statistic
        assert f"{rho:.2f} over {count}" in row["why"]
