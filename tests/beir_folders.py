"""A folder in BEIR's format, of a few passages and queries."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def beir_folder(
    folder: Path,
    passages: Iterable[Mapping[str, str]],
    queries: Mapping[str, str | Mapping[str, Any]],
    relevant: Iterable[tuple[Any, ...]],
    split: str = "test",
) -> Path:
    """A folder as BEIR's: rows of ``_id`` and texts, queries by id, and judged pairs of query and passage.

    A query is its text or its fields; a pair may have a grade, which is 1 otherwise.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    if passages:
        (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in passages))
    rows = [{"_id": query} | ({"text": of} if isinstance(of, str) else of) for query, of in queries.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = [f"{query}\t{passage}\t{grade[0] if grade else 1}\n" for query, passage, *grade in relevant]
    (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    return folder
