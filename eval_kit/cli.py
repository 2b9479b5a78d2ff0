"""``eval_kit``: score runs on ms-marco-shift releases. A command says what the shell shows and calls the library."""

import dataclasses
import gc
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eval_kit import __version__, options
from eval_kit.errors import UserError, parameter, reporting
from eval_kit.options import argument, emitting, option
from eval_kit.program import commands

if TYPE_CHECKING:
    from eval_kit.authors.opening import ReleaseSource
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
    """The result of a function for the values that were given; one that it does not take is refused.

    Args:
        function: of the library.
        values: of the command's options, by the names of the function's parameters.
        why: it takes no more than it does.
    """
    given = _given(values)
    takes = inspect.signature(function).parameters
    for name in given:
        if name not in takes:
            raise UserError(f"{parameter(name)}: {why}; leave it out")
    return function(**given)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; the function's own defaults stand for the others."""
    return {name: value for name, value in values.items() if value is not None and value is not False and value != []}


def _release(
    release: str | None, revision: str | None = None, upstream: Path | None = None, qrels: Path | None = None
) -> "ReleaseSource":
    """The release of these options: open, where they say more than its name. Judgements take the place of all three."""
    if revision is None and upstream is None:
        return release
    if qrels is not None:
        other = "revision" if upstream is None else "upstream"
        raise UserError(f"{parameter(other)}: {parameter('qrels')} takes its place; leave it out")
    from eval_kit.authors.opening import open_release

    return open_release(release, revision, upstream)


def _runs(runs: list[Path] | None, example: bool, release: str | None, **others: Any) -> tuple[list[Path], str | None]:
    """The runs, and the release of --release; --example is both."""
    if not example:
        if not runs:
            raise UserError("give RUNs, or --example for two that come with the kit")
        return runs, release
    for name, value in {"runs": runs, "release": release, **others}.items():
        if value:
            raise UserError(f"{parameter(name)}: --example has runs and queries of its own; leave it out")
    places = (Path(__file__).with_name("example"), Path(__file__).parents[1] / "examples")
    folder = next(filter(Path.is_dir, places))
    typer.echo(f"eval_kit: synthetic runs and queries, from {folder}", err=True)
    return [folder / "bm25.trec", folder / "noisy.trec"], str(folder)


@_computing
def score(
    runs: options.Runs = None,
    example: options.Example = False,
    release: options.Release = None,
    revision: options.Revision = None,
    upstream: options.Upstream = None,
    qrels: options.Qrels = None,
    queries: options.Queries = None,
    measure: options.Measures = None,
    test_set: options.TestSets = None,
    per_query: Annotated[
        Path | None, option("Write the values of each query to this file, tab-separated.", "FILE")
    ] = None,
    by: options.By = None,
    trained_on: options.TrainedOn = None,
    allow_missing: options.AllowMissing = False,
    dataset: options.Datasets = None,
    bm25: Annotated[
        list[Path] | None,
        option(
            "BM25's runs on the folders of --dataset, in the same order; adds each system's average gain over BM25.",
            "RUN",
        ),
    ] = None,
) -> "Result":
    """Score runs on every test set they cover, or on BEIR's datasets.

    Example: eval_kit score runs/*.trec --measure nDCG@10 --page scores.html
    """
    from eval_kit.files import atomic
    from eval_kit.protocols import beir, chameleons, scoring

    others: dict[str, Any] = {"revision": revision, "upstream": upstream, "qrels": qrels}
    runs, release = _runs(runs, example, release, datasets=dataset, **others)
    values: dict[str, Any] = {
        "runs": runs,
        "qrels": qrels,
        "queries": queries,
        "measures": measure,
        "test_sets": test_set,
        "by": by,
        "trained_on": trained_on,
        "allow_missing": allow_missing,
    }
    if dataset or bm25:
        values |= others | {"release": release, "per_query": per_query, "datasets": tuple(dataset or ()), "bm25": bm25}
        return _call(beir.beir, values, "datasets of BEIR are scored by its own measures and split")
    values["release"] = _release(release, **others)
    if by == ["chameleons"]:
        values |= {"by": None, "per_query": per_query}
        return _call(chameleons.chameleons, values, "the Chameleons are scored as in Table 4 of CIKM 2021")
    scores = _call(scoring.score, values)
    if per_query is not None:
        atomic.write_text(per_query, scores.per_query().write_csv(separator="\t"))
    return scores


@_computing
def run(
    model: Annotated[
        str,
        argument("Hub id or folder of a model, a published checkpoint, module:object of your own, or bm25.", "MODEL"),
    ],
    release: options.Release = None,
    revision: options.Revision = None,
    option: options.OfModel = None,
    test_set: options.TestSets = None,
    variation: Annotated[
        list[str] | None,
        option(
            "Also search this wording of the queries, such as dev.typo; typos are made if there are none. Repeatable.",
            "NAME",
        ),
    ] = None,
    pivot: Annotated[
        list[Path] | None,
        option(
            "Compare with this run of an untrained system. Repeatable. Default: BM25, which is searched too.", "RUN"
        ),
    ] = None,
    no_pivot: Annotated[
        bool, option("Search with the model alone and compare it with nothing.", None, "--no-pivot")
    ] = False,
    trained_on: Annotated[
        Path | None,
        option("Training queries, in any form that clean --train takes. Adds leaks and far queries.", "FILE"),
    ] = None,
    passages: options.Passages = None,
    depth: Annotated[int, option("Number of passages to keep for each query.", min=1, max=1_000_000)] = 1000,
    out: Annotated[Path, option("Folder for the runs and indexes; what is encoded there is used again.")] = Path(
        "runs"
    ),
    name: Annotated[str | None, option("Name of the run. Default: the model's name.")] = None,
    kind: Annotated[
        str | None, option("The model's kind, where its files do not tell: dense, sparse, late or cross.", "KIND")
    ] = None,
    replace: Annotated[bool, option("Replace a run of this name by another model.", None, "--replace")] = False,
    by: options.By = None,
    seed: options.Seed = None,
    *,
    context: typer.Context,
) -> "Result":
    """Search a release with a model and score it beside BM25. Its kind is read from its own files.

    Example: eval_kit run sentence-transformers/all-MiniLM-L6-v2 --release nfcorpus --page card.html
    """
    from eval_kit.models.opening import parse_options
    from eval_kit.models.run import run as run_model

    if no_pivot and pivot:
        raise UserError(f"--no-pivot: a {parameter('pivots')} is named too; leave one out")
    values: dict[str, Any] = {
        "model": model,
        "release": _release(release, revision),
        "out": out,
        "pivots": () if no_pivot else pivot,
        "test_sets": test_set,
        "variations": variation,
        "by": by,
        "trained_on": trained_on,
        "options": parse_options(option or []),
        "kind": kind,
        "passages": passages,
        "depth": depth,
        "name": name,
        "replace": replace,
        "seed": seed,
        "outputs": [context.params["json_file"], context.params["page"]],
    }
    card = run_model(**_given(values))
    return dataclasses.replace(card, again=["eval_kit", *sys.argv[1:]])


@_computing
def protocol(
    runs: options.GridRuns = None,
    paper: options.Paper = None,
    system: Annotated[
        list[str] | None, option("System name of each run, in RUN order, or one name for all.", "NAME", "--system")
    ] = None,
    shift: Annotated[
        list[str] | None,
        option(
            "Shift of each run, in RUN order, or one for all: topic, wh, length, given, crossed, resttest or restrain.",
            "NAME",
            "--shift",
        ),
    ] = None,
    held_out: Annotated[
        list[str] | None,
        option("Part that each run's training left out, in RUN order, such as c0.", "NAME", "--held-out"),
    ] = None,
    untrained: Annotated[
        list[Path] | None, option("Also show this run of an untrained system, such as BM25. Repeatable.", "RUN")
    ] = None,
    release: options.Release = None,
    revision: options.Revision = None,
    vectors: Annotated[
        str | None,
        option(
            "Vectors for the page's figures of similarity R (CIKM 2022), as for similarity. Default: those beside RUN."
        ),
    ] = None,
    seed: options.Seed = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Print the papers' tables (Avg In, Out, Rel Loss; Inter., Extra., delta) from the runs of a grid.

    --page writes a report: tables, figures, a per-query explorer and provenance.

    Example: eval_kit protocol mine.topic.*.trec --untrained bm25.trec --page report.html
    """
    values: dict[str, Any] = {
        "runs": runs,
        "release": _release(release, revision),
        "untrained": untrained,
        "systems": system,
        "shifts": shift,
        "held_outs": held_out,
        "vectors": vectors,
        "seed": seed,
        "allow_missing": allow_missing,
    }
    if paper is not None:
        from eval_kit.papers.beside import of_paper

        why = "a published table is set beside a grid whose names say all"
        return _call(of_paper, values | {"paper": paper}, why)
    from eval_kit.pages.report import report

    if not runs:
        raise UserError(f"give the RUNs of a grid, or with {parameter('paper')} the ID of a published table")
    return _call(report, values)


@_computing
def similarity(
    runs: Annotated[
        list[Path] | None, argument("Runs of a grid, to correlate their losses with the similarities.", "RUN")
    ] = None,
    release: options.Release = None,
    vectors: Annotated[
        str | None, option("Vectors for the cosine: a sentence-transformers model, or NAME.npy with NAME.ids.txt.")
    ] = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Measure how alike each cluster is to the others. With runs, also correlate their losses with it.

    Example: eval_kit similarity mine.topic.*.trec --release mini
    """
    from eval_kit.protocols.similarity import similarity as similarities

    return _call(similarities, {"release": release, "runs": runs, "vectors": vectors, "allow_missing": allow_missing})


@_computing
def generalise(
    runs: Annotated[list[Path], argument("Runs of trained systems over the test set.", "RUN")],
    pivot: Annotated[
        list[Path], option("Compare with this run of an untrained system, such as BM25. Repeatable.", "RUN")
    ],
    trained_on: Annotated[
        Path | None, option("Training queries (same forms as for clean); near and far are distances to them.", "FILE")
    ] = None,
    test_set: Annotated[
        str | None,
        option(
            "Compare near and far queries of this test set. Default: dev, then test, then the only test set.", "NAME"
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        option(
            "Compare the --far parts of this division with its other parts; divisions as for score --by. Repeatable.",
            "DIVISION",
        ),
    ] = None,
    far: Annotated[
        list[str] | None,
        option(
            "Part of --by that training left out. Repeatable. Default: the parts farther from --trained-on.", "PART"
        ),
    ] = None,
    vectors: Annotated[
        str | None, option("Measure distance by these vectors, as for similarity. Default: character trigrams.")
    ] = None,
    release: options.Release = None,
    qrels: options.Qrels = None,
    queries: options.Queries = None,
    seed: options.Seed = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Say what a shift costs models that are trained already. Each verdict is: degrades, does not, or cannot tell.

    Example: eval_kit generalise mine.trec --pivot bm25.trec --trained-on train.tsv
    """
    from eval_kit.protocols.generalise import generalise as compare_gains

    return _call(
        compare_gains,
        {
            "runs": runs,
            "pivots": pivot,
            "release": release,
            "test_set": test_set,
            "trained_on": trained_on,
            "by": by,
            "far": far,
            "vectors": vectors,
            "qrels": qrels,
            "queries": queries,
            "seed": seed,
            "allow_missing": allow_missing,
        },
    )


@_computing
def clean(
    train: options.Train,
    release: options.Release = None,
    test_set: options.TestSets = None,
    near: Annotated[
        float | None,
        option("Cosine of trigrams from which two queries are near-duplicates. Default: 0.61 (docs/contamination.md)."),
    ] = None,
    passages: Annotated[
        bool, option("Also count queries that share a relevant passage with a training query.", None, "--passages")
    ] = False,
) -> "Result":
    """Find test queries with a duplicate in training; score --by leaked scores them apart.

    Example: eval_kit clean --train train.tsv
    """
    from eval_kit.protocols.clean import clean as find_leaks

    return _call(
        find_leaks,
        {"train": train, "release": release, "test_sets": test_set, "near": near, "shared_passages": passages},
    )


@_computing
def variations(
    runs: Annotated[
        list[Path],
        argument(
            "Runs <system>.<base>.<variation>.trec, and <system>.trec for the original queries; or their folder.", "RUN"
        ),
    ],
    test_set: Annotated[str | None, option("Compare only on the queries of this test set.", "NAME")] = None,
    pivot: Annotated[
        str | None, option("Compare with this system, such as bm25, by LongEval's effect ratio and ΔRI.", "SYSTEM")
    ] = None,
    ranker: options.Rankers = None,
    release: options.Release = None,
    revision: options.Revision = None,
    seed: options.Seed = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Measure what other wordings of the queries cost. Each query is paired with its original wording.

    Example: eval_kit variations runs/bm25*.trec --release mini
    """
    from eval_kit.authors.opening import open_release
    from eval_kit.pages.report import Report
    from eval_kit.protocols.variations import variations as changes

    opened = open_release(release, revision)
    pairs = (pair.partition("=") for pair in ranker or [])
    of_paper = {system: published_name for system, _, published_name in pairs}
    values = {"test_set": test_set, "pivot": pivot, "rankers": of_paper, "seed": seed, "allow_missing": allow_missing}
    return Report(None, changes(runs, opened, **_given(values)), opened)


@_computing
def compare(
    runs: options.Runs = None,
    example: options.Example = False,
    baseline: Annotated[str | None, option("Test the other systems against this one. Default: the first RUN.")] = None,
    release: options.Release = None,
    upstream: options.Upstream = None,
    qrels: options.Qrels = None,
    queries: options.Queries = None,
    measure: options.Measures = None,
    test_set: options.TestSets = None,
    by: options.By = None,
    trained_on: options.TrainedOn = None,
    no_worse_than: Annotated[
        float | None,
        option(
            "Gate on the first measure. Exit status 0: every system is shown to lose less than this to the baseline. "
            "1: one is shown to lose. 3: neither is shown. With --by, each part is tested.",
            "LOSS",
            min=0,
        ),
    ] = None,
    against: Annotated[
        str | None,
        option(
            "Show what each system keeps on this other snapshot: a release or BEIR folder, or a file of judgements.",
            "RELEASE|QRELS",
        ),
    ] = None,
    against_run: Annotated[
        list[Path] | None,
        option(
            "With --against: the systems' runs over it, in the order of RUN, or their folder. Default: the same RUNs.",
            "RUN",
        ),
    ] = None,
    seed: options.Seed = None,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Compare the runs of several systems on the same test sets, with paired tests.

    Example: eval_kit compare bm25.trec mine.trec --test-set dl19
    """
    from eval_kit.protocols import compare as comparisons
    from eval_kit.protocols import snapshots

    runs, release = _runs(runs, example, release, upstream=upstream, qrels=qrels, against=against)
    values: dict[str, Any] = {
        "runs": runs,
        "queries": queries,
        "baseline": baseline,
        "measures": measure,
        "test_sets": test_set,
        "by": by,
        "trained_on": trained_on,
        "no_worse_than": no_worse_than,
        "against": against,
        "against_runs": against_run,
        "seed": seed,
        "allow_missing": allow_missing,
    }
    values |= {"release": _release(release, None, upstream, qrels), "qrels": qrels}
    if against is None:
        return _call(comparisons.compare, values, f"its snapshot is that of {parameter('against')}")
    return _call(snapshots.snapshots, values, f"{parameter('against')} compares two snapshots as a whole")


@_computing
def align(
    scores: Annotated[
        Path, argument("CSV of models' scores, with columns system, training, score, and one for each dataset.", "FILE")
    ],
    seed: options.Seed = None,
) -> "Result":
    """Correlate interpolation and extrapolation with BEIR scores, by Spearman's rank correlation (CIKM 2022, Table 5).

    Example: eval_kit align scores.csv
    """
    from eval_kit.protocols.align import align as correlate

    return _call(correlate, {"scores": scores, "seed": seed})


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2.

    Imports allocate much that lives until exit. Collecting garbage among it would take a fifth of ``--help``'s time.
    """
    gc.set_threshold(100_000)
    try:
        with reporting("eval_kit", options.OF_PARAMETERS):
            app()
    finally:
        gc.freeze()  # the collection at exit has nothing to walk


if __name__ == "__main__":
    main()
