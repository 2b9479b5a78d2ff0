"""The card of a trained baseline: what it was trained on, how, and its figures."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_kit.release import MS_MARCO
from eval_kit.shifts import CONTROL, check_names

TEMPLATE = Path(__file__).parent.parent / "hub_cards" / "model.md"


def render(facts: Mapping[str, Any]) -> str:
    """The text of a model's ``README.md``, its YAML validated by huggingface_hub's classes.

    Args:
        facts: what :func:`baselines.grid.documents.write_card` gathers of the cell. Figures of ``<shift>.<held_out>``
            are *Out*, those of the shift's other test sets *In*.

    Raises:
        UserError: there is no such shift.
    """
    from huggingface_hub import ModelCard

    if facts["shift"] != CONTROL.name:
        check_names([facts["shift"]], "shift")
    return str(
        ModelCard.from_template(
            _card_data(facts),
            template_path=str(TEMPLATE),
            name=_name(facts),
            facts=facts,
            ms_marco=facts["release"]["collection"] == MS_MARCO,
            config=json.dumps(facts["config"], indent=1, sort_keys=True, ensure_ascii=False),
            measures=list(dict.fromkeys(figure["measure"] for figure in facts["figures"])),
            figures=_by_test_set(facts),
        )
    )


def _card_data(facts: Mapping[str, Any]) -> Any:
    from huggingface_hub import EvalResult, ModelCardData

    release = facts["release"]
    synthetic, ms_marco = release["kind"] == "mini", release["collection"] == MS_MARCO
    return ModelCardData(
        model_name=_name(facts),
        base_model=facts["backbone"] if _is_hub_id(facts["backbone"]) else None,
        datasets=["ms_marco"] if ms_marco else None,
        language="zxx" if synthetic else "en" if ms_marco else None,
        library_name="sentence-transformers",
        license="apache-2.0" if synthetic else "other",
        license_name=None if synthetic else "see-card",
        metrics=list(dict.fromkeys(figure["measure"] for figure in facts["figures"])) or None,
        tags=["information-retrieval", "distribution-shift", "ms-marco-shift", facts["system"]],
        eval_results=[
            EvalResult(
                task_type="text-retrieval",
                dataset_type=release["title"],
                dataset_name=f"{release['title']} {figure['test_set']}",
                dataset_config=figure["test_set"],  # what tells results apart
                dataset_revision=f"v{release['version']}",
                metric_type=figure["measure"],
                metric_value=figure["value"],
                metric_args={"queries": figure["queries"]},
            )
            for figure in facts["figures"]
        ]
        or None,
    )


def _by_test_set(facts: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """One row per test set, in the order given: its name, side (In, Out or neither), queries and figures by measure."""
    rows: dict[str, dict[str, Any]] = {}
    for figure in facts["figures"]:
        test_set = figure["test_set"]
        row = rows.setdefault(test_set, {**figure, "side": _side(facts, test_set), "figures": {}})
        row["figures"][figure["measure"]] = figure["value"]
    return list(rows.values())


def _side(facts: Mapping[str, Any], test_set: str) -> str:
    if test_set == f"{facts['shift']}.{facts['held_out']}":
        return "Out"
    return "In" if test_set.startswith(f"{facts['shift']}.") else ""


def _name(facts: Mapping[str, Any]) -> str:
    seed = f".seed{facts['seed']}" if facts["seed"] else ""
    return f"{facts['system']}.{facts['shift']}.{facts['held_out']}{seed}"


def _is_hub_id(backbone: str | None) -> bool:
    """Whether the backbone can be linked to: neither random weights nor a local folder."""
    return backbone is not None and not backbone.startswith((".", "/", "~")) and backbone.count("/") <= 1
