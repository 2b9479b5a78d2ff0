"""Sources of a comparison: run files, submissions, and scores that ``eval_kit score`` wrote, all as per-query values.

Runs and submissions are scored here. A scores document holds means only; the values of its queries are taken from the
table that ``--per-query`` wrote beside it (``x.tsv`` for ``x.json``), which must give exactly those means.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import msgspec
import polars as pl
from msgspec import structs

from eval_kit.documents import Provenance, ScoresDocument
from eval_kit.documents.scores import ScoredRun
from eval_kit.errors import UserError
from eval_kit.exchange import submission
from eval_kit.files import schemas
from eval_kit.files.text import LARGEST_TABLE, read_utf8
from eval_kit.protocols.scores import Scores
from eval_kit.protocols.scoring import score, with_measures
from eval_kit.release import Release
from eval_kit.runs import contamination
from eval_kit.runs.names import RunName
from eval_kit.shifts import SHIFTS

_VALUES = {
    **dict.fromkeys(("system", "test_set", "figure", "measure", "query_id"), pl.String()),
    "value": pl.Float64(),
    "missing": pl.Int64(),
    "trained_on": contamination.COLUMN,
}
_PER_QUERY = dict.fromkeys(("run", "test_set", "measure", "query_id"), pl.String()) | {"value": pl.Float64()}
TRACKS = {"2019": "dl19", "2020": "dl20"}
"""The test sets of the TREC DL years that runs may be named after."""
_OF_SYSTEM = list(_VALUES)[1:]


@dataclass(frozen=True)
class Source:
    """Systems that were scored together.

    Attributes:
        name: of the file or folder, for messages.
        systems: in their order.
        values: ``system``, ``test_set``, ``figure`` (see :class:`eval_kit.exchange.compare.Comparison`), ``measure``,
            ``query_id``, ``value``, ``missing`` (queries that the run lacks), ``trained_on`` (whether the model was
            trained on queries of the test set).
        provenance: of the scores.
    """

    name: str
    systems: list[str]
    values: pl.DataFrame
    provenance: Provenance


def load(
    paths: Sequence[Path],
    release: Callable[[], Release],
    allow_missing: bool = False,
    measures: Collection[str] = (),
    only: Collection[str] = (),
) -> list[Source]:
    """Read everything that is to be compared, in order.

    A folder is a submission, a ``.json`` file a scores document, anything else a run. Runs whose names differ only
    in the test set or track at the end, as ``ance.dl19`` and ``ance.dl20`` or ``ance.2019`` and ``ance.2020``, are one
    system, unless they cover the same test set.

    Args:
        paths: two or more, or one document of several runs.
        release: opens the release; called at most once, and not at all if there are only scores documents.
        allow_missing: as for :func:`eval_kit.protocols.scoring.score`.
        measures: to compare by, in place of the test sets' own.
        only: names of the test sets that runs are scored on; by default all.

    Raises:
        UserError: whatever is wrong with one of them; a scores document without one of the measures.
    """
    runs = [path for path in paths if not path.is_dir() and path.suffix.lower() != ".json"]
    opened_release = release() if any(path.suffix.lower() != ".json" or path.is_dir() for path in paths) else None
    by_file: dict[str, Source] = {}
    if runs and opened_release is not None:
        candidates = {name: each for name, each in opened_release.test_sets.items() if not only or name in only}
        test_sets = with_measures(candidates, measures)
        by_file = _of_runs(score(runs, opened_release, allow_missing, test_sets))
    sources: list[Source] = []
    for path in paths:
        if str(path) in by_file:
            source = by_file[str(path)]
            if not any(source is earlier for earlier in sources):
                sources.append(source)
        elif path.suffix.lower() == ".json" and path.is_file():
            sources.append(_by_measures(of_document(path), measures))
        elif opened_release is not None:
            sources.append(of_submission(path, opened_release, allow_missing, measures))
        else:
            raise UserError(f"{path}: there is no such file")
    return sources


def of_submission(path: Path, release: Release, allow_missing: bool = False, measures: Collection[str] = ()) -> Source:
    """A submission as one system: its plain runs as they are, its grids as In and Out of each cluster.

    In is, for each query, the mean over the models that saw the query's cluster in training, Out the value of the one
    that did not (ECIR 2023 §3.2); for ReSTTest likewise by buckets, for ReSTrain by the two sets of each size. Seeds
    are averaged.

    Raises:
        UserError: a faulty submission or run; two plain runs that cover one test set.
    """
    opened_submission = submission.open_submission(path, release)
    test_sets = with_measures(release.test_sets, measures)
    training_data = opened_submission.document.training_data
    scores = score(list(opened_submission.runs), release, allow_missing, test_sets, lambda run: training_data)
    names = dict.fromkeys(source["run"] for source in scores.provenance["runs"])
    cells = dict(zip(names, opened_submission.runs.values(), strict=True))
    values = scores.per_query_in_full()
    plain = values.filter(pl.col("run").is_in([name for name, cell in cells.items() if cell is None]))
    twice = plain.filter(plain.select("test_set", "measure", "query_id").is_duplicated())["test_set"]
    if len(twice):
        raise UserError(f"{path}: two of its runs cover {twice[0]}; it is not clear which one represents the system")
    plain = plain.with_columns(figure=pl.lit("")).select(_OF_SYSTEM)
    system = opened_submission.document.system
    whole = pl.concat([plain, _in_and_out(values, cells, release)]).select(pl.lit(system).alias("system"), pl.all())
    return Source(str(path), [system], whole, msgspec.convert(scores.provenance, Provenance))


def of_document(path: Path) -> Source:
    """The runs of a scores document, each as a system, with their per-query values from the table beside it.

    Raises:
        UserError: a document that does not follow its schema, a table that is not there, or one that does not give
            the document's means.
    """
    document = schemas.load(ScoresDocument, path)
    table = path.with_suffix(".tsv")
    if not table.is_file():
        raise UserError(
            f"{path}: its per-query values are not beside it; write them with eval_kit score --json {path.name} "
            f"--per-query {table.name}"
        )
    values = _read_per_query(table)
    computed_values = {
        tuple(row[:3]): row[3:]
        for row in values.group_by("run", "test_set", "measure")
        .agg(pl.col("value").mean(), pl.len(), pl.col("query_id").n_unique().alias("distinct"))
        .iter_rows()
    }
    of_figures = []
    for entry in document.measures:
        key = (entry.run, entry.test_set, entry.measure)
        mean, rows, distinct = computed_values.pop(key, (0.0, 0, 0))
        if rows != entry.queries or distinct != rows or abs(mean - entry.value) > 1e-9 * max(1.0, abs(mean)):
            raise UserError(f"{table}: does not match the document's {key[2]} of {key[0]} on {key[1]}; score again")
        of_figures.append((*key, entry.missing, entry.trained_on))
    if computed_values:
        run, test_set, measure = next(iter(computed_values))
        raise UserError(f"{table}: has {measure} of {run} on {test_set}, which {path.name} lacks; score again")
    names = ("run", "test_set", "measure")
    columns = dict.fromkeys(names, pl.String()) | {"missing": pl.Int64(), "trained_on": contamination.COLUMN}
    same_for_all = pl.DataFrame(of_figures, columns, orient="row")
    whole = values.join(same_for_all, on=names, maintain_order="left").rename({"run": "system"})
    systems = whole["system"].unique(maintain_order=True).to_list()
    whole = whole.with_columns(figure=pl.lit("")).select(list(_VALUES))
    return Source(str(path), systems, whole, document.provenance)


def _by_measures(source: Source, measures: Collection[str]) -> Source:
    """The source with these measures alone; unchanged if none are named."""
    measures_of = set(source.values["measure"])
    for name in measures:
        if name not in measures_of:
            raise UserError(f"{source.name}: has no {name}; score its runs again with --measure {name}")
    return replace(source, values=source.values.filter(pl.col("measure").is_in(list(measures or measures_of))))


def _of_runs(scores: Scores) -> dict[str, Source]:
    """The system that each run file belongs to."""
    values = scores.per_query_in_full().with_columns(figure=pl.lit(""))
    provenance = msgspec.convert(scores.provenance, Provenance)
    systems: dict[str, list[ScoredRun]] = {}
    test_sets: dict[str, set[str]] = {}
    for run in provenance.runs:
        stem, _, track = run.run.rpartition(".")
        test_sets[run.run] = set(values.filter(run=run.run)["test_set"])
        is_of_stem = stem and TRACKS.get(track, track) in test_sets[run.run]
        systems.setdefault(stem if is_of_stem else run.run, []).append(run)
    by_file: dict[str, Source] = {}
    for system, runs in systems.items():
        scored_on = list(chain.from_iterable(test_sets[run.run] for run in runs))
        apart = len(runs) == 1 or len(set(scored_on)) < len(scored_on)
        for members in [[run] for run in runs] if apart else [runs]:
            name = members[0].run if apart else system
            is_member = pl.col("run").is_in([run.run for run in members])
            of_members = values.filter(is_member).select(pl.lit(name).alias("system"), *_OF_SYSTEM)
            source = Source(members[0].file, [name], of_members, structs.replace(provenance, runs=members))
            for run in members:
                by_file[run.file] = source
    return by_file


def _in_and_out(values: pl.DataFrame, cells: dict[str, RunName | None], release: Release) -> pl.DataFrame:
    """``In`` and ``Out`` of every grid: each query's mean over models (and seeds), and the worst of the rest."""
    in_grids = [(run, cell.shift, cell.held_out) for run, cell in cells.items() if cell is not None]
    columns = dict.fromkeys(("run", "shift", "held_out"), pl.String())
    rows = values.join(pl.DataFrame(in_grids, columns, orient="row"), on="run", maintain_order="left")
    figures = [pl.DataFrame(schema=_VALUES).drop("system")]
    for (name,), grid in rows.group_by("shift", maintain_order=True):
        shift = SHIFTS[str(name)]
        figure = pl.when("is_out").then(pl.lit("Out")).otherwise(pl.lit("In"))
        if shift.group == "size":
            figure = figure + " " + pl.col("part")
        comparison = shift.roles(grid, release).with_columns(figure=figure)
        figures.append(
            comparison.group_by("test_set", "figure", "measure", "query_id", maintain_order=True).agg(
                pl.col("value").mean(), pl.col("missing").max(), contamination.WORST
            )
        )
    return pl.concat(figures)


def _read_per_query(path: Path) -> pl.DataFrame:
    """The table that ``eval_kit score --per-query`` writes."""
    text = read_utf8(path, LARGEST_TABLE)
    header = text.partition("\n")[0].split("\t")  # first: polars unpacks what begins like zlib
    if header != list(_PER_QUERY):
        raise UserError(f"{path}: is not the table that --per-query writes: {', '.join(_PER_QUERY)}, without gaps")
    try:
        frame = pl.read_csv(text.encode(), separator="\t", schema=_PER_QUERY)
    except pl.exceptions.PolarsError as error:
        raise UserError(f"{path}: is not the table that --per-query writes: {str(error).splitlines()[0]}") from error
    whole = not any(frame.null_count().row(0)) if frame.height else True
    if not whole or not frame["value"].is_finite().all():
        raise UserError(f"{path}: is not the table that --per-query writes: {', '.join(_PER_QUERY)}, without gaps")
    if not "".join([*frame["run"].unique(), *frame["test_set"].unique(), *frame["measure"].unique()]).isprintable():
        raise UserError(f"{path}: a name in it holds control characters")
    return frame
