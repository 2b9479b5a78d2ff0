"""Make a system's run over every test query of a release."""

from pathlib import Path

from rich.console import Console

from baselines import run_files
from baselines.inputs import passages, test_queries
from builder import bm25
from eval_kit.errors import UserError
from eval_kit.release import Release

SYSTEMS = ("bm25",)


def search(system: str, release: Release, folder: Path, progress: Console) -> Path:
    """Index the release's passages, search all its test queries (1000 passages each), and write one run.

    Args:
        system: one of ``SYSTEMS``.
        release: whose passages and queries.
        folder: gets ``<system>.trec`` and the index; an index of the same collection is made anew.
        progress: where to say what is being done.

    Returns:
        The run's path.
    """
    if system not in SYSTEMS:
        raise UserError(f"unknown system {system!r}; there are {', '.join(SYSTEMS)}")
    folder.mkdir(parents=True, exist_ok=True)
    index, run = folder / f"{system}.lucene", folder / f"{system}.trec"
    with progress.status("indexing passages"):
        bm25.index(passages(release), index)
    queries = test_queries(release)
    with progress.status(f"searching {queries.height:,} queries"):
        run_files.write(bm25.search(queries.iter_rows(), index), run, tag=system)
    return run
