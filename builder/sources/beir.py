"""A collection in BEIR's format (Thakur et al., NeurIPS Datasets and Benchmarks 2021): any folder with
``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``.

A passage's text is its title and text, as BEIR's own models take it. Passages without any text are kept, as some of
BEIR's own datasets have them; queries without text are refused.
"""

import json
from pathlib import Path
from typing import Any

import polars as pl

from builder.sources.collection import Collection, split_name
from eval_kit.console import counting
from eval_kit.errors import UserError
from eval_kit.files.digests import file_sha256
from eval_kit.measures.beir import read_qrels, read_queries
from eval_kit.runs.reader import Faults

LICENCE = "not stated in the folder"


def collection(folder: Path) -> Collection:
    """Read a folder; every split is called as its file in ``qrels`` (see :func:`split_name`).

    Raises:
        UserError: a file that is not there or is not as BEIR's, with file and line: no JSON object, no ``_id``, an id
            that comes twice, a query without text, judgements of a query that is not there.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder")
    name = folder.resolve().name
    judgements = {split_name(path.stem): path for path in sorted((folder / "qrels").glob("*.tsv"))}
    if not judgements:
        raise UserError(f"{folder}: has no qrels/*.tsv; a BEIR dataset has its judgements there")
    paths = [folder / "corpus.jsonl", folder / "queries.jsonl", *judgements.values()]
    queries = _queries(paths[1])
    known = set(queries["query_id"])
    qrels = {split: read_qrels(path, known) for split, path in judgements.items()}
    passages = _passages(paths[0])
    empty = passages.filter(pl.col("text") == "").height
    return Collection(
        name=name,
        source=f"the BEIR folder {name}",
        queries={
            split: queries.filter(pl.col("query_id").is_in(pairs["query_id"].implode()))
            for split, pairs in qrels.items()
        },
        qrels={
            split: pairs.rename({"query_id": "query-id", "passage_id": "corpus-id", "relevance": "score"})
            for split, pairs in qrels.items()
        },
        passages=passages,
        inputs=[_record(path, f"{name}/{path.relative_to(folder).as_posix()}") for path in paths],
        remarks=[f"{empty:,} passages of corpus.jsonl have neither title nor text; kept"] if empty else [],
    )


def _queries(path: Path) -> pl.DataFrame:
    queries = read_queries(path)
    empty = queries["text"].str.strip_chars() == ""
    if empty.any():
        raise UserError(f"{path}:{(empty.arg_max() or 0) + 1}: the text is empty ({int(empty.sum()):,} are)")
    return queries


def _passages(path: Path) -> pl.DataFrame:
    faults = Faults(path)
    texts: dict[str, str] = {}
    try:
        size = path.stat().st_size
        with path.open("rb") as file, counting(f"reading {path.name}", "bytes", size) as advance:
            for number, line in enumerate(file, start=1):
                advance(len(line))
                entry = _json(line)
                name, title, text = (entry.get(key, "") for key in ("_id", "title", "text"))
                if not isinstance(name, str) or not name:
                    faults.add(number, 'expected a JSON object with "_id", a string')
                elif not isinstance(title, str) or not isinstance(text, str):
                    faults.add(number, '"title" and "text" must be strings')
                elif name in texts:
                    faults.add(number, f"passage {name} comes twice")
                else:
                    texts[name] = f"{title} {text}".strip()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; a BEIR dataset has this file") from error
    if not texts and not faults.count:
        faults.add(1, "the file is empty")
    faults.raise_any()
    return pl.DataFrame({"passage_id": list(texts), "text": list(texts.values())})


def _json(line: bytes) -> dict[str, Any]:
    """The object of a line; an empty one for anything else."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _record(path: Path, name: str) -> dict[str, Any]:
    size = path.stat().st_size
    return {"id": name, "url": name, "bytes": size, "sha256": file_sha256(path), "licence": LICENCE}
