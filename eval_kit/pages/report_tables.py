"""The papers' tables as HTML, in their own layout, with each loss as a bar and its interval as a whisker."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from eval_kit.pages.markup import Html, element, joined
from eval_kit.pages.plots import loss_bar, span
from eval_kit.pages.report_data import lower_is_better
from eval_kit.tables.papers import PERCENT_MEASURES


def ms_shift(
    losses: pl.DataFrame, clusters: Sequence[str], measure: str, untrained: Mapping[str, Mapping[str, float]]
) -> Html:
    """ECIR 2023, Tables 2 and 3: three rows a system, one column a cluster; the best of several systems in bold.

    Args:
        losses: from :func:`eval_kit.protocols.in_out.losses`.
        clusters: the columns.
        measure: the one to show.
        untrained: system → cluster → value.
    """
    here = losses.filter(pl.col("measure") == measure)
    scale = _span(here)
    down = lower_is_better(measure)
    best = _best(here, down) if here["system"].n_unique() > 1 else {}
    bodies = []
    for system, values in untrained.items():
        cells = [_cell(number(values[cluster], measure)) for cluster in clusters]
        bodies.append(_group([[_who(system), _label(""), *cells]]))
    for system in here["system"].unique(maintain_order=True):
        rows = {row["cluster"]: row for row in here.filter(pl.col("system") == system).iter_rows(named=True)}
        lines = [[_who(system, rows=3), _label("Avg In")], [_label("Out")], [_label("Rel Loss")]]
        for cluster in clusters:
            row = rows[cluster]
            bold = {name for name in ("avg_in", "out", "rel_loss") if best.get((cluster, name)) == row[name]}
            lines[0].append(_cell(number(row["avg_in"], measure), bold="avg_in" in bold))
            lines[1].append(_cell(number(row["out"], measure), bold="out" in bold))
            lines[2].append(_loss(row, scale, -1 if down else 1, "rel_loss" in bold))
        bodies.append(_group(lines))
    head = [element("th", "Models", scope="col"), element("td"), *(_column(cluster) for cluster in clusters)]
    return _table(measure_name(measure), element("thead", element("tr", *head)), bodies)


def restrain(results: pl.DataFrame) -> Html:
    """CIKM 2022, Table 6: Inter., Extra. and Δ by size and system."""
    bodies = []
    for size in results["size"].unique(maintain_order=True):
        here = results.filter(pl.col("size") == size)
        systems = here["system"].unique(maintain_order=True).to_list()
        first = element("th", str(size), scope="rowgroup", rowspan=len(systems))
        lines = [_inter_extra(here, system) for system in systems]
        bodies.append(_group([[first, *lines[0]], *lines[1:]]))
    return _table(
        "Inter., Extra. and Δ over TREC DL 2019 and 2020", _inter_extra_head(results, ["#Q", "Models"]), bodies
    )


def resttest(results: pl.DataFrame) -> Html:
    """CIKM 2022, Table 7: Inter., Extra. and Δ by system."""
    lines = [_inter_extra(results, system) for system in results["system"].unique(maintain_order=True)]
    return _table("Inter., Extra. and Δ over dev", _inter_extra_head(results, ["Models"]), [_group(lines)])


def matrix(values: pl.DataFrame, test_sets: Sequence[str], measure: str, system: str) -> Html:
    """arXiv 2205.02870v1, Table 2: one row a model, one column a test set; the held-out cell of each row is shaded."""
    here = values.filter(pl.col("measure") == measure, pl.col("system") == system, pl.col("test_set").is_in(test_sets))
    lines = []
    for held_out in (name.split(".", 1)[-1] for name in test_sets):
        mine = dict(here.filter(pl.col("held_out") == held_out).select("test_set", "value").iter_rows())
        cells = [
            _cell(number(mine[name], measure), class_="diagonal" if name.endswith(f".{held_out}") else "")
            for name in test_sets
        ]
        lines.append([element("th", f"without {held_out}", scope="row"), *cells])
    head = [element("th", "Trained", scope="col"), *(_column(name.split(".", 1)[-1]) for name in test_sets)]
    title = joined(f"{system}, ", measure_name(measure))
    return _table(title, element("thead", element("tr", *head)), [element("tbody", *(_row(line) for line in lines))])


def every_loss(results: Mapping[str, pl.DataFrame]) -> Html:
    """All losses of all shifts, systems and measures with their statistics, one row each, sortable."""
    rows = [
        {**row, "shift": shift, "part": row.get("cluster") or row.get("size") or ""}
        for shift, frame in results.items()
        for row in frame.iter_rows(named=True)
    ]
    columns = ["shift", "part", "system", "measure"]
    figures = ["Rel Loss", "low", "high", "In", "Out", "p (Holm)", "d", "n"]
    head = [_sortable(name, number=False) for name in columns] + [_sortable(name, number=True) for name in figures]
    lines = []
    for row in rows:
        measure = row["measure"]
        ends = [_sorted_cell(row[name], percent(row[name])) for name in ("rel_loss", "rel_loss_low", "rel_loss_high")]
        means = [_sorted_cell(row[name], number(row[name], measure)) for name in ("avg_in", "out")]
        lines.append(
            [
                *(element("td", str(row[name])) for name in columns),
                *ends,
                *means,
                _sorted_cell(row["p_holm"], _p(row["p_holm"])),
                _sorted_cell(row["d"], "–" if row["d"] is None else minus(f"{row['d']:.2f}")),
                _sorted_cell(row["queries"], f"{row['queries']:,}"),
            ]
        )
    body = element("tbody", *(_row(line) for line in lines))
    return _table("Every loss", element("thead", element("tr", *head)), [body], data_sortable=True)


def plain(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> Html:
    """A table of words, with some columns of numbers."""
    head = [_column(name) if i in numbers else element("th", name, scope="col") for i, name in enumerate(columns)]
    lines = [[_cell(one) if i in numbers else element("td", one) for i, one in enumerate(row)] for row in rows]
    return _table(title, element("thead", element("tr", *head)), [element("tbody", *(_row(line) for line in lines))])


def number(value: float, measure: str) -> str:
    """A mean in the unit of the papers: reciprocal ranks times 100, search lengths plain."""
    if lower_is_better(measure):
        return f"{value:.1f}"
    return f"{100 * value:.1f}" if measure.startswith(PERCENT_MEASURES) else f"{value:.3f}"


def measure_name(measure: str) -> Html:
    """A measure, with a remark where lower is better."""
    if not lower_is_better(measure):
        return element("span", measure)
    return element("span", measure, " ", element("span", "(lower is better: a negative loss is harm)", class_="lower"))


def percent(value: float | None) -> str:
    """A loss for people: ``12.3%``, or a dash where there is none."""
    return "–" if value is None else minus(f"{value:.1%}").replace("−0.0%", "0.0%")


def minus(shown: str) -> str:
    """The number with a proper minus sign."""
    return shown.replace("-", "−")


def scroll(label: str, *inside: Html) -> Html:
    """A wide thing that scrolls on its own where the page is narrow, by keyboard too."""
    return element("div", *inside, class_="scroll", role="region", tabindex="0", aria_label=label)


def sort_header(name: str, number: bool, sorted_: str | None = None, key: str | None = None) -> Html:
    """A column's header with a button that sorts by it."""
    kind = "num" if number else None
    return element("th", element("button", name, type="button"), scope="col", class_=kind, aria_sort=sorted_,
                   data_key=key)  # fmt: skip


def _sortable(name: str, number: bool) -> Html:
    return sort_header(name, number, "descending" if name == "Rel Loss" else None)


def _table(title: str, head: Html, bodies: Sequence[Html], data_sortable: bool = False) -> Html:
    table = element("table", element("caption", title), head, *bodies, data_sortable=data_sortable)
    return scroll("wide table", table)


def _group(lines: Sequence[Sequence[Html]]) -> Html:
    return element("tbody", *(_row(line) for line in lines), class_="group")


def _row(cells: Sequence[Html]) -> Html:
    return element("tr", *cells)


def _who(system: str, rows: int = 1) -> Html:
    return element("th", system, scope="rowgroup" if rows > 1 else "row", rowspan=rows if rows > 1 else None,
                   class_="who")  # fmt: skip


def _label(name: str) -> Html:
    return element("td", name, class_="label")


def _column(name: str) -> Html:
    return element("th", name, scope="col", class_="num")


def _cell(shown: str, bold: bool = False, class_: str = "") -> Html:
    return element("td", element("strong", shown) if bold else shown, class_=f"num {class_}".strip())


def _sorted_cell(value: float | None, shown: str) -> Html:
    return element("td", shown, class_="num", data_value="" if value is None else repr(float(value)))


def _loss(row: Mapping[str, Any], scale: tuple[float, float], harm: int, bold: bool = False) -> Html:
    shown = percent(row["rel_loss"])
    sure = row["p_holm"] is not None and row["p_holm"] < 0.05
    told = f"95% interval {percent(row['rel_loss_low'])} to {percent(row['rel_loss_high'])}, n = {row['queries']:,}"
    mark = element("span", "°" if row["rel_loss"] is not None and not sure else "")
    bar = loss_bar(row["rel_loss"], row["rel_loss_low"], row["rel_loss_high"], scale, harm)
    return element("td", joined(element("strong", shown) if bold else shown, mark, bar), class_="num", title=told)


def _inter_extra(results: pl.DataFrame, system: str) -> list[Html]:
    low_end, high_end = _span(results)
    scale = (-high_end, -low_end)
    cells = [_who(system)]
    for row in results.filter(pl.col("system") == system).iter_rows(named=True):
        delta = (
            None if row["delta"] is None else minus(f"{row['delta']:+.0%}").replace("−0%", "0%").replace("+0%", "0%")
        )
        sure = row["p_holm"] is not None and row["p_holm"] < 0.05
        low, high = (None if row[name] is None else -row[name] for name in ("rel_loss_high", "rel_loss_low"))
        bar = loss_bar(row["delta"], low, high, scale, -1)
        shown = joined("–" if delta is None else delta, element("span", "" if sure or delta is None else "°"), bar)
        told = f"95% interval {percent(low)} to {percent(high)}, n = {row['queries']:,}"
        cells += [_cell(f"{row['avg_in']:.3f}"), _cell(f"{row['out']:.3f}")]
        cells.append(element("td", shown, class_="num", title=told))
    return cells


def _inter_extra_head(results: pl.DataFrame, names: Sequence[str]) -> Html:
    measures = results["measure"].unique(maintain_order=True)
    first = [element("th", name, scope="col", rowspan=2) for name in names]
    first += [element("th", one, scope="colgroup", colspan=3, class_="num") for one in measures]
    second = [_column(name) for _ in measures for name in ("Inter.", "Extra.", "Δ")]
    return element("thead", element("tr", *first), element("tr", *second))


def _best(losses: pl.DataFrame, down: bool) -> dict[tuple[str, str], float]:
    """The best figure of each cluster; of losses the one with the least harm."""
    best: dict[tuple[str, str], float] = {}
    for cluster in losses["cluster"].unique():
        here = losses.filter(pl.col("cluster") == cluster)
        for name in ("avg_in", "out", "rel_loss"):
            values = [float(value) for value in here[name].drop_nulls()]
            if len(set(values)) > 1:
                best[cluster, name] = min(values) if (name == "rel_loss") != down else max(values)
    return best


def _span(results: pl.DataFrame) -> tuple[float, float]:
    return span(value for name in ("rel_loss", "rel_loss_low", "rel_loss_high") for value in results[name])


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
