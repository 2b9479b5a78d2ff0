"""Query variations: what a system loses when the same need is worded differently.

Each query is compared with itself: the value of the original wording (*clean*) and that of the other one (*varied*),
of one system, measure and test set. A method that was applied several times, such as ten draws of typos, has several
*replicas*.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit import plots
from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.divisions import FEW, HOLLOW
from eval_kit.errors import UserError, choices, parameter
from eval_kit.measures.definitions import Measure, parse
from eval_kit.protocols.reformulations import beside_published
from eval_kit.protocols.scores import Scores
from eval_kit.protocols.scoring import score_on
from eval_kit.release import Release, TestSet, Variation
from eval_kit.results import Picture, Result
from eval_kit.runs.given import GivenRuns, Run, take
from eval_kit.runs.wordings import WordedRun, original_of, wordings_of
from eval_kit.sentences import in_table, most_telling, weightiest
from eval_kit.stats.differences import ROUNDING
from eval_kit.stats.losses import holm_corrected, paired_t_test, relative_losses
from eval_kit.tables.table import (
    UNTESTED,
    Column,
    Fields,
    Format,
    Source,
    Table,
    Value,
    ends_shown,
    laid_out,
    loss,
    of,
    share,
    side_by_side,
    significance,
)

type Pairs = dict[tuple[str, str], tuple[NDArray[np.float64], NDArray[np.float64]]]

ALL, VALID = "all", "valid"
"""The queries that a row is about: all, or those whose other wording people judged to ask the same."""
_NOTES = (
    "° not significant: paired t-test over queries, and over replicas where there are several, p ≥ 0.05 after Holm's "
    "correction",
    UNTESTED,
    "n counts queries, × replicas. Rel Loss is (clean − varied) / clean, LongEval's RC, with its own uncorrected 95 % "
    "interval. RI is the robustness index, helped − hurt",
)
_ONE_REPLICA = (
    "With one replica, p and interval are about this draw of the variation. Another draw may cost more or less"
)
_VALID_NOTE = "valid counts only variations that people judged to ask the same"


@dataclass(frozen=True, repr=False)
class Variations(Result):
    """What the systems of some runs lose by query variations, and what that rests on.

    Attributes:
        values: as :func:`changes` takes them.
        variations: those of the runs.
        results: from :func:`changes`.
        published: from :func:`eval_kit.protocols.reformulations.beside_published`.
        provenance: of the scores.
    """

    title = "Query variations"

    values: pl.DataFrame
    variations: Sequence[Variation]
    results: pl.DataFrame
    published: pl.DataFrame
    provenance: dict[str, Any]
    otherwise: Sequence[str] = ()

    def to_polars(self) -> pl.DataFrame:
        """One row for each test set, method, system and measure: ``results``."""
        return self.results

    def content(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"variations": self.results.to_dicts(), "published": self.published.to_dicts()}

    def tables(self) -> list[Table]:
        """The tables of :meth:`by_test_set` in a row."""
        return list(chain.from_iterable(self.by_test_set()))

    def by_test_set(self) -> list[list[Table]]:
        """The tables of each test set, one for each measure; then CIKM 2021's, where ours can stand beside it.

        A row is a method and system.
        """
        tables: dict[str, list[Table]] = {}
        for (test_set, measure), rows in self.results.group_by("test_set", "measure", maintain_order=True):
            table = _table(rows, f"Other wordings, {test_set}, {measure}", parse(str(measure)))
            tables.setdefault(str(test_set), []).append(table)
        return [*tables.values(), *([[_beside_published(self.published)]] if self.published.height else [])]

    @property
    def heading(self) -> str:
        """The systems."""
        return f"What query variations cost {', '.join(self.results['system'].unique(maintain_order=True))}"

    def summary(self) -> list[str]:
        """What costs each system most, by the first measure of the first test set, the greatest loss first."""
        first = self.results.row(0, named=True)
        here = self.results.filter(test_set=pl.lit(first["test_set"]), measure=pl.lit(first["measure"]))
        sign = parse(first["measure"]).sign
        groups = here.drop_nulls("rel_loss").partition_by("system", maintain_order=True)
        most = [max(group.iter_rows(named=True), key=lambda row: sign * row["rel_loss"]) for group in groups]
        named, rest = most_telling(most, lambda row: sign * row["rel_loss"], 5)
        sentences = []
        for row in named:
            lost = f"most by {row['method']}: {share(row['rel_loss'])} of"
            loses = lost if sign * row["rel_loss"] > 0 else "nothing by any wording:"
            where = f"{row['test_set']}, n = {row['queries']:,}{', not significant' * ('°' in significance(row))}"
            sentences.append(f"{row['system']} loses {loses} {row['measure']} ({where}).")
        return [*sentences, *in_table(rest, "system")]

    def method(self) -> list[str]:
        """What the marks and the columns mean."""
        valid = [_VALID_NOTE] if VALID in self.results["queries_are"] else []
        one = [_ONE_REPLICA] if (self.results["replicas"] == 1).any() else []
        return [*_NOTES, *one, *valid]

    def figures(self) -> list[Picture]:
        """For each test set, what each method costs each system in the main measure.

        The method that costs the last system most stands first: the pivots stand before the model.
        """
        figures = []
        systems = self.results["system"].unique(maintain_order=True).to_list()
        rows = self.results.filter(pl.col("rel_loss").is_not_null(), queries_are=ALL)
        own = systems[-1]
        own_loss = pl.col("rel_loss").filter(pl.col("system") == own).first().over("method")
        for (test_set,), of_set in rows.group_by("test_set", maintain_order=True):
            of_measure = of_set.filter(pl.col("measure") == pl.col("measure").first())
            effects: list[plots.Effect] = []
            in_order = of_measure.sort(own_loss, descending=True, nulls_last=True, maintain_order=True)
            for (method,), group in in_order.group_by("method", maintain_order=True):
                for number, row in enumerate(group.iter_rows(named=True)):
                    label = "" if number else str(method)
                    cost, n = (row["rel_loss"], row["rel_loss_low"], row["rel_loss_high"]), row["queries"]
                    effects.append(plots.Effect(label, *cost, n, n < FEW, systems.index(row["system"])))
            axis = f"loss of {of_measure['measure'][0]} to query variations"
            caption = f"{test_set}: {axis}, each with its own 95 % interval, ordered by {own}'s loss. "
            caption += "More is lost on the right."
            caption += f" {HOLLOW}" * any(effect.is_of_few for effect in effects)
            figures.append(Picture(plots.forest(effects, axis, caption, percent=True), caption, systems))
        return figures


def variations(
    runs: GivenRuns,
    release: ReleaseSource = None,
    *,
    test_set: str | None = None,
    seed: int = 0,
    allow_missing: bool = False,
) -> Variations:
    """Measure what systems lose when the same queries are mistyped, reformulated or paraphrased, paired by query.

    Args:
        runs: named ``<system>.<base>.<variation>``, and ``<system>`` for those of the original queries.
        release: the one that holds the variations and judgements.
        test_set: compare on this part of the varied queries only.
        seed: for the bootstrap.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: a run that cannot be used or lacks its counterpart, or an unknown test set.
    """
    opened_release = open_release(release)
    [taken] = take(runs=runs)
    worded_runs = wordings_of(taken, opened_release)
    test_sets = opened_release.test_sets
    if test_set is not None and test_set not in test_sets:
        raise UserError(
            f"Unknown test set {test_set!r} of {opened_release.folder}", do=f"Choose from: {choices(test_sets)}"
        )
    scores = score_on(_to_score(worded_runs, opened_release, test_set), opened_release, allow_missing=allow_missing)
    return varied(scores, worded_runs, seed=seed)


def varied(scores: Scores, runs: Sequence[WordedRun], *, seed: int = 0) -> Variations:
    """The same of runs that are scored, each on the queries that it searched."""
    called = [(each.run.name, each.system, each.variation and each.variation.full_name) for each in runs]
    of_variations = pl.DataFrame(called, dict.fromkeys(("run", "system", "variation"), pl.String), orient="row")
    values = (
        scores.per_query_in_full().drop("missing", "trained_on").join(of_variations, on="run", maintain_order="left")
    )
    descriptions = list({each.variation.full_name: each.variation for each in runs if each.variation}.values())
    results = changes(values, descriptions, seed)
    lacks = not values["searched"].all()
    otherwise = _otherwise(results, changes(values, descriptions, seed, shared=True)) if lacks else []
    provenance = {**scores.provenance, "seed": seed}
    return Variations(values, descriptions, results, beside_published(results), provenance, otherwise)


def _otherwise(results: pl.DataFrame, shared: pl.DataFrame) -> list[str]:
    """The losses in the first measure that are others on the queries that both runs have."""
    keys = ["test_set", "method", "queries_are", "system", "measure"]
    first = pl.col("measure") == pl.col("measure").first().over("test_set")
    both = results.filter(first, queries_are=ALL).join(shared, on=keys, suffix="_of", maintain_order="left")
    found = []
    for row in both.iter_rows(named=True):
        losses = share(row["rel_loss"]), share(row["rel_loss_of"])
        if losses[0] != losses[1]:
            on = f"On the {row['queries_of']:,} queries of {row['test_set']} that both runs of {row['system']} have"
            weight = abs((row["rel_loss"] or 0.0) - (row["rel_loss_of"] or 0.0))
            found.append((weight, f"{on}, {row['method']} costs {losses[1]}, not {losses[0]} ({row['measure']})"))
    return weightiest(found, "figure")


def varied_beside(scores: Scores, runs: Sequence[Run], release: Release, seed: int = 0) -> Variations:
    """The same of runs of which those of the original queries are scored already."""
    worded_runs = wordings_of(runs, release)
    to_score = _to_score(worded_runs, release)
    scored = {mean.run for mean in scores.means}
    further = score_on(
        {run: sets for run, sets in to_score.items() if run.name not in scored}, release, allow_missing=True
    )
    together = scores.provenance | {"runs": [*scores.provenance["runs"], *further.provenance["runs"]]}
    return varied(Scores([*scores.means, *further.means], together), worded_runs, seed=seed)


def _to_score(
    worded_runs: Sequence[WordedRun], release: Release, test_set: str | None = None
) -> dict[Run, list[TestSet]]:
    """For each run the queries that it searched, and for the originals the same test sets."""
    to_score: dict[Run, list[TestSet]] = {each.run: [] for each in worded_runs}
    originals: dict[tuple[Run, str], TestSet] = {}
    for each in worded_runs:
        if each.variation:
            scored_on = release.test_sets[test_set or each.variation.base]
            to_score[each.run].append(_variant(scored_on, each.variation, release))
            originals[original_of(each, worded_runs).run, scored_on.name] = scored_on
    for (run, _), scored_on in originals.items():
        to_score[run].append(scored_on)
    return to_score


def _variant(test_set: TestSet, variation: Variation, release: Release) -> TestSet:
    """The queries of the test set that the variation rewords."""
    if not test_set.query_ids <= release.test_sets[variation.base].query_ids:
        raise UserError(
            f"{parameter('test_set')} {test_set.name} is not a part of {variation.base}, which {variation.full_name} "
            "varies"
        )
    wordings = release.wordings(variation)["query_id"]
    return replace(test_set, queries=test_set.queries.filter(test_set.queries.is_in(wordings.implode())))


def changes(
    values: pl.DataFrame, variations: Sequence[Variation], seed: int = 0, *, shared: bool = False
) -> pl.DataFrame:
    """What every system loses by every method of variation, over the queries that the method varied.

    Args:
        values: ``system``, ``test_set``, ``variation`` (``<base>.<name>``; null for the original wording), ``measure``,
            ``query_id``, ``value``, ``searched``. Queries of a variation without a clean value are left out.
        variations: those in ``values``.
        seed: for the bootstrap.
        shared: only on queries of which both wordings were searched.

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
          measure;
        - ``helped``, ``unhurt``, ``hurt``: shares of the queries (of every replica) that got better, stayed equal, got
          worse; ``robustness_index`` = helped − hurt (Collins-Thompson, CIKM 2009).
    """
    pairs = beside_clean(values.filter("searched") if shared else values)
    rows_of_variations = [(each.full_name, each.group, each.replica or 0) for each in variations]
    schema = {"variation": pl.String, "method": pl.String, "replica": pl.Int64}
    of_variations = pl.DataFrame(rows_of_variations, schema, orient="row")
    pairs = pairs.join(of_variations, on="variation", maintain_order="left")
    rows: list[dict[str, Any]] = []
    for (test_set, method), variant in pairs.group_by("test_set", "method", maintain_order=True):
        for queries_are, part in _scopes(variant, variations):
            keys = {"test_set": test_set, "method": method, "queries_are": queries_are}
            for row in _rows(part, seed):
                rows.append(keys | row)
    return holm_corrected(pl.DataFrame(rows, infer_schema_length=None), ["test_set", "measure", "queries_are"])


def beside_clean(values: pl.DataFrame) -> pl.DataFrame:
    """The value of each query on another wording beside that on the original one (``clean``).

    The rows of other wordings stay in their order; those without a clean value are left out.
    """
    keys = ("system", "test_set", "measure", "query_id")
    clean = values.filter(pl.col("variation").is_null()).select(*keys, clean="value")
    return values.filter(pl.col("variation").is_not_null()).join(clean, on=keys, maintain_order="left")


def robustness(
    clean: NDArray[np.float64], variant: NDArray[np.float64], lower_is_better: bool = False
) -> dict[str, float]:
    """Shares of the pairs that ``helped``, ``unhurt`` and ``hurt``, and ``robustness_index`` = helped − hurt."""
    gain = (clean - variant) if lower_is_better else (variant - clean)
    gains, hurt = float((gain > ROUNDING).mean()), float((gain < -ROUNDING).mean())
    return {"helped": gains, "unhurt": 1 - gains - hurt, "hurt": hurt, "robustness_index": gains - hurt}


def _scopes(variant: pl.DataFrame, variations: Sequence[Variation]) -> Iterator[tuple[str, pl.DataFrame]]:
    yield ALL, variant
    names = set(variant["variation"])
    invalid = [each.invalid for each in variations if each.full_name in names and each.invalid is not None]
    valid = variant.filter(~pl.col("query_id").is_in(frozenset().union(*invalid)))
    if invalid and valid.height:
        yield VALID, valid


def _rows(variant: pl.DataFrame, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each system and measure, of the queries that all of them have."""
    groups, ids = {}, []
    for names, group in variant.group_by("system", "measure", maintain_order=True):
        by_query = group.pivot("replica", index=["query_id", "clean"], values="value")
        groups[names] = by_query.drop_nulls().sort("query_id")
        ids.append(set(groups[names]["query_id"]))
    common = set.intersection(*ids)
    if not common:
        raise UserError(
            f"No query of {variant['method'][0]} of {variant['test_set'][0]} is in every replica of all systems"
        )
    pairs: Pairs = {}
    for (system, measure), of_all in groups.items():
        by_query = of_all.filter(pl.col("query_id").is_in(common))
        after = by_query.drop("query_id", "clean").to_numpy().T
        pairs[str(system), str(measure)] = (np.broadcast_to(by_query["clean"].to_numpy(), after.shape), after)
    for (system, measure), (_, _, rel_loss) in relative_losses(pairs, seed=seed).items():
        before, after = pairs[system, measure]
        lower_is_better = parse(measure).kind.lower_is_better
        of_replicas = after.mean(axis=1)
        clean, after_mean = float(before.mean()), float(after.mean())
        row: dict[str, Any] = {"system": system, "measure": measure, "queries": after.shape[1], "replicas": len(after)}
        row |= {"clean": clean, "varied": after_mean, "change": after_mean - clean}
        row["worst"] = float(of_replicas.max() if lower_is_better else of_replicas.min())
        row |= rel_loss.columns("rel_loss")
        yield row | {"p": paired_t_test(before, after).p} | robustness(before, after, lower_is_better)


def _table(results: pl.DataFrame, title: str, measure: Measure) -> Table:
    valid = VALID in results["queries_are"]
    show, signed = measure.show, partial(measure.show, with_sign=True)

    def number(name: str, source: Source, format: Format = "") -> Column:
        return Column(name, "number", of(ALL, source), format)

    columns = [
        Column("variation", "heading", "method", wrap="anywhere"),
        Column("system", wrap="anywhere"),
        number("n", _count),
        number("clean", "clean", show),
        number("varied", "varied", show),
        number("worst", "worst", show),
        number("change", "change", signed),
        number("Rel Loss", _rel_loss),
        number("95 %", partial(ends_shown, name="rel_loss")),
        *(number(name, name, ".0%") for name in ("helped", "unhurt", "hurt")),
        number("RI", "robustness_index", ".2f"),
        Column("valid n", "number", of(VALID, "queries"), ",", none="", shown=valid),
        Column("valid Rel Loss", "number", of(VALID, _rel_loss), none="", shown=valid),
    ]
    in_order = pl.concat(results.partition_by("method", maintain_order=True))
    return laid_out(side_by_side(in_order, ["method", "system"], "queries_are"), columns, block="method", title=title)


def _beside_published(paper: pl.DataFrame) -> Table:
    """CIKM 2021, Table 7: one row per method; our system's figure after that of the ranker of its name."""
    rows = side_by_side(paper, ["method"], "system")
    columns = [Column("method", "heading")]
    for system in paper["system"].unique(maintain_order=True):
        for name, source, form in (("published", "published", ".4f"), ("here", "value", ".4f"), ("n", "queries", ",")):
            columns.append(Column(name, "number", of(system, source), form, none="", group=system))
    return laid_out(rows, columns, title="CIKM 2021, Table 7: AP on chameleons.veiled.50")


def _count(row: Fields) -> str:
    return f"{row['queries']:,}" + (f" × {row['replicas']}" if row["replicas"] > 1 else "")


def _rel_loss(row: Fields) -> Value:
    return Value(loss(row["rel_loss"]), mark="" if row["rel_loss"] is None else significance(row))
