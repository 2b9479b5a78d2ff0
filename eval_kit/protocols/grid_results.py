"""From grid runs to protocol results: score, group by shift, compare, and lay out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Any

import polars as pl

from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.errors import UserError
from eval_kit.measures.definitions import parse
from eval_kit.protocols import crossed, in_out, papers
from eval_kit.protocols.chameleons import with_average_precision
from eval_kit.protocols.hanging import counted_groups, grouped
from eval_kit.protocols.scores import IN_FULL, Scores
from eval_kit.protocols.scoring import scores_of
from eval_kit.release import Release
from eval_kit.results import Picture, Result
from eval_kit.runs import contamination
from eval_kit.runs.given import GivenRuns, Run, take
from eval_kit.runs.grids import in_cells
from eval_kit.runs.names import RunName, grid
from eval_kit.sentences import and_more, most_telling, weightiest
from eval_kit.shifts import SHIFTS, Shift
from eval_kit.stats.differences import FEW_DRAWN, UNDRAWN
from eval_kit.stats.losses import MARGIN
from eval_kit.stats.similarity import by_cluster
from eval_kit.tables.table import ALPHA, UNTESTED, Table, ends_shown, share

_SIGNIFICANCE = (
    "° not significant: two-sided paired t-test over queries, and over trainings where there are several seeds, "
    "p ≥ 0.05 after Holm's correction over the systems and parts of a measure. With one seed, it ignores variation "
    "between trainings",
    UNTESTED,
    f"≈ equivalent: Out within {100 * MARGIN:g} % of In, by two one-sided t-tests, p < 0.05 after the same correction",
    "The 95 % intervals of losses are each of that loss alone, uncorrected",
)
OVER_PARTS = (
    '"over queries" is about these parts, whose queries are random. "over parts", from five parts on, is about others '
    "like them, as if they were drawn at random. F tests that parts differ by no more than chance"
)


_MOST_SENTENCES, _MOST_PARTS = 6, 3


def _verb(row: Mapping[str, Any]) -> tuple[str, str]:
    """What a difference that is shown is, a loss or a gain, with the interval of that."""
    values = [row["rel_loss"], row["rel_loss_low"], row["rel_loss_high"]]
    loses = row["rel_loss"] * parse(row["measure"]).sign > 0
    if row["rel_loss"] < 0:
        values = [value and -value for value in (values[0], values[2], values[1])]
    figure = dict(zip(("value", "low", "high"), values, strict=True))
    ends = ends_shown(figure, share)
    return "loses" if loses else "gains", share(figure["value"]) + (f" ({ends})" if ends else "")


@dataclass(frozen=True, repr=False)
class Protocols(Result):
    """Results by shift, what they rest on, and the values of untrained systems.

    ``values`` are the grid runs' per-query values, with ``system``, ``shift``, ``held_out`` and ``seed``; ``crossed``
    are the losses of each cluster of crossed hold-outs, if there are any. ``overall`` has the losses over all parts
    of each shift of clusters (:func:`eval_kit.protocols.in_out.overall`), ``differences`` those between systems.
    """

    title = "What held-out parts cost"

    values: pl.DataFrame
    results: dict[str, pl.DataFrame]
    matrices: dict[str, pl.DataFrame]
    untrained: dict[str, dict[str, dict[str, float]]]
    clusters: dict[str, list[str]]
    provenance: dict[str, Any]
    overall: dict[str, pl.DataFrame]
    differences: dict[str, pl.DataFrame]
    crossed: pl.DataFrame | None = None
    otherwise: Sequence[str] = ()

    def content(self) -> dict[str, Any]:
        """Plain JSON values: one list of rows a shift."""
        return {
            "protocols": _rows(self.results),
            "overall": _rows(self.overall),
            "differences": _rows(self.differences),
            "matrices": _rows(self.matrices),
            "untrained": self.untrained,
        } | ({} if self.crossed is None else {"crossed": self.crossed.to_dicts()})

    def to_polars(self) -> pl.DataFrame:
        """One row for each ``shift``, part, system and measure: see :func:`eval_kit.protocols.in_out.losses`."""
        frames = [frame.select(pl.lit(shift).alias("shift"), pl.all()) for shift, frame in self.results.items()]
        return pl.concat(frames, how="diagonal_relaxed")

    def per_query(self) -> pl.DataFrame:
        """The grid runs' values: ``values``."""
        return self.values

    def tables(self) -> list[Table]:
        """The papers' tables, a section for each shift."""
        return [replace(table, section=shift) for shift in self.results for _, table in self.of_shift(shift)]

    def summary(self) -> list[str]:
        """What held-out parts of each shift cost each system, by the shift's main measure, the greatest loss first."""
        sentences = []
        for shift in self.results:
            rows = self.standings(shift).drop_nulls("rel_loss")
            said = [self._of_system(shift, row) for row in rows.iter_rows(named=True)]
            named, rest = most_telling(said, itemgetter(0, 1), _MOST_SENTENCES)
            if named:
                text = "; ".join(text for *_, text in named) + and_more(rest, "systems")
                sentences.append(f"{SHIFTS[shift].title}, {rows['measure'][0]}: {text}.")
        return sentences

    def _of_system(self, shift: str, row: dict[str, Any]) -> tuple[bool, float, str]:
        """Whether anything is shown of a system, its greatest loss or gain, and a sentence.

        Where its parts differ beyond their queries, it is about those in which a test over queries shows a difference;
        what other parts cost is another figure, and told apart.
        """
        name = " ".join(filter(None, (row["system"], row.get("size"))))
        parts = self.results[shift].filter(pl.col("p_holm") < ALPHA, system=row["system"], measure=row["measure"])
        differ = shift in self.overall and row.get("p_q") is not None and row["p_q"] < ALPHA
        if differ and parts.height:
            of_parts = parts.sort(pl.col("rel_loss").abs(), descending=True).rows(named=True)
            verbs: dict[str, list[str]] = {}
            for each in of_parts[:_MOST_PARTS]:
                verb, shown = _verb(each)
                verbs.setdefault(verb, []).append(f"{shown} on {each['cluster']}")
            said = " and ".join(f"{verb} {', '.join(shown)}" for verb, shown in verbs.items())
            if parts.height == row["parts"] and len({_verb(each)[0] for each in of_parts}) == 1:  # all of them
                most = f"most on {of_parts[0]['cluster']}, {share(abs(of_parts[0]['rel_loss']))}"
                said, of_parts = f"{' '.join(_verb(row))}, {most}", of_parts[:1]
            text = f"{name} {said}{and_more(len(of_parts[_MOST_PARTS:]), 'parts')}"
            if row["of_parts_low"] is not None:
                is_open = row["of_parts_low"] <= 0 <= row["of_parts_high"]
                shown = f"{share(row['of_parts'])} ({ends_shown(row, share, 'of_parts')})"
                text += f" (for other parts {'it is open: ' * is_open}{shown})"
            return True, abs(of_parts[0]["rel_loss"]), text
        low, high = row["rel_loss_low"], row["rel_loss_high"]
        is_shown = row["p_holm"] is not None and row["p_holm"] < ALPHA and (low is None or not low <= 0 <= high)
        if row["rel_loss"] == 0 and low is None:
            return False, -1.0, f"{name} unchanged"
        open_ends = f" ({ends_shown(row, share, 'rel_loss')})" if low is not None else ""
        text = " ".join(_verb(row)) if is_shown else f"open: {share(row['rel_loss'])}{open_ends}"
        return is_shown, abs(row["rel_loss"]), f"{name} {text}"

    def standings(self, shift: str) -> pl.DataFrame:
        """One loss for each system (and ReSTrain size) of a shift, of its main measure, over all of its clusters."""
        results = self.overall.get(shift, self.results[shift])
        return results.filter(measure=in_out.main_measure(results))

    def figures(self) -> list[Picture]:
        """The losses of crossed hold-outs by cluster; the figures of other shifts are on the report's page."""
        if self.crossed is None or not self.crossed["rel_loss"].count():
            return []
        return [crossed.figure(self.crossed)]

    def notes(self) -> list[str]:
        """What rests on few queries."""
        few = (frame.filter(pl.col("queries") < UNDRAWN).height for frame in self.results.values())
        return [FEW_DRAWN] if any(few) else []

    def method(self) -> list[str]:
        """What the marks mean, and how losses were tested."""
        notes = [*_SIGNIFICANCE] if self.results.keys() - {crossed.NAME} else []
        notes += [OVER_PARTS] if self.overall.keys() - {crossed.NAME} else []
        return notes + [*crossed.NOTES] * (crossed.NAME in self.results)

    def of_shift(self, shift: str, on_page: bool = False) -> Iterator[tuple[str, Table]]:
        """The papers' tables of a shift, each with its measure; on a page with more marks, the main measure first."""
        results = self.results[shift]
        if self.crossed is not None and shift == crossed.NAME:
            for table in crossed.tables(results, self.crossed):
                yield "", table
            return
        if not SHIFTS[shift].has_clusters:
            yield "", papers.inter_extra(results, marks=on_page)
            return
        first = [in_out.main_measure(results)] if on_page else []
        for measure in dict.fromkeys([*first, *results["measure"]]):
            untrained = self.untrained_on(shift, measure)
            table = papers.ms_shift(results, self.clusters[shift], measure, untrained, best_in_bold=on_page)
            yield measure, papers.with_direction(table, measure)
        if not on_page:  # it begins with them
            yield "", papers.overall(self.overall[shift])
            if self.differences[shift].height:
                yield "", papers.differences(self.differences[shift])

    def matrices_of(self, shift: str) -> list[Table]:
        """Every model of each system on every test set of a shift of clusters, by the main measure."""
        sets = [f"{shift}.{cluster}" for cluster in self.clusters[shift]]
        measure = in_out.main_measure(self.results[shift])
        tables = []
        for system in self.results[shift]["system"].unique(maintain_order=True):
            table = papers.matrix(self.matrices[shift], sets, measure, system)
            tables.append(papers.with_direction(table, measure))
        return tables

    def untrained_on(self, shift: str, measure: str) -> dict[str, dict[str, float]]:
        """System → cluster → value, of the untrained systems that were run on every cluster of a shift."""
        rows: dict[str, dict[str, float]] = {}
        for system, values in self.untrained.items():
            of_system = {}
            for cluster in self.clusters[shift]:
                if test_set := values.get(f"{shift}.{cluster}"):
                    of_system[cluster] = test_set[measure]
            if len(of_system) == len(self.clusters[shift]):
                rows[system] = of_system
        return rows


def protocol(
    runs: GivenRuns,
    release: ReleaseSource = None,
    untrained: GivenRuns = (),
    *,
    seed: int = 0,
    allow_missing: bool = False,
) -> Protocols:
    """Avg In, Out and Rel Loss of a grid's runs (ECIR 2023 §3.2); Inter., Extra. and delta (CIKM 2022 §4.1).

    Args:
        runs: of complete grids, named ``<system>.<shift>.<held-out>``.
        release: what to score on.
        untrained: runs of systems that nothing was held out from, such as BM25.
        seed: for the bootstrap.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: a name that is not a cell's, a missing cell (with the file name expected), cells of a system that
            were trained in different batches, or a run that cannot be used or does not cover the test sets of its
            shift.
    """
    taken, without_cells = take(runs=runs, untrained=untrained)
    return of_cells(in_cells(taken), open_release(release), without_cells, seed=seed, allow_missing=allow_missing)


def of_cells(
    runs: Sequence[Run], release: Release, untrained: Sequence[Run] = (), *, seed: int = 0, allow_missing: bool = False
) -> Protocols:
    """The results of every protocol that runs with cells belong to."""
    cells = {run: run.cell for run in runs if run.cell}
    grid(cells.values(), release)
    _refuse_unequal_batches(cells)
    scores = scores_of(
        [*runs, *untrained], release, allow_missing=allow_missing, test_sets=with_average_precision(release)
    )
    found = _found(scores, cells, release, seed)
    system_of = {run.name: cell.system for run, cell in cells.items()}
    shared = scores.on_shared_queries(lambda run: system_of.get(run, run))
    otherwise = _otherwise(found, _found(shared, cells, release, seed)) if shared else []
    provenance = {**found.provenance, "seed": seed}
    return replace(found, provenance=provenance, untrained=_means_of_untrained(scores, untrained), otherwise=otherwise)


def _found(scores: Scores, cells: dict[Run, RunName], release: Release, seed: int) -> Protocols:
    """The results of the runs that are scored, without what untrained systems have."""
    values = values_of(scores, cells)
    of_groups = grouped(release, values["test_set"].unique(maintain_order=True))
    values = values.join(of_groups, on=["test_set", "query_id"], how="left", maintain_order="left")
    results: dict[str, pl.DataFrame] = {}
    matrices: dict[str, pl.DataFrame] = {}
    clusters: dict[str, list[str]] = {}
    overall: dict[str, pl.DataFrame] = {}
    differences: dict[str, pl.DataFrame] = {}
    of_clusters: pl.DataFrame | None = None
    for shift in dict.fromkeys(map(attrgetter("shift"), cells.values())):
        of_shift = values.filter(pl.col("shift") == shift)
        clusters[shift] = SHIFTS[shift].parts(release)
        _refuse_foreign_runs(SHIFTS[shift], cells, of_shift, release)
        matrices[shift] = in_out.matrix(of_shift)
        if shift == crossed.NAME:
            losses, parts = crossed.losses(SHIFTS[shift].roles(of_shift, release))
            jaccard = by_cluster(release, shift, splits=["train"]).select("cluster", "jaccard")
            of_clusters = parts.join(jaccard, on="cluster", how="left", maintain_order="left")
        else:
            losses = in_out.losses(of_shift, SHIFTS[shift], release, seed)
        if SHIFTS[shift].has_clusters:
            measure = in_out.main_measure(losses)
            overall[shift] = in_out.overall(of_shift, shift, release, measure, seed)
            differences[shift] = in_out.differences(of_shift, shift, release, measure)
        trained_on = _trained_on(scores, cells, SHIFTS[shift], release)
        results[shift] = losses.join(trained_on, on=trained_on.columns[:-1], how="left", maintain_order="left")
    of_sets = pl.concat(
        (each.rename({"test_sets": "test_set"}, strict=False) for each in results.values()), how="diagonal"
    )
    ratios = of_sets.select("test_set", "ratio") if "ratio" in of_sets.columns else None
    together = {} if ratios is None else counted_groups(of_groups, ratios)
    provenance = scores.provenance | {"groups": together}
    return Protocols(values, results, matrices, {}, clusters, provenance, overall, differences, of_clusters)


def _otherwise(found: Protocols, shared: Protocols) -> list[str]:
    """The losses in the main measure that are others on the queries that all runs of a system have."""
    sentences = []
    for shift, frame in found.results.items():
        measure = in_out.main_measure(frame)
        keys = ["system", *(name for name in ("cluster", "size") if name in frame.columns)]
        tables = [(frame, shared.results[shift], keys)]
        tables += [(found.overall[shift], shared.overall[shift], ["system"])] if shift in found.overall else []
        for ours, other, by in tables:
            both = ours.filter(measure=pl.lit(measure)).join(other.filter(measure=pl.lit(measure)), on=by, suffix="_of")
            for row in both.iter_rows(named=True):
                losses = share(row["rel_loss"]), share(row["rel_loss_of"])
                if losses[0] != losses[1]:
                    where = " ".join(filter(None, (SHIFTS[shift].title, row.get("cluster"), row.get("size"))))
                    weight = abs((row["rel_loss"] or 0.0) - (row["rel_loss_of"] or 0.0))
                    on = f"On the {row['queries_of']:,} queries of {where} that all runs of {row['system']} have"
                    sentences.append((weight, f"{on}, Rel Loss is {losses[1]}, not {losses[0]} ({measure})"))
    return weightiest(sentences, "figure")


def _trained_on(scores: Scores, cells: dict[Run, RunName], shift: Shift, release: Release) -> pl.DataFrame:
    """``system``, ``cluster`` if the shift has any, and ``trained_on``: whether a model was on what it is scored on."""
    figures = scores.to_polars().filter(pl.col("test_set").is_in(shift.test_sets(release)))
    in_grid = figures.join(_by_run(cells), on="run").filter(pl.col("shift") == shift.name)
    cluster = pl.col("test_set").str.strip_prefix(f"{shift.name}.").alias("cluster")
    keys = ["system", *([cluster] if shift.has_clusters else [])]
    return in_grid.group_by(keys, maintain_order=True).agg(contamination.WORST)


def values_of(scores: Scores, cells: Mapping[Run, RunName]) -> pl.DataFrame:
    """Per-query values with the ``system``, ``shift``, ``held_out`` and ``seed`` of each run's cell."""
    values = scores.per_query_in_full().drop(*IN_FULL[1:])
    return values.join(_by_run(cells), on="run", how="inner", maintain_order="left")


def _by_run(cells: Mapping[Run, RunName]) -> pl.DataFrame:
    """The cell of each run, by what the scores call it: ``run``, ``system``, ``shift``, ``held_out``, ``seed``."""
    rows = [(run.name, cell.system, cell.shift, cell.held_out, cell.seed) for run, cell in cells.items()]
    names = dict.fromkeys(("run", "system", "shift", "held_out"), pl.String)
    return pl.DataFrame(rows, {**names, "seed": pl.Int64}, orient="row")


def _rows(frames: Mapping[str, pl.DataFrame]) -> dict[str, list[dict[str, Any]]]:
    return {shift: frame.to_dicts() for shift, frame in frames.items()}


def _refuse_foreign_runs(shift: Shift, cells: dict[Run, RunName], values: pl.DataFrame, release: Release) -> None:
    """Refuse a run that covers no test set of the shift in its name."""
    needed_cells = shift.roles(values, release).select("system", "held_out", "seed").unique()
    covering = {RunName(system, shift.name, held_out, seed) for system, held_out, seed in needed_cells.iter_rows()}
    for run, cell in cells.items():
        if cell.shift == shift.name and cell not in covering:
            raise UserError(f"{run} covers no test set of the {shift.name} shift, which it was trained on")


def _refuse_unequal_batches(cells: Mapping[Run, RunName]) -> None:
    """Refuse to average or compare models trained in unequal batches, as far as the files beside the runs say."""
    batches: dict[tuple[str, str], dict[int, Run]] = {}
    for run, cell in cells.items():
        if (size := contamination.training_beside(run.path).batch_size) is not None:
            batches.setdefault((cell.system, cell.shift), {}).setdefault(size, run)
    for (system, shift), runs in batches.items():
        if len(runs) > 1:
            sizes = ", ".join(
                f"{run.own_name} in batches of {size}" for size, run in sorted(runs.items(), key=itemgetter(0))
            )
            raise UserError(
                f"The cells of {system} on {shift} were trained differently: {sizes}", do="Train them alike"
            )


def _means_of_untrained(scores: Scores, runs: Sequence[Run]) -> dict[str, dict[str, dict[str, float]]]:
    names = {run.name for run in runs}
    values: dict[str, dict[str, dict[str, float]]] = {}
    for figure in scores.means:
        if figure.run in names:
            values.setdefault(figure.run, {}).setdefault(figure.test_set, {})[figure.measure] = figure.value
    return values
