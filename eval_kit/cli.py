"""``eval_kit``: score runs on ms-marco-shift releases. Every command only calls the library."""

import gc
from pathlib import Path
from typing import Annotated

import typer

from eval_kit import __version__
from eval_kit.errors import EXIT_USER_ERROR, reported
from eval_kit.options import (
    AllowMissing,
    DevRuns,
    GridRuns,
    HeldOuts,
    JsonFile,
    Measures,
    Page,
    PageFile,
    PrintedFormat,
    Release,
    Revision,
    Seed,
    Shifts,
    Systems,
    TestSets,
    Untrained,
)
from eval_kit.output import Format, emit
from eval_kit.program import Program

app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Score runs on ms-marco-shift releases.",
)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"eval_kit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def score(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Run files (TREC or MS MARCO format, .gz, .zst) or folders of them."),
    ],
    release: Release = None,
    revision: Revision = None,
    measure: Measures = None,
    test_set: TestSets = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
    clean: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also score leaked and clean queries apart: what 'clean --json' wrote."),
    ] = None,
    per_query: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each query's values to this file, tab-separated.")
    ] = None,
    allow_missing: AllowMissing = False,
) -> None:
    """Score runs on every test set they cover."""
    from eval_kit.console import status
    from eval_kit.files import atomic
    from eval_kit.protocols.clean import twins, with_effects
    from eval_kit.protocols.scoring import score as score_runs
    from eval_kit.protocols.scoring import with_measures
    from eval_kit.release import open_release
    from eval_kit.runs import folders

    runs = folders.opened(runs)
    opened = open_release(release, revision)
    known = opened.test_sets if clean is None else twins(clean, opened)
    test_sets = with_measures(known, measure or [])
    with status("reading runs") as on_run:
        scores = score_runs(runs, opened, allow_missing, on_run, test_sets, only=test_set or ())
    if clean is not None:
        scores = with_effects(scores, opened, test_sets, allow_missing)
    if per_query is not None:
        atomic.write_text(per_query, scores.per_query().write_csv(separator="\t"))
    emit(scores, format=format, json=json_file, page=page)


@app.command()
def run(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Hub id or folder of a model, a published checkpoint, module:object of your own, or bm25.",
        ),
    ],
    release: Release = None,
    revision: Revision = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Option of the model, such as query_prompt=… or pooling=cls. Repeatable."
        ),
    ] = None,
    test_set: TestSets = None,
    variation: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Also search this wording of the queries, such as dev.typo. Repeatable."),
    ] = None,
    pivot: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="A run to compare with. Repeatable. Default: BM25, which is searched too."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs and the index.")] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: the model's name.")] = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
    seed: Seed = 0,
) -> None:
    """Search a release with a model and score it beside BM25. Its kind is read from its own files."""
    from eval_kit.models.opening import parsed
    from eval_kit.models.run import run as run_model
    from eval_kit.release import open_release

    options = parsed(option or [])
    opened = open_release(release, revision)
    outputs = [json_file, page]
    card = run_model(model, opened, out, pivot or [], test_set or [], variation or [], name, seed, outputs, options)
    emit(card, format=format, json=json_file, page=page)


@app.command()
def protocol(
    runs: GridRuns,
    system: Systems = None,
    shift: Shifts = None,
    held_out: HeldOuts = None,
    untrained: Untrained = None,
    release: Release = None,
    revision: Revision = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
    seed: Seed = 0,
    allow_missing: AllowMissing = False,
) -> None:
    """Print the papers' tables from the runs of a grid. Avg In, Out, Rel Loss, or Inter., Extra., delta."""
    from eval_kit.console import status
    from eval_kit.protocols.grid_results import protocols
    from eval_kit.release import open_release
    from eval_kit.runs.names import named

    cells = named(runs, system or [], shift or [], held_out or [])
    opened = open_release(release, revision)
    with status("reading runs") as on_run:
        results = protocols(cells, opened, untrained or [], seed, allow_missing, on_run)
    emit(results, format=format, json=json_file, page=page)


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Runs of a grid (as for protocol), of variations, or of both."),
    ],
    page: Page = Path("report.html"),
    system: Systems = None,
    shift: Shifts = None,
    held_out: HeldOuts = None,
    untrained: Untrained = None,
    release: Release = None,
    vectors: Annotated[
        str | None,
        typer.Option(help="Model or file for the figures about R, as for similarity. Default: the vectors beside RUN."),
    ] = None,
    seed: Seed = 0,
    allow_missing: AllowMissing = False,
) -> None:
    """Write one HTML page about a grid. It has tables, figures, a per-query explorer and provenance."""
    from eval_kit.console import status
    from eval_kit.pages.report import encoded, results_of, write_report
    from eval_kit.release import open_release
    from eval_kit.runs.names import named

    named_runs = named(runs, system or [], shift or [], held_out or []) if system or shift or held_out else runs
    opened = open_release(release)
    with status("reading runs") as on_run:
        grid, changes = results_of(named_runs, opened, untrained or [], seed, allow_missing, on_run)
    with status("drawing figures"):
        write_report(grid, opened, page, encoded(vectors, grid, opened), changes)
    typer.echo(str(page))


@app.command()
def similarity(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Runs of a grid, to correlate their losses with the similarities."),
    ] = None,
    release: Release = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            help="Vectors for the cosine: a sentence-transformers model, a parquet file, or NAME.npy with NAME.ids.txt."
        ),
    ] = None,
    collection: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Instead, compare the passages of BEIR folders (BEIR, Figure 2). Repeatable."),
    ] = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
    allow_missing: AllowMissing = False,
) -> None:
    """Measure how alike each cluster is to the others. With runs, also correlate their losses with it."""
    from eval_kit.protocols.overlap import overlap
    from eval_kit.protocols.similarity import similarities
    from eval_kit.release import open_release

    if collection:
        emit(overlap(collection), format=format, json=json_file, page=page)
        return
    results = similarities(open_release(release), vectors, runs or [], allow_missing)
    emit(results, format=format, json=json_file, page=page)


@app.command()
def generalise(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs of trained systems over the test set.")],
    pivot: Annotated[
        list[Path], typer.Option(metavar="RUN", help="The run of an untrained system, such as BM25. Repeatable.")
    ],
    trained_on: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What the models were trained on, as for clean: near and far is measured from it."
        ),
    ] = None,
    test_set: Annotated[str, typer.Option(metavar="NAME", help="The test set whose queries are divided.")] = "dev",
    parts: Annotated[
        Path | None, typer.Option(metavar="TSV", help="An own division of the queries: id, tab, part.")
    ] = None,
    far: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART", help="A part of --parts that training held out. Repeatable. Default: by distance."
        ),
    ] = None,
    vectors: Annotated[
        str | None, typer.Option(help="Vectors for the distance, as for similarity. Default: character trigrams.")
    ] = None,
    release: Release = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
    seed: Seed = 0,
    allow_missing: AllowMissing = False,
) -> None:
    """Say what a shift costs models that are trained already. Each verdict is: degrades, does not, or cannot tell."""
    from eval_kit.console import status
    from eval_kit.files.formats import read_queries
    from eval_kit.protocols.generalise import generalise as compare_gains
    from eval_kit.release import open_release
    from eval_kit.runs.training import read as read_training

    training = None if trained_on is None else read_training(trained_on).queries
    parts_of = None if parts is None else dict(read_queries(parts).iter_rows())
    opened = open_release(release)
    with status("reading runs") as on_run:
        result = compare_gains(
            runs, opened, pivot, test_set, training, parts_of, far or [], seed, allow_missing, on_run, vectors
        )
    emit(result, format=format, json=json_file, page=page)


@app.command()
def clean(
    train: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="What the model was trained on: queries (id, tab, text), triplets (three columns, or JSON lines), or "
            "a release or BEIR folder with a train split.",
        ),
    ],
    release: Release = None,
    test_set: TestSets = None,
    near: Annotated[
        float | None,
        typer.Option(help="Minimum cosine of near-duplicate queries. Default: as measured in docs/audit.md."),
    ] = None,
    passages: Annotated[
        bool, typer.Option("--passages", help="A query leaks too if a relevant passage of it was relevant in training.")
    ] = False,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
) -> None:
    """Find the test queries that training gives away. Of the JSON, score --clean makes leaked and clean test sets."""
    from eval_kit.protocols.clean import clean as find_leaks
    from eval_kit.release import open_release
    from eval_kit.runs import training
    from eval_kit.stats.leaks import NEAR

    opened, trained_on = open_release(release), training.read(train)
    result = find_leaks(opened, trained_on, test_set or [], NEAR if near is None else near, passages)
    emit(result, format=format, json=json_file, page=page)


@app.command()
def slices(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs of dev-small, or of DL-HARD.")],
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="For dev-small: length, bucket, chameleons10 to chameleons50; for DL-HARD: intent, answer_type, "
            "topic, fold. Repeat for a cross-table."
        ),
    ] = None,
    release: Release = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
    allow_missing: AllowMissing = False,
) -> None:
    """Slice dev-small and DL-HARD by query property. Several --by give a cross-table."""
    from eval_kit.console import status
    from eval_kit.protocols.slices import slices as slices_of
    from eval_kit.release import open_release

    with status("reading runs") as on_run:
        results = slices_of(runs, open_release(release), by or ["length"], allow_missing, on_run)
    emit(results, format=format, json=json_file, page=page)


@app.command()
def chameleons(
    runs: DevRuns,
    release: Release = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
    allow_missing: AllowMissing = False,
) -> None:
    """Analyse obstinate queries as CIKM 2021 does. Tables 1 to 6 and Figures 1 to 4 of the runs and the paper."""
    from eval_kit.console import status
    from eval_kit.protocols.chameleons import results
    from eval_kit.release import open_release

    with status("reading runs") as on_run:
        figures = results(runs, open_release(release), allow_missing, on_run)
    emit(figures, format=format, json=json_file, page=page)


@app.command()
def variations(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Runs <system>.<base>.<variation>.trec, and <system>.trec for the original queries."
        ),
    ],
    test_set: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compare only on the queries of this test set.")
    ] = None,
    pivot: Annotated[
        str | None,
        typer.Option(metavar="SYSTEM", help="System that LongEval's effect ratio and ΔRI compare with, such as bm25."),
    ] = None,
    ranker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SYSTEM=RANKER",
            help="On chameleons.veiled.50: show SYSTEM beside this ranker of CIKM 2021, Table 7. Default: by name.",
        ),
    ] = None,
    release: Release = None,
    revision: Revision = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
    seed: Seed = 0,
    allow_missing: AllowMissing = False,
) -> None:
    """Measure what other wordings of the queries cost. Each query is paired with its original wording."""
    from eval_kit.console import status
    from eval_kit.protocols.variations import variations as variations_of
    from eval_kit.release import open_release

    opened = open_release(release, revision)
    with status("reading runs") as on_run:
        named = (pair.partition("=") for pair in ranker or [])
        rankers = {system: published_name for system, _, published_name in named}
        result = variations_of(runs, opened, test_set, pivot, rankers, seed, allow_missing, on_run)
    emit(result, format=format, json=json_file, page=page)


@app.command()
def validate(
    submission: Annotated[Path, typer.Argument(help="A folder with submission.json or ir-metadata.yml, and its runs.")],
    release: Release = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
    allow_missing: AllowMissing = False,
) -> None:
    """List everything that is wrong with a submission. Exit status 2 if anything is."""
    import json

    from eval_kit.exchange.submission import validate as check
    from eval_kit.release import open_release

    faults = check(submission, open_release(release), allow_missing)
    if as_json:
        typer.echo(json.dumps({"submission": str(submission), "faults": faults}))
    else:
        for fault in faults:
            typer.echo(fault, err=True)
        typer.echo(f"{submission}: {len(faults)} fault{'s' * (len(faults) != 1)}")
    if faults:
        raise typer.Exit(EXIT_USER_ERROR)


@app.command()
def compare(
    systems: Annotated[
        list[Path],
        typer.Argument(metavar="SYSTEM", help="Runs, submissions, or scores (x.json with x.tsv beside it)."),
    ],
    baseline: Annotated[
        str | None, typer.Option(help="The system that the others are tested against. Default: the first.")
    ] = None,
    release: Release = None,
    measure: Measures = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
    seed: Seed = 0,
    allow_missing: AllowMissing = False,
) -> None:
    """Compare systems on the same test sets, with paired tests. Scores on different releases are refused."""
    from eval_kit.console import status
    from eval_kit.exchange.compare import compare as compare_systems
    from eval_kit.exchange.sources import load
    from eval_kit.release import open_release

    with status("reading runs") as on_run:
        sources = load(systems, lambda: open_release(release), allow_missing, on_run, measure or [])
        comparison = compare_systems(sources, baseline=baseline, seed=seed)
    emit(comparison, format=format, json=json_file, page=page)


@app.command()
def leaderboard(
    submissions: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of submissions.")],
    page: Page = Path("leaderboard.html"),
    release: Release = None,
    allow_missing: AllowMissing = False,
) -> None:
    """Write a static page of many submissions. For a published release, it also shows the papers' own figures."""
    from eval_kit.console import status
    from eval_kit.exchange.entries import entries
    from eval_kit.pages.leaderboard import published_entries, write_leaderboard
    from eval_kit.release import open_release

    with status("scoring submissions") as on_run:
        opened = open_release(release)
        submitted = entries(submissions, opened, allow_missing, on_run)
    write_leaderboard([*submitted, *(published_entries() if opened.manifest.kind == "published" else [])], page)
    typer.echo(str(page))


@app.command(name="publish-result")
def publish_result(
    results: Annotated[
        Path, typer.Argument(metavar="FILE", help="What --json of protocol, score, run or compare wrote.")
    ],
    repo_id: Annotated[str, typer.Option("--repo-id", metavar="ORG/MODEL", help="The model repository on the Hub.")],
    dataset: Annotated[str, typer.Option(metavar="ORG/NAME", help="The release's dataset on the Hub.")],
    system: Annotated[str | None, typer.Option(metavar="NAME", help="The system, if there are several.")] = None,
    source: Annotated[str | None, typer.Option(metavar="URL", help="A page about the results.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print the file.")] = False,
) -> None:
    """Put results into a model repository on the Hub. Its page and the dataset's leaderboard show them."""
    from eval_kit.exchange import hub_results

    read = hub_results.read(results, system)
    publication = hub_results.publish(read, repo_id, dataset, source, dry_run)
    what = f"{len(read.values)} results of {read.system} on {dataset} v{read.version}"
    if publication.done:
        typer.echo(f"{repo_id}: {what} are published already; nothing to do")
    elif dry_run:
        typer.echo(f"{repo_id}: would write {hub_results.FILE}: {what}\n{publication.text}", nl=False)
    else:
        typer.echo(f"{repo_id}: published {what} at commit {publication.commit}")


@app.command()
def align(
    scores: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Results of protocol --json and of beir --json; or one CSV file of models' scores. Of beir "
            "--json alone, or none: figures on MS MARCO against those elsewhere, with BEIR's own.",
        ),
    ] = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
    seed: Seed = 0,
) -> None:
    """Correlate interpolation and extrapolation with BEIR scores. By Spearman and Kendall, as in CIKM 2022, Table 5."""
    from eval_kit.protocols.align import align_files
    from eval_kit.protocols.in_domain import in_domain, lack_protocol

    files = scores or []
    results = in_domain(files, seed) if lack_protocol(files) else align_files(files, seed=seed)
    emit(results, format=format, json=json_file, page=page)


@app.command()
def beir(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="One run per dataset.")],
    dataset: Annotated[
        list[Path], typer.Option(metavar="DIR", help="Folder in BEIR's format; one per run, in their order.")
    ],
    bm25: Annotated[list[Path] | None, typer.Option(metavar="RUN", help="BM25's runs, in the same order.")] = None,
    format: PrintedFormat = Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
) -> None:
    """Score a system's runs on BEIR's datasets. The paper's own figures are shown beside them."""
    from eval_kit.console import status
    from eval_kit.protocols.beir import suite, systems

    with status("reading runs") as on_run:
        results = suite(systems(runs, dataset, bm25 or []), dataset, on_run=on_run)
    emit(results, format=format, json=json_file, page=page)


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2.

    Imports allocate much that lives until exit. Collecting garbage among it would take a fifth of ``--help``'s time.
    """
    gc.set_threshold(100_000)
    try:
        with reported("eval_kit"):
            app()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
