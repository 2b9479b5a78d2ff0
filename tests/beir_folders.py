"""A folder in BEIR's format, of a few passages and queries."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path


def beir_folder(
    folder: Path,
    passages: Iterable[Mapping[str, str]],
    queries: Mapping[str, str],
    relevant: Iterable[tuple[str, str]],
    split: str = "test",
) -> Path:
    """A folder as BEIR's: rows of ``_id`` and texts, queries by id, and the judged pairs of query and passage."""
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in passages))
    rows = [{"_id": query, "text": text} for query, text in queries.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = [f"{query}\t{passage}\t1\n" for query, passage in relevant]
    (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    return folder
