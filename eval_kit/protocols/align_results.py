"""Models' scores for :func:`eval_kit.protocols.align.align`, from the kit's own results.

Interpolation and extrapolation come from ``eval_kit protocol --json``, scores on BEIR from
``eval_kit score --dataset --json``. ReSTrain has a model for each
(CIKM 2022 §4.2.1), whose BEIR runs are named as its cells:
``<system>.restrain.interpolate_<size>.<dataset>`` and
``<system>.restrain.extrapolate_<size>.<dataset>``. A system evaluated by ReSTTest is on BEIR as
``<system>.<dataset>``, one model for both trainings.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.release.beir_suite import CQADUPSTACK, datasets
from eval_kit.shifts import REGIMES

MEASURES = {"restrain": "nDCG@10", "resttest": "RR@10"}
"""The measure of interpolation and extrapolation by shift; the first shift in the results is taken."""

type Model = tuple[str, str, float, str, float]
"""``system``, ``training``, ``score``, ``dataset``, ``value``: a row of :func:`eval_kit.protocols.align.align`."""


def read_results(paths: Sequence[Path]) -> list[Model]:
    """The models in one file of protocol results, with their scores from any number of files of BEIR results.

    Raises:
        UserError: not exactly one file of ``eval_kit protocol --json``; a file that no such command has written; a
            model without a score on some dataset, with the run's name expected; one scored twice on a dataset.
    """
    protocols: dict[Path, Any] = {}
    values: dict[str, dict[str, float]] = {}
    for path in paths:
        document = strict_json.read(path)
        if not isinstance(document, dict):
            raise UserError(f"{path}: expected results of eval_kit protocol --json or score --dataset --json")
        try:
            if "protocols" in document:
                protocols[path] = list(_scores_of_trained(document["protocols"]))
            else:
                _add(values, document, path)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError):
            what = "is not in the format of eval_kit protocol --json or score --dataset --json"
            raise UserError(f"{path}: {what}") from None
    if len(protocols) != 1 or not values:
        counts = f"{len(protocols)} and {len(paths) - len(protocols)}"
        files = "one file of eval_kit protocol --json and at least one of score --dataset --json"
        raise UserError(f"give {files}; given: {counts}")
    [(path, models)] = protocols.items()
    if not models:
        raise UserError(f"{path}: holds results of neither {' nor '.join(MEASURES)}")
    names = dict.fromkeys(name for of_model in values.values() for name in of_model)
    rows: list[Model] = []
    for system, training, score, beir_name in models:
        if lacking := next((name for name in names if name not in values.get(beir_name, {})), None):
            raise UserError(f"{path}: the BEIR results lack {beir_name} on {lacking}: run {beir_name}.{lacking}.trec")
        rows += [(system, training, score, _paper_name(name), values[beir_name][name]) for name in names]
    return rows


def _scores_of_trained(protocols: Any) -> Iterator[tuple[str, str, float, str]]:
    """System, training, score and the model's name on BEIR."""
    shift = next((shift for shift in MEASURES if shift in protocols), None)
    for row in protocols[shift] if shift else ():
        if row["measure"] != MEASURES[str(shift)]:
            continue
        system, scores = row["system"], (float(row["avg_in"]), float(row["out"]))
        for training, regime, score in zip(("interpolation", "extrapolation"), REGIMES, scores, strict=True):
            if shift == "restrain":
                size = row["size"]
                yield f"{system}.{size}", training, score, f"{system}.{shift}.{regime}_{size}"
            else:
                yield system, training, score, system


def beir_scores(paths: Sequence[Path]) -> dict[str, dict[str, float]]:
    """System → BEIR's name of a dataset → nDCG@10, from files of ``score --dataset --json``.

    Raises:
        UserError: a file that no such command has written, or that scores a system on a dataset again.
    """
    values: dict[str, dict[str, float]] = {}
    for path in paths:
        try:
            _add(values, strict_json.read(path), path)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError):
            raise UserError(f"{path}: is not in the format of score --dataset --json") from None
    return values


def _add(values: dict[str, dict[str, float]], document: Any, path: Path) -> None:
    """Add each system's nDCG@10 by dataset, with the mean of CQADupStack's folders as one."""
    for row in document["rows"]:
        system, name, measure = row["system"], row["dataset"], row["measure"]
        if measure != "nDCG@10" or name.startswith(f"{CQADUPSTACK}."):
            continue
        if name in values.setdefault(system, {}):
            raise UserError(f"{path}: scores {system} on {name}, as an earlier file does")
        values[system][name] = float(row["value"])


def _paper_name(name: str) -> str:
    """The dataset's name in the reference tables."""
    return datasets()[name].published_as if name in datasets() else name
