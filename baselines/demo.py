"""The kit's main job end to end on the embedded data: release, BM25, scores."""

from pathlib import Path

from rich.console import Console

from baselines.search import search
from eval_kit.release import open as open_release


def demo(folder: Path, console: Console) -> None:
    """Build the mini release, search every test set with BM25, and score the run, all below ``folder``."""
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
    run = search("bm25", release, folder, Console(stderr=True))
    console.print(f"{run}", highlight=False)

    console.rule("3. eval_kit score")
    print_scores(score([run], release), console)
