"""A run among twelve known systems on TREC DL 2019 and 2020: the places that it can have, and what those sets can show.

``panel.parquet`` holds the values, query by query, of runs that castorini/rank_llm (Apache-2.0) kept in its history:
BM25, BM25+RM3, TAS-B, SPLADE++, ADA-2, RepLLaMA, and re-rankings of the first hundred by RankVicuna and RankGPT.
The first two are untrained; TAS-B, SPLADE++ and RepLLaMA were trained on MS MARCO's training queries, which hold none
of these; what the rest were trained on was never published.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from eval_kit.errors import UserError
from eval_kit.measures.definitions import parse
from eval_kit.stats.differences import difference
from eval_kit.stats.losses import holm
from eval_kit.stats.parts import Floats
from eval_kit.tables.table import ALPHA

LEXICAL = ("BM25", "BM25+RM3")
_DIGITS = 6
"""Those of the panel's values, beside which more would be differences."""


@dataclass(frozen=True)
class Standing:
    """Where a run may stand on a test set, by a measure.

    Attributes:
        system, test_set, measure: of the run.
        low, high: the places that it can have, 95 %: those that no paired test excludes, after Holm's correction over
            the systems of the panel (a rank set, Mogstad et al. 2024, Review of Economic Studies 91).
        of: systems, with the run.
        better, worse: those that are shown to be.
        pairs, differ: of the panel's neural systems, and how many of them differ, uncorrected.
        detectable: the difference that half of those pairs would show in 80 % of cases.
    """

    system: str
    test_set: str
    measure: str
    low: int
    high: int
    of: int
    better: list[str]
    worse: list[str]
    pairs: int
    differ: int
    detectable: float

    @property
    def places(self) -> str:
        """In words."""
        return f"place {self.low}" + f" to {self.high}" * (self.high > self.low) + f" of {self.of}"

    def __str__(self) -> str:
        """A sentence."""
        sides = ((self.better, "better"), (self.worse, "worse"))
        beside = "; ".join(f"{', '.join(names)} {word}" for names, word in sides if names)
        where = f"{self.places} on {self.test_set} by {self.measure} (95 %){': ' * bool(beside)}{beside}"
        pairs = f"{self.differ} of {self.pairs} pairs of neural systems differ even uncorrected"
        found = f"a difference of {self.detectable:.3f} is found in 80 % of cases"
        return f"{self.system} can have {where}. What this set can show: {pairs}, and {found}."

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@cache
def values() -> pl.DataFrame:
    """``system``, ``test_set``, ``measure``, ``query_id``, ``value`` of the panel."""
    return pl.read_parquet(Path(__file__).with_name("panel.parquet"))


def standings(of_runs: pl.DataFrame, expected: bool = False) -> list[Standing]:
    """Where runs may stand on each test set of the panel that they cover, by the set's first measure.

    A test set of that name with other queries, as the mini release has, is none of the panel's.

    Args:
        of_runs: ``run``, ``test_set``, ``measure``, ``query_id``, ``value``.
        expected: refuse runs that cover none.
    """
    found = []
    keys = ["test_set", "measure"]
    of_queries = pl.col("query_id").unique().sort().str.join(" ")
    of_panel = values().group_by(keys).agg(queries=of_queries)
    own_sets = of_runs.group_by("run", *keys).agg(queries=of_queries)
    own_sets = own_sets.join(of_panel, on=[*keys, "queries"], how="semi")
    shared = of_runs.join(own_sets, on=["run", *keys], how="semi", maintain_order="left")
    if expected and shared.is_empty():
        sets, measures = (", ".join(values()[key].unique(maintain_order=True)) for key in keys)
        raise UserError(f"No run is scored on the queries of {sets} by {measures}, as the panel is")
    for (_, test_set), group in shared.group_by("run", "test_set", maintain_order=True):
        measure = group["measure"][0]
        own = group.filter(measure=measure).sort("query_id").with_columns(pl.col("value").round(_DIGITS))
        columns = columns_of(str(test_set), measure)
        sign, value = parse(measure).sign, own["value"].to_numpy()
        better, worse = apart({name: sign * (column - value) for name, column in columns.items()})
        neural = [column for name, column in columns.items() if name not in LEXICAL]
        pairs = [difference(one - other) for one, other in combinations(neural, 2)]
        differ = sum((each.p or 1.0) < ALPHA for each in pairs)
        least = float(np.median([each.detectable(1) or 0.0 for each in pairs]))
        names = str(own["run"][0]), str(test_set), str(measure)
        places = 1 + len(better), 1 + len(columns) - len(worse), 1 + len(columns)
        found.append(Standing(*names, *places, better, worse, len(pairs), differ, least))
    return found


def apart(gains: Mapping[str, Floats]) -> tuple[list[str], list[str]]:
    """The systems that are shown to be better than another, and worse, given their gains over it, query by query."""
    tests = {name: difference(each) for name, each in gains.items()}
    shown = zip(tests.items(), holm([test.p for test in tests.values()]), strict=True)
    signs = {name: test.value or 0.0 for (name, test), p in shown if p is not None and p < ALPHA}
    return [name for name, gain in signs.items() if gain > 0], [name for name, gain in signs.items() if gain < 0]


def columns_of(test_set: str, measure: str) -> dict[str, Floats]:
    """The values of each system of the panel, in the order of query ids."""
    rows = values().filter(test_set=pl.lit(test_set), measure=pl.lit(measure)).sort("query_id")
    return {str(name): group["value"].to_numpy() for (name,), group in rows.group_by("system", maintain_order=True)}
