"""Data that neural systems can train on and search in no time; waiting for processes."""

import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from builder import mini as planted
from builder import release as releases
from eval_kit.authors.draft import Draft, Table
from eval_kit.documents import Rule
from eval_kit.release import Release, open_release

TIMEOUT = 300


def until(condition: Callable[[], object]) -> None:
    """Wait for it, five minutes at most."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def small_release(folder: Path) -> Release:
    """500 queries, about 1,000 passages; each training query's negatives are four passages that are not judged."""
    draft = planted.draft(queries=500)
    draft.tables.append(_negatives(draft))
    releases.write(draft, folder)
    return open_release(folder)


def _negatives(draft: Draft) -> Table:
    frames = {(table.config, table.split): table.frame for table in draft.tables}
    passages = frames["passages", "passages"]["passage_id"].to_list()
    queries = pl.concat([frames["resttest", "train"], frames["validation", "validation"]], how="diagonal")
    judged = pl.concat([frame for (name, _), frame in frames.items() if name == "qrels"]).unique()
    relevant = {query: set(ids) for query, ids in judged.group_by("query-id").agg("corpus-id").iter_rows()}
    rows = []
    for place, query in enumerate(queries["query_id"].sort()):
        others = [passages[(place * 7 + i * 31) % len(passages)] for i in range(8)]
        rows.append((query, [one for one in dict.fromkeys(others) if one not in relevant.get(query, ())][:4]))
    schema = {"query_id": pl.String, "passage_ids": pl.List(pl.String)}
    frame = pl.DataFrame(rows, schema, orient="row")
    return Table("negatives", "train", frame, Rule("four passages that are not judged", "tests"))
