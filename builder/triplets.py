"""The training examples of our own cells, as files that other trainers read.

A cell's teacher and mined negatives are not in them: the examples are the ones that it starts from.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_kit.console import counting
from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic
from eval_kit.files.cache import cache_folder
from eval_kit.release import Release
from eval_kit.search import texts
from eval_kit.search.examples import (
    Example,
    columns,
    judged_queries,
    lines,
    permitted_queries,
    refuse_without_negatives,
    tables,
)
from eval_kit.search.passages import collection_key, passages

_LOOKED_UP_AT_ONCE = 1_000

type Format = Callable[[Example, list[str]], dict[str, object]]
"""Takes an example's ids and their texts, in the same order; returns the JSON value of its line."""


@dataclass(frozen=True)
class Triplets:
    """What was written: how many examples, and the sha256 over their ids, as a cell's ``done.json`` has it."""

    examples: int
    sha256: str


def write(
    release: Release,
    shift: str,
    held_out: str,
    out: Path,
    format: str = "sentence-transformers",
    negatives: int = 1,
    count: int = 1,
    seed: int = 0,
    strict: bool = False,
    cache: Path | None = None,
) -> Triplets:
    """Write the training examples of the model that never sees ``held_out``, one JSON line each.

    ``count`` is rounded up to whole turns of all pairs. ``strict`` also leaves out every other test query. ``cache`` is
    for the texts of the passages.
    """
    if negatives:
        refuse_without_negatives(release)
    may_train_on = permitted_queries(release, shift, held_out, strict)
    queries = judged_queries(release, may_train_on.queries, may_train_on.qrels)
    if not queries.texts:
        raise UserError(f"{release.folder} has no judged queries to train on without {held_out}")
    folder = (cache or cache_folder()) / "passages" / collection_key(release)
    passage_texts = texts.write(passages(release), folder)
    sha256, rows = hashlib.sha256(), 0

    def documents(examples: Sequence[Example]) -> Iterator[str]:
        looked_up = iter(passage_texts.of([passage for example in examples for passage in example[1:]]))
        for example in examples:
            of_example = [queries.texts[example[0]], *itertools.islice(looked_up, len(example) - 1)]
            yield json.dumps(FORMATS[format](example, of_example), ensure_ascii=False)

    def every_line() -> Iterator[str]:
        nonlocal rows
        with counting("writing triplets", "examples") as advance:
            for table in tables(queries, passage_texts, negatives, count, seed):
                sha256.update(lines(table))
                for part in table.iter_slices(_LOOKED_UP_AT_ONCE):
                    yield from documents(part.rows())
                    advance(part.height)
                rows += table.height

    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_lines(out, every_line())
    return Triplets(rows, sha256.hexdigest())


def _columns(example: Example, texts: list[str]) -> dict[str, object]:
    """Texts only, in the order of their roles."""
    return dict(zip(columns(len(example) - 2), texts, strict=True))


def _tevatron(example: Example, texts: list[str]) -> dict[str, object]:
    passages = [{"docid": id, "text": text} for id, text in zip(example[1:], texts[1:], strict=True)]
    of_query = {"query_id": example[0], "query": texts[0]}
    return {**of_query, "positive_passages": passages[:1], "negative_passages": passages[1:]}


FORMATS: dict[str, Format] = {"sentence-transformers": _columns, "tevatron-train": _tevatron}
