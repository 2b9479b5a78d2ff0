"""``eval_kit``: score runs on ms-marco-shift releases. A command says what the shell shows and calls the library."""

import dataclasses
import gc
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eval_kit import __version__, options, plugins
from eval_kit.errors import UserError, parameter, reporting
from eval_kit.options import argument, emitting, option
from eval_kit.program import commands

if TYPE_CHECKING:
    from eval_kit.results import Result

app = commands("Score runs on ms-marco-shift releases.")


def _show_version(flag: bool) -> None:
    if flag:
        typer.echo(f"eval_kit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, option("Show the version and exit.", None, "--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _computing(compute: "Callable[..., Result]") -> Callable[..., None]:
    """A command that computes a result, with the options that say where it goes."""
    return app.command()(emitting(compute))


def _call[R](function: Callable[..., R], values: dict[str, Any], why: str = "") -> R:
    """The result of a function for the options that were given; one that it does not take is refused: ``why``."""
    given = {name: value for name, value in values.items() if value is not None and value is not False and value != []}
    for name in given:
        if name not in inspect.signature(function).parameters:
            raise UserError(why, do=f"Leave {parameter(name)} out")
    return function(**given)


def _with_runs(values: dict[str, Any], *others: str) -> dict[str, Any]:
    """The options with runs; --example has its own, and a release, in place of these and of the ``others``."""
    if not values.pop("example"):
        if not values["runs"]:
            raise UserError("No runs were given", do="Add RUN files, or try --example")
        return values
    for name in ("runs", "release", *others):
        if values[name]:
            raise UserError("--example has its own runs and queries", do=f"Leave {parameter(name)} out")
    places = (Path(__file__).with_name("example"), Path(__file__).parents[1] / "examples")
    folder = next(filter(Path.is_dir, places))
    typer.echo(f"eval_kit: synthetic runs and queries, from {folder}", err=True)
    return values | {"runs": [folder / "bm25.trec", folder / "noisy.trec"], "release": folder}


@_computing
def score(
    runs: options.Runs = None,
    example: options.Example = False,
    release: options.Release = None,
    qrels: options.Qrels = None,
    queries: options.Queries = None,
    measures: options.Measures = None,
    test_sets: options.TestSets = None,
    per_query: Annotated[
        Path | None, option("Write the values of each query to this file, tab-separated.", "FILE")
    ] = None,
    by: options.By = None,
    trained_on: options.TrainedOn = None,
    panel: Annotated[
        bool, option("Also give each run's place among twelve known systems on TREC DL 2019 and 2020.", None, "--panel")
    ] = False,
    intervals: Annotated[
        bool,
        option(
            "Also give each mean its 95 % interval, and their mean over six test sets or more.", None, "--intervals"
        ),
    ] = False,
    allow_missing: options.AllowMissing = False,
    datasets: options.Datasets = None,
    bm25: Annotated[
        list[Path] | None,
        option("BM25's runs on the folders of --dataset, in the same order. Adds the average gain over BM25.", "RUN"),
    ] = None,
) -> "Result":
    """Score runs on every test set they cover, or on BEIR.

    Example: eval_kit score runs/*.trec --measure nDCG@10 --page scores.html
    """
    values = _with_runs(dict(locals()), "qrels", "datasets")
    if datasets or bm25:
        from eval_kit.protocols.beir import beir

        values["datasets"] = tuple(datasets or ())
        return _call(beir, values, "BEIR's own measures and split score its datasets")
    if by == ["chameleons"]:
        from eval_kit.protocols.chameleons import chameleons

        why = "The Chameleons are scored as in Table 4 of CIKM 2021"
        return _call(chameleons, values | {"by": None}, why)
    from eval_kit.files import atomic
    from eval_kit.protocols.scores import IN_FULL
    from eval_kit.protocols.scoring import score as score_runs

    scores = _call(score_runs, values | {"per_query": None})
    if per_query is not None:
        atomic.write_text(per_query, scores.per_query_in_full().drop(*IN_FULL[1:]).write_csv(separator="\t"))
    return scores


@_computing
def run(
    model: Annotated[
        str,
        argument("Hub id or folder of a model, a published checkpoint, module:object of your own, or bm25.", "MODEL"),
    ],
    release: options.Release = None,
    options: options.OfModel = None,
    test_sets: options.TestSets = None,
    variations: Annotated[
        list[str] | None,
        option(
            "Also search this query variation, such as dev.typo (made if missing). Repeatable.", "NAME", "--variation"
        ),
    ] = None,
    pivots: Annotated[
        list[Path] | None,
        option(
            "Compare with this run of an untrained system. Repeatable. Default: BM25, which is searched too.",
            "RUN",
            "--pivot",
        ),
    ] = None,
    no_pivot: Annotated[
        bool, option("Search with the model alone and compare it with nothing.", None, "--no-pivot")
    ] = False,
    trained_on: Annotated[
        Path | None,
        option(
            "Training queries, as clean --train takes them; the run declares them. Adds leaks and far queries.", "FILE"
        ),
    ] = None,
    passages: options.Passages = None,
    depth: Annotated[
        int | None, option("Number of passages to keep for each query. Default: 1000.", min=1, max=1_000_000)
    ] = None,
    first: Annotated[
        Path | None, option("Re-rank the top --depth of this run with a cross-encoder, and compare with it.", "RUN")
    ] = None,
    limit: Annotated[
        int | None, option("Search only the first passages, for a try. Its figures compare with no others.", min=1)
    ] = None,
    check: Annotated[
        bool, option("Only show what would run: its parts, texts, precision and first tokens.", None, "--check")
    ] = False,
    out: Annotated[
        Path | None, option("Folder for runs and indexes. Encoded passages there are reused. Default: runs.")
    ] = None,
    name: Annotated[str | None, option("Name of the run. Default: the model's name.")] = None,
    kind: Annotated[
        str | None, option("Model kind, if its files do not say: dense, sparse, late or cross.", "KIND")
    ] = None,
    replace: Annotated[bool, option("Replace a run of this name by another model.", None, "--replace")] = False,
    by: options.By = None,
    seed: options.Seed = None,
    *,
    context: typer.Context,
) -> "Result":
    """Search with a model and compare it with BM25.

    The kind of model is read from its own files.

    Example: eval_kit run sentence-transformers/all-MiniLM-L6-v2 --release nfcorpus --page card.html
    """
    values = dict(locals())
    from eval_kit.models.card import Card
    from eval_kit.models.opening import parse_options
    from eval_kit.models.run import run as run_model

    if values.pop("no_pivot"):
        if pivots:
            raise UserError(f"--no-pivot contradicts {parameter('pivots')}", do="Leave one of the two out")
        values["pivots"] = ()
    of_model = parse_options(values.pop("options") or [])
    of_command = values.pop("context").params
    outputs = [of_command[name] for name in ("json_file", "page")]
    card = _call(run_model, values | {"options": of_model, "outputs": outputs})
    return dataclasses.replace(card, again=["eval_kit", *sys.argv[1:]]) if isinstance(card, Card) else card


@_computing
def compare(
    runs: options.Runs = None,
    example: options.Example = False,
    baseline: Annotated[str | None, option("Test the other systems against this one. Default: the first RUN.")] = None,
    release: options.Release = None,
    qrels: options.Qrels = None,
    queries: options.Queries = None,
    measures: options.Measures = None,
    test_sets: options.TestSets = None,
    by: options.By = None,
    trained_on: options.TrainedOn = None,
    no_worse_than: Annotated[
        float | None,
        option(
            "Fail if a system loses significantly to the baseline by the first measure; pass if it loses significantly "
            "less than this, or no query changed. Exit status: 0 passes, 1 fails, 3 cannot tell. With --by, tests each "
            "group.",
            "LOSS",
            min=0,
        ),
    ] = None,
    groups: options.Groups = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Compare the runs of several systems, with paired tests.

    Example: eval_kit compare bm25.trec mine.trec --test-set dl19
    """
    values = _with_runs(dict(locals()), "qrels")
    from eval_kit.protocols.compare import compare as compare_systems

    return _call(compare_systems, values)


@_computing
def discover(
    runs: Annotated[list[Path], argument("Two runs, of which the second may lose, or one with --pivot.", "RUN")],
    pivot: Annotated[Path | None, option("Compare a single RUN with this one, such as BM25's.", "RUN")] = None,
    release: options.Release = None,
    qrels: options.Qrels = None,
    queries: options.Queries = None,
    measure: Annotated[str | None, option("Compare by this measure. Default: the test sets' first.", "NAME")] = None,
    test_sets: options.TestSets = None,
    parts: Annotated[
        Path | None, option("Write the queries of each kind to this file, .tsv or .csv, for --by.", "FILE")
    ] = None,
    groups: options.Groups = None,
    seed: Annotated[int | None, option("Random seed of the halves. Default: 0.", min=0, max=2**32 - 1)] = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Find the kinds of query that a run loses.

    Half of the queries pick them, and the other half tests them.

    Example: eval_kit discover bm25.trec mine.trec --release nfcorpus --page kinds.html
    """
    values = dict(locals())
    from eval_kit.files.parts import write_parts
    from eval_kit.protocols.discover import discover as find_kinds

    found = _call(find_kinds, values | {"parts": None})
    if parts is not None:
        write_parts(found.parts(), parts)
    return found


@_computing
def generalise(
    runs: Annotated[list[Path], argument("Runs of trained systems over the test set.", "RUN")],
    pivots: Annotated[
        list[Path], option("Compare with this run of an untrained system, such as BM25. Repeatable.", "RUN", "--pivot")
    ],
    trained_on: Annotated[
        Path | None, option("Training queries, as clean takes them. Near and far are distances to them.", "FILE")
    ] = None,
    test_set: Annotated[
        str | None,
        option("Test set to take near and far queries from. Default: dev, else test, else the only one.", "NAME"),
    ] = None,
    by: Annotated[
        list[str] | None,
        option("Group queries as score --by does, and compare the --far groups with the rest. Repeatable.", "GROUPING"),
    ] = None,
    far: Annotated[
        list[str] | None,
        option("Group that training left out. Repeatable. Default: the groups farther from --trained-on.", "PART"),
    ] = None,
    release: options.Release = None,
    qrels: options.Qrels = None,
    queries: options.Queries = None,
    seed: options.Seed = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Test whether trained models lose on far queries.

    Each verdict is: degrades, does not, or cannot tell.

    Example: eval_kit generalise mine.trec --pivot bm25.trec --trained-on train.tsv
    """
    values = dict(locals())
    from eval_kit.protocols.generalise import generalise as compare_gains

    return _call(compare_gains, values)


@_computing
def clean(
    train: options.Train,
    release: options.Release = None,
    test_sets: options.TestSets = None,
    near: Annotated[
        float | None,
        option("Trigram cosine at which two queries count as near-duplicates. Default: 0.61 (docs/contamination.md)."),
    ] = None,
    shared_passages: Annotated[
        bool, option("Also count queries that share a relevant passage with a training query.", None, "--passages")
    ] = False,
) -> "Result":
    """Find test queries with a duplicate in training.

    score --by leaked scores them apart.

    Example: eval_kit clean --train train.tsv
    """
    values = dict(locals())
    from eval_kit.protocols.clean import clean as find_leaks

    return _call(find_leaks, values)


@_computing
def variations(
    runs: Annotated[
        list[Path],
        argument(
            "Runs <system>.<base>.<variation>.trec, and <system>.trec for the original queries, or their folder.", "RUN"
        ),
    ],
    test_set: Annotated[str | None, option("Compare only on the queries of this test set.", "NAME")] = None,
    release: options.Release = None,
    seed: options.Seed = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Measure what query variations, such as typos, cost.

    Each query is paired with its original.

    Example: eval_kit variations runs/bm25*.trec --release mini
    """
    values = dict(locals())
    from eval_kit.authors.opening import open_release
    from eval_kit.pages.report import Report
    from eval_kit.protocols.variations import variations as changes

    opened = open_release(values["release"])
    return Report(None, _call(changes, values | {"release": opened}), opened)


@_computing
def protocol(
    runs: options.GridRuns = None,
    paper: options.Paper = None,
    untrained: Annotated[
        list[Path] | None, option("Also show this run of an untrained system, such as BM25. Repeatable.", "RUN")
    ] = None,
    release: options.Release = None,
    vectors: Annotated[
        str | None,
        option("Query vectors for the page's similarity figures (ECIR 2023). Default: the .npy file next to RUN."),
    ] = None,
    seed: options.Seed = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Print the papers' loss tables from the runs of a grid.

    Avg In, Out and Rel Loss; for ReSTrain Inter., Extra. and delta.

    --page writes a report: tables, figures and provenance.

    Example: eval_kit protocol mine.topic.*.trec --untrained bm25.trec --page report.html
    """
    values = dict(locals())
    if paper is not None:
        from eval_kit.papers.beside import of_paper

        return _call(of_paper, values, f"{parameter('paper')} reads a grid's folder as it is")
    from eval_kit.pages.report import report

    if not runs:
        raise UserError(
            "There is nothing to show",
            do=f"Add the RUN files of a grid, or the ID of a published table with {parameter('paper')}",
        )
    return _call(report, values)


@_computing
def similarity(
    runs: Annotated[
        list[Path] | None, argument("Runs of a grid, to correlate their losses with the similarities.", "RUN")
    ] = None,
    release: options.Release = None,
    vectors: Annotated[
        str | None,
        option(
            "Vectors for the cosine: a sentence-transformers model (append :cls for the bare [CLS], as the papers "
            "take), or NAME.npy with NAME.ids.txt."
        ),
    ] = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Measure how similar each cluster is to the others.

    With runs, also correlate their losses with the similarities.

    Example: eval_kit similarity mine.topic.*.trec --release mini
    """
    values = dict(locals())
    from eval_kit.protocols.similarity import similarity as similarities

    return _call(similarities, values)


def _add_questions() -> None:
    """Add the commands of other packages, where the first word is none of the kit's own."""
    own = {getattr(command.callback, "__name__", "") for command in app.registered_commands}
    if not own.intersection(sys.argv[1:2]) and "--version" not in sys.argv:
        for name in plugins.names("questions"):
            app.command(name)(emitting(plugins.named("questions", name)))


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2.

    Imports allocate much that lives until exit. Collecting garbage among it would take a fifth of ``--help``'s time.
    """
    gc.set_threshold(100_000)
    try:
        with reporting("eval_kit"):
            _add_questions()
            app()
    finally:
        gc.freeze()  # the collection at exit has nothing to walk


if __name__ == "__main__":
    main()
