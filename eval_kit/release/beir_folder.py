"""A folder in BEIR's format as a release in memory, so that every command that takes a release takes it too.

Each split of ``qrels/`` but ``train`` becomes a test set of its name. As in BEIR's own evaluator, a passage with the
query's id (ArguAna's queries are passages of its corpus) is left out of a run that is scored on it; unlike there, it
stays where it is judged.
"""

import hashlib
from pathlib import Path

import polars as pl

from eval_kit.documents import NAME, Manifest, Rule, TableEntry, TestSetEntry
from eval_kit.files.beir import read_qrels, read_queries

KIND = "beir"
QUERIES_FILE = "queries.jsonl"
QUERIES = "queries"
"""The table of all queries, judged or not."""
MEASURES = ["nDCG@10", "RR@10", "R@100"]
TRAIN = "train"

type Tables = dict[tuple[str, str], pl.DataFrame]


def read(folder: Path) -> tuple[Manifest, Tables]:
    """What stands in for the folder's manifest, and its tables of queries and judgements.

    Raises:
        UserError: what is wrong with its files, with the lines.
    """
    queries = read_queries(folder / QUERIES_FILE)
    splits = sorted(path.stem for path in (folder / "qrels").glob("[!.]*.tsv")) or ["test"]
    tables: Tables = {(KIND, QUERIES): queries}
    test_sets, digest = [], hashlib.sha256(queries.write_csv().encode())
    for split in splits:
        qrels = read_qrels(folder / "qrels" / f"{split}.tsv", set(queries["query_id"]))
        digest.update(f"{split}\n{qrels.write_csv()}".encode())
        judged_queries = queries.filter(pl.col("query_id").is_in(qrels["query_id"].implode()))
        tables[KIND, split] = judged_queries
        tables["qrels", split] = qrels.select(
            pl.col("query_id").alias("query-id"), pl.col("passage_id").alias("corpus-id"), score="relevance"
        )
        if split != TRAIN or splits == [TRAIN]:
            test_sets.append(
                TestSetEntry(
                    name=split,
                    shift=KIND,
                    config=KIND,
                    split=split,
                    qrels=split,
                    measures=MEASURES,
                    queries=judged_queries.height,
                )
            )
    manifest = Manifest(
        name=NAME,
        kind=KIND,
        version="0",
        schema_version=1,
        collection=None,
        code_version="",
        seed=None,
        built_from=folder.resolve().name,
        digest=digest.hexdigest(),
        tables=[_entry(*key, len(rows)) for key, rows in tables.items()],
        test_sets=test_sets,
        inputs=[],
        missing=[],
        remarks=[],
    )
    return manifest, tables


def _entry(config: str, split: str, rows: int) -> TableEntry:
    rule = Rule(text="", source=KIND)
    return TableEntry(config=config, split=split, path="", rows=rows, columns=[], digest="", rule=rule, sha256="")
