"""The card of a trained baseline: what it was trained on, how, and its figures."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_kit.documents import FinishedCell
from eval_kit.release import MS_MARCO
from eval_kit.shifts import CONTROL, check_names

TEMPLATE = Path(__file__).parent.parent / "hub_cards" / "model.md"


@dataclass(frozen=True)
class Facts:
    """What a card tells.

    Attributes:
        done: of the cell. Figures of ``<shift>.<held_out>`` are *Out*, those of the shift's other test sets *In*.
        architecture: of the system, in words.
        backbone: the pretrained model that training started from; None for random weights.
        title: of the release.
        collection: that the release's passages are of.
    """

    done: FinishedCell
    architecture: str
    backbone: str | None
    title: str
    collection: str | None

    @property
    def name(self) -> str:
        """The model's."""
        cell = self.done.cell
        return f"{cell.system}.{cell.shift}.{cell.held_out}{f'.seed{cell.seed}' if cell.seed else ''}"

    @property
    def ms_marco(self) -> bool:
        """Whether the passages are MS MARCO's."""
        return self.collection == MS_MARCO

    @property
    def measures(self) -> list[str]:
        """Those of the figures, each once."""
        return list(dict.fromkeys(figure.measure for figure in self.done.figures))


def render(facts: Facts) -> str:
    """The text of a model's ``README.md``, its YAML validated by huggingface_hub's classes.

    Raises:
        UserError: there is no such shift.
    """
    from huggingface_hub import ModelCard

    conclusion = facts.done
    if conclusion.cell.shift != CONTROL.name:
        check_names([conclusion.cell.shift], "shift")
    return str(
        ModelCard.from_template(
            _card_data(facts),
            template_path=str(TEMPLATE),
            facts=facts,
            done=conclusion,
            cell=conclusion.cell,
            config=json.dumps(conclusion.options, indent=1, sort_keys=True, ensure_ascii=False),
            figures=_by_test_set(conclusion),
        )
    )


def _card_data(facts: Facts) -> Any:
    from huggingface_hub import EvalResult, ModelCardData

    release = facts.done.release
    synthetic = release.kind == "mini"
    return ModelCardData(
        model_name=facts.name,
        base_model=facts.backbone if facts.done.backbone_commit else None,  # else a folder, or none
        datasets=["ms_marco"] if facts.ms_marco else None,
        language="zxx" if synthetic else "en" if facts.ms_marco else None,
        library_name="sentence-transformers",
        license="apache-2.0" if synthetic else "other",
        license_name=None if synthetic else "see-card",
        metrics=facts.measures,
        tags=["information-retrieval", "distribution-shift", "ms-marco-shift", facts.done.cell.system],
        eval_results=[
            EvalResult(
                task_type="text-retrieval",
                dataset_type=facts.title,
                dataset_name=f"{facts.title} {figure.test_set}",
                dataset_config=figure.test_set,  # what tells results apart
                dataset_revision=f"v{release.version}",
                metric_type=figure.measure,
                metric_value=figure.value,
                metric_args={"queries": figure.queries},
            )
            for figure in facts.done.figures
        ],
    )


def _by_test_set(conclusion: FinishedCell) -> Sequence[dict[str, Any]]:
    """One row per test set, in the order given: its name, side (In, Out or neither), queries and figures by measure."""
    rows: dict[str, dict[str, Any]] = {}
    for figure in conclusion.figures:
        name = figure.test_set
        row = {"test_set": name, "side": _side(conclusion, name), "queries": figure.queries, "figures": {}}
        rows.setdefault(name, row)["figures"][figure.measure] = figure.value
    return list(rows.values())


def _side(conclusion: FinishedCell, test_set: str) -> str:
    if test_set == f"{conclusion.cell.shift}.{conclusion.cell.held_out}":
        return "Out"
    return "In" if test_set.startswith(f"{conclusion.cell.shift}.") else ""
