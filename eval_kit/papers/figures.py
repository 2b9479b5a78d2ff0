"""Our figures under the names that a published table has for them, and the two beside each other."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from eval_kit.papers import printed_table
from eval_kit.protocols.grid_results import Protocols
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
    "biencoder-rand": ("cikm2022-table9", "rand"),
    "biencoder-roberta": ("cikm2022-table9", "roberta"),
    "biencoder-ernie2": ("cikm2022-table9", "ernie2.0"),
    "biencoder-condenser": ("cikm2022-table9", "condenser"),
    "biencoder-cocondenser-wiki": ("cikm2022-table9", "cocon-wiki"),
    "biencoder-cocondenser-marco": ("cikm2022-table8", "cocon-marco+randneg"),
    "biencoder-star": ("cikm2022-table8", "bert+hardneg"),
    "biencoder-tct": ("cikm2022-table8", "bert+distill"),
}
"""CIKM 2022's table and training of its other dense retrieval models: the variants of config cikm2022-tables8-9."""
_CIKM_VARIANT_PARTS = {"dl19+dl20": "45k", "dev": ""}
"""The contents of these tables: ReSTrain of one size on TREC DL, and ReSTTest."""
CIKM_VARIANT_SYSTEMS = {"cikm2022-table8": "dr-advance", "cikm2022-table9": "dr-base"}
"""These tables' names of the models of :data:`CIKM_VARIANTS`."""
_CIKM_MEASURES = {"R(rel=2)@100": "R@100"}
"""CIKM 2022's names of our measures, where they differ."""
FIGURES = {"in": "avg_in", "out": "out", "loss": "rel_loss"}
CIKM_FIGURES = {"in": "inter", "out": "extra", "loss": "delta"}


@dataclass(frozen=True)
class OwnFigure:
    """One of our figures, under our names.

    Attributes:
        shift: of the grid.
        part: the cluster, or ReSTrain's size; empty for ReSTTest.
        system: that made the runs.
        measure: of the release's test sets.
        figure: ``in``, ``out`` or ``loss`` (CIKM 2022's Inter., Extra. and Δ, which is the loss with the opposite
            sign); ``value`` for one model, or for BM25, on topic, wh and length.
        ours: its value; None where it is undefined.
        low: lower end of the 95 % interval.
        high: upper end.
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
    """Every figure of a grid by the key that it has in a published table."""
    figures: dict[printed_table.Key, OwnFigure] = {}
    for shift, frame in protocols_found.results.items():
        for row in frame.iter_rows(named=True):
            part = row.get("cluster") or row.get("size") or ""
            for figure, column in FIGURES.items():
                interval = (row[name] for name in (column, f"{column}_low", f"{column}_high"))
                at = _key(shift, part, row["system"], row["measure"], figure)
                figures[at] = OwnFigure(shift, part, row["system"], row["measure"], figure, *interval)
    for shift, matrix in protocols_found.matrices.items():
        for row in matrix.iter_rows(named=True):
            at = printed_table.Key(row["system"], f"not-{row['held_out']}", row["test_set"], row["measure"], "value")
            part = row["test_set"].partition(".")[2]
            figures[at] = OwnFigure(shift, part, row["system"], row["measure"], "value", row["value"])
    for system, sets in protocols_found.untrained.items():
        for test_set, values in sets.items():
            shift, _, part = test_set.partition(".")
            for measure, value in values.items():
                at = printed_table.Key(system, "", test_set, measure, "value")
                figures[at] = OwnFigure(shift, part, system, measure, "value", value)
    return figures


def _key(shift: str, part: str, system: str, measure: str, figure: str) -> printed_table.Key:
    """ECIR 2023 has our names; CIKM 2022 has its own, and takes the two TREC DL years together."""
    if SHIFTS[shift].has_clusters:
        return printed_table.Key(system, "", f"{shift}.{part}", measure, figure)
    test_set = "dl19+dl20" if part else "dev"
    names = (test_set, _CIKM_MEASURES.get(measure, measure), CIKM_FIGURES[figure])
    if system in CIKM_VARIANTS and _CIKM_VARIANT_PARTS[test_set] == part:
        table, training = CIKM_VARIANTS[system]
        return printed_table.Key(CIKM_VARIANT_SYSTEMS[table], training, *names)
    return printed_table.Key(_CIKM_SYSTEMS.get(system, system), part, *names)
