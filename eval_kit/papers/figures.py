"""Our figures under the names that a published table has for them, and the two beside each other."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import polars as pl

from eval_kit.papers import printed_table
from eval_kit.protocols.grid_results import Protocols
from eval_kit.runs.names import control_of
from eval_kit.shifts import SHIFTS

_CIKM_SYSTEMS = {
    "bm25": "bm25",
    "biencoder": "dr-base",
    "splade": "splade",
    "colbert": "colbert",
    "monobert": "reranker",
}
"""CIKM 2022's names of our systems; ECIR 2023's are ours."""
CIKM_VARIANTS = {
    "biencoder": [("dr-base", "bert+randneg"), ("dr-base", "bert")],
    "biencoder-rand": [("dr-base", "rand")],
    "biencoder-roberta": [("dr-base", "roberta")],
    "biencoder-ernie2": [("dr-base", "ernie2.0")],
    "biencoder-condenser": [("dr-base", "condenser")],
    "biencoder-cocondenser-wiki": [("dr-base", "cocon-wiki")],
    "biencoder-cocondenser-marco": [("dr-advance", "cocon-marco+randneg"), ("dr-base", "cocon-marco")],
    "biencoder-adore": [("dr-advance", "bert+hardneg")],
    "biencoder-tct": [("dr-advance", "bert+distill")],
}
"""The names and trainings that CIKM 2022's Tables 8 and 9 give a system; the base is that of Tables 6 and 7 again."""
_CIKM_VARIANT_PARTS = ("45k", "")
"""The contents of these tables: ReSTrain of one size on TREC DL, and ReSTTest."""
_ARXIV_TRAININGS = {"topic": "topics", "wh": "wh", "length": "length"}
"""The names that Table 5 of arXiv 2205.02870v1 gives our shifts."""
_ARXIV_MEASURES = {"R(rel=2)@1000": "R@1000"}
_CIKM_MEASURES = {"R(rel=2)@100": "R@100"}
"""CIKM 2022's names of our measures, where they differ."""
FIGURES = {"in": "avg_in", "out": "out", "loss": "rel_loss"}
CIKM_FIGURES = {"in": "inter", "out": "extra", "loss": "delta"}


@dataclass(frozen=True)
class OwnFigure:
    """One of our figures, under our names, with the ends of its 95 % interval.

    ``part`` is the cluster, or ReSTrain's size; empty for ReSTTest; the test set of a mean that has no part. ``figure``
    is ``in``, ``out`` or ``loss`` (CIKM 2022's Inter., Extra. and Δ, which is the loss with the opposite sign);
    ``value`` for one model, or for BM25, on topic, wh and length.
    """

    shift: str
    part: str
    system: str
    measure: str
    figure: str
    ours: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class BesidePaper(OwnFigure):
    """One of our figures and the paper's, as printed, with its paper and table."""

    paper: float
    source: str

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.ours is None else self.ours - self.paper

    @property
    def inside(self) -> bool | None:
        """Whether the paper's figure lies inside our interval; None where there is no interval."""
        return None if self.low is None or self.high is None else self.low <= self.paper <= self.high

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self) | {"difference": self.difference, "inside": self.inside}


def own_figures(protocols_found: Protocols) -> dict[printed_table.Key, OwnFigure]:
    """Every figure of a grid by each key that it has in a published table."""
    figures: dict[printed_table.Key, OwnFigure] = {}
    for shift, frame in protocols_found.results.items():
        for row in frame.iter_rows(named=True):
            part = row.get("cluster") or row.get("size") or ""
            for figure, column in FIGURES.items():
                interval = (row[name] for name in (column, f"{column}_low", f"{column}_high"))
                own = OwnFigure(shift, part, row["system"], row["measure"], figure, *interval)
                figures |= dict.fromkeys(_keys(own, row.get("test_sets", "")), own)
    for shift, matrix in protocols_found.matrices.items():
        means = matrix.group_by("system", "test_set", "measure", maintain_order=True).agg(pl.col("value").mean())
        models = matrix.select("system", "test_set", "measure", "value", training="not-" + pl.col("held_out"))
        over_models = means.with_columns(training=pl.lit(_ARXIV_TRAININGS.get(shift, "")))
        for row in pl.concat([models, over_models.select(models.columns)]).iter_rows(named=True):
            figures |= _of_model(shift, **row)
    for name, sets in protocols_found.untrained.items():
        control = control_of(name)
        system, training = (control.system, control.shift) if control else (name, "")
        for test_set, values in sets.items():
            shift = training or test_set.partition(".")[0]
            for measure, value in values.items():
                figures |= _of_model(shift, system, test_set, measure, value, training)
    return figures


def _of_model(
    shift: str, system: str, test_set: str, measure: str, value: float, training: str
) -> dict[printed_table.Key, OwnFigure]:
    """A mean of a model, or of a shift's models, which on dev and DL19 is in Table 5 of arXiv 2205.02870v1."""
    printed = measure if "." in test_set else _ARXIV_MEASURES.get(measure, measure)
    own = OwnFigure(shift, test_set.partition(".")[2] or test_set, system, measure, "value", value)
    return {printed_table.Key(system, training, test_set, printed, "value"): own}


def _keys(own: OwnFigure, test_sets: str) -> list[printed_table.Key]:
    """ECIR 2023 has our names; CIKM 2022 its own, for the ``test_sets`` that were covered."""
    if SHIFTS[own.shift].has_clusters:
        return [printed_table.Key(own.system, "", test_sets, own.measure, own.figure)]
    names = [(_CIKM_SYSTEMS.get(own.system, own.system), own.part)]
    names += CIKM_VARIANTS.get(own.system, []) if own.part in _CIKM_VARIANT_PARTS else []
    measure = _CIKM_MEASURES.get(own.measure, own.measure)
    return [printed_table.Key(*name, test_sets, measure, CIKM_FIGURES[own.figure]) for name in names]
