"""Read a folder in BEIR's format (Thakur et al., NeurIPS Datasets and Benchmarks 2021): corpus, queries, judgements."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files.strict_json import decode
from eval_kit.files.text import read_lines, whole_number
from eval_kit.runs.reader import Faults

HEADER = "query-id\tcorpus-id\tscore"
HINT = "; a BEIR dataset has this file"

_QUERIES = {"query_id": pl.String(), "text": pl.String()}
_QRELS = {"query_id": pl.String(), "passage_id": pl.String(), "relevance": pl.Int64()}


def judged_queries(folder: Path, split: str = "test") -> pl.DataFrame:
    """``query_id`` and ``text`` of the queries that a split judges, in the order of ``queries.jsonl``.

    Raises:
        UserError: a file that is not there or is not as BEIR's, with the lines.
    """
    queries = read_queries(folder / "queries.jsonl")
    qrels = read_qrels(folder / "qrels" / f"{split}.tsv", set(queries["query_id"]))
    return queries.filter(pl.col("query_id").is_in(qrels["query_id"].implode()))


def read_corpus(path: Path) -> Iterator[tuple[str, str]]:
    """``(passage id, text)`` of a ``corpus.jsonl``: title and text, as BEIR joins them; see :func:`read_documents`."""
    for passage_id, title, text in read_documents(path):
        yield passage_id, f"{title} {text}".strip()


def read_documents(path: Path) -> Iterator[tuple[str, str, str]]:
    """``(passage id, title, text)`` of a ``corpus.jsonl``, line by line.

    Passages without any text are kept, as some of BEIR's own datasets have them. Only the ids stay in memory.

    Raises:
        UserError: a file that cannot be read or is empty; after the last line, what is wrong with lines of it: no
            JSON object, no ``_id``, an id that is there twice. Nothing is yielded from the first of them on.
    """
    faults = Faults(path)
    ids: set[str] = set()
    for number, line in read_lines(path, HINT):
        entry = _object(line)
        passage_id, title, text = (entry.get(key, "") for key in ("_id", "title", "text"))
        if not isinstance(passage_id, str) or not passage_id:
            faults.add(number, 'expected a JSON object with "_id", a string')
        elif not isinstance(title, str) or not isinstance(text, str):
            faults.add(number, '"title" and "text" must be strings')
        elif passage_id in ids:
            faults.add(number, f"passage {passage_id} appears twice")
        else:
            ids.add(passage_id)
            if not faults.count:
                yield passage_id, title, text
    if not ids and not faults.count:
        faults.add(1, "the file is empty")
    faults.raise_any()


def read_ids(path: Path) -> Iterator[str]:
    """The id of each document of a ``corpus.jsonl``, without a look at its text where the id stands first, as in BEIR.

    Raises:
        UserError: a file that cannot be read, or (with the line) a document without an id.
    """
    start = '{"_id": "'
    for number, line in read_lines(path, HINT):
        name: Any = line[len(start) : line.find('"', len(start))] if line.startswith(start) else ""
        if not name or "\\" in name:
            name = _object(line).get("_id")
        if not isinstance(name, str) or not name:
            raise UserError(f'{path}:{number}: expected a JSON object with "_id", a string')
        yield name


def read_queries(path: Path) -> pl.DataFrame:
    """``query_id`` and ``text`` of a ``queries.jsonl``, in its order.

    Raises:
        UserError: what is wrong with the file, with the lines.
    """
    faults = Faults(path)
    texts: dict[str, str] = {}
    for number, line in read_lines(path, HINT):
        entry = _object(line)
        name, text = entry.get("_id"), entry.get("text")
        if not isinstance(name, str) or not isinstance(text, str) or not name:
            faults.add(number, 'expected a JSON object with "_id" and "text", both strings')
        elif name in texts:
            faults.add(number, f"query {name} appears twice")
        else:
            texts[name] = text
    if not texts and not faults.count:
        faults.add(1, "the file is empty")
    faults.raise_any()
    return pl.DataFrame({"query_id": list(texts), "text": list(texts.values())}, _QUERIES)


def read_qrels(path: Path, queries: set[str]) -> pl.DataFrame:
    """``query_id``, ``passage_id`` and ``relevance`` of a BEIR qrels file, whose queries are all among ``queries``.

    Raises:
        UserError: what is wrong with the file, with the lines.
    """
    faults = Faults(path)
    grades: dict[tuple[str, str], int] = {}
    lines = read_lines(path, HINT)
    if next(lines, (1, ""))[1] != HEADER:
        faults.add(1, "expected the header query-id, corpus-id, score, separated by tabs")
    for number, line in lines:
        fields = line.split("\t")
        query, passage, score = fields if len(fields) == 3 else ("", "", "")
        grade = whole_number(score)
        if not (query and passage):
            faults.add(number, "expected a query id, a passage id and a grade, separated by tabs")
        elif grade is None:
            faults.add(number, f"the grade {score[:40]!r} is not a whole number")
        elif query not in queries:
            faults.add(number, f"query {query} is not in queries.jsonl")
        elif (query, passage) in grades:
            faults.add(number, f"passage {passage} appears twice for query {query}")
        else:
            grades[query, passage] = grade
    if not grades and not faults.count:
        faults.add(2, "the file judges nothing")
    faults.raise_any()
    return pl.DataFrame([(*pair, grade) for pair, grade in grades.items()], _QRELS, orient="row")


def _object(line: str) -> dict[str, Any]:
    """The JSON object of a line; an empty one for anything else."""
    try:
        entry = decode(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
