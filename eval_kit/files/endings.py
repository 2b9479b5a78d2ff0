"""How the files of runs end, packed or not."""

from pathlib import Path

PACKED_ENDINGS = (".gz", ".zst", ".bz2", ".xz")
ENDINGS = (".trec", ".res", ".run", ".txt", ".tsv", ".csv", ".parquet", ".parq")


def run_name(run: Path) -> str:
    """The file name without the endings of runs and compressed files: ``bm25.dl19`` for ``bm25.dl19.trec.gz``."""
    name = run.name
    for ending in (*PACKED_ENDINGS, *ENDINGS):
        if name.lower().endswith(ending):
            name = name[: -len(ending)] or name
    return name
