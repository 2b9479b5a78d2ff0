"""The kit's main job end to end on the embedded data: release, BM25, scores."""

from pathlib import Path

import polars as pl
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
    run = folder / "bm25.trec"
    index = folder / "bm25.lucene"
    bm25.index(release.table("passages", "passages").iter_rows(), index)
    run_files.write(bm25.search(queries(release).iter_rows(), index), run, tag="bm25")
    console.print(f"{run}", highlight=False)

    console.rule("3. eval_kit score")
    print_scores(score([run], release), console)


def queries(release: Release) -> pl.DataFrame:
    """``query_id`` and ``text`` of every query of a test set, once."""
    tables = {(one["config"], one["split"]) for one in release.manifest["test_sets"]}
    texts = [release.table(*table).select("query_id", "text") for table in sorted(tables)]
    return pl.concat(texts).unique("query_id", maintain_order=True)
