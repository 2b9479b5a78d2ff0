"""Read the corpus of a folder in BEIR's format (Thakur et al., NeurIPS Datasets and Benchmarks 2021)."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eval_kit.files.faults import Faults
from eval_kit.files.ids import why_no_id
from eval_kit.files.strict_json import decode
from eval_kit.files.text import read_lines


def read_corpus(path: Path, separator: str = " ") -> Iterator[tuple[str, str]]:
    """``(passage id, text)`` of a ``corpus.jsonl``, by :func:`read_fields`: title, separator and text.

    BEIR joins them by a blank, and by a word of the model's for DPR (its ``evaluate_dpr.py``).
    """
    for passage_id, (title, text) in read_fields(path, ("title", "text")):
        yield passage_id, f"{title}{separator}{text}".strip()


def read_fields(path: Path, fields: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """``(passage id, values of the fields)`` of a ``corpus.jsonl``, line by line; a field that is missing is empty.

    Passages without any text are kept, as some of BEIR's own datasets have them. Only the ids stay in memory.
    """
    faults = Faults(path)
    ids: set[str] = set()
    for number, line in read_lines(path):
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


def _object(line: str) -> tuple[dict[str, Any], str]:
    """The JSON object of a line; an empty one for anything else, with the reason where it is refused as JSON."""
    try:
        entry = decode(line)
    except json.JSONDecodeError:
        return {}, ""
    except ValueError as error:
        return {}, f"; {error}"
    return (entry if isinstance(entry, dict) else {}), ""
