"""A static page over many submissions, beside the figures that the papers published of their own systems."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eval_kit import __version__
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.pages.markup import Html, element, joined, page
from eval_kit.pages.plots import loss_bar, span
from eval_kit.pages.report_data import lower_is_better
from eval_kit.pages.report_tables import minus, number, percent, scroll, sort_header
from eval_kit.release import reference

FIGURES = ("avg_in", "out", "rel_loss", "value")
ALL = "mean of all"
"""The test set of a row that averages over all those of its shift."""

_FIGURE_OF = {"in": "avg_in", "inter": "avg_in", "out": "out", "extra": "out", "loss": "rel_loss", "value": "value"}
_ARCHITECTURES = {
    "bm25": "lexical",
    "biencoder": "dense",
    "splade": "sparse",
    "colbert": "late-interaction",
    "monobert": "cross-encoder",
}


@dataclass(frozen=True)
class Entry:
    """One figure of one system on one test set.

    Attributes:
        system: its name.
        team: who submitted it, or the authors of the paper.
        architecture: as in submission.schema.json.
        shift: such as ``topic``.
        test_set: such as ``topic.c0``.
        measure: such as ``RR@10``.
        figure: ``avg_in``, ``out`` or ``rel_loss`` of a grid; ``value`` of a system that nothing was held out from.
        value: a fraction where the measure is one; of ``rel_loss`` (In − Out) / In.
        low: lower end of its 95 % interval, if known.
        high: upper end.
        release_digest: of the release that was scored on; empty for published figures.
        published: taken from a paper, not scored here.
        source: the paper and table, or where the submission is.
    """

    system: str
    team: str
    architecture: str
    shift: str
    test_set: str
    measure: str
    figure: str
    value: float
    low: float | None = None
    high: float | None = None
    release_digest: str = ""
    published: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        """Check what the page relies on.

        Raises:
            UserError: an unknown figure, a value that is not finite, or a scored figure of no release.
        """
        name = f"{self.system} on {self.test_set}"
        if self.figure not in FIGURES:
            raise UserError(f"{name}: unknown figure {self.figure!r}; there are {', '.join(FIGURES)}")
        if not all(math.isfinite(one) for one in (self.value, self.low, self.high) if one is not None):
            raise UserError(f"{name}: {self.figure} of {self.measure} is not a finite number")
        if not self.published and not self.release_digest:
            raise UserError(f"{name}: does not say which release it was scored on")


def published_entries(tables: Sequence[str] = ("ecir2023-table2", "ecir2023-table3")) -> list[Entry]:
    """The reference systems' own figures, from the tables that :mod:`eval_kit.release.reference` holds."""
    entries = []
    for table in tables:
        authors = reference.load(table)["paper"]["authors"].split(", ")
        team = authors[0] if len(authors) == 1 else f"{authors[0]} et al."
        for cell in reference.published(table):
            if cell["figure"] in _FIGURE_OF:
                entries.append(
                    Entry(
                        system=cell["system"],
                        team=team,
                        architecture=_ARCHITECTURES.get(cell["system"], "other"),
                        shift=cell["test_set"].split(".")[0],
                        test_set=cell["test_set"],
                        measure=cell["measure"],
                        figure=_FIGURE_OF[cell["figure"]],
                        value=cell["value"],
                        published=True,
                        source=cell["source"],
                    )
                )
    return entries


@dataclass
class _Row:
    """All figures of one system on one test set."""

    about: Entry
    test_set: str
    figures: dict[str, tuple[float, float | None, float | None]] = field(default_factory=dict)


def write_leaderboard(entries: Sequence[Entry], out: Path, title: str = "Leaderboard") -> None:
    """Write the page; the same entries give the same bytes.

    Figures of different releases never stand in one view: where there are several, the reader chooses one. Where a
    system has figures on all test sets of a shift, a row of their plain means is added.

    Args:
        entries: of all submissions, and of the papers' tables.
        out: the file to write.
        title: of the page.

    Raises:
        UserError: no entries, one that comes twice, or a file that cannot be written.
    """
    if not entries:
        raise UserError("a leaderboard needs at least one submission or published table")
    rows = _rows(entries)
    rows = [*_means(rows), *rows]
    scales = {
        measure: span(end for row in rows if row.about.measure == measure for end in row.figures.get("rel_loss", ()))
        for measure in {row.about.measure for row in rows}
    }
    plain = any("value" in row.figures for row in rows)
    systems = {(row.about.system, row.about.team, row.about.published) for row in rows}
    submitted = sum(not published for *_, published in systems)
    told = f"{submitted} submitted and {len(systems) - submitted} published systems"
    note = (
        "In is the mean over the models that saw the test set's cluster in training, Out the model that did not, Rel "
        "Loss (In − Out) / In with its 95% interval as a whisker. Of ASL, where lower is better, a negative loss is "
        "harm. A paper's figures are shaded and marked as published: they were not scored here."
    )
    head = [
        sort_header("System", False),
        sort_header("Rel Loss", True),
        sort_header("In", True),
        sort_header("Out", True, "descending"),
        *([sort_header("Value", True)] if plain else []),
        *(sort_header(name, False) for name in ("Test set", "Measure", "Architecture", "Source")),
    ]
    lines = [_line(row, scales[row.about.measure], plain) for row in rows]
    body = element("tbody", *lines)
    table = element("table", element("thead", element("tr", *head)), body, data_sortable=True, class_="wide")
    page_body = joined(
        element(
            "header",
            element("h1", title),
            element("p", told, class_="quiet"),
            element("p", note, class_="quiet"),
            class_="top",
        ),
        element(
            "main",
            _controls(rows),
            element("p", role="status", aria_live="polite"),
            scroll("systems", table),
            id="leaderboard",
        ),
        element("footer", f"Written by eval_kit {__version__}. This file fetches nothing."),
    )
    atomic.write_text(out, page(title, page_body, ["tables.js", "leaderboard.js"]))


def _rows(entries: Sequence[Entry]) -> list[_Row]:
    rows: dict[tuple[str | bool, ...], _Row] = {}
    for one in entries:
        row = rows.setdefault((*_identity(one), one.test_set), _Row(one, one.test_set))
        if one.figure in row.figures:
            raise UserError(f"{one.system} on {one.test_set}: {one.figure} of {one.measure} comes twice")
        row.figures[one.figure] = (one.value, one.low, one.high)
    return list(rows.values())


def _means(rows: Sequence[_Row]) -> list[_Row]:
    """One row for each system that has figures on all test sets of a shift, where there are several."""
    sets: dict[tuple[str, str], set[str]] = {}
    groups: dict[tuple[str | bool, ...], list[_Row]] = {}
    for row in rows:
        sets.setdefault((row.about.shift, row.about.measure), set()).add(row.test_set)
        groups.setdefault(_identity(row.about), []).append(row)
    means = []
    for group in groups.values():
        about = group[0].about
        if len(group) < max(2, len(sets[about.shift, about.measure])):
            continue
        mean = _Row(about, ALL)
        for figure in FIGURES:
            values = [row.figures[figure][0] for row in group if figure in row.figures]
            if len(values) == len(group):
                mean.figures[figure] = (sum(values) / len(values), None, None)
        if mean.figures:
            means.append(mean)
    return means


def _identity(one: Entry) -> tuple[str | bool, ...]:
    """What the rows of one system on one shift, by one measure, share."""
    return (one.system, one.team, one.shift, one.measure, one.release_digest, one.published, one.source)


def _controls(rows: Sequence[_Row]) -> Html:
    abouts = [row.about for row in rows]
    digests = dict.fromkeys(one.release_digest for one in abouts if one.release_digest)
    by_use = sorted(digests, key=lambda digest: -sum(one.release_digest == digest for one in abouts))
    selects = [
        _select("Shift", "shift", (one.shift for one in abouts)),
        _select("Test set", "set", ()),
        _select("Measure", "measure", ()),
        _select("Architecture", "architecture", sorted(one.architecture for one in abouts), everything=True),
    ]
    if len(by_use) > 1:
        labels = {digest: f"{digest[:12]}…" for digest in by_use}
        selects.append(_select("Release", "release", by_use, labels=labels))
    text = element("input", type="search", name_="search", placeholder="system or team", autocomplete="off")
    box = element("input", type="checkbox", name_="published", checked=True)
    check = element("label", box, "published figures", class_="check")
    return element("form", *selects, element("label", "Search", text), check, class_="controls", role="search")


def _select(
    label: str, name: str, values: Iterable[str], everything: bool = False, labels: dict[str, str] | None = None
) -> Html:
    options = [element("option", "all", value="")] if everything else []
    options += [element("option", (labels or {}).get(one, one), value=one) for one in dict.fromkeys(values)]
    return element("label", label, element("select", *options, name_=name))


def _line(row: _Row, scale: tuple[float, float], plain: bool) -> Html:
    about = row.about
    badge = element("span", "published", class_="badge") if about.published else Html()
    team = element("div", about.team, class_="quiet")
    cells = [element("th", about.system, " ", badge, team, scope="row", class_="who", data_value=about.system)]
    loss, low, high = row.figures.get("rel_loss", (None, None, None))
    harm = -1 if lower_is_better(about.measure) else 1
    ends = None if low is None or high is None else f"95% interval {percent(low)} to {percent(high)}"
    shown = joined(percent(loss), loss_bar(loss, low, high, scale, harm)) if loss is not None else Html("–")
    cells.append(element("td", shown, class_="num withbar", title=ends, data_value="" if loss is None else repr(loss)))
    for figure in ("avg_in", "out", *(["value"] if plain else [])):
        value = row.figures.get(figure, (None,))[0]
        told = "–" if value is None else minus(number(value, about.measure))
        cells.append(element("td", told, class_="num", data_value="" if value is None else repr(value)))
    name = row.test_set if row.test_set != ALL else f"{about.shift}, {ALL}"
    cells += [element("td", one) for one in (name, about.measure, about.architecture, about.source)]
    return element(
        "tr",
        *cells,
        class_="published" if about.published else None,
        data_shift=about.shift,
        data_set=row.test_set,
        data_measure=about.measure,
        data_architecture=about.architecture,
        data_release=about.release_digest,
    )
