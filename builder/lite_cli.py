"""``python -m builder lite`` and ``fidelity``: small releases, and how far they can be trusted."""

from pathlib import Path
from typing import Annotated, Any

from builder.options import RELEASE, Cache, Folder, Out, print_result
from eval_kit import output
from eval_kit.console import status
from eval_kit.errors import UserError
from eval_kit.options import JsonFile, PageFile, PrintedFormat, argument, option

PASSAGES, DEPTH, SEED = 1_000_000, 100, 13


def fidelity(
    release: Annotated[str, argument("A rebuilt release.", "RELEASE")],
    against: Annotated[str, option("Compare with this published release: folder or Hub id.")],
    format: PrintedFormat = output.Format.table,
    json_file: JsonFile = None,
    page: PageFile = None,
) -> None:
    """Compare a rebuilt release with the published one."""
    from builder.fidelity import compare
    from eval_kit.release import open_release

    with status("comparing the releases"):
        report = compare(open_release(release), open_release(against))
    output.emit(report, format=format, json=json_file, page=page)


def lite(
    folder: Folder = RELEASE,
    out: Out = Path("ms-marco-shift-lite"),
    passages: Annotated[int, option("Number of passages that the lite release holds.", min=1)] = PASSAGES,
    depth: Annotated[int, option("Passages per test query taken from each ranker.", min=1)] = DEPTH,
    pool: Annotated[
        list[Path] | None, option("Also keep the best passages of this run over all passages. Repeatable.", "RUN")
    ] = None,
    dense: Annotated[
        str | None,
        option(
            "Encode all passages with this model and keep its best too; none for BM25 alone.",
            "MODEL",
            show_default="sentence-transformers/all-MiniLM-L6-v2, where no --pool is given",
        ),
    ] = None,
    seed: Annotated[int, option("Random seed for drawing the other passages.", min=0)] = SEED,
    queries: Annotated[
        int | None,
        option(
            "Number of queries to draw from each test set; training data are then left out.", min=1, show_default="all"
        ),
    ] = None,
    collection: Annotated[
        Path | None, option("Keep all of these passages, and the test sets that can be searched in them.", "DIR|TSV")
    ] = None,
    shift: Annotated[list[str] | None, option("Only test sets of this shift. Repeatable.")] = None,
    cache: Cache = None,
    json_file: JsonFile = None,
) -> None:
    """Write a release with some of the passages.

    Those that are judged, the best of each ranker, and a random sample.
    """
    from builder.lite import ENCODER, make, of_passages
    from builder.release import summary
    from eval_kit.release import open_release

    source, shifts, rankers = open_release(str(folder)), shift or (), pool or ()
    if collection is not None:
        draws: dict[str, Any] = {"--passages": passages != PASSAGES, "--depth": depth != DEPTH, "--pool": pool}
        draws |= {"--dense": dense, "--seed": seed != SEED, "--queries": queries, "--cache": cache}
        if misfit := next((name for name, value in draws.items() if value), None):
            raise UserError(
                f"{misfit} is for passages that are drawn, but --collection keeps its own",
                do="Leave one of the two out",
            )
        manifest = of_passages(source, collection, out, shifts)
    else:
        encoder = dense or ("none" if rankers else ENCODER)
        manifest = make(
            source,
            out,
            passages,
            depth,
            seed,
            cache,
            queries=queries,
            shifts=shifts,
            rankers=rankers,
            dense=None if encoder == "none" else encoder,
        )
    print_result(manifest.as_json(), summary(out, manifest), json_file)
