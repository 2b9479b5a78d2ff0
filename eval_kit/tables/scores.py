"""Scores as tables for people: one table for each group of test sets that share their measures."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from eval_kit.measures.definitions import parse
from eval_kit.measures.score import Figure, Scores


def print_scores(scores: Scores, console: Console) -> None:
    """Print every figure; below the tables what a reader must know of missing queries and ties."""
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
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("test set", no_wrap=True)
    table.add_column("run", overflow="fold", min_width=8)
    for name in ("queries", *measures):
        table.add_column(name, justify="right", overflow="fold", min_width=7)
    order = {name: place for place, name in enumerate(dict.fromkeys(test_set for test_set, _ in group))}
    for test_set, run in sorted(group, key=lambda row: order[row[0]]):
        figures = group[test_set, run]
        table.add_row(test_set, Text(run), f"{figures[0].queries:,}", *[_number(figure) for figure in figures])
    return table


def _number(figure: Figure) -> str:
    return f"{figure.value:.2f}" if figure.measure.startswith("ASL") else f"{figure.value:.4f}"


def _notes(scores: Scores) -> list[str]:
    notes = []
    for run in dict.fromkeys(one.run for one in scores.figures):
        lacking = {one.test_set: one for one in scores.figures if one.run == run and one.missing}
        if lacking:
            most = max(lacking.values(), key=lambda one: (one.missing, one.queries))
            others = f"; {len(lacking) - 1} other test sets lack some too" if len(lacking) > 1 else ""
            notes.append(
                f"{run}: {most.missing:,} of the {most.queries:,} queries of {most.test_set} are missing "
                f"(scored as empty){others}"
            )
    for source in scores.provenance["runs"]:
        if not source["judged_passages"]:
            notes.append(f"{source['run']}: not one of its passages is judged; are these the collection's passage ids?")
        cutoffs = {parse(one.measure).cutoff or 0 for one in scores.figures if one.run == source["run"]}
        if source["depth"] < max(cutoffs):
            notes.append(
                f"{source['run']}: holds at most {source['depth']:,} passages a query, so deeper cutoffs "
                f"(@{max(cutoffs)}) are cut there"
            )
        if source["unjudged_queries"]:
            notes.append(f"{source['run']}: {source['unjudged_queries']:,} queries that nobody judged were left out")
    for one in scores.figures:
        if one.worst is not None and one.best is not None and f"{one.worst:.4f}" != f"{one.best:.4f}":
            notes.append(
                f"{one.run}: {one.measure} on {one.test_set} is {one.worst:.4f} to {one.best:.4f} by the order of ties "
                f"across the cutoff ({one.ties_at_cutoff:,} queries)"
            )
    return notes
