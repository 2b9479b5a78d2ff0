"""Read a folder in BEIR's format (Thakur et al., NeurIPS Datasets and Benchmarks 2021): corpus, queries, judgements."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files.faults import Faults
from eval_kit.files.formats import QRELS_SCHEMA, QUERIES_SCHEMA
from eval_kit.files.ids import why_no_id
from eval_kit.files.strict_json import decode
from eval_kit.files.text import read_lines, whole_number

_HINT = "; a BEIR dataset has this file"


def read_corpus(path: Path, separator: str = " ") -> Iterator[tuple[str, str]]:
    """``(passage id, text)`` of a ``corpus.jsonl``, by :func:`read_fields`: title, separator and text.

    BEIR joins them by a blank, and by a word of the model's for DPR (its ``evaluate_dpr.py``).
    """
    for passage_id, (title, text) in read_fields(path, ("title", "text")):
        yield passage_id, f"{title}{separator}{text}".strip()


def read_fields(path: Path, fields: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """``(passage id, values of the fields)`` of a ``corpus.jsonl``, line by line; a field that is missing is empty.

    Passages without any text are kept, as some of BEIR's own datasets have them. Only the ids stay in memory.

    Raises:
        UserError: a file that cannot be read or is empty; after the last line, the faults of its lines: no JSON
            object, no ``_id``, one that is no id (:mod:`eval_kit.files.ids`), or one that appears twice. Nothing is
            yielded from the first fault on.
    """
    faults = Faults(path)
    ids: set[str] = set()
    for number, line in read_lines(path, _HINT):
        entry, why = _object(line)
        passage_id, *values = (entry.get(key, "") for key in ("_id", *fields))
        if not isinstance(passage_id, str) or not passage_id:
            faults.add(number, f'expected a JSON object with "_id", a string{why}')
        elif not all(isinstance(value, str) for value in values):
            faults.add(number, f"{' and '.join(map(json.dumps, fields))} must be strings")
        elif no_id := why_no_id(passage_id):
            faults.add(number, f"passage id {passage_id[:40]!r} {no_id}")
        elif passage_id in ids:
            faults.add(number, f"passage {passage_id} appears twice")
        else:
            ids.add(passage_id)
            if not faults.count:
                yield passage_id, values
    if not ids and not faults.count:
        faults.add(1, "the file is empty")
    faults.raise_any()


def read_queries(path: Path) -> pl.DataFrame:
    """``query_id`` and ``text`` of a ``queries.jsonl``, in its order.

    Raises:
        UserError: what is wrong with the file, with the lines.
    """
    faults = Faults(path)
    texts: dict[str, str] = {}
    for number, line in read_lines(path, _HINT):
        entry, why = _object(line)
        name, text = entry.get("_id"), entry.get("text")
        if not isinstance(name, str) or not isinstance(text, str) or not name:
            faults.add(number, f'expected a JSON object with "_id" and "text", both strings{why}')
        elif no_id := why_no_id(name):
            faults.add(number, f"query id {name[:40]!r} {no_id}")
        elif name in texts:
            faults.add(number, f"query {name} appears twice")
        else:
            texts[name] = text
    if not texts and not faults.count:
        faults.add(1, "the file is empty")
    faults.raise_any()
    return pl.DataFrame({"query_id": list(texts), "text": list(texts.values())}, QUERIES_SCHEMA)


def is_header(line: str) -> bool:
    """Whether a line is the header of a qrels file, whatever its three columns are called."""
    fields = line.split("\t")
    return len(fields) == 3 and all(fields) and whole_number(fields[2]) is None and not fields[2][-1].isdigit()


def read_qrels(path: Path, queries: set[str] | None) -> pl.DataFrame:
    """``query-id``, ``corpus-id`` and ``score`` of a BEIR qrels file, whose queries are all among ``queries``.

    Raises:
        UserError: what is wrong with the file, with the lines.
    """
    if not path.exists() and (splits := sorted(file.stem for file in path.parent.glob("[!.]*.tsv"))):
        raise UserError(f"{path}: there is no such split; the folder has {', '.join(splits)}")
    faults = Faults(path)
    grades: dict[tuple[str, str], int] = {}
    lines = read_lines(path, _HINT)
    if not is_header(next(lines, (1, ""))[1]):
        faults.add(1, "expected the header query-id, corpus-id, score, separated by tabs")
    for number, line in lines:
        fields = line.split("\t")
        query, passage, score = fields if len(fields) == 3 else ("", "", "")
        grade = whole_number(score)
        if not (query and passage):
            faults.add(number, "expected a query id, a passage id and a grade, separated by tabs")
        elif grade is None:
            faults.add(number, f"the grade {score[:40]!r} is not a whole number")
        elif queries is not None and query not in queries:
            faults.add(number, f"query {query} is not in queries.jsonl")
        elif no_id := why_no_id(passage):
            faults.add(number, f"passage id {passage[:40]!r} {no_id}")
        elif (query, passage) in grades:
            faults.add(number, f"passage {passage} appears twice for query {query}")
        else:
            grades[query, passage] = grade
    if not grades and not faults.count:
        faults.add(2, "the file holds no judgements")
    faults.raise_any()
    return pl.DataFrame([(*pair, grade) for pair, grade in grades.items()], QRELS_SCHEMA, orient="row")


def _object(line: str) -> tuple[dict[str, Any], str]:
    """The JSON object of a line; an empty one for anything else, with the reason where it is refused as JSON."""
    try:
        entry = decode(line)
    except json.JSONDecodeError:
        return {}, ""
    except ValueError as error:
        return {}, f"; {error}"
    return (entry if isinstance(entry, dict) else {}), ""
