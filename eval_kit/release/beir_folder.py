"""A folder in BEIR's format as a release in memory, so that every command that takes a release takes it too.

Each split of ``qrels/`` but ``train`` becomes a test set of its name. As in BEIR's own evaluator, a passage with the
query's id (ArguAna's queries are passages of its corpus) is left out of a run that is scored on it; unlike there, it
stays where it is judged.
"""

import hashlib
from pathlib import Path

import polars as pl

from eval_kit.documents import NAME, Manifest, Rule, TableEntry, TestSetEntry
from eval_kit.files.formats import QUERIES_SCHEMA, SCORED_AS, read_judgements, read_queries

KIND = "beir"
_JUDGEMENTS = "judgements"
"""The kind of a release of judgements alone."""
_SCORED = "values"
"""That of queries whose values others computed."""
QUERIES_FILE, CORPUS_FILE = "queries.jsonl", "corpus.jsonl"
QUERIES = "queries"
"""The table of all queries, judged or not."""
MEASURES = ["nDCG@10", "RR@10", "R@100"]
TRAIN = "train"

type Tables = dict[tuple[str, str], pl.DataFrame]


def read(folder: Path) -> tuple[Manifest, Tables]:
    """What stands in for the folder's manifest, and its tables of queries and judgements."""
    queries = read_queries(folder / QUERIES_FILE)
    splits = sorted(path.stem for path in (folder / "qrels").glob("[!.]*.tsv")) or ["test"]
    ids = set(queries["query_id"])
    qrels = {split: read_judgements(folder / "qrels" / f"{split}.tsv", ids) for split in splits}
    return _release(KIND, folder.resolve().name, queries, qrels)


def of_judgements(qrels: Path | pl.DataFrame, queries: Path | pl.DataFrame | None = None) -> tuple[Manifest, Tables]:
    """What stands in for a manifest and its tables, of judgements alone: one test set, ``test``.

    Each is a file, as :mod:`eval_kit.files.formats` reads it, or its rows. Without ``queries``, divisions by text are
    empty.
    """
    texts = read_queries(queries) if isinstance(queries, Path) else queries
    known = None if texts is None else set(texts["query_id"])
    judgements = read_judgements(qrels, known) if isinstance(qrels, Path) else qrels
    if texts is None:
        ids = judgements["query-id"].unique(maintain_order=True)
        texts = pl.DataFrame({"query_id": ids, "text": [None] * len(ids)}, QUERIES_SCHEMA)
    name = qrels.name if isinstance(qrels, Path) else "given in Python"
    return _release(_JUDGEMENTS, name, texts, {"test": judgements})


def _release(
    kind: str, name: str, queries: pl.DataFrame, of_splits: dict[str, pl.DataFrame]
) -> tuple[Manifest, Tables]:
    """The manifest and tables of queries, judged in these splits."""
    tables: Tables = {(kind, QUERIES): queries}
    test_sets, digest = [], hashlib.sha256(queries.write_csv().encode())
    for split, qrels in of_splits.items():
        digest.update(f"{split}\n{qrels.rename(SCORED_AS).write_csv()}".encode())
        judged_queries = queries.filter(pl.col("query_id").is_in(qrels["query-id"].implode()))
        tables[kind, split], tables["qrels", split] = judged_queries, qrels
        if split != TRAIN or list(of_splits) == [TRAIN] or kind == _SCORED:
            test_sets.append(
                TestSetEntry(
                    name=split,
                    shift=kind,
                    config=kind,
                    split=split,
                    qrels=split,
                    measures=MEASURES,
                    queries=judged_queries.height,
                )
            )
    manifest = Manifest(
        name=NAME,
        kind=kind,
        version="0",
        schema_version=1,
        collection=None,
        code_version="",
        seed=None,
        built_from=name,
        digest=digest.hexdigest(),
        tables=[_entry(*key, len(rows)) for key, rows in tables.items()],
        test_sets=test_sets,
        inputs=[],
        missing=[],
        remarks=[],
    )
    return manifest, tables


def _entry(config: str, split: str, rows: int) -> TableEntry:
    rule = Rule(text="", source=config)
    return TableEntry(config=config, split=split, path="", rows=rows, columns=[], digest="", rule=rule, sha256="")
