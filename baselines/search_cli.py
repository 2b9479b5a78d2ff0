"""``python -m baselines search``: one system over a release, files or a folder in BEIR's format."""

import dataclasses
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from baselines.runners import Runner
from eval_kit.errors import UserError
from eval_kit.options import argument, option

ReleaseOption = Annotated[str | None, option("Release folder or Hub id. Default: as for eval_kit.")]

RunnerOption = Annotated[Runner, option("Encode passages on this machine's GPUs, or on a Ray cluster's.")]


def search(
    system: Annotated[
        str | None,
        argument(
            "As for eval_kit run: a Hub id or folder, a published checkpoint, a Lucene index, or bm25; "
            "bm25-multifield with --beir.",
            "MODEL",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        option("Option of the model, such as pooling=cls or engine=exact. Repeatable.", "KEY=VALUE", "--option"),
    ] = None,
    show_list: Annotated[bool, option("List the published checkpoints and exit.", None, "--list")] = False,
    release: ReleaseOption = None,
    test_set: Annotated[list[str] | None, option("Search only the queries of this test set. Repeatable.", "NAME")] = (
        None
    ),
    variation: Annotated[
        list[str] | None, option("Also search this wording of them: dl19.typo.3, dl19.typo, all. Repeatable.", "NAME")
    ] = None,
    passages: Annotated[Path | None, option("Search these passages (id, tab, text) instead.", "TSV")] = None,
    queries: Annotated[Path | None, option("Search these queries (id, tab, text) instead.", "TSV")] = None,
    beir: Annotated[
        Path | None, option("Search the passages and queries of a folder in BEIR's format instead.", "FOLDER")
    ] = None,
    split: Annotated[str, option("Split of --beir whose judged queries are searched.")] = "test",
    depth: Annotated[int, option("Number of passages per query.", min=1, max=1_000_000)] = 1000,
    name: Annotated[str | None, option("Name of the run. Default: the model's name.")] = None,
    out: Annotated[Path, option("Folder for the run and its index.")] = Path("runs"),
    runner: RunnerOption = Runner.local,
    json_file: Annotated[
        Path | None, option("Write what was measured as JSON to this file; '-' prints it.", "FILE", "--json")
    ] = None,
) -> None:
    """Search with BM25, a model, a checkpoint or a prebuilt index. Writes one run, or one per wording."""
    if show_list:
        _show_checkpoints(json_file)
        return
    if system is None:
        raise UserError("name a MODEL, such as bm25; --list shows the published checkpoints")
    if beir and (release or test_set or variation or passages or queries):
        raise UserError("--beir has its own passages and queries: leave out the release's options and the files")
    if system == "bm25-multifield" and beir is None:
        raise UserError("bm25-multifield searches titles and texts: name a folder with --beir")
    for flag, names in (("--test-set", test_set), ("--variation", variation)):
        if names and queries is not None:
            raise UserError(f"{flag} needs a release's queries, but --queries names a file")

    from baselines.beir import LEXICAL
    from baselines.runners import ray
    from eval_kit.console import write_json
    from eval_kit.models.opening import parse_options
    from eval_kit.models.runs import latency_ms, make_runs
    from eval_kit.program import check_outputs
    from eval_kit.release.beir_suite import dataset_name
    from eval_kit.runs import contamination

    if runner is Runner.ray:
        ray.connect()
    retriever, training_data = _open_system(system, parse_options(options or []), beir)
    of_dataset = f".{dataset_name(beir)}" if beir else ""
    name = name or Path(system.replace(":", ".")).resolve().name + of_dataset
    texts = (release, test_set or [], variation or [], passages, queries, beir, split)
    collection, query_texts, wordings = _read(*texts)
    runs = {out / f"{name}.trec": query_texts}
    runs |= {out / f"{name}.{wording}.trec": frame for wording, frame in wordings.items()}
    check_outputs({"inputs": [passages, queries], "out": [*runs, json_file]})
    is_lexical = system in LEXICAL
    index = out / f"{name}.{'lucene' if is_lexical else 'index'}"
    if is_lexical:
        shutil.rmtree(index, ignore_errors=True)
    if runner is Runner.ray:
        ray.encode(retriever, _read(*texts)[0], index)
    for file in runs:
        contamination.declare(file, training_data)
    efficiency, *of_wordings = make_runs(retriever, collection, runs, index, depth)
    if json_file is not None:
        efficiency["latency_ms"] = latency_ms(retriever, query_texts, index, depth)
    document = {"name": name, **efficiency} | ({"variations": of_wordings} if of_wordings else {})
    if not write_json(document, json_file):
        typer.echo("\n".join(map(str, runs)))


def _open_system(system: str, options: dict[str, Any], beir_folder: Path | None) -> Any:
    """The retriever, and what it was trained on."""
    from baselines.beir import MULTIFIELD, MultifieldBm25, over_fields
    from eval_kit.models.opening import open_retriever

    if system == MULTIFIELD and beir_folder is not None:
        if options:
            raise UserError(f"{MULTIFIELD} has no options")
        return MultifieldBm25(beir_folder / "corpus.jsonl"), []
    retriever, training_data = open_retriever(system, options)
    return (over_fields(retriever, beir_folder) if beir_folder else retriever), training_data


def _read(
    release: str | None,
    test_sets: list[str],
    variations: list[str],
    passages: Path | None,
    queries: Path | None,
    beir: Path | None,
    split: str,
) -> Any:
    """Passages, queries, and the queries of each variation."""
    from baselines.beir import passages as of_beir
    from eval_kit.files.beir import judged_queries
    from eval_kit.files.formats import read_queries
    from eval_kit.models.runs import only, variation_queries
    from eval_kit.release import open_release
    from eval_kit.search.passages import of_file
    from eval_kit.search.passages import passages as of_release

    if beir is not None:
        return of_beir(beir), judged_queries(beir, split), {}
    if passages is not None and queries is not None:
        return of_file(passages), read_queries(queries), {}
    opened_release = open_release(release)
    texts = only(opened_release, test_sets) if queries is None else read_queries(queries)
    wordings = variation_queries(opened_release, variations, test_sets)
    return of_release(opened_release) if passages is None else of_file(passages), texts, wordings


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
