"""One self-contained HTML file about a grid: what each system loses, the papers' tables and figures, every query."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from eval_kit.files import atomic
from eval_kit.pages import report_tables
from eval_kit.pages.explorer import explorer
from eval_kit.pages.figures import figures
from eval_kit.pages.markup import Html, element, joined, page
from eval_kit.pages.plots import loss_bar, span
from eval_kit.pages.report_data import NAMES, Standing, capitalised, main_measure, nearness, paired, standings
from eval_kit.pages.report_tables import percent
from eval_kit.protocols.grid import Protocols
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS
from eval_kit.stats.vectors import Vectors

_WHERE = {name: shift.phrase for name, shift in SHIFTS.items()}


def write_report(
    found: Protocols,
    release: Release,
    out: Path,
    vectors: Vectors | Mapping[str, Vectors] | None = None,
) -> None:
    """Write the report; the same arguments give the same bytes.

    Args:
        found: from :func:`eval_kit.protocols.grid.protocols`.
        release: that was scored on.
        out: the file to write.
        vectors: of the queries, for the figures about R; see :func:`eval_kit.pages.report_data.nearness`.

    Raises:
        UserError: vectors that lack a query, or a file that cannot be written.
    """
    found = replace(found, results={shift: found.results[shift] for shift in SHIFTS if shift in found.results})
    pairs = {shift: paired(found.values, shift, release) for shift in found.results}
    r = None if vectors is None else nearness(found, release, vectors)
    systems = list(
        dict.fromkeys(name for one in found.results.values() for name in one["system"].unique(maintain_order=True))
    )
    sections = {
        "summary": ("Summary", _summary(found, pairs)),
        "tables": ("Tables", _tables(found)),
        "figures": ("Figures", figures(found, pairs, systems, release, r)),
        "queries": ("Queries", explorer(found, pairs, systems, release, r)),
        "provenance": ("Provenance", _provenance(found, vectors)),
    }
    links = [element("li", element("a", title, href=f"#{name}")) for name, (title, _) in sections.items()]
    about = found.provenance["release"]
    subtitle = f"{_count(len(systems), 'system')} on {', '.join(NAMES[shift] for shift in found.results)}; "
    subtitle += f"{about['kind']} release {about['version']} ({about['digest'][:12]})"
    body = joined(
        element("a", "Skip to the summary", href="#summary", class_="skip"),
        element(
            "header",
            element("h1", "What the shift costs"),
            element("p", subtitle, class_="quiet"),
            element("nav", element("ul", *links), aria_label="Sections"),
            class_="top",
        ),
        element("main", *(_section(name, title, inside) for name, (title, inside) in sections.items())),
        element("footer", f"Written by eval_kit {found.provenance['kit_version']}. This file fetches nothing."),
    )
    atomic.write_text(out, page(f"Shift report: {', '.join(systems)}", body, ["tables.js", "explorer.js"]))


def _summary(found: Protocols, pairs: Mapping[str, pl.DataFrame]) -> Html:
    by_shift = {shift: standings(found, shift, pairs[shift]) for shift in found.results}
    scale = span(end for here in by_shift.values() for one in here for end in (one.loss, one.low, one.high))
    parts = [
        element(
            "p",
            "A loss is (In − Out) / In: how much worse a system does on queries unlike those of its training than "
            "models of the same kind that were trained on their like. Bars, all on one scale, are the losses with "
            "their 95% bootstrap intervals over queries.",
            class_="quiet",
        )
    ]
    for shift, here in by_shift.items():
        ordered = sorted(here, key=lambda one: (one.part, -(one.loss or 0)))
        items = [
            element("li", element("div", *_sentences(one, found)), loss_bar(one.loss, one.low, one.high, scale))
            for one in ordered
        ]
        parts += [element("h3", capitalised(NAMES[shift])), element("ul", *items, class_="standings")]
    return joined(*parts)


def _sentences(one: Standing, found: Protocols) -> tuple[Html, Html]:
    """One system and shift in one plain sentence, and what stands behind it."""
    system = element("strong", one.system)
    where = _WHERE[one.shift] + (f" (training sets of size {one.part})" if one.part else "")
    inside, out = (report_tables.number(value, one.measure) for value in (one.inside, one.out))
    behind = f"In {inside}, Out {out}, {one.queries:,} queries" + _extremes(found.results[one.shift], one)
    if one.loss is None or one.low is None or one.high is None:
        said = joined(system, f" has no measurable loss of {one.measure} {where}.")
    elif one.low <= 0 <= one.high:
        ends = f" (95% interval {percent(one.low)} to {percent(one.high)})."
        said = joined(system, f" shows no clear loss of {one.measure} {where}: ", element("b", percent(one.loss)), ends)
    else:
        ends = " to ".join(percent(end) for end in sorted((abs(one.low), abs(one.high))))
        verb = " loses " if one.loss > 0 else " gains "
        amount = element("b", percent(abs(one.loss)))
        share = " of its " if one.loss > 0 else " of "
        said = joined(system, verb, amount, f"{share}{one.measure} {where} (95% interval {ends}).")
    return element("p", said), element("p", behind, class_="quiet")


def _extremes(results: pl.DataFrame, one: Standing) -> str:
    """On which clusters a system loses most and least."""
    if "cluster" not in results.columns:
        return ""
    known = pl.col("rel_loss").is_not_null()
    mine = results.filter(pl.col("system") == one.system, pl.col("measure") == one.measure, known).sort("rel_loss")
    if mine.height < 2:
        return ""
    (least, small), (most, great) = (mine.select("cluster", "rel_loss").row(place) for place in (0, -1))
    return f"; most on {most} ({percent(great)}), least on {least} ({percent(small)})"


def _tables(found: Protocols) -> Html:
    note = (
        "Laid out as in the papers. ° marks a loss that the paired t-test does not show (p ≥ 0.05 after Holm's "
        "correction); bold is the best of several systems."
    )
    parts = [element("p", note, class_="quiet")]
    for shift, results in found.results.items():
        parts.append(element("h3", capitalised(NAMES[shift])))
        if not SHIFTS[shift].clustered:
            parts.append((report_tables.restrain if SHIFTS[shift].group else report_tables.resttest)(results))
        else:
            parts += _ms_shift_tables(found, shift, results)
    every = element("summary", "Every loss with its statistics, sortable")
    parts.append(element("details", every, report_tables.every_loss(found.results)))
    return joined(*parts)


def _ms_shift_tables(found: Protocols, shift: str, results: pl.DataFrame) -> list[Html]:
    clusters = found.clusters[shift]
    sets = [f"{shift}.{cluster}" for cluster in clusters]
    first = main_measure(results)
    others = [str(one) for one in results["measure"].unique(maintain_order=True) if one != first]

    def table(measure: str) -> Html:
        untrained = {
            system: {cluster: values[name][measure] for cluster, name in zip(clusters, sets, strict=True)}
            for system, values in found.untrained.items()
            if set(sets) <= set(values)
        }
        return report_tables.ms_shift(results, clusters, measure, untrained)

    systems = results["system"].unique(maintain_order=True)
    matrices = [report_tables.matrix(found.matrices[shift], sets, first, system) for system in systems]
    return [
        table(first),
        element("details", element("summary", f"By {', '.join(others)}"), *map(table, others)) if others else Html(),
        element("details", element("summary", "Every model on every test set"), *matrices),
    ]


def _provenance(found: Protocols, vectors: Vectors | Mapping[str, Vectors] | None) -> Html:
    told = found.provenance
    about = told["release"]
    given = [vectors] if isinstance(vectors, Vectors) else list((vectors or {}).values())
    facts = {
        "Release": f"{about['version']} ({about['kind']})",
        "Release digest": element("code", about["digest"]),
        "Missing from it": "; ".join(about["missing"]) or "nothing",
        "eval_kit": told["kit_version"],
        "Ties": told["tie_rule"],
        "Bootstrap": f"10,000 resamples, seed {told['seed']}, 95% percentile intervals",
        "Query vectors": "; ".join(dict.fromkeys(Path(one.source).name for one in given)) or "none",
    }
    pairs = [part for name, fact in facts.items() for part in (element("dt", name), element("dd", fact))]
    rows = [
        [Path(run["run"]).name, f"{run['lines']:,}", f"{run['queries']:,}", element("code", run["sha256"])]
        for run in told["runs"]
    ]
    table = report_tables.plain("Runs", ["Run", "Lines", "Queries", "sha256"], rows, (1, 2))
    return joined(element("dl", *pairs, class_="facts"), table)


def _section(name: str, title: str, inside: Html) -> Html:
    return element(
        "section", element("h2", title, id=f"{name}-title"), inside, id=name, aria_labelledby=f"{name}-title"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
