"""``python -m builder build``: write a release from the authors' lists, from any collection, or a synthetic one."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from builder.options import RELEASE, Out, Seed, Version, print_result
from eval_kit.console import status
from eval_kit.errors import UserError
from eval_kit.options import JsonFile, option
from eval_kit.program import Program

if TYPE_CHECKING:
    from builder.collection import Collection
    from eval_kit.authors.draft import Draft

MINI = "mini"
MS_MARCO = "msmarco"

app = typer.Typer(cls=Program, no_args_is_help=True, help="Build a release folder, whole or not at all.")


@app.command()
def published(
    out: Out = RELEASE,
    upstream: Annotated[Path | None, option("Read the authors' files from this folder instead of the web.")] = None,
    allow_partial: Annotated[
        bool, option("Build what is available, and record what is missing.", None, "--allow-partial")
    ] = False,
    unlicensed: Annotated[
        bool, option("Include the variations and test sets whose authors state no licence.", None, "--unlicensed")
    ] = False,
    version: Version = None,
    json_file: JsonFile = None,
) -> None:
    """Build the canonical release from the authors' lists."""
    from builder.sources.published import draft

    if upstream is not None and not upstream.is_dir():
        raise UserError(f"The folder {upstream} does not exist")
    with status("reading the authors' lists"):
        release = draft(upstream, allow_partial, unlicensed)
    _write(release, out, version, json_file)


def _list_parameters(flag: bool) -> None:
    if flag:
        from builder.parameters import settings

        typer.echo("\n".join(settings()))
        raise typer.Exit


@app.command()
def rebuilt(
    out: Out = RELEASE,
    collection: Annotated[str, option("mini, msmarco, a BEIR folder, a release folder or an ir_datasets id.")] = MINI,
    encoder: Annotated[
        str,
        option(
            "lsa, or a sentence-transformers model (append :cls for the bare [CLS]; the paper's is "
            "distilbert-base-uncased:cls)."
        ),
    ] = "lsa",
    shift: Annotated[
        list[str] | None, option("Build only this shift. Repeatable. Default: all that can be built.")
    ] = None,
    settings: Annotated[
        list[str] | None, option("Change a parameter, such as topic.k=50. Repeatable.", None, "--set")
    ] = None,
    list_parameters: Annotated[
        bool,
        option(
            "List what --set takes, with the papers' values, and exit. Other collections scale the sizes.",
            None,
            "--parameters",
            callback=_list_parameters,
            is_eager=True,
        ),
    ] = False,
    run: Annotated[
        list[Path] | None,
        option("Run of a ranker over dev, from which the Chameleons are found (three or more). Repeatable."),
    ] = None,
    cache: Annotated[Path | None, option("Folder to keep the queries' vectors in.")] = None,
    seed: Seed = 13,
    parts: Annotated[
        str | None,
        option(
            "Parts of the shift given: a field of queries.jsonl (metadata.article), or a FILE of ids and parts "
            "(or FILE:COLUMN)."
        ),
    ] = None,
    disjoint_passages: Annotated[
        bool,
        option(
            "Draw test queries of topic, wh, length and given that share no passage with training queries.",
            None,
            "--disjoint-passages",
        ),
    ] = False,
    queries: Annotated[
        str | None,
        option("Split this query log, without judgements (.tsv, .csv); for mini, its number of queries (10,000)."),
    ] = None,
    language: Annotated[
        str | None,
        option(
            "Language of the queries, such as fr, for the card. Default: that of the question words, if wh is built."
        ),
    ] = None,
    licence: Annotated[
        str | None, option("Licence of your own queries or BEIR folder, such as cc-by-4.0, for the card.")
    ] = None,
    version: Version = None,
    json_file: JsonFile = None,
) -> None:
    """Run the papers' algorithms on any collection."""
    from msgspec import structs

    from builder import encoders
    from builder.collection import NONE_IN_FOLDER, OWN
    from builder.parameters import ShiftParameters, for_mini
    from builder.rebuilt import defaults, draft
    from builder.shifts.given import read_given
    from builder.sources import log, mini
    from eval_kit.documents import LANGUAGE
    from eval_kit.runs.names import run_name

    ShiftParameters().with_settings(settings or [])  # reports a mistake before anything is read
    runs = {run_name(path): path for path in run or []}
    if len(runs) < len(run or []):
        raise UserError("Two runs have the same name", do="Name the run file of each ranker differently")
    if queries is not None and not queries.isdecimal():
        if collection != MINI:
            raise UserError("--queries LOG is a collection of its own", do="Leave --collection out")
        collection, source = queries, log.collection(Path(queries))
    else:
        source = _collection(collection, int(queries) if queries else None)
    if language is not None and not re.fullmatch(LANGUAGE, language):
        raise UserError(f"--language {language} is not a code of ISO 639", do="Write it like fr or jpn")
    if licence is not None:
        if not all(each.licence in (OWN, NONE_IN_FOLDER) for each in source.inputs) or not source.inputs:
            raise UserError(f"The licence of {source.name} is not yours to name", do="Leave --licence out")
        source = replace(source, inputs=[structs.replace(each, licence=licence) for each in source.inputs])
    if parts is not None:
        source = replace(source, parts=read_given(parts, Path(collection)))
    parameters = for_mini(source.train.height) if collection == MINI else defaults(source)
    by_lsa = mini.encoder(source) if collection == MINI else None
    encode = by_lsa if encoder == "lsa" else encoders.by_name(encoder)
    settings_changed = parameters.with_settings(settings or [])
    release = draft(source, shift, encode, settings_changed, seed, runs, cache, disjoint_passages=disjoint_passages)
    _write(replace(release, language=language or release.language), out, version, json_file)


@app.command()
def mini(
    out: Out = RELEASE,
    queries: Annotated[int, option("Number of queries.")] = 10_000,
    strength: Annotated[float, option("Strength of the planted shifts; 0 plants none.")] = 1.0,
    seed: Seed = 13,
    version: Version = None,
    json_file: JsonFile = None,
) -> None:
    """Generate a synthetic collection with planted shifts."""
    from builder.mini import draft

    with status("generating the mini collection"):
        release = draft(seed=seed, queries=queries, strength=strength)
    _write(release, out, version, json_file)


def _collection(name: str, queries: int | None) -> "Collection":
    """The collection of that name; ``queries`` are for mini only."""
    from builder.sources import beir, irds, mini, released
    from eval_kit.release import MANIFEST
    from eval_kit.release import MS_MARCO as PASSAGES

    if queries is not None and name != MINI:
        raise UserError("--queries belongs to the collection mini")
    folder = Path(name)
    if name not in (MINI, MS_MARCO) and folder.is_dir() and not (folder / MANIFEST).is_file():
        return beir.collection(folder)  # has its own progress bar
    with status(f"reading {name}"):
        if name == MINI:
            return mini.collection(mini.DEFAULT if queries is None else mini.MiniParameters(queries=queries))
        if name == MS_MARCO:
            return irds.collection(PASSAGES)
        return released.collection(folder) if folder.is_dir() else irds.collection(name)


def _write(draft: "Draft", out: Path, version: str | None, json_file: Path | None) -> None:
    from builder.release import summary, write
    from eval_kit.documents import VERSION

    if version is not None and not re.fullmatch(VERSION, version):
        raise UserError(f"--version {version} is not three numbers", do="Write it like 1.1.0")
    with status(f"writing {out}"):
        manifest = write(replace(draft, version=version or draft.version), out)
    print_result(manifest.as_json(), summary(out, manifest), json_file)
