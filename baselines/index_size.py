"""How large an index is on the disk."""

from pathlib import Path

MADE_OF_SHARDS = ("plaid", "lucene", "faiss.index")
"""Indexes that stand beside the vectors that they were made of, and are searched in their stead."""


def index_bytes(folder: Path) -> int:
    """Bytes of all files that a search of an index reads."""
    made = [folder / name for name in MADE_OF_SHARDS if (folder / name).exists()]
    files = [file for one in made or [folder] for file in ([one] if one.is_file() else one.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file())
