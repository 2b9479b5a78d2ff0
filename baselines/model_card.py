"""The card of a trained baseline: what it was trained on, how, and its figures."""

import json
from pathlib import Path
from typing import Any

from eval_kit.documents import FinishedCell
from eval_kit.release import MS_MARCO

_TEMPLATE = Path(__file__).parent.parent / "hub_cards" / "model.md"


def render(done: FinishedCell, architecture: str, backbone: str | None, title: str, collection: str | None) -> str:
    """The text of a model's ``README.md``, its YAML validated by huggingface_hub's classes.

    Figures of ``<shift>.<held_out>`` are *Out*, those of the shift's other test sets *In*. A ``backbone`` of None
    stands for random weights.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    cell, release = done.cell, done.release
    name = f"{cell.system}.{cell.shift}.{cell.held_out}{f'.seed{cell.seed}' if cell.seed else ''}"
    measures = list(dict.fromkeys(figure.measure for figure in done.figures))
    synthetic, ms_marco = release.kind == "mini", collection == MS_MARCO
    card_data = ModelCardData(
        model_name=name,
        base_model=backbone if done.backbone_commit else None,  # else a folder, or none
        datasets=["ms_marco"] if ms_marco else None,
        language="zxx" if synthetic else "en" if ms_marco else None,
        library_name="sentence-transformers",
        license="apache-2.0" if synthetic else "other",
        license_name=None if synthetic else "see-card",
        metrics=measures,
        tags=["information-retrieval", "distribution-shift", "ms-marco-shift", cell.system],
        eval_results=[
            EvalResult(
                task_type="text-retrieval",
                dataset_type=title,
                dataset_name=f"{title} {figure.test_set}",
                dataset_config=figure.test_set,  # what tells results apart
                dataset_revision=f"v{release.version}",
                metric_type=figure.measure,
                metric_value=figure.value,
                metric_args={"queries": figure.queries},
            )
            for figure in done.figures
        ],
    )
    return str(
        ModelCard.from_template(
            card_data,
            template_path=str(_TEMPLATE),
            name=name,
            architecture=architecture,
            backbone=backbone,
            title=title,
            collection=collection,
            ms_marco=ms_marco,
            measures=measures,
            done=done,
            cell=cell,
            config=json.dumps(done.options, indent=1, sort_keys=True, ensure_ascii=False),
            figures=_by_test_set(done),
        )
    )


def _by_test_set(done: FinishedCell) -> list[dict[str, Any]]:
    """One row per test set, in the order given: its name, side (In, Out or neither), queries and figures by measure."""
    rows: dict[str, dict[str, Any]] = {}
    shift, held_out = done.cell.shift, done.cell.held_out
    for figure in done.figures:
        name = figure.test_set
        side = "Out" if name == f"{shift}.{held_out}" else "In" if name.startswith(f"{shift}.") else ""
        row = rows.setdefault(name, {"test_set": name, "side": side, "queries": figure.queries, "figures": {}})
        row["figures"][figure.measure] = figure.value
    return list(rows.values())
