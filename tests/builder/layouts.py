"""A collection on the disk, in the layouts that others are read from."""

import gzip
import json
from pathlib import Path

import polars as pl

from builder.collection import Collection


def beir(collection: Collection, folder: Path) -> Path:
    """BEIR's: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/<split>.tsv``."""
    assert collection.passages is not None
    (folder / "qrels").mkdir(parents=True)
    jsonl(folder / "corpus.jsonl", collection.passages.rename({"passage_id": "_id"}))
    jsonl(folder / "queries.jsonl", pl.concat(collection.queries.values()).rename({"query_id": "_id"}))
    for split, pairs in collection.qrels.items():
        pairs.write_csv(folder / "qrels" / f"{split}.tsv", separator="\t")
    return folder


def jsonl(path: Path, rows: pl.DataFrame) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.to_dicts()), encoding="utf-8")


def irds_ms_marco(collection: Collection, home: Path) -> Path:
    """What ir_datasets keeps of msmarco-passage once it is downloaded, without the passages."""
    places = {"train": "train", "dev": "dev/small", "dl19": "trec-dl-2019", "dl20": "trec-dl-2020"}
    for split, place in places.items():
        folder = home / "msmarco-passage" / place
        folder.mkdir(parents=True)
        queries = collection.queries[split].write_csv(separator="\t", include_header=False, quote_style="never")
        if split == "dl20":
            (folder / "queries.tsv.gz").write_bytes(gzip.compress(queries.encode()))
        else:
            (folder / "queries.tsv").write_text(queries, encoding="utf-8")
        lines = [f"{query} 0 {passage} {grade}\n" for query, passage, grade in collection.qrels[split].iter_rows()]
        (folder / "qrels").write_text("".join(lines), encoding="utf-8")
    return home


def irds_scifact(collection: Collection, home: Path) -> Path:
    """What ir_datasets keeps of beir/scifact (train and test), without the passages; dev serves as its test."""
    folder = home / "beir" / "scifact"
    folder.mkdir(parents=True)
    splits = {"train": "train", "test": "dev"}
    rows = pl.concat(collection.queries[split] for split in splits.values()).rename({"query_id": "_id"})
    jsonl(folder / "queries.json", rows)
    for split, source in splits.items():
        collection.qrels[source].write_csv(folder / f"{split}.qrels", separator="\t")
    return home
