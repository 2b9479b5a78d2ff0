"""The kit's main job end to end on the embedded data: release, BM25, scores."""

from pathlib import Path

from rich.console import Console

from baselines import run_files
from baselines.systems import bm25
from eval_kit.release import Release
from eval_kit.release import open as open_release


def demo(folder: Path, console: Console) -> None:
    """Build the mini release, search every test set with BM25, and score the runs, all below ``folder``."""
    from builder import planted
    from builder import release as releases
    from eval_kit.score import score
    from eval_kit.table import print_scores

    console.rule("1. build the mini release")
    place = folder / "ms-marco-shift"
    manifest = releases.write(planted.draft(), place)
    release = open_release(place)
    tables, test_sets = len(manifest["tables"]), len(manifest["test_sets"])
    console.print(f"{place}: {tables} tables, {test_sets} test sets, digest {release.digest[:16]}", highlight=False)

    console.rule("2. search with BM25 (Lucene)")
    runs = search_all(release, folder)
    for run in runs:
        console.print(f"{run}", highlight=False)

    console.rule("3. eval_kit score")
    print_scores(score(runs, release), console)


def search_all(release: Release, folder: Path) -> list[Path]:
    """One BM25 run for each table of test queries: ``bm25.<config>.trec``."""
    index = folder / "bm25.lucene"
    bm25.index(release.table("passages", "passages").iter_rows(), index)
    runs = []
    for config, split in (("topic", "test"), ("wh", "test"), ("chameleons", "dev"), ("trec_dl", "dl19"), ("trec_dl", "dl20")):
        queries = release.table(config, split).select("query_id", "text").unique("query_id", maintain_order=True)
        run = folder / "runs" / f"bm25.{config if split in ('test', 'dev') else split}.trec"
        run_files.write(bm25.search(queries.iter_rows(), index), run, tag="bm25")
        runs.append(run)
    return runs
