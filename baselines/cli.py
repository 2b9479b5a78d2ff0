"""``python -m baselines``: the reference systems. Every command only calls the library."""

import dataclasses
import functools
import inspect
import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eval_kit.errors import UserError, reported
from eval_kit.shifts import SHIFTS, check_names

if TYPE_CHECKING:
    from baselines.table import Results

ReleaseOption = Annotated[str | None, typer.Option(help="Release folder or Hub id. Default: as for eval_kit.")]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train, search and score the reference systems.",
)
grid_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Train, search and score a grid of cells.")
app.add_typer(grid_app, name="grid")


class Runner(StrEnum):
    """Where cells are done."""

    local = "local"
    ray = "ray"


@grid_app.command("run")
def run_grid(
    configs: Annotated[
        list[str],
        typer.Option(
            "--config",
            help="paper, day, mini, nfcorpus or another name in baselines/configs; or a JSON file. Repeatable.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The grid's folder; a grid that is there resumes.")],
    release: ReleaseOption = None,
    system: Annotated[list[str] | None, typer.Option(help="Only this system. Repeatable.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Hub id or folder that trained systems start from, instead of the config's.")
    ] = None,
    shift: Annotated[list[str] | None, typer.Option(help=f"Only this shift ({', '.join(SHIFTS)}). Repeatable.")] = None,
    seed: Annotated[
        list[int] | None, typer.Option(min=0, max=2**32 - 1, help="Training seed. Repeatable. Default: 0.")
    ] = None,
    runner: Annotated[Runner, typer.Option(help="Local processes, or a Ray cluster.")] = Runner.local,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Cells at once (local). Default: as many as the GPUs, or CPUs, allow."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=1024, help="Processes per cell (torchrun), one GPU each; they split the batch.")
    ] = 1,
    threads: Annotated[
        int,
        typer.Option(min=1, max=1024, help="Threads per process. Changing it may change the last digits of scores."),
    ] = 1,
) -> None:
    """Run every cell that is not finished. Exit status 1 if one fails."""
    from rich.console import Console

    from baselines import config
    from baselines.grid import grid
    from baselines.grid.display import watched
    from baselines.runners import checks, local, ray
    from eval_kit.release import open_release

    check_names(shift or [])
    chosen = {name: config.chosen(name, system, backbone) for name in configs}
    if runner is Runner.local:
        local.refuse_unseen_gpus()
    opened = open_release(release)
    for systems in chosen.values():
        grid.refuse_without_negatives(opened, systems.values())
    if runner is Runner.ray:
        ray.connect()
    cells = []
    for name, systems in chosen.items():
        plan = config.plan(name)
        cells += grid.cells(
            systems, opened, out, shift or plan.shifts, seed or (0,), control=plan.control, variations=plan.variations
        )
    if len({cell.name for cell in cells}) < len(cells):
        raise UserError(f"--config: {' and '.join(configs)} train the same cells; choose the --shift of each")
    workers = workers or local.most_workers(threads, processes)
    checks.refuse(cells, workers)
    if runner is Runner.ray:
        run = functools.partial(ray.run, threads=threads, processes=processes)
    else:
        run = functools.partial(local.run, workers=workers, threads=threads, processes=processes)
    failed = watched(cells, run, Console(stderr=True))
    typer.echo(str(out / "runs"))
    if failed:
        raise typer.Exit(1)


@grid_app.command("status")
def grid_status(
    folder: Annotated[Path, typer.Argument(help="The grid's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show each cell's state, seconds and losses."""
    from baselines.grid.status import layout, of_grid, summary
    from eval_kit.console import screen

    standings = of_grid(folder)
    if as_json:
        typer.echo(json.dumps([standing.as_json() for standing in standings]))
        return
    console = screen()
    console.print(layout(standings))
    console.print(summary(standings), style="dim", highlight=False)


@app.command()
def table(
    runs: Annotated[
        Path | None, typer.Option(help="The folder of a grid's runs. Default: runs; with --paper, none.")
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Print this published table, such as ecir2023-table2, with our figures in it."),
    ] = None,
    release: ReleaseOption = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the results as JSON to this file; '-' prints them."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write eval_kit's report, an HTML file, about the grid.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of the bootstrap.")] = 0,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Also score runs that lack much of a test set, or its end.")
    ] = False,
) -> None:
    """Print a grid's losses beside the papers' figures. They are In, Out and Rel Loss of every system."""
    from baselines.table import results
    from eval_kit.console import refuse_overwriting, screen, status, write_json
    from eval_kit.pages.report import write_report
    from eval_kit.release import open_release
    from eval_kit.release.reference import ids

    if paper is not None and paper not in ids():
        raise UserError(f"--paper {paper}: there is no such table; there are {', '.join(ids())}")
    ours = None
    if paper is None or runs is not None:
        folder = runs or Path("runs")
        refuse_overwriting(list(folder.glob("*.trec*")), [json_file, report])
        opened = open_release(release)
        with status("reading runs"):
            ours = results(folder, opened, seed, allow_missing)
        if report is not None:
            write_report(ours.protocols, opened, report)
    if paper is not None:
        _show_published(paper, ours, json_file)
    elif ours is not None and not write_json(ours.as_json(), json_file):
        ours.print(screen())


def _show_published(id: str, ours: "Results | None", json_file: Path | None) -> None:
    from baselines.published_tables import own_figures
    from baselines.table import published_beside
    from eval_kit.console import screen, write_json
    from eval_kit.release.reference import load
    from eval_kit.tables import terminal

    comparisons = list(ours.compared(id).values()) if ours else []
    document = {"published": load(id), "comparisons": [comparison.as_json() for comparison in comparisons]}
    if not write_json(document, json_file):
        terminal.show(published_beside(id, ours), screen())
        if not comparisons:
            typer.echo(own_figures(id))


@app.command()
def reproduce(
    shared: Annotated[Path, typer.Option(help="The folder of real runs, with real-slice/ and upstream/.")],
    release: ReleaseOption = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the results as JSON to this file; '-' prints them."),
    ] = None,
) -> None:
    """Check every command whose figures are known from elsewhere. Exit status 1 if one differs."""
    from baselines.reproduce import Verdict, reproduced, reproductions, table
    from eval_kit.console import screen, status, write_json
    from eval_kit.release import open_release
    from eval_kit.tables import terminal

    if not shared.is_dir():
        raise UserError(f"--shared {shared}: there is no such folder")
    opened = open_release(release)
    with status("running commands"):
        results = list(reproduced(reproductions(), shared, opened))
    if not write_json([result.as_json() for result in results], json_file):
        terminal.show(table(results, opened), screen())
    if any(result.verdict is Verdict.FAIL for result in results):
        raise typer.Exit(1)


def takes(*groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take dataclasses, whose fields are its arguments and options."""

    def flattened(command: Callable[..., None]) -> Callable[..., None]:
        signatures = [inspect.signature(group).parameters for group in groups]

        @functools.wraps(command)
        def flat(**values: Any) -> None:
            filled = []
            for group, parameters in zip(groups, signatures, strict=True):
                filled.append(group(**{name: values[name] for name in parameters}))
            command(*filled)

        fields = itertools.chain.from_iterable(parameters.values() for parameters in signatures)
        flat.__signature__ = inspect.Signature(list(fields))  # type: ignore[attr-defined]
        return flat

    return flattened


@dataclass
class Model:
    """What searches: BM25, a model, or a published checkpoint."""

    system: Annotated[str | None, typer.Argument(help="bm25, or with --beir bm25-multifield.")] = None
    model: Annotated[str | None, typer.Option(help="Hub id or folder of a model or a Lucene index.")] = None
    architecture: Annotated[
        str | None,
        typer.Option(help="Architecture of --model: dense, sparse, multivector, cross or prebuilt (Lucene, Pyserini)."),
    ] = None
    checkpoint: Annotated[str | None, typer.Option(help="A published checkpoint; --list shows them.")] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Option of the architecture, such as index=hnsw or pooling=cls. Repeatable."
        ),
    ] = None
    show_list: Annotated[bool, typer.Option("--list", help="List the published checkpoints and exit.")] = False

    @property
    def source(self) -> str:
        """The system, model or checkpoint that was named.

        Raises:
            UserError: none was, or more than one.
        """
        named = {"the system": self.system, "--model": self.model, "--checkpoint": self.checkpoint}
        given = [option for option, value in named.items() if value is not None]
        if len(given) != 1:
            raise UserError(f"name one of {', '.join(named)}; given: {' and '.join(given) or 'none'}")
        if (self.model is None) != (self.architecture is None):
            raise UserError("--model and --architecture go together")
        if self.system not in (None, "bm25", "bm25-multifield"):
            raise UserError(f"only bm25 is searched without a model, not {self.system!r}; name one by --model")
        return str(named[given[0]])


@dataclass
class Texts:
    """What is searched, and what for: of a release, or of files."""

    release: ReleaseOption = None
    test_set: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Search only the queries of this test set. Repeatable.")
    ] = None
    variation: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Also search this wording of them: dl19.typo.3, dl19.typo, all. Repeatable."),
    ] = None
    passages: Annotated[
        Path | None, typer.Option(metavar="TSV", help="Search these passages (id, tab, text) instead.")
    ] = None
    queries: Annotated[
        Path | None, typer.Option(metavar="TSV", help="Search these queries (id, tab, text) instead.")
    ] = None
    beir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Search the passages and queries of a folder in BEIR's format instead."),
    ] = None
    split: Annotated[str, typer.Option(help="Split of --beir whose judged queries are searched.")] = "test"


@dataclass
class Output:
    """The run."""

    depth: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of passages per query.")] = 1000
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: the model's name.")] = None
    out: Annotated[Path, typer.Option(help="Folder for the run and its index.")] = Path("runs")
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write what was measured as JSON to this file; '-' prints it."),
    ] = None


@app.command()
@takes(Model, Texts, Output)
def search(model: Model, texts: Texts, output: Output) -> None:
    """Search with BM25, a model, a checkpoint or a prebuilt index. Writes one run, or one per wording."""
    if model.show_list:
        _show_checkpoints(output.json_file)
        return
    source = model.source
    if texts.beir and (texts.release or texts.test_set or texts.variation or texts.passages or texts.queries):
        raise UserError("--beir has passages and queries of its own: leave out the release's options and the files")
    if model.system == "bm25-multifield" and texts.beir is None:
        raise UserError("bm25-multifield searches titles and texts: name a folder by --beir")
    if texts.test_set and texts.queries is not None:
        raise UserError("--test-set is of a release, and --queries names a file instead")
    if texts.variation and texts.queries is not None:
        raise UserError("--variation is of a release, and --queries names a file instead")

    from rich.console import Console

    from baselines.runners.local import refuse_unseen_gpus
    from baselines.search import latency_ms, make_runs
    from eval_kit.console import refuse_overwriting, write_json
    from eval_kit.runs import contamination

    if model.system is None:
        refuse_unseen_gpus()
    retriever = _retriever(model, texts.beir)
    name = output.name or Path(source).resolve().name + (f".{texts.beir.resolve().name}" if texts.beir else "")
    collection, queries, wordings = _read(texts)
    run = output.out / f"{name}.trec"
    runs = {run: queries} | {output.out / f"{name}.{wording}.trec": frame for wording, frame in wordings.items()}
    inputs = [path for path in (texts.passages, texts.queries) if path is not None]
    refuse_overwriting(inputs, [*runs, output.json_file])
    index = output.out / f"{name}.{'lucene' if model.system else 'index'}"
    if model.system is not None:
        shutil.rmtree(index, ignore_errors=True)
    training_data = _training_data(model)
    measured, *of_wordings = make_runs(retriever, collection, runs, index, Console(stderr=True), output.depth)
    for file in runs:
        contamination.declare(file, training_data)
    if output.json_file is not None:
        measured["latency_ms"] = latency_ms(retriever, queries, index, output.depth)
    document = {"name": name, **measured} | ({"variations": of_wordings} if of_wordings else {})
    if not write_json(document, output.json_file):
        typer.echo("\n".join(map(str, runs)))


@app.command()
def beir(
    systems: Annotated[
        list[str],
        typer.Argument(
            metavar="SYSTEM...",
            help="bm25, bm25-multifield, published checkpoints, or any name with all its runs in --out.",
        ),
    ],
    datasets: Annotated[
        list[str] | None,
        typer.Option("--dataset", metavar="NAME", help="Only this folder of --folder. Repeatable. Default: BEIR's."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Folder of datasets in BEIR's format.")] = Path("beir"),
    depth: Annotated[int, typer.Option(min=101, help="Number of passages per query.")] = 1000,
    out: Annotated[Path, typer.Option(help="Folder for the runs; a run that is there is not searched again.")] = Path(
        "beir-runs"
    ),
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the results as JSON to this file; '-' prints them."),
    ] = None,
) -> None:
    """Search datasets of BEIR with several systems. Their figures stand beside the paper's."""
    from rich.console import Console

    from baselines.beir import folders, measured, published_as, search
    from eval_kit.console import screen, status, write_json
    from eval_kit.measures.beir_table import suite

    parts = folders(folder, datasets or [])
    runs = search(list(dict.fromkeys(systems)), parts, out, depth, Console(stderr=True))
    with status("reading runs") as on_run:
        results = suite(runs, parts, published_as(), on_run)
    if not write_json(results.as_json() | {"measured": measured(runs)}, json_file):
        results.print(screen())


@app.command()
def generate(
    beir: Annotated[Path, typer.Argument(metavar="FOLDER", help="A dataset, as a folder in BEIR's format.")],
    out: Annotated[Path, typer.Option(help="The folder to write, in BEIR's format.")],
    config: Annotated[
        str, typer.Option(help="genq, doct5query, or a JSON file with a generation of its own.")
    ] = "genq",
    model: Annotated[str | None, typer.Option(help="Hub id or folder of another model than the config's.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the draws.")] = 0,
) -> None:
    """Write queries for passages by a T5, as in BEIR's GenQ or docT5query. A generation that was stopped goes on."""
    from baselines.config import recipe
    from baselines.generation import generate as write_queries
    from baselines.runners.local import refuse_unseen_gpus

    chosen = recipe(config)
    refuse_unseen_gpus()
    count = write_queries(beir, out, dataclasses.replace(chosen, model=model or chosen.model), seed)
    typer.echo(f"{out}: {count:,} queries")


@app.command()
def efficiency(
    systems: Annotated[
        list[str], typer.Argument(metavar="SYSTEM...", help="bm25, bm25-multifield or published checkpoints.")
    ],
    beir: Annotated[Path, typer.Option(metavar="FOLDER", help="A folder in BEIR's format.")] = Path(
        "beir/dbpedia-entity"
    ),
    passages: Annotated[int, typer.Option(min=1, help="How many of its passages, from the first.")] = 1_000_000,
    out: Annotated[Path, typer.Option(help="Folder for the indexes and figures; what is measured stays.")] = Path(
        "beir-efficiency"
    ),
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the results as JSON to this file; '-' prints them."),
    ] = None,
) -> None:
    """Measure latency and index size as BEIR's Table 3. The paper's figures stand beside them."""
    from rich.console import Console

    from baselines.efficiency import efficiency as measure
    from eval_kit.console import screen, write_json
    from eval_kit.tables import terminal

    results = measure(list(dict.fromkeys(systems)), beir, passages, out, Console(stderr=True))
    if not write_json(dataclasses.asdict(results), json_file):
        terminal.show(results.table(), screen())


def _retriever(model: Model, beir_folder: Path | None) -> Any:
    from baselines import architectures, checkpoints
    from baselines.beir import MultifieldBm25
    from baselines.systems.bm25 import Bm25

    options = _parsed(model.option or [])
    if model.system == "bm25-multifield" and beir_folder is not None:
        _refuse_unfit(options, {}, model.system)
        return MultifieldBm25(beir_folder / "corpus.jsonl")
    if model.system is not None:
        _refuse_unfit(options, {field.name: field.type for field in dataclasses.fields(Bm25)}, "bm25")
        return Bm25(**options)
    architecture, name = model.architecture or "", model.model or ""
    if model.checkpoint is not None:
        checkpoint = checkpoints.named(model.checkpoint)
        architecture, name, options = checkpoint.architecture, checkpoint.model, checkpoint.options | options
    if architecture in architectures.ARCHITECTURES:
        _refuse_unfit(options, architectures.options_of(architecture), architecture)
    return architectures.retriever(architecture, name, options)


def _training_data(model: Model) -> list[str] | None:
    """What is known of the queries that the model was trained on; BM25 was trained on none."""
    from baselines import checkpoints

    if model.system is not None:
        return []
    hub_id = model.model if model.checkpoint is None else checkpoints.named(model.checkpoint).model
    return checkpoints.training_data(str(hub_id))


def _read(texts: Texts) -> Any:
    """Passages, queries, and the queries of each variation."""
    from baselines.search import only, varied
    from eval_kit.files.beir import judged_queries, read_corpus
    from eval_kit.files.formats import read_queries
    from eval_kit.release import open_release
    from search.passages import of_file, passages

    if texts.beir is not None:
        return read_corpus(texts.beir / "corpus.jsonl"), judged_queries(texts.beir, texts.split), {}
    if texts.passages is not None and texts.queries is not None:
        return of_file(texts.passages), read_queries(texts.queries), {}
    release = open_release(texts.release)
    queries = only(release, texts.test_set or []) if texts.queries is None else read_queries(texts.queries)
    wordings = varied(release, texts.variation or [], texts.test_set or [])
    return passages(release) if texts.passages is None else of_file(texts.passages), queries, wordings


def _refuse_unfit(options: dict[str, Any], known: dict[str, Any], owner: str) -> None:
    for key, value in options.items():
        if key not in known:
            raise UserError(f"{owner} has no option {key!r}; it has {', '.join(known)}")
        expected = known[key]
        if not isinstance(value, int | float if expected is float else expected):
            type_name = getattr(expected, "__name__", str(expected))
            raise UserError(f"{owner}: option {key} cannot be {value!r}; it is of type {type_name}")


def _parsed(options: list[str]) -> dict[str, Any]:
    """``KEY=VALUE`` pairs; a value that reads as a number, ``true`` or ``false`` is one."""
    parsed: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise UserError(f"--option {option}: expected KEY=VALUE")
        try:
            parsed[key] = json.loads(value)
        except ValueError:
            parsed[key] = value
    return parsed


def _show_checkpoints(json_file: Path | None) -> None:
    from rich.table import Table

    from baselines import checkpoints
    from eval_kit.console import screen, write_json

    entries = checkpoints.load().values()
    if write_json([dataclasses.asdict(entry) for entry in entries], json_file):
        return
    listed = Table("name", "what", "architecture", "model", "published figures")
    for entry in entries:
        rows = ", ".join(dict.fromkeys(row["table"] for row in entry.rows)) or "–"
        listed.add_row(entry.name, entry.title, entry.architecture, entry.model, rows)
    screen().print(listed)


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2."""
    with reported("baselines"):
        app()
