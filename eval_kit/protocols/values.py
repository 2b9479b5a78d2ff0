"""Systems whose value of each query others computed: ``score --per-query``, LongEval, query performance prediction.

A table of run, query, measure and value, and of the test set where there are several. All that needs no ranks follows:
differences, parts, a gate.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__
from eval_kit.authors.judgements import Texts, texts_of
from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.divisions import Parts
from eval_kit.errors import UserError, choices, parameter
from eval_kit.files.faults import Faults
from eval_kit.files.formats import QUERIES_SCHEMA, read_queries
from eval_kit.files.ids import RUN_NAMES
from eval_kit.files.numbers import finite_number
from eval_kit.files.records import QUERY_IDS, Layout, columns, rows
from eval_kit.measures.definitions import KINDS, measure_of_others, parse
from eval_kit.protocols.compare import Comparison, of_values
from eval_kit.protocols.scoring import named
from eval_kit.release import Release, TestSet, beir_folder
from eval_kit.runs import contamination
from eval_kit.runs.contamination import TrainedOn as Verdict
from eval_kit.runs.training import TrainedOn, queries_of
from eval_kit.sentences import counted

COLUMNS = ("run", "test_set", "measure", "query_id", "value", "searched")
_LAYOUT = Layout(
    names=(
        RUN_NAMES,
        ("test_set", "dataset", "collection"),
        ("measure", "metric"),
        QUERY_IDS,
        ("value", "score"),
        ("searched",),
    ),
    places={4: (0, None, 2, 1, 3, None), 5: (0, 1, 2, 3, 4, None), 6: range(6)},
    expected="run, query, measure and value",
    is_row=lambda fields: not fields[0].startswith("#"),
    is_header=lambda fields: finite_number(fields[-1].strip()) is None and len(fields) < 6,
    by_blanks=True,
    number=4,
    optional=(1, 5),
)
_SEARCHED = ("true", "false", "")
_ONLY = "test"
"""The test set of a table that names none."""

type Values = str | Path | Any
"""A file, or a table of polars or pandas with such columns."""


def compare_values(
    values: Values,
    release: ReleaseSource = None,
    baseline: str | None = None,
    *,
    measures: Collection[str] = (),
    test_sets: Collection[str] = (),
    by: Sequence[str | Parts] = (),
    trained_on: TrainedOn = None,
    queries: Texts | None = None,
    no_worse_than: float | None = None,
    looks: bool = False,
) -> Comparison:
    """Systems side by side, from their values.

    Args:
        values: of each query: run, query, measure and value, and test set where there are several; the further
            arguments are as for :func:`eval_kit.protocols.comparing.compare`.
        release: for divisions by its labels; the test sets are found there by name.
        baseline: the system that the others are tested against; by default the first.
        measures: those to compare by; by default all.
        test_sets: those to compare on; by default all.
        by: divisions of the queries.
        trained_on: training queries, for the divisions ``distance`` and ``leaked``.
        queries: ids and texts of the queries, for divisions by text, where no release has them.
        no_worse_than: of a gate.
        looks: the gate holds however often one looks.

    Raises:
        UserError: a table that cannot be used; a system that lacks a value that another has.
    """
    if looks and no_worse_than is None:
        raise UserError(f"{parameter('looks')} needs {parameter('no_worse_than')}", "Looks are at a gate")
    if release is not None and queries is not None:
        raise UserError(f"{parameter('release')} has the texts of the queries", do=f"Leave {parameter('queries')} out")
    table, about = _read(values)
    if measures:
        asked = [measure_of_others(name).name for name in ([measures] if isinstance(measures, str) else measures)]
        there = table["measure"].unique(maintain_order=True)
        if strange := [name for name in asked if name not in there]:
            raise UserError(f"There is no value of {strange[0]}", do=f"Choose from: {choices(there)}")
        table = pl.concat([table.filter(pl.col("measure") == name) for name in dict.fromkeys(asked)])
    found = table["test_set"].unique(maintain_order=True)
    opened = _of_queries(table, queries) if release is None else open_release(release)
    own = {name: _test_set(opened, table.filter(test_set=pl.lit(name)), name) for name in found}
    chosen = named(own, test_sets)
    provenance: dict[str, Any] = {"kit_version": __version__, "values": about, "runs": []}
    if release is not None:
        provenance["release"] = opened.identity
    comparison = of_values(
        table.filter(pl.col("test_set").is_in(list(chosen))),
        opened,
        baseline,
        provenance,
        test_sets=chosen,
        by=by,
        training=queries_of(trained_on, by),
        margin=no_worse_than,
        looks=looks,
    )
    names = table["measure"].unique(maintain_order=True)
    others = [name for name in names if parse(name).kind.name not in KINDS]
    note = f"Higher is taken for better, as the kit does not know them: {choices(others)}"
    return replace(comparison, remarks=[*comparison.remarks, *([note] if others else [])])


def _test_set(release: Release, table: pl.DataFrame, name: str) -> TestSet:
    """A test set of the release with the measures and queries of the table, in which each system has every value."""
    if name not in release.test_sets:
        do = f"Rename it, or name its release by {parameter('release')}. Here: {choices(release.test_sets)}"
        raise UserError(f"{release.name} has no test set {name}", do=do)
    queries = table["query_id"].unique(maintain_order=True)
    measures = table["measure"].unique(maintain_order=True).to_list()
    strange = queries.filter(~queries.is_in(release.test_sets[name].query_ids))
    if len(strange):
        raise UserError(f"{counted(len(strange), 'query')} of {name}, such as {strange[0]}, are not in {release.name}")
    counts = {(row[0], row[1]): row[2] for row in table.group_by("system", "measure").len().iter_rows()}
    for system, measure in product(table["system"].unique(maintain_order=True), measures):
        if (count := counts.get((system, measure), 0)) < len(queries):
            raise UserError(
                f"{system} has {measure} of {count:,} of the {counted(len(queries), 'query')} of {name}",
                "Each system needs a value of each query by each measure, and a lacking value is not 0",
                f"Add the values, or choose measures by {parameter('measures')}",
            )
    return replace(release.test_sets[name], queries=queries, measures=tuple(measures))


def _of_queries(table: pl.DataFrame, queries: Texts | None) -> Release:
    """The queries of the table as a release."""
    given = texts_of(queries)
    ids = table["query_id"].unique(maintain_order=True).to_frame()
    texts = read_queries(given) if isinstance(given, Path) else given
    known = pl.DataFrame(schema=QUERIES_SCHEMA) if texts is None else texts
    with_texts = ids.join(known, on="query_id", how="left", maintain_order="left")
    groups = table.group_by("test_set", maintain_order=True)
    by_set = {str(name): rows["query_id"].unique(maintain_order=True) for (name,), rows in groups}
    return Release(Path(), *beir_folder.of_queries(by_set, with_texts), given_as="the values")


def _read(values: Values) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The values as :attr:`Comparison.values`, and what the provenance says of them."""
    if isinstance(values, str | Path):
        texts = columns(Path(values), _LAYOUT)
        frame = None if texts is None else _checked(texts)
        frame = _by_line(Path(values)) if frame is None else frame
    else:
        frame = _checked(_of_python(values))
    if frame is None or frame.is_empty():
        raise UserError(f"{parameter('values')} takes {_LAYOUT.expected}", "Each value is a number, and there once")
    content = frame.select(COLUMNS).sort(COLUMNS).write_csv()
    about = {"rows": frame.height, "sha256": hashlib.sha256(content.encode()).hexdigest()}
    about |= {"file": str(values)} if isinstance(values, str | Path) else {}
    return frame.rename({"run": "system"}), about


def _of_python(values: Any) -> pl.DataFrame:
    """The texts of a table, by the numbers of :data:`COLUMNS`."""
    frame = values
    if not isinstance(frame, pl.DataFrame):
        frame = pl.DataFrame(values.to_dict("list") if hasattr(values, "to_dict") else values)
    there = {name.lower(): name for name in frame.columns}
    selected = []
    for number, names in enumerate(_LAYOUT.names):
        name = next((there[each] for each in names if each in there), None)
        if name is None and number not in _LAYOUT.optional:
            raise UserError(f"{parameter('values')} has no column {choices(names)}", do="Name its columns")
        text = pl.lit("") if name is None else pl.col(name).cast(pl.String)
        selected.append(text.alias(str(number)))
    return frame.select(selected)


def _checked(texts: pl.DataFrame) -> pl.DataFrame | None:
    """The rows of texts; None where some row is wrong, or there twice."""
    frame = texts.rename(dict(zip(texts.columns, COLUMNS, strict=True))).with_columns(
        pl.col("value").str.strip_chars(" ").cast(pl.Float64, strict=False),
        pl.col("searched").fill_null("").str.to_lowercase(),
        test_set=pl.when(pl.col("test_set") == "").then(pl.lit(_ONLY)).otherwise("test_set"),
    )
    keys = frame.select(COLUMNS[:4])
    is_row = frame["value"].is_finite().fill_null(False) & frame["searched"].is_in(_SEARCHED)
    if not is_row.all() or any(keys.null_count().row(0)) or (keys == "").sum_horizontal().sum():
        return None
    measures = {name: measure_of_others(name).name for name in frame["measure"].unique()}
    frame = frame.with_columns(
        pl.col("measure").replace_strict(measures, return_dtype=pl.String), pl.col("searched") != "false"
    )
    if frame.select(COLUMNS[:4]).is_duplicated().any():
        return None
    of_set = pl.len().over("test_set", "run", "measure") - pl.col("searched").sum().over("test_set", "run", "measure")
    unknown = pl.lit(Verdict.UNKNOWN, contamination.COLUMN)
    return frame.with_columns(missing=of_set.cast(pl.Int64), trained_on=unknown)


def _by_line(path: Path) -> pl.DataFrame | None:
    """The rows of a file whose form is not the plainest; faults are raised with their lines."""
    faults = Faults(path)
    found: list[list[str]] = []
    lines: dict[tuple[str, ...], int] = {}
    for number, texts in rows(path, _LAYOUT, faults):
        key = tuple(text.strip(" ") for text in texts[:4])
        value = finite_number(texts[4].strip(" "))
        if value is None:
            faults.add(number, f"the value is {texts[4]!r:.40}, not a number")
        elif not (key[0] and key[2] and key[3]) or texts[5].lower() not in _SEARCHED:
            faults.add(number, f"expected {_LAYOUT.expected}")
        elif key in lines:
            faults.add(number, f"a second value of {key[3]}, first on line {lines[key]}")
        lines.setdefault(key, number)
        found.append([*key, str(value), texts[5]])
    faults.raise_any()
    return _checked(pl.DataFrame(found, [str(number) for number in range(6)], orient="row")) if found else None
