"""CIKM 2021's tables of obstinate queries from your own runs, with the published rankers' figures beside them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

import polars as pl

from eval_kit.measures.definitions import parse
from eval_kit.protocols.chameleons import MEASURES, REFERENCE, SETS, Chameleons
from eval_kit.protocols.obstinacy import LEVELS, strictly_more_obstinate
from eval_kit.release.reference import printed, published
from eval_kit.tables.table import Cell, Column, Table

SOLVED = "solved"
AVERAGES, WORST, RELEVANT, WORDS = (f"cikm2021-table{number}" for number in (1, 2, 5, 6))
type Figures = dict[tuple[str, str, str, str], str]


def tables(results: Chameleons) -> Iterator[Table]:
    """Table 1, Table 2 and equation 1 where a run covers all dev queries; Table 4; Tables 3, 5 and 6 in one."""
    if results.averages.height:
        yield averages(results)
        yield worst(results)
    if results.agreement.height:
        yield agreement(results.agreement)
    yield performance(results)
    yield sets(results)


def averages(results: Chameleons) -> Table:
    """Table 1: one row per ranker, mean and median of each measure over all dev queries."""
    by_cell = {}
    for run, measure, mean, median in results.averages.drop("queries").iter_rows():
        by_cell[run, measure] = {"mean": mean, "median": median}
    measures = results.averages["measure"].unique(maintain_order=True)
    columns = [Column("run", wrap="anywhere")]
    columns += [Column(figure, "number", group=measure) for measure in measures for figure in ("mean", "median")]
    lines: list[list[Cell | str]] = []
    for run in results.averages["run"].unique(maintain_order=True):
        values = [by_cell[run, measure][figure] for measure, figure in product(measures, ("mean", "median"))]
        lines.append([run, *map(_digits, values)])
    paper = _published(AVERAGES) if results.published else {}
    split = results.sets["test_set"][0]
    for ranker in _rankers(paper):
        keys = product(measures, ("mean", "median"))
        lines.append(_published_row(ranker, [paper[ranker, split, *key] for key in keys]))
    queries = f"{results.averages['queries'][0]:,}"
    return Table(columns, [lines], title=f"Table 1: means and medians over {queries} queries")


def worst(results: Chameleons) -> Table:
    """Table 2: one row per ranker, one column per share of its own worst queries."""
    by_cell = {(run, level): value for run, level, value in results.worst.iter_rows()}
    levels = [*LEVELS, 100]
    columns = [Column("run", wrap="anywhere"), *(Column(f"{level} %", "number", group="AP") for level in levels)]
    lines: list[list[Cell | str]] = []
    for run in results.worst["run"].unique(maintain_order=True):
        lines.append([run, *(_digits(by_cell[run, level]) for level in levels)])
    paper = _published(WORST) if results.published else {}
    for ranker in _rankers(paper):
        names = [*(f"dev.worst.{level}" for level in LEVELS), "dev"]
        lines.append(_published_row(ranker, [paper[ranker, name, "AP", "value"] for name in names]))
    return Table(columns, [lines], title="Table 2: each run on its own worst queries")


def agreement(shared: pl.DataFrame) -> Table:
    """Equation 1: one row per pair of runs, one column per share of each one's worst queries."""
    by_cell = {(first, second, level): value for first, second, level, value in shared.iter_rows()}
    columns = [Column("run", wrap="anywhere"), Column("and run", wrap="anywhere")]
    columns += [Column(f"{level} %", "number") for level in LEVELS]
    pairs = shared.select("first", "second").unique(maintain_order=True).rows()
    lines = [[*pair, *(f"{by_cell[*pair, level]:.3f}" for level in LEVELS)] for pair in pairs]
    return Table(columns, [lines], title="Equation 1: worst queries that two runs share")


def performance(results: Chameleons) -> Table:
    """Table 4 at every level: each measure on each set and level, one column per run; and Definition 1 below."""
    frame = results.performance
    runs = frame["run"].unique(maintain_order=True).to_list()
    paper = _published(REFERENCE) if results.published else {}
    rankers = _rankers(paper)
    columns = [Column(name, wrap="never") for name in ("", "set", "level")]
    columns.append(Column("queries", "number", wrap="never"))
    columns += [Column(name, "number", wrap="anywhere") for name in runs]
    columns += [Column("(published)", "number", group=name, style="dim") for name in rankers]
    rows = {(row["run"], row["set"], row["level"], row["measure"]): row for row in frame.iter_rows(named=True)}
    lines = []
    levels = frame["level"].unique().sort()
    for measure, name, level in product((*MEASURES, SOLVED), SETS, levels):
        ours = [rows[run, name, level, "RR@10" if measure == SOLVED else measure] for run in runs]
        line = [measure, name, f"{level} %", f"{ours[0]['queries']:,}"]
        if measure == SOLVED:
            lines.append([*line, *(f"{row['solved']:,}" for row in ours), *("" for _ in rankers)])
            continue
        show = parse(measure).show
        published = [paper.get((ranker, f"chameleons.{name}.{level}", measure, "value"), "") for ranker in rankers]
        lines.append([*line, *(show(row["value"]) for row in ours), *published])
    return Table(columns, [lines], title="Table 4: the Chameleons", notes=[_definition_1(frame, levels[-1])])


def sets(results: Chameleons) -> Table:
    """Tables 3, 5 and 6: queries, relevant passages per query and words per query of each set."""
    columns = [Column("set"), Column("queries", "number")]
    columns += [Column(name, "number") for name in ("relevant", "words")]
    papers = [_published(id) for id in (RELEVANT, WORDS)] if results.published else []
    columns += [Column("(published)", "number", group=name, style="dim") for name in ("relevant", "words") if papers]
    lines = []
    for test_set, queries, relevant, words in results.sets.iter_rows():
        line = [test_set, f"{queries:,}", f"{relevant:.3f}", f"{words:.3f}"]
        for paper, measure in zip(papers, ("relevant", "query-length"), strict=False):
            line.append(paper.get(("none", test_set, measure, "mean"), ""))
        lines.append(line)
    return Table(columns, [lines], title="Tables 3, 5 and 6: the sets, and relevant passages and words a query")


def _definition_1(frame: pl.DataFrame, level: int) -> str:
    """Whether lesser is strictly more obstinate than pygmy and that than veiled, as the paper says of its rankers."""
    rows = frame.filter(pl.col("measure") == "AP", pl.col("level") == level)
    by_set = [dict(rows.filter(pl.col("set") == name).select("run", "value").iter_rows()) for name in SETS]
    verdicts = []
    for same_ranker, words in ((True, "run by run"), (False, "for all pairs of runs, as it is written")):
        holds = all(strictly_more_obstinate(*sets, same_ranker) for sets in pairwise(by_set))
        verdicts.append(f"{'holds' if holds else 'does not hold'} {words}")
    return f"Definition 1 at {level} % (AP on lesser < pygmy < veiled): {'; '.join(verdicts)}"


def _published(id: str) -> Figures:
    cells = published(id)
    return {(cell["system"], cell["test_set"], cell["measure"], cell["figure"]): printed(cell) for cell in cells}


def _rankers(paper: Figures) -> list[str]:
    return list(dict.fromkeys(system for system, _, _, figure in paper if system != "average"))


def _published_row(ranker: str, figures: Sequence[str]) -> list[Cell | str]:
    return [Cell(text, style="dim") for text in (f"{ranker} (published)", *figures)]


def _digits(value: float) -> str:
    return f"{value:.4f}"
