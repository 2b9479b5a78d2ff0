"""``python -m builder build``: write a release from the authors' lists, from any collection, or a synthetic one."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eval_kit.errors import UserError

if TYPE_CHECKING:
    from builder.release import Draft
    from builder.sources.collection import Collection

MINI = "mini"
MS_MARCO = "msmarco"
OPTIONS = {
    "published": {"upstream", "allow_partial"},
    "mini": {"queries", "strength", "seed"},
    "rebuilt": {"collection", "encoder", "shift", "set", "run", "seed", "cache", "queries", "strength"},
}


class Source(StrEnum):
    """What a release is built from."""

    published = "published"
    rebuilt = "rebuilt"
    mini = "mini"


def build(
    source: Annotated[
        Source,
        typer.Option(
            "--from", help="published: the authors' lists; rebuilt: their algorithms, run again; mini: synthetic."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The release folder to write.")] = Path("ms-marco-shift"),
    upstream: Annotated[
        Path | None, typer.Option(help="published: read the authors' files from this folder instead of the web.")
    ] = None,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="published: build what can be had, and record what is missing.")
    ] = False,
    collection: Annotated[
        str | None,
        typer.Option(help="rebuilt: mini, msmarco, a BEIR folder, a release folder or an ir_datasets id."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="rebuilt: lsa, or a sentence-transformers model (:cls behind it takes the bare [CLS]). Default: "
            "the paper's DistilBERT; lsa for mini."
        ),
    ] = None,
    shift: Annotated[
        list[str] | None, typer.Option(help="rebuilt: only this shift; may be repeated. Default: all that can be.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="rebuilt: a parameter, such as topic.k=50; may be repeated.")
    ] = None,
    run: Annotated[
        list[Path] | None, typer.Option(help="rebuilt: a ranker's run over dev, for chameleons; repeat it.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="rebuilt: keep the queries' vectors in this folder.")] = None,
    queries: Annotated[int | None, typer.Option(help="mini: how many queries (default 10,000).")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="rebuilt, mini: seed of every draw (default 13).")
    ] = None,
    strength: Annotated[float | None, typer.Option(help="mini: scales the planted shifts; 0 plants none.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Build a release folder, whole or not at all."""
    from builder import release

    options = {
        "upstream": upstream,
        "allow_partial": allow_partial or None,
        "collection": collection,
        "encoder": encoder,
        "shift": shift,
        "set": settings,
        "run": run,
        "cache": cache,
        "queries": queries,
        "seed": seed,
        "strength": strength,
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in OPTIONS[source]:
            owners = " or ".join(owner for owner, names in OPTIONS.items() if name in names)
            raise UserError(f"--{name.replace('_', '-')} belongs to --from {owners}")
    console = Console(stderr=True)
    if source is Source.mini:
        from builder import mini as planted

        with console.status("generating the mini collection"):
            draft = planted.draft(**given)
    elif source is Source.rebuilt:
        draft = _rebuilt(given, console)
    else:
        draft = _published(upstream, allow_partial, console)
    with console.status(f"writing {out}"):
        manifest = release.write(draft, out)
    if as_json:
        typer.echo(json.dumps(manifest, ensure_ascii=False))
    else:
        _summarise(out, manifest)


def _published(upstream: Path | None, allow_partial: bool, console: Console) -> "Draft":
    from builder.sources import published

    if upstream is not None and not upstream.is_dir():
        raise UserError(f"{upstream}: there is no such folder")
    with console.status("reading the authors' lists"):
        return published.draft(upstream, allow_partial)


def _rebuilt(given: dict[str, Any], console: Console) -> "Draft":
    from builder import encoders, rebuilt
    from builder.parameters import Parameters, for_mini
    from builder.sources import mini

    name = given.get("collection", MINI)
    Parameters().changed(given.get("set", []))  # a mistake in these is found before anything is read
    runs = _runs(given.get("run", []))
    collection = _collection(name, {key: given[key] for key in ("queries", "strength") if key in given}, console)
    parameters = for_mini(collection.train.height) if name == MINI else Parameters()
    if name == MINI and given.get("encoder", "lsa") == "lsa":
        encoder: encoders.Encoder = mini.encoder(collection)
    else:
        encoder = encoders.by_name(given.get("encoder", encoders.PAPER))
    return rebuilt.draft(
        collection,
        shifts=given.get("shift"),
        encoder=encoder,
        parameters=parameters.changed(given.get("set", [])),
        seed=given.get("seed", 13),
        runs=runs,
        cache=given.get("cache"),
    )


def _runs(paths: list[Path]) -> dict[str, Path]:
    from eval_kit.runs.names import run_name

    runs = {run_name(path): path for path in paths}
    if len(runs) < len(paths):
        raise UserError("two runs have the same name; each ranker's run file needs its own")
    return runs


def _collection(name: str, knobs: dict[str, Any], console: Console) -> "Collection":
    from builder.sources import beir, irds, mini, released
    from eval_kit.release import MANIFEST

    if knobs and name != MINI:
        raise UserError(f"--{next(iter(knobs))} belongs to the collection mini")
    folder = Path(name)
    if name not in (MINI, MS_MARCO) and folder.is_dir() and not (folder / MANIFEST).is_file():
        return beir.collection(folder)  # has a progress bar of its own
    with console.status(f"reading {name}"):
        if name == MINI:
            try:
                return mini.collection(mini.Parameters(**knobs))
            except ValueError as error:
                raise UserError(str(error)) from error
        if name == MS_MARCO:
            return irds.collection(irds.MS_MARCO)
        return released.collection(folder) if folder.is_dir() else irds.collection(name)


def _summarise(out: Path, manifest: dict[str, Any]) -> None:
    typer.echo(
        f"{out}: {manifest['kind']} release {manifest['version']}, {len(manifest['tables'])} tables, "
        f"{len(manifest['test_sets'])} test sets, digest {manifest['digest'][:16]}"
    )
    for remark in manifest["remarks"]:
        typer.echo(f"  remark: {remark}")
    for item in manifest["missing"]:
        typer.echo(f"  missing: {item['what']}: {item['because']}")
