"""``eval_kit``: score runs on ms-marco-shift releases. Every command only calls the library."""

import gc
from pathlib import Path
from typing import Annotated

import typer

from eval_kit import exchange_cli
from eval_kit.errors import reported
from eval_kit.exchange_cli import AllowMissing, JsonFile, Release

Revision = Annotated[str | None, typer.Option(help="Tag or commit of a release on the Hub.")]
GridRuns = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Runs of a grid: <system>.<shift>.<held-out>.trec, or with these three:"),
]
Systems = Annotated[
    list[str] | None,
    typer.Option("--system", metavar="NAME", help="What made each run, in their order; or once, for all."),
]
Shifts = Annotated[
    list[str] | None,
    typer.Option("--shift", metavar="NAME", help="topic, wh, length, resttest or restrain, likewise."),
]
HeldOuts = Annotated[
    list[str] | None,
    typer.Option("--held-out", metavar="NAME", help="What its training lacked, as c0; likewise."),
]
Untrained = Annotated[
    list[Path] | None, typer.Option(metavar="RUN", help="A run of a system without training, as BM25; repeatable.")
]
Seed = Annotated[int, typer.Option(help="Of the bootstrap.")]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)


@app.command()
def score(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="TREC or MS MARCO runs; .gz and .zst too.")],
    release: Annotated[
        str | None,
        typer.Option(help="Release folder or Hub id; else $MS_MARCO_SHIFT_RELEASE, else ./ms-marco-shift."),
    ] = None,
    revision: Revision = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the scores as JSON ('-': to the screen).")
    ] = None,
    per_query: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each query's values, tab-separated.")
    ] = None,
    allow_missing: AllowMissing = False,
) -> None:
    """Score runs on every test set they cover."""
    from rich.console import Console

    from eval_kit.console import refuse_overwriting, screen, write_json
    from eval_kit.files import atomic
    from eval_kit.files.schemas import validate
    from eval_kit.measures.score import score as score_runs
    from eval_kit.release import open_release
    from eval_kit.tables.scores import print_scores

    refuse_overwriting(runs, [json_file, per_query])
    opened = open_release(release, revision)
    with Console(stderr=True).status("reading runs") as status:
        scores = score_runs(runs, opened, allow_missing, lambda run: status.update(f"reading {run.name}"))
    document = scores.as_json()
    validate("scores", document)
    if per_query is not None:
        atomic.write_text(per_query, scores.per_query().write_csv(separator="\t"))
    if not write_json(document, json_file):
        print_scores(scores, screen())


@app.command()
def protocol(
    runs: GridRuns,
    system: Systems = None,
    shift: Shifts = None,
    held_out: HeldOuts = None,
    untrained: Untrained = None,
    release: Release = None,
    revision: Revision = None,
    json_file: JsonFile = None,
    seed: Seed = 0,
    allow_missing: AllowMissing = False,
) -> None:
    """Avg In, Out and Rel Loss; Inter., Extra. and delta: the papers' tables from the runs of a grid."""
    from rich.console import Console

    from eval_kit.console import refuse_overwriting, screen, write_json
    from eval_kit.protocols.grid_results import protocols
    from eval_kit.release import open_release
    from eval_kit.runs.names import named

    refuse_overwriting([*runs, *(untrained or [])], [json_file])
    cells = named(runs, system or [], shift or [], held_out or [])
    opened = open_release(release, revision)
    with Console(stderr=True).status("reading runs") as status:
        found = protocols(
            cells,
            opened,
            untrained or [],
            seed,
            allow_missing,
            lambda run: status.update(f"reading {run.name}"),
        )
    if not write_json(found.as_json(), json_file):
        found.print(screen())


@app.command()
def report(
    runs: GridRuns,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    system: Systems = None,
    shift: Shifts = None,
    held_out: HeldOuts = None,
    untrained: Untrained = None,
    release: Release = None,
    vectors: Annotated[
        str | None, typer.Option(help="For the figures about R: a model or a file, as for similarity.")
    ] = None,
    seed: Seed = 0,
    allow_missing: AllowMissing = False,
) -> None:
    """One self-contained HTML file: summary, tables, figures, per-query explorer, provenance."""
    from rich.console import Console

    from eval_kit.console import refuse_overwriting
    from eval_kit.pages import report_data
    from eval_kit.pages.report import write_report
    from eval_kit.protocols.grid_results import protocols
    from eval_kit.release import open_release
    from eval_kit.runs.names import named
    from eval_kit.stats import vectors as vector_sources

    refuse_overwriting([*runs, *(untrained or [])], [out])
    cells = named(runs, system or [], shift or [], held_out or [])
    opened = open_release(release)
    with Console(stderr=True).status("reading runs") as status:
        found = protocols(
            cells,
            opened,
            untrained or [],
            seed,
            allow_missing,
            lambda run: status.update(f"reading {run.name}"),
        )
        given = vector_sources.get(vectors, report_data.queries_to_encode(found, opened)) if vectors else None
        status.update("drawing figures")
        write_report(found, opened, out, given)
    typer.echo(str(out))


@app.command()
def similarity(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN...]", help="Grid runs, to correlate their losses with.")
    ] = None,
    release: Release = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            help="For the cosine: a sentence-transformers model, a parquet file, or NAME.npy with NAME.ids.txt."
        ),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Compare test clusters with the others' training queries.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """How near each cluster is to the others (weighted Jaccard, cosine), and how losses follow from it."""
    from eval_kit.console import screen, write_json
    from eval_kit.protocols.similarity import similarities
    from eval_kit.release import open_release

    found = similarities(open_release(release), vectors, "train" if train else "test", runs or [])
    if not write_json(found.as_json(), json_file):
        found.print(screen())


@app.command()
def slices(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs of dev-small.")],
    by: Annotated[
        list[str] | None, typer.Option(help="length, bucket, chameleons10 to chameleons50; repeat for a cross-table.")
    ] = None,
    release: Release = None,
    json_file: JsonFile = None,
) -> None:
    """Dev-small by length, ReSTTest bucket and Chameleons level, and their cross-tables."""
    from eval_kit.console import screen, write_json
    from eval_kit.measures.score import score as score_runs
    from eval_kit.protocols.slices import cross_table, layout
    from eval_kit.release import open_release

    opened = open_release(release)
    names = by or ["length"]
    scores = score_runs(runs, opened)
    found = cross_table(scores.per_query(), opened, names)
    if not write_json({"slices": found.to_dicts(), "provenance": scores.provenance}, json_file):
        screen().print(layout(found, names))


@app.command()
def chameleons(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs of dev-small.")],
    release: Release = None,
    json_file: JsonFile = None,
) -> None:
    """Obstinate queries: AP, nDCG, RR@10 and how many are solved, beside the published rankers."""
    from eval_kit.console import screen, write_json
    from eval_kit.measures.score import score as score_runs
    from eval_kit.protocols import chameleons as obstinate
    from eval_kit.release import open_release

    opened = open_release(release)
    scores = score_runs(runs, opened)
    found = obstinate.chameleons(scores.per_query())
    comparable = opened.manifest["kind"] == "published"
    places = obstinate.standing(found) if comparable else found.clear()
    document = {"chameleons": found.to_dicts(), "standing": places.to_dicts(), "provenance": scores.provenance}
    if write_json(document, json_file):
        return
    console = screen()
    console.print(obstinate.layout(found, comparable))
    for row in places.iter_rows(named=True):
        text = f"{row['run']}: {row['measure']} on {row['set']}: place {row['rank']} of {row['of']}"
        console.print(text, highlight=False)


for _command in (
    exchange_cli.validate,
    exchange_cli.compare,
    exchange_cli.leaderboard,
    exchange_cli.beir,
    exchange_cli.align,
):
    app.command()(_command)


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2.

    The garbage collector would walk through all that is imported several times at the start and once more at the end,
    and find nothing: it is made patient, and what is left at the end goes with the process.
    """
    gc.set_threshold(100_000)
    try:
        with reported("eval_kit"):
            app()
    finally:
        gc.freeze()
