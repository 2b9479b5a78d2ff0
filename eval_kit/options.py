"""Options of several commands or with a long help, each declared once, and what a command that computes is."""

import inspect
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eval_kit.output import Format, emit

if TYPE_CHECKING:
    from eval_kit.results import Result


def option(help: str, metavar: str | None = None, *names: str, **limits: Any) -> Any:
    """An option of a command, as typer takes it; ``limits`` are its bounds and whatever else typer knows."""
    return typer.Option(*names, metavar=metavar, help=help, **limits)


def argument(help: str, metavar: str | None = None) -> Any:
    """An argument of a command, as typer takes it."""
    return typer.Argument(metavar=metavar, help=help)


Release = Annotated[
    str | None,
    option(
        "Release folder, BEIR folder or Hub id (id@v1.0.0). Default: $MS_MARCO_SHIFT_RELEASE, else ./ms-marco-shift, "
        "else the published test sets, fetched from their authors once."
    ),
]
JsonFile = Annotated[Path | None, option("Write the results as JSON to this file; '-' prints them.", "FILE", "--json")]
PrintedFormat = Annotated[Format, option("How to print the results; csv has every number.")]
PageFile = Annotated[Path | None, option("Also write the tables, figures and notes to this HTML file.", "FILE")]
AllowMissing = Annotated[
    bool,
    option("Also score runs that lack more than 8 % of a test set's queries, which score 0.", None, "--allow-missing"),
]
Measures = Annotated[
    list[str] | None,
    option("Score by this measure, such as P@5, instead of the test sets' own ones. Repeatable.", "NAME", "--measure"),
]
TestSets = Annotated[
    list[str] | None, option("Use only this test set, such as dl19. Repeatable.", "NAME", "--test-set")
]
OfModel = Annotated[
    list[str] | None,
    option("Set an option of the model, such as query_prompt=… or pooling=cls. Repeatable.", "KEY=VALUE", "--option"),
]
Passages = Annotated[
    str | None,
    option(
        "Search these passages (id, tab, text), or all of the release's ir_datasets collection, by its id.", "TSV|ID"
    ),
]
Seed = Annotated[int | None, option("Random seed of the bootstrap. Default: 0.", min=0, max=2**32 - 1)]
Datasets = Annotated[
    list[Path] | None,
    option(
        "Score RUNs on these BEIR folders instead (one per run, same order), next to BEIR's published figures.",
        "DIR",
        "--dataset",
    ),
]
Runs = Annotated[
    list[Path] | None,
    argument(
        "Run files (TREC, MS MARCO, CSV, JSON lines or Parquet, packed or not, - for a pipe), or folders of them.",
        "RUN",
    ),
]
Example = Annotated[
    bool, option("Take two synthetic runs and their queries, which come with the kit.", None, "--example")
]
GridRuns = Annotated[
    list[Path] | None,
    argument(
        "Runs named <system>.<shift>.<held-out>.trec (the shift topic, wh, length, given, crossed, resttest or "
        "restrain), or runs of query variations.",
        "RUN",
    ),
]
Paper = Annotated[
    str | None,
    option(
        "Print this published table, such as ecir2023-table2, with the grid's own figures below if RUN is a grid's "
        "folder of runs. With all: every published figure of the grid's systems next to its own tables.",
        "ID|all",
    ),
]
Train = Annotated[
    Path,
    option(
        "The model's training queries: ids and texts, triplets, or a release or BEIR folder with a train split.", "FILE"
    ),
]
By = Annotated[
    list[str] | None,
    option(
        "Also show groups of queries: by a FILE of ids and groups, FILE:COLUMN, a field such as metadata.article, a "
        "label of the release (topic, length, bucket, chameleons50, intent …), words, question-word, distance or "
        "leaked (with --trained-on), or two of them, A×B. Repeatable.",
        "GROUPING",
    ),
]
Groups = Annotated[
    str | None,
    option(
        "Groups of queries that hang together, as for --by, such as an article's or a user's. Tests count groups where "
        "it matters. Default: queries with one text, or half of their relevant passages in common.",
        "GROUPING",
    ),
]
Qrels = Annotated[
    Path | None, option("Score on these judgements, in TREC's or BEIR's columns, instead of a release.", "FILE")
]
Queries = Annotated[Path | None, option("With --qrels: ids and texts of the queries, for --by.", "FILE")]
TrainedOn = Annotated[
    Path | None,
    option("Training queries for --by distance and --by leaked, in any form that clean --train takes.", "FILE"),
]


def emitting(compute: "Callable[..., Result]") -> Callable[..., None]:
    """A command with ``--format``, ``--json`` and ``--page`` besides the parameters of the function."""

    def command(
        *, format: PrintedFormat = Format.table, json_file: JsonFile = None, page: PageFile = None, **values: Any
    ) -> None:
        result = compute(**values)
        emit(result, format=format, json=json_file, page=page)
        if result.exit_status:
            raise typer.Exit(result.exit_status)

    *outputs, _ = inspect.signature(command).parameters.values()
    parameters = [*inspect.signature(compute).parameters.values(), *outputs]
    update_wrapper(command, compute)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
