"""Query variations: what a system loses when the same need is worded differently. Plain dataframes in and out.

Each query is compared with itself: the value of the original wording (*clean*) and that of the other one (*varied*),
of one system, measure and test set. A method that was applied several times, such as ten draws of typos, has several
*replicas*.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.measures.definitions import parse
from eval_kit.release import Variation
from eval_kit.stats.losses import holm_corrected, paired_t_test, relative_losses

type Pairs = dict[tuple[str, str], tuple[NDArray[np.float64], NDArray[np.float64]]]

ALL, VALID = "all", "valid"
"""The queries that a row is about: all, or those whose other wording people judged to ask the same."""
_EQUAL = 1e-9


def changes(
    values: pl.DataFrame, variations: Sequence[Variation], pivot: str | None = None, seed: int = 0
) -> pl.DataFrame:
    """What every system loses by every method of variation, over the queries that the method varied.

    Args:
        values: ``system``, ``test_set``, ``variation`` (``<base>.<name>``; null for the original wording), ``measure``,
            ``query_id``, ``value``. Queries of a variation without a clean value are left out.
        variations: those in ``values``.
        pivot: the system that LongEval's effect ratio and ΔRI compare with, usually BM25.
        seed: for the bootstrap.

    Returns:
        One row for each test set, method, system and measure, in the order of ``values``, and a second one where
        people judged which wordings are valid:

        - ``test_set``, ``method`` (``typo``, ``reformulation.rm3.bm25``), ``queries_are`` (``all`` or ``valid``),
          ``system``, ``measure``, ``queries``, ``replicas``;
        - ``clean`` and ``varied``, means over queries (and replicas); ``worst``, that of the worst replica;
          ``change`` = varied − clean; ``rel_loss`` = (clean − varied) / clean, which LongEval calls the relative
          change RC, with ``rel_loss_low`` and ``rel_loss_high`` (95 % paired bootstrap over queries, and over
          replicas where there are several); each null where clean is 0;
        - ``p`` of the paired t-test over queries, ``p_holm`` corrected over the methods and systems of a test set and
          measure, ``d`` (Cohen's d_z);
        - ``helped``, ``unhurt``, ``hurt``: shares of the queries (of every replica) that got better, stayed equal, got
          worse; ``robustness_index`` = helped − hurt (Collins-Thompson, CIKM 2009);
        - ``effect_ratio`` = (system − pivot, varied) / (system − pivot, clean) and ``delta_ri``, the relative
          improvement over the pivot, clean − varied (Breuer et al., SIGIR 2020); null without a pivot.
    """
    pairs = paired(values)
    described = pl.DataFrame(
        [(variation.full_name, variation.group, variation.replica or 0) for variation in variations],
        {"variation": pl.String, "method": pl.String, "replica": pl.Int64},
        orient="row",
    )
    pairs = pairs.join(described, on="variation", maintain_order="left")
    rows: list[dict[str, Any]] = []
    for (test_set, method), varied in pairs.group_by("test_set", "method", maintain_order=True):
        names = varied["variation"].unique().to_list()
        invalid = [variation.invalid for variation in variations if variation.full_name in names]
        for queries_are, part in _scopes(varied, invalid):
            keys = {"test_set": test_set, "method": method, "queries_are": queries_are}
            rows += [keys | row for row in _compared(part, pivot, seed)]
    return holm_corrected(pl.DataFrame(rows, infer_schema_length=None), ["test_set", "measure", "queries_are"])


def paired(values: pl.DataFrame) -> pl.DataFrame:
    """The value of each query on another wording beside that on the original one.

    Args:
        values: as :func:`changes` takes them.

    Returns:
        The rows of other wordings in their order, with a column ``clean``; those without a clean value are left out.
    """
    clean = values.filter(pl.col("variation").is_null()).drop("variation").rename({"value": "clean"})
    keys = ["system", "test_set", "measure", "query_id"]
    return values.filter(pl.col("variation").is_not_null()).join(
        clean.select(*keys, "clean"), on=keys, maintain_order="left"
    )


def robustness(
    clean: NDArray[np.float64], varied: NDArray[np.float64], lower_is_better: bool = False
) -> dict[str, float]:
    """Shares of the pairs that ``helped``, ``unhurt`` and ``hurt``, and ``robustness_index`` = helped − hurt."""
    gain = (clean - varied) if lower_is_better else (varied - clean)
    helped, hurt = float((gain > _EQUAL).mean()), float((gain < -_EQUAL).mean())
    return {"helped": helped, "unhurt": 1 - helped - hurt, "hurt": hurt, "robustness_index": helped - hurt}


def against_pivot(clean: float, varied: float, pivot_clean: float, pivot_varied: float) -> dict[str, float | None]:
    """How much of a system's advantage over the pivot is left: ``effect_ratio`` (1: all) and ``delta_ri`` (0: all).

    Args:
        clean: the system's mean on the original wording.
        varied: its mean on the other wording.
        pivot_clean: the pivot's, likewise.
        pivot_varied: the pivot's, likewise.
    """
    before, after = clean - pivot_clean, varied - pivot_varied
    ratio = after / before if before else None
    improvement = before / pivot_clean - after / pivot_varied if pivot_clean and pivot_varied else None
    return {"effect_ratio": ratio, "delta_ri": improvement}


def _scopes(varied: pl.DataFrame, invalid: Sequence[frozenset[str] | None]) -> Iterator[tuple[str, pl.DataFrame]]:
    yield ALL, varied
    judged = [ids for ids in invalid if ids is not None]
    valid = varied.filter(~pl.col("query_id").is_in(frozenset().union(*judged)))
    if judged and valid.height:
        yield VALID, valid


def _compared(varied: pl.DataFrame, pivot: str | None, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each system and measure, of the queries that all of them have."""
    pairs: Pairs = {}
    for (system, measure), group in varied.group_by("system", "measure", maintain_order=True):
        by_query = group.pivot("replica", index=["query_id", "clean"], values="value").drop_nulls().sort("query_id")
        after = by_query.drop("query_id", "clean").to_numpy().T
        pairs[str(system), str(measure)] = (np.broadcast_to(by_query["clean"].to_numpy(), after.shape), after)
    for (system, measure), loss in relative_losses(pairs, seed=seed).items():
        before, after = pairs[system, measure]
        lower_is_better = parse(measure).lower_is_better
        of_replicas = after.mean(axis=1)
        test = paired_t_test(before, after)
        clean, changed = float(before.mean()), float(after.mean())
        row: dict[str, Any] = {"system": system, "measure": measure, "queries": test.n, "replicas": len(after)}
        row |= {"clean": clean, "varied": changed, "change": changed - clean}
        row["worst"] = float(of_replicas.max() if lower_is_better else of_replicas.min())
        relative = loss.rel_loss
        row |= {"rel_loss": relative.value, "rel_loss_low": relative.low, "rel_loss_high": relative.high}
        row |= {"p": test.p, "d": test.d} | robustness(before, after, lower_is_better)
        if pivot is None or pivot == system or (pivot, measure) not in pairs:
            yield row | {"effect_ratio": None, "delta_ri": None}
        else:
            means = (float(side.mean()) for side in pairs[pivot, measure])
            yield row | against_pivot(clean, changed, *means)
