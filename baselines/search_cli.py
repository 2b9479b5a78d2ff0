"""``baselines search``: a run of BM25, or of any model or index that others have published."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from eval_kit.errors import UserError

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write what was measured as JSON ('-': to the screen).")
]


def search(
    system: Annotated[str | None, typer.Argument(help="bm25; or name a model, a checkpoint or an index.")] = None,
    model: Annotated[str | None, typer.Option(help="Hub id or folder of a model.")] = None,
    architecture: Annotated[str | None, typer.Option(help="Of --model: dense, sparse, multivector or cross.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="A published checkpoint; --list shows them.")] = None,
    pyserini_index: Annotated[
        str | None, typer.Option(help="One of Pyserini's prebuilt inverted indexes, or a folder of that kind.")
    ] = None,
    query_encoder: Annotated[
        str | None, typer.Option(help="For a --pyserini-index of impacts: a uniCOIL encoder, or 'words'.")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show the published checkpoints, and do nothing.")] = False,
    release: Annotated[str | None, typer.Option(help="Release folder or Hub id; else as for eval_kit.")] = None,
    test_set: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only the queries of this test set; repeatable.")
    ] = None,
    passages: Annotated[Path | None, typer.Option(metavar="TSV", help="Passages (id, tab, text) instead.")] = None,
    queries: Annotated[Path | None, typer.Option(metavar="TSV", help="Queries (id, tab, text) instead.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Of the architecture, such as index=hnsw or pooling=cls; repeatable."),
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Passages a query.")] = 1000,
    name: Annotated[str | None, typer.Option(help="Of the run; else that of the model.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the run and its index.")] = Path("runs"),
    json_file: JsonFile = None,
) -> None:
    """Search with BM25, a model, a published checkpoint or a prebuilt index, and write one run."""
    if show_list:
        _show(json_file)
        return
    chosen = {"the system": system, "--model": model, "--checkpoint": checkpoint, "--pyserini-index": pyserini_index}
    given = [what for what, value in chosen.items() if value is not None]
    if len(given) != 1:
        raise UserError(f"name one of {', '.join(chosen)}; given: {' and '.join(given) or 'none'}")
    if (model is None) != (architecture is None):
        raise UserError("--model and --architecture go together")
    options = _options(option or [])
    if query_encoder is not None:
        options["query_encoder"] = query_encoder

    from rich.console import Console

    from baselines import search as library
    from eval_kit.console import refuse_overwriting, write_json
    from eval_kit.files.formats import read_queries
    from eval_kit.release import open_release

    if system not in (None, "bm25"):
        raise UserError(f"only bm25 is searched without a model, not {system!r}; name one by --model")
    if system is not None:
        retriever: Any = _bm25(options)
        source = system
    elif checkpoint is not None:
        retriever, source = _published(checkpoint, options), checkpoint
    else:
        source = str(model or pyserini_index)
        retriever = _retriever(architecture or "prebuilt", source, options)
    name = name or Path(source).resolve().name
    if test_set and queries is not None:
        raise UserError("--test-set is of a release, and --queries names a file instead")
    run = out / f"{name}.trec"
    refuse_overwriting([path for path in (passages, queries) if path is not None], [run, json_file])
    if passages is None or queries is None:
        opened = open_release(release)
        asked = library.only(opened, test_set or []) if queries is None else read_queries(queries)
        collection = library.of_release(opened) if passages is None else library.of_file(passages)
    else:
        asked, collection = read_queries(queries), library.of_file(passages)
    index = out / f"{name}.{'lucene' if system else 'index'}"
    if system is not None:
        shutil.rmtree(index, ignore_errors=True)
    measured = library.make_run(retriever, collection, asked, run, index, Console(stderr=True), depth)
    if json_file is not None:
        measured["latency_ms"] = library.latency_ms(retriever, asked, index, depth)
    if not write_json({"name": name, **measured}, json_file):
        typer.echo(str(run))


def _published(name: str, options: dict[str, Any]) -> Any:
    from baselines import checkpoints

    entry = checkpoints.named(name)
    return _retriever(entry.architecture, entry.model, entry.options | options)


def _retriever(architecture: str, model: str, options: dict[str, Any]) -> Any:
    from baselines import architectures

    if architecture in architectures.ARCHITECTURES:
        _refuse_unfit(options, architectures.options_of(architecture), architecture)
    return architectures.retriever(architecture, model, options)


def _bm25(options: dict[str, Any]) -> Any:
    from baselines.systems.bm25 import Bm25

    _refuse_unfit(options, {field.name: field.type for field in dataclasses.fields(Bm25)}, "bm25")
    return Bm25(**options)


def _refuse_unfit(options: dict[str, Any], known: dict[str, Any], what: str) -> None:
    for key, value in options.items():
        if key not in known:
            raise UserError(f"{what} has no option {key!r}; it has {', '.join(known)}")
        wanted = known[key]
        if not isinstance(value, int | float if wanted is float else wanted):
            named = getattr(wanted, "__name__", str(wanted))
            raise UserError(f"{what}: option {key} cannot be {value!r}; it is of type {named}")


def _options(given: list[str]) -> dict[str, Any]:
    """``KEY=VALUE`` pairs; a value that reads as a number, ``true`` or ``false`` is one."""
    options: dict[str, Any] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not key or not equals:
            raise UserError(f"--option {one}: expected KEY=VALUE")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def _show(json_file: Path | None) -> None:
    from rich.table import Table

    from baselines import checkpoints
    from eval_kit.console import screen, write_json

    entries = checkpoints.load().values()
    if write_json([dataclasses.asdict(entry) for entry in entries], json_file):
        return
    table = Table("name", "what", "architecture", "model", "published figures")
    for entry in entries:
        rows = ", ".join(dict.fromkeys(row["table"] for row in entry.rows)) or "–"
        table.add_row(entry.name, entry.title, entry.architecture, entry.model, rows)
    screen().print(table)
