"""Every argument and option of the commands, each declared once, and what a command that computes something is."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eval_kit.errors import EXIT_USER_ERROR
from eval_kit.output import Format, emit

if TYPE_CHECKING:
    from eval_kit.results import Result

Release = Annotated[
    str | None,
    typer.Option(
        help="Release folder, BEIR folder or Hub id. Default: $MS_MARCO_SHIFT_RELEASE, else ./ms-marco-shift."
    ),
]
Revision = Annotated[str | None, typer.Option(help="Tag or commit of a release on the Hub.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON to this file; '-' prints them.")
]
PrintedFormat = Annotated[Format, typer.Option(help="How to print the results; csv has every number.")]
PageFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also write the tables, figures and notes to this HTML file.")
]
AllowMissing = Annotated[
    bool, typer.Option("--allow-missing", help="Also score runs that lack many queries, or are cut short.")
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "--measure",
        metavar="NAME",
        help="Score by this measure, such as P@5, instead of the test sets' own. Repeatable.",
    ),
]
TestSets = Annotated[
    list[str] | None,
    typer.Option("--test-set", metavar="NAME", help="Score on this test set alone. Repeatable."),
]
Systems = Annotated[
    list[str] | None,
    typer.Option("--system", metavar="NAME", help="The system of each run, in the same order; or one for all runs."),
]
Shifts = Annotated[
    list[str] | None,
    typer.Option(
        "--shift", metavar="NAME", help="The shift of each run, likewise: topic, wh, length, resttest or restrain."
    ),
]
HeldOuts = Annotated[
    list[str] | None,
    typer.Option("--held-out", metavar="NAME", help="What each run's training held out, likewise, such as c0."),
]
Untrained = Annotated[
    list[Path] | None, typer.Option(metavar="RUN", help="A run of an untrained system, such as BM25. Repeatable.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of the bootstrap.")]
AnyRuns = Annotated[
    list[Path],
    typer.Argument(metavar="RUN", help="Run files (TREC or MS MARCO format, .gz, .zst) or folders of them."),
]
CleanFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Also score leaked and clean queries apart: what 'clean --json' wrote."),
]
PerQuery = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write each query's values to this file, tab-separated.")
]
Datasets = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        help="Instead, score each run on a folder in BEIR's format, beside BEIR's own figures: one per run, in "
        "their order.",
    ),
]
Bm25Runs = Annotated[
    list[Path] | None, typer.Option(metavar="RUN", help="With --dataset: BM25's runs, in the same order.")
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Hub id or folder of a model, a published checkpoint, module:object of your own, or bm25.",
    ),
]
ModelOptions = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Option of the model, such as query_prompt=… or pooling=cls. Repeatable."),
]
Variations = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Also search this wording of the queries, such as dev.typo. Repeatable."),
]
RunPivots = Annotated[
    list[Path] | None,
    typer.Option(metavar="RUN", help="A run to compare with. Repeatable. Default: BM25, which is searched too."),
]
GridRuns = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        help="Runs <system>.<shift>.<held-out>.trec; other names need the next three options. Runs of variations "
        "may stand among them.",
    ),
]
PageVectors = Annotated[
    str | None,
    typer.Option(
        help="Model or file for the page's figures about R, as for similarity. Default: the vectors beside RUN."
    ),
]
SimilarityRuns = Annotated[
    list[Path] | None,
    typer.Argument(metavar="RUN", help="Runs of a grid, to correlate their losses with the similarities."),
]
Vectors = Annotated[
    str | None,
    typer.Option(
        help="Vectors for the cosine: a sentence-transformers model, a parquet file, or NAME.npy with NAME.ids.txt."
    ),
]
Collections = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", help="Instead, compare the passages of BEIR folders (BEIR, Figure 2). Repeatable."),
]
Pivots = Annotated[
    list[Path], typer.Option(metavar="RUN", help="The run of an untrained system, such as BM25. Repeatable.")
]
TrainedOn = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="What the models were trained on, as for clean: near and far is measured from it."
    ),
]
Parts = Annotated[Path | None, typer.Option(metavar="TSV", help="An own division of the queries: id, tab, part.")]
Far = Annotated[
    list[str] | None,
    typer.Option(metavar="PART", help="A part of --parts that training held out. Repeatable. Default: by distance."),
]
DistanceVectors = Annotated[
    str | None, typer.Option(help="Vectors for the distance, as for similarity. Default: character trigrams.")
]
Train = Annotated[
    Path,
    typer.Option(
        metavar="FILE",
        help="What the model was trained on: queries (id, tab, text), triplets (three columns, or JSON lines), or "
        "a release or BEIR folder with a train split.",
    ),
]
Near = Annotated[
    float | None,
    typer.Option(help="Minimum cosine of near-duplicate queries. Default: as measured in docs/audit.md."),
]
SharedPassages = Annotated[
    bool, typer.Option("--passages", help="A query leaks too if a relevant passage of it was relevant in training.")
]
By = Annotated[
    list[str] | None,
    typer.Option(
        help="For dev-small: length, bucket, chameleons10 to chameleons50; for DL-HARD: intent, answer_type, "
        "topic, fold. Repeat for a cross-table. chameleons alone: the tables and figures of CIKM 2021."
    ),
]
WordedRuns = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN", help="Runs <system>.<base>.<variation>.trec, and <system>.trec for the original queries."
    ),
]
TestSetPart = Annotated[str | None, typer.Option(metavar="NAME", help="Compare only on the queries of this test set.")]
Pivot = Annotated[
    str | None,
    typer.Option(metavar="SYSTEM", help="System that LongEval's effect ratio and ΔRI compare with, such as bm25."),
]
Rankers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SYSTEM=RANKER",
        help="On chameleons.veiled.50: show SYSTEM beside this ranker of CIKM 2021, Table 7. Default: by name.",
    ),
]
ComparedSystems = Annotated[
    list[Path],
    typer.Argument(metavar="SYSTEM", help="Runs, submissions, or scores (x.json with x.tsv beside it)."),
]
Baseline = Annotated[
    str | None, typer.Option(help="The system that the others are tested against. Default: the first.")
]
Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Instead, list everything that is wrong with submissions. Exit status 2 if anything is."
    ),
]
ModelScores = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="Results of protocol --json and of score --dataset --json; or one CSV file of models' scores. Of the "
        "latter JSON alone, or none: figures on MS MARCO against those elsewhere, with BEIR's own.",
    ),
]

_OUTPUTS: dict[str, tuple[Any, Any]] = {
    "format": (PrintedFormat, Format.table),
    "json_file": (JsonFile, None),
    "page": (PageFile, None),
}


def emitting(compute: "Callable[..., Result]") -> Callable[..., None]:
    """A command with ``--format``, ``--json`` and ``--page`` besides the parameters of the function.

    Args:
        compute: what the command does; the result that it returns is written wherever these options ask for it.
    """

    @wraps(compute)
    def command(format: Format, json_file: Path | None, page: Path | None, **given: Any) -> None:
        result = compute(**given)
        emit(result, format=format, json=json_file, page=page)
        if result.failed:
            raise typer.Exit(EXIT_USER_ERROR)

    signature = inspect.signature(compute)
    outputs = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=option, default=default)
        for name, (option, default) in _OUTPUTS.items()
    ]
    parameters = [*signature.parameters.values(), *outputs]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
