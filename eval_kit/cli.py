"""``eval_kit``: score runs on ms-marco-shift releases. Every command only calls the library."""

import dataclasses
import gc
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eval_kit import __version__, options
from eval_kit.errors import UserError, reporting
from eval_kit.options import argument, emitting, option
from eval_kit.program import commands

if TYPE_CHECKING:
    from polars import DataFrame

    from eval_kit.release import Release
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


def _release_of(
    source: str | None,
    revision: str | None = None,
    qrels: Path | None = None,
    queries: Path | None = None,
    upstream: Path | None = None,
) -> "Release":
    """The release of these options, once a command needs it: opening one imports much."""
    from eval_kit.authors.opening import open_judgements, open_release

    if qrels is not None:
        others = {"--release": source, "--revision": revision, "--upstream": upstream}
        _refuse(others, "--qrels takes its place")
        return open_judgements(qrels, queries)
    _refuse({"--queries": queries}, "it holds the texts of --qrels")
    if upstream is not None:
        _refuse({"--release": source, "--revision": revision}, "--upstream takes its place")
    return open_release(source, revision, upstream)


def _runs(runs: list[Path] | None, example: bool, others: Mapping[str, Any]) -> tuple[list[Path], str | None]:
    """The runs of these options, those in folders too, and the release of --release; --example is both."""
    from eval_kit.runs import folders

    if example:
        _refuse({"RUN": runs, **others}, "--example has runs and queries of its own")
        folder = next(
            filter(Path.is_dir, (Path(__file__).with_name("example"), Path(__file__).parents[1] / "examples"))
        )
        typer.echo(f"eval_kit: synthetic runs and queries, from {folder}", err=True)
        return [folder / "bm25.trec", folder / "noisy.trec"], str(folder)
    if not runs:
        raise UserError("give RUNs, or --example for two that come with the kit")
    return folders.run_files(runs), others["--release"]


def _training(source: Path | None) -> "DataFrame | None":
    """The training queries of --trained-on."""
    from eval_kit.runs.training import read

    return None if source is None else read(source).queries


def _reading() -> AbstractContextManager[None]:
    """Show on a terminal that runs are being read."""
    from eval_kit.console import status

    return status("reading runs")


def _refuse(options: Mapping[str, Any], why: str) -> None:
    """Refuse options that another one makes useless."""
    if misfit := next((name for name, value in options.items() if value), None):
        raise UserError(f"{misfit}: {why}; leave it out")


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
    clean: Annotated[
        Path | None, option("Also score leaked and clean queries apart, by the file that clean --json wrote.", "FILE")
    ] = None,
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
    from eval_kit.protocols.scoring import score as score_runs
    from eval_kit.protocols.scoring import with_measures

    runs, release = _runs(runs, example, {"--release": release, "--qrels": qrels, "--dataset": dataset})
    if dataset or bm25:
        from eval_kit.protocols.beir import suite, systems

        others = {"--release": release, "--measure": measure, "--test-set": test_set, "--clean": clean}
        why = "datasets of BEIR are scored by its own measures and split"
        _refuse(others | {"--per-query": per_query}, why)
        with _reading():
            return suite(systems(runs, dataset or [], bm25 or []), dataset or [])
    opened_release = _release_of(release, revision, qrels, queries, upstream)
    all_test_sets = opened_release.test_sets
    if clean is not None:
        from eval_kit.protocols.clean import twins, with_effects

        all_test_sets = twins(clean, opened_release)
    test_sets = with_measures(all_test_sets, measure or [])
    with _reading():
        if by == ["chameleons"]:
            from eval_kit.protocols import chameleons

            return chameleons.results(runs, opened_release, allow_missing)
        scores = score_runs(runs, opened_release, allow_missing, test_sets, only=test_set or ())
    if clean is not None:
        scores = with_effects(scores, opened_release, test_sets, allow_missing)
    if per_query is not None:
        atomic.write_text(per_query, scores.per_query().write_csv(separator="\t"))
    if by:
        from eval_kit.protocols.by_part import scores_by_part

        return scores_by_part(scores, by, opened_release, _training(trained_on))
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
    seed: options.Seed = 0,
    *,
    context: typer.Context,
) -> "Result":
    """Search a release with a model and score it beside BM25. Its kind is read from its own files.

    Example: eval_kit run sentence-transformers/all-MiniLM-L6-v2 --release nfcorpus --page card.html
    """
    from eval_kit.models.opening import parse_options
    from eval_kit.models.run import run as run_model
    from eval_kit.runs.training import read

    opened_release = _release_of(release, revision)
    outputs = [context.params["json_file"], context.params["page"]]
    if no_pivot and pivot:
        raise UserError("--no-pivot: a --pivot is named too; leave one out")
    card = run_model(
        model,
        opened_release,
        out,
        [] if no_pivot else pivot,
        test_set or [],
        variation or [],
        name,
        seed,
        outputs,
        parse_options(option or []),
        depth,
        passages,
        by or [],
        read(trained_on) if trained_on else None,
        kind,
        replace,
    )
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
    seed: options.Seed = 0,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Print the papers' tables (Avg In, Out, Rel Loss; Inter., Extra., delta) from the runs of a grid.

    --page writes a report: tables, figures, a per-query explorer and provenance.

    Example: eval_kit protocol mine.topic.*.trec --untrained bm25.trec --page report.html
    """
    from eval_kit.pages.report import report
    from eval_kit.runs.names import cell_of, cells_of

    if paper is not None:
        from eval_kit.papers.beside import of_paper

        others = {"--untrained": untrained, "--vectors": vectors, "--system": system, "--shift": shift}
        _refuse(others | {"--held-out": held_out}, "a published table is set beside a grid whose names say all")
        opened_release = _release_of(release, revision) if runs else None
        with _reading():
            return of_paper(paper, runs or [], opened_release, seed, allow_missing)
    if not runs:
        raise UserError("give the RUNs of a grid, or with --paper the ID of a published table")
    cells_from_options = system or shift or held_out or not any(map(cell_of, runs))
    cells = cells_of(runs, system or [], shift or [], held_out or []) if cells_from_options else runs
    opened_release = _release_of(release, revision)
    with _reading():
        return report(cells, opened_release, untrained or [], seed, allow_missing, vectors)


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
    """Measure how alike each cluster is to the others. With runs, also correlate their losses with it.

    Example: eval_kit similarity mine.topic.*.trec --release mini
    """
    from eval_kit.protocols.similarity import similarities

    return similarities(_release_of(release), vectors, runs or [], allow_missing)


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
    seed: options.Seed = 0,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Say what a shift costs models that are trained already. Each verdict is: degrades, does not, or cannot tell.

    Example: eval_kit generalise mine.trec --pivot bm25.trec --trained-on train.tsv
    """
    from eval_kit.protocols.generalise import generalise as compare_gains

    training = _training(trained_on)
    opened_release = _release_of(release)
    with _reading():
        return compare_gains(
            runs, opened_release, pivot, test_set, training, by or [], far or [], seed, allow_missing, vectors
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
    """Find test queries with a duplicate in training; score --clean takes the JSON and scores them apart.

    Example: eval_kit clean --train train.tsv --json clean.json
    """
    from eval_kit.protocols.clean import clean as find_leaks
    from eval_kit.runs import training
    from eval_kit.stats.leaks import NEAR

    opened_release, trained_on = _release_of(release), training.read(train)
    return find_leaks(opened_release, trained_on, test_set or [], NEAR if near is None else near, passages)


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
    seed: options.Seed = 0,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Measure what other wordings of the queries cost. Each query is paired with its original wording.

    Example: eval_kit variations runs/bm25*.trec --release mini
    """
    from eval_kit.pages.report import Report
    from eval_kit.protocols.variations import variations as variations_of
    from eval_kit.runs.folders import run_files

    opened_release = _release_of(release, revision)
    with _reading():
        pairs = (pair.partition("=") for pair in ranker or [])
        rankers = {system: published_name for system, _, published_name in pairs}
        return Report(
            None,
            variations_of(run_files(runs), opened_release, test_set, pivot, rankers, seed, allow_missing),
            opened_release,
        )


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
    seed: options.Seed = 0,
    allow_missing: options.AllowMissing = False,
) -> "Result":
    """Compare the runs of several systems on the same test sets, with paired tests.

    Example: eval_kit compare bm25.trec mine.trec --test-set dl19
    """
    from eval_kit.protocols.compare import compare as compare_systems
    from eval_kit.runs import folders

    runs, release = _runs(runs, example, {"--release": release, "--qrels": qrels, "--against": against})
    opened_release = _release_of(release, None, qrels, queries, upstream)
    if against is not None:
        from eval_kit.protocols.snapshots import snapshots

        _refuse({"--by": by, "--no-worse-than": no_worse_than}, "--against compares two snapshots as a whole")
        other = Path(against)
        after = _release_of(None, None, other) if other.is_file() else _release_of(against)
        runs_after = folders.run_files(against_run or runs)
        with _reading():
            return snapshots(
                runs, opened_release, runs_after, after, baseline, measure or [], test_set or [], allow_missing
            )
    _refuse({"--against-run": against_run}, "its snapshot is that of --against")
    with _reading():
        return compare_systems(
            runs,
            opened_release,
            baseline,
            measure or [],
            test_set or [],
            seed=seed,
            allow_missing=allow_missing,
            by=by or [],
            training=_training(trained_on),
            margin=no_worse_than,
        )


@_computing
def align(
    scores: Annotated[
        Path, argument("CSV of models' scores, with columns system, training, score, and one for each dataset.", "FILE")
    ],
    seed: options.Seed = 0,
) -> "Result":
    """Correlate interpolation and extrapolation with BEIR scores, by Spearman's rank correlation (CIKM 2022, Table 5).

    Example: eval_kit align scores.csv
    """
    from eval_kit.protocols.align import align_file

    return align_file(scores, seed)


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2.

    Imports allocate much that lives until exit. Collecting garbage among it would take a fifth of ``--help``'s time.
    """
    gc.set_threshold(100_000)
    try:
        with reporting("eval_kit"):
            app()
    finally:
        gc.freeze()  # the collection at exit has nothing to walk


if __name__ == "__main__":
    main()
