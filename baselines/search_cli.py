"""``python -m baselines search``: one system over a release, files or a folder in BEIR's format."""

import dataclasses
import functools
import inspect
import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from baselines.runners import Runner
from eval_kit.errors import UserError, disk_errors
from eval_kit.options import argument, option

ReleaseOption = Annotated[str | None, option("Release folder or Hub id. Default: as for eval_kit.")]

RunnerOption = Annotated[Runner, option("Encode passages on this machine's GPUs, or on a Ray cluster's.")]


def takes(*groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take dataclasses whose fields become its arguments and options."""

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
    """The searcher: BM25, a model, or a published checkpoint."""

    system: Annotated[
        str | None,
        argument(
            "As for eval_kit run: a Hub id or folder, a published checkpoint, a Lucene index, or bm25; "
            "bm25-multifield with --beir.",
            "MODEL",
        ),
    ] = None
    options: Annotated[
        list[str] | None,
        option("Option of the model, such as pooling=cls or engine=exact. Repeatable.", "KEY=VALUE", "--option"),
    ] = None
    show_list: Annotated[bool, option("List the published checkpoints and exit.", None, "--list")] = False


@dataclass
class Texts:
    """The passages and queries: of a release, or from files."""

    release: ReleaseOption = None
    test_set: Annotated[list[str] | None, option("Search only the queries of this test set. Repeatable.", "NAME")] = (
        None
    )
    variation: Annotated[
        list[str] | None, option("Also search this wording of them: dl19.typo.3, dl19.typo, all. Repeatable.", "NAME")
    ] = None
    passages: Annotated[Path | None, option("Search these passages (id, tab, text) instead.", "TSV")] = None
    queries: Annotated[Path | None, option("Search these queries (id, tab, text) instead.", "TSV")] = None
    beir: Annotated[
        Path | None, option("Search the passages and queries of a folder in BEIR's format instead.", "FOLDER")
    ] = None
    split: Annotated[str, option("Split of --beir whose judged queries are searched.")] = "test"


@dataclass
class Output:
    """The run."""

    depth: Annotated[int, option("Number of passages per query.", min=1, max=1_000_000)] = 1000
    name: Annotated[str | None, option("Name of the run. Default: the model's name.")] = None
    out: Annotated[Path, option("Folder for the run and its index.")] = Path("runs")
    runner: RunnerOption = Runner.local
    json_file: Annotated[
        Path | None, option("Write what was measured as JSON to this file; '-' prints it.", "FILE", "--json")
    ] = None


@takes(Model, Texts, Output)
def search(model: Model, texts: Texts, output: Output) -> None:
    """Search with BM25, a model, a checkpoint or a prebuilt index. Writes one run, or one per wording."""
    if model.show_list:
        _show_checkpoints(output.json_file)
        return
    if model.system is None:
        raise UserError("name a MODEL, such as bm25; --list shows the published checkpoints")
    if texts.beir and (texts.release or texts.test_set or texts.variation or texts.passages or texts.queries):
        raise UserError("--beir has its own passages and queries: leave out the release's options and the files")
    if model.system == "bm25-multifield" and texts.beir is None:
        raise UserError("bm25-multifield searches titles and texts: name a folder with --beir")
    if texts.test_set and texts.queries is not None:
        raise UserError("--test-set needs a release's queries, but --queries names a file")
    if texts.variation and texts.queries is not None:
        raise UserError("--variation needs a release's queries, but --queries names a file")

    from baselines.beir import LEXICAL
    from baselines.runners import ray
    from eval_kit.console import write_json
    from eval_kit.models.opening import parsed
    from eval_kit.models.runs import latency_ms, make_runs
    from eval_kit.program import check_outputs
    from eval_kit.release.beir_suite import dataset_name
    from eval_kit.runs import contamination

    if output.runner is Runner.ray:
        ray.connect()
    retriever, training_data = _open_system(model.system, parsed(model.options or []), texts.beir)
    name = output.name or Path(model.system.replace(":", ".")).resolve().name + (
        f".{dataset_name(texts.beir)}" if texts.beir else ""
    )
    collection, queries, wordings = _read(texts)
    run = output.out / f"{name}.trec"
    runs = {run: queries} | {output.out / f"{name}.{wording}.trec": frame for wording, frame in wordings.items()}
    check_outputs({"inputs": [texts.passages, texts.queries], "out": [*runs, output.json_file]})
    is_lexical = model.system in LEXICAL
    index = output.out / f"{name}.{'lucene' if is_lexical else 'index'}"
    if is_lexical:
        shutil.rmtree(index, ignore_errors=True)
    if output.runner is Runner.ray:
        ray.encode(retriever, _read(texts)[0], index)
    with disk_errors(output.out):
        output.out.mkdir(parents=True, exist_ok=True)
    for file in runs:
        contamination.declare(file, training_data)
    efficiency, *of_wordings = make_runs(retriever, collection, runs, index, output.depth)
    if output.json_file is not None:
        efficiency["latency_ms"] = latency_ms(retriever, queries, index, output.depth)
    document = {"name": name, **efficiency} | ({"variations": of_wordings} if of_wordings else {})
    if not write_json(document, output.json_file):
        typer.echo("\n".join(map(str, runs)))


def _open_system(system: str, options: dict[str, Any], beir_folder: Path | None) -> Any:
    """The retriever, and what it was trained on."""
    from baselines.beir import MULTIFIELD, MultifieldBm25, over_fields
    from eval_kit.models.opening import opened

    if system == MULTIFIELD and beir_folder is not None:
        if options:
            raise UserError(f"{MULTIFIELD} has no options")
        return MultifieldBm25(beir_folder / "corpus.jsonl"), []
    retriever, training_data = opened(system, options)
    return (over_fields(retriever, beir_folder) if beir_folder else retriever), training_data


def _read(texts: Texts) -> Any:
    """Passages, queries, and the queries of each variation."""
    from baselines.beir import passages as of_beir
    from eval_kit.files.beir import judged_queries
    from eval_kit.files.formats import read_queries
    from eval_kit.models.runs import only, varied
    from eval_kit.release import open_release
    from eval_kit.search.passages import of_file, passages

    if texts.beir is not None:
        return of_beir(texts.beir), judged_queries(texts.beir, texts.split), {}
    if texts.passages is not None and texts.queries is not None:
        return of_file(texts.passages), read_queries(texts.queries), {}
    release = open_release(texts.release)
    queries = only(release, texts.test_set or []) if texts.queries is None else read_queries(texts.queries)
    wordings = varied(release, texts.variation or [], texts.test_set or [])
    return passages(release) if texts.passages is None else of_file(texts.passages), queries, wordings


def _show_checkpoints(json_file: Path | None) -> None:
    from eval_kit.console import screen, write_json
    from eval_kit.models import checkpoints
    from eval_kit.tables import terminal
    from eval_kit.tables.table import Table, text_columns

    entries = checkpoints.load().values()
    if write_json(list(map(dataclasses.asdict, entries)), json_file):
        return
    columns = text_columns("name", "what", "architecture", "model", "published figures")
    rows = []
    for entry in entries:
        tables = ", ".join(dict.fromkeys(row["table"] for row in entry.rows)) or "–"
        rows.append([entry.name, entry.title, entry.architecture, entry.model, tables])
    terminal.show(Table(columns, [rows]), screen())
