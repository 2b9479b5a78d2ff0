"""``python -m baselines run``: from a model to its figures on a release, beside BM25's, in one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from baselines.search_cli import ReleaseOption
from eval_kit.cli import JsonFile, PageFile, PrintedFormat, Seed
from eval_kit.errors import UserError
from eval_kit.output import Format, emit

if TYPE_CHECKING:
    from search.retriever import Retriever

BM25 = "bm25"


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub id or folder of a model, or bm25.")],
    release: ReleaseOption = None,
    test_set: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this test set. Repeatable. Default: all.")
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
    from rich.console import Console

    from baselines.search import make_run, only
    from baselines.systems.bm25 import Bm25
    from eval_kit.api import compare
    from eval_kit.console import refuse_overwriting
    from eval_kit.release import open_release
    from eval_kit.runs import contamination
    from search.gpus import refuse_unusable_gpus
    from search.passages import passages

    opened = open_release(release)
    if "passages" not in opened.configs:
        raise UserError(
            f"{opened.folder}: holds no passages to search; make a small release of it with: "
            f"python -m builder lite {opened.folder} --queries 100 --passages 20000"
        )
    pivots = list(pivot or [])
    called = name or Path(model).resolve().name
    runs = {out / f"{called}.trec": model}
    if not pivots and model != BM25:
        runs = {out / f"{BM25}.trec": BM25} | runs
    refuse_overwriting(pivots, [*runs, json_file, page])
    queries, progress = only(opened, test_set or []), Console(stderr=True)
    for file, source in runs.items():
        if source != BM25:
            refuse_unusable_gpus()
        retriever = Bm25() if source == BM25 else _opened(source)
        kind = "lucene" if source == BM25 else "index"
        make_run(retriever, passages(opened), queries, file, file.with_suffix(f".{kind}"), progress)
        contamination.declare(file, [] if source == BM25 else _training_data(source))
    systems = [*pivots, *runs]
    if len(systems) > 1:
        emit(compare(systems, opened, seed=seed, allow_missing=True), format=format, json=json_file, page=page)
        return
    from eval_kit.api import score

    emit(score(systems, opened, allow_missing=True), format=format, json=json_file, page=page)


def _opened(model: str) -> "Retriever":
    """The model as a retriever, by the kind that its files show."""
    from baselines import architectures
    from search import checkpoint

    kind = checkpoint.kind(model)
    if kind == "transformer":
        raise UserError(
            f"{model}: is a bare transformer, without a way to make vectors; save it with "
            "sentence-transformers, or name its pooling: python -m baselines search --model … "
            "--architecture dense --option pooling=cls"
        )
    return architectures.retriever("sparse" if kind == "masked" else kind, model, {})


def _training_data(model: str) -> list[str] | None:
    """The training data that the kit's registry or the model's card declares; None where unknown."""
    from huggingface_hub import ModelCard

    from baselines import checkpoints

    known = checkpoints.training_data(model)
    card = Path(model, "README.md")
    if known is not None or not card.is_file():
        return known
    declared = ModelCard.load(card, ignore_metadata_errors=True).data.get("datasets")
    return list(declared) if declared else None
