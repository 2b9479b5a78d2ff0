"""Every argument and option of the commands, each declared once, and what a command that computes something is."""

import inspect
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eval_kit.errors import EXIT_USER_ERROR
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
    option("Release folder, BEIR folder or Hub id. Default: $MS_MARCO_SHIFT_RELEASE, else ./ms-marco-shift."),
]
Revision = Annotated[str | None, option("Tag or commit of a release on the Hub.")]
JsonFile = Annotated[Path | None, option("Write the results as JSON to this file; '-' prints them.", "FILE", "--json")]
PrintedFormat = Annotated[Format, option("How to print the results; csv has every number.")]
PageFile = Annotated[Path | None, option("Also write the tables, figures and notes to this HTML file.", "FILE")]
AllowMissing = Annotated[
    bool, option("Also score runs that lack many queries, or are cut short.", None, "--allow-missing")
]
Measures = Annotated[
    list[str] | None,
    option("Score by this measure, such as P@5, instead of the test sets' own. Repeatable.", "NAME", "--measure"),
]
TestSets = Annotated[list[str] | None, option("Score on this test set alone. Repeatable.", "NAME", "--test-set")]
Systems = Annotated[
    list[str] | None, option("The system of each run, in the same order; or one for all runs.", "NAME", "--system")
]
Shifts = Annotated[
    list[str] | None,
    option("The shift of each run, likewise: topic, wh, length, resttest or restrain.", "NAME", "--shift"),
]
HeldOuts = Annotated[
    list[str] | None, option("What each run's training held out, likewise, such as c0.", "NAME", "--held-out")
]
Untrained = Annotated[list[Path] | None, option("A run of an untrained system, such as BM25. Repeatable.", "RUN")]
Seed = Annotated[int, option("Random seed of the bootstrap.", min=0, max=2**32 - 1)]
AnyRuns = Annotated[list[Path], argument("Run files (TREC or MS MARCO format, .gz, .zst) or folders of them.", "RUN")]
CleanFile = Annotated[
    Path | None, option("Also score leaked and clean queries apart: what 'clean --json' wrote.", "FILE")
]
PerQuery = Annotated[Path | None, option("Write each query's values to this file, tab-separated.", "FILE")]
Datasets = Annotated[
    list[Path] | None,
    option(
        "Instead, score each run on a folder in BEIR's format, beside BEIR's own figures: one per run, in their order.",
        "DIR",
    ),
]
Bm25Runs = Annotated[list[Path] | None, option("With --dataset: BM25's runs, in the same order.", "RUN")]
Model = Annotated[
    str, argument("Hub id or folder of a model, a published checkpoint, module:object of your own, or bm25.", "MODEL")
]
ModelOptions = Annotated[
    list[str] | None, option("Option of the model, such as query_prompt=… or pooling=cls. Repeatable.", "KEY=VALUE")
]
Variations = Annotated[
    list[str] | None, option("Also search this wording of the queries, such as dev.typo. Repeatable.", "NAME")
]
RunPivots = Annotated[
    list[Path] | None, option("A run to compare with. Repeatable. Default: BM25, which is searched too.", "RUN")
]
GridRuns = Annotated[
    list[Path] | None,
    argument(
        "Runs <system>.<shift>.<held-out>.trec; other names need the next three options. Runs"
        " of variations may stand among them.",
        "RUN",
    ),
]
Paper = Annotated[
    str | None,
    option(
        "Print this published table, such as ecir2023-table2; below its figures those of the grid whose folder of runs "
        "is RUN, if any. With all, every such figure, beside the grid's own tables.",
        "ID|all",
    ),
]
PageVectors = Annotated[
    str | None,
    option("Model or file for the page's figures about R, as for similarity. Default: the vectors beside RUN."),
]
SimilarityRuns = Annotated[
    list[Path] | None, argument("Runs of a grid, to correlate their losses with the similarities.", "RUN")
]
Vectors = Annotated[
    str | None,
    option("Vectors for the cosine: a sentence-transformers model, a parquet file, or NAME.npy with NAME.ids.txt."),
]
Collections = Annotated[
    list[Path] | None, option("Instead, compare the passages of BEIR folders (BEIR, Figure 2). Repeatable.", "DIR")
]
Pivots = Annotated[list[Path], option("The run of an untrained system, such as BM25. Repeatable.", "RUN")]
TrainedOn = Annotated[
    Path | None, option("What the models were trained on, as for clean: near and far is measured from it.", "FILE")
]
Parts = Annotated[Path | None, option("An own division of the queries: id, tab, part.", "TSV")]
Far = Annotated[
    list[str] | None, option("A part of --parts that training held out. Repeatable. Default: by distance.", "PART")
]
DistanceVectors = Annotated[
    str | None, option("Vectors for the distance, as for similarity. Default: character trigrams.")
]
Train = Annotated[
    Path,
    option(
        "What the model was trained on: queries (id, tab, text), triplets (three columns, or "
        "JSON lines), or a release or BEIR folder with a train split.",
        "FILE",
    ),
]
Near = Annotated[
    float | None, option("Minimum cosine of near-duplicate queries. Default: as measured in docs/audit.md.")
]
SharedPassages = Annotated[
    bool, option("A query leaks too if a relevant passage of it was relevant in training.", None, "--passages")
]
By = Annotated[
    list[str] | None,
    option(
        "For dev-small: length, bucket, chameleons10 to chameleons50; for DL-HARD: intent, "
        "answer_type, topic, fold. Repeat for a cross-table. chameleons alone: the tables and"
        " figures of CIKM 2021."
    ),
]
WordedRuns = Annotated[
    list[Path], argument("Runs <system>.<base>.<variation>.trec, and <system>.trec for the original queries.", "RUN")
]
TestSetPart = Annotated[str | None, option("Compare only on the queries of this test set.", "NAME")]
Pivot = Annotated[
    str | None, option("System that LongEval's effect ratio and ΔRI compare with, such as bm25.", "SYSTEM")
]
Rankers = Annotated[
    list[str] | None,
    option(
        "On chameleons.veiled.50: show SYSTEM beside this ranker of CIKM 2021, Table 7. Default: by name.",
        "SYSTEM=RANKER",
    ),
]
ComparedSystems = Annotated[
    list[Path], argument("Runs, submissions, or scores (x.json with x.tsv beside it).", "SYSTEM")
]
Baseline = Annotated[str | None, option("The system that the others are tested against. Default: the first.")]
Check = Annotated[
    bool,
    option("Instead, list everything that is wrong with submissions. Exit status 2 if anything is.", None, "--check"),
]
ModelScores = Annotated[
    list[Path] | None,
    argument(
        "Results of protocol --json and of score --dataset --json; or one CSV file of models' "
        "scores. With results of score --dataset alone, or no file: figures on MS MARCO against "
        "those elsewhere, BEIR's own among them.",
        "FILE",
    ),
]


def emitting(compute: "Callable[..., Result]") -> Callable[..., None]:
    """A command with ``--format``, ``--json`` and ``--page`` besides the parameters of the function.

    Args:
        compute: what the command does; the result that it returns is written wherever these options ask for it.
    """

    def command(
        *, format: PrintedFormat = Format.table, json_file: JsonFile = None, page: PageFile = None, **values: Any
    ) -> None:
        result = compute(**values)
        emit(result, format=format, json=json_file, page=page)
        if result.failed:
            raise typer.Exit(EXIT_USER_ERROR)

    *outputs, _ = inspect.signature(command).parameters.values()
    parameters = [*inspect.signature(compute).parameters.values(), *outputs]
    update_wrapper(command, compute)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
