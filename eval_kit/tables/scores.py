"""Scores as tables for people: one table for each group of test sets that share their measures."""

from rich.console import Console
from rich.text import Text

from eval_kit.measures.definitions import parse
from eval_kit.measures.score import Figure, Scores
from eval_kit.runs import contamination
from eval_kit.tables.table import Cell, Column, Row, Table


def print_scores(scores: Scores, console: Console) -> None:
    """Print every figure, and below the tables what readers must know about missing queries and ties."""
    rows: dict[tuple[str, ...], dict[tuple[str, str], list[Figure]]] = {}
    by_row: dict[tuple[str, str], list[Figure]] = {}
    for figure in scores.figures:
        by_row.setdefault((figure.test_set, figure.run), []).append(figure)
    for row, figures in by_row.items():
        rows.setdefault(tuple(figure.measure for figure in figures), {})[row] = figures
    for measures, group in rows.items():
        console.print(_table(measures, group))
    release = scores.provenance["release"]
    console.print(
        f"{release['kind']} release {release['version']} ({release['digest'][:16]}), "
        f"eval_kit {scores.provenance['kit_version']}; ties: {scores.provenance['tie_rule']}",
        style="dim",
        highlight=False,
        soft_wrap=True,
    )
    for note in _notes(scores):
        console.print(Text(note), soft_wrap=True)


def _table(measures: tuple[str, ...], group: dict[tuple[str, str], list[Figure]]) -> Table:
    columns = [Column("test set", wrap="never"), Column("run", wrap="anywhere", min_width=8)]
    columns += [Column(name, "number", wrap="anywhere", min_width=7) for name in ("queries", *measures)]
    test_sets = list(dict.fromkeys(test_set for test_set, _ in group))
    lines: list[Row] = []
    for test_set, run in sorted(group, key=lambda row: test_sets.index(row[0])):
        figures = group[test_set, run]
        values = [parse(figure.measure).show(figure.value) for figure in figures]
        trained_on = contamination.mark(figures[0].trained_on)
        lines.append([test_set, Cell(run, mark=trained_on), f"{figures[0].queries:,}", *values])
    return Table(columns, [lines])


def _notes(scores: Scores) -> list[str]:
    notes = []
    for run in dict.fromkeys(figure.run for figure in scores.figures):
        lacking = {figure.test_set: figure for figure in scores.figures if figure.run == run and figure.missing}
        if lacking:
            most = max(lacking.values(), key=lambda figure: (figure.missing, figure.queries))
            further = f"; {len(lacking) - 1} other test sets lack some too" if len(lacking) > 1 else ""
            notes.append(
                f"{run}: {most.missing:,} of the {most.queries:,} queries of {most.test_set} are missing "
                f"(scored as empty){further}"
            )
    for source in scores.provenance["runs"]:
        deepest = max(parse(figure.measure).cutoff or 0 for figure in scores.figures if figure.run == source["run"])
        if source["depth"] < deepest:
            notes.append(
                f"{source['run']}: holds at most {source['depth']:,} passages a query, so deeper cutoffs "
                f"(@{deepest}) are cut there"
            )
        if source["unjudged_queries"]:
            notes.append(f"{source['run']}: {source['unjudged_queries']:,} unjudged queries were left out")
        if source.get("rank_contradictions"):
            notes.append(
                f"{source['run']}: the ranks of {source['rank_contradictions']:,} queries contradict their scores; "
                "the scores decide, as in trec_eval"
            )
    notes += contamination.notes((figure.run, figure.trained_on) for figure in scores.figures)
    for figure in scores.figures:
        if figure.worst is None or figure.best is None:
            continue
        worst, best = (parse(figure.measure).show(value) for value in (figure.worst, figure.best))
        if worst != best:
            notes.append(
                f"{figure.run}: {figure.measure} on {figure.test_set} is {worst} to {best}, depending on the order "
                f"of ties across the cutoff ({figure.ties_at_cutoff:,} queries)"
            )
    return notes
