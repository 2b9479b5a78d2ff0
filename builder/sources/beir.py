"""A collection in BEIR's format (Thakur et al., NeurIPS Datasets and Benchmarks 2021): any folder with
``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``.

A passage's text is its title and text, as BEIR's own models take it. Passages without text are kept, as some of
BEIR's own datasets have them; queries without text are refused.
"""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from builder.collection import NONE_IN_FOLDER, Collection, split_name
from eval_kit.authors.draft import input_record
from eval_kit.console import with_count
from eval_kit.errors import UserError
from eval_kit.files.beir import read_corpus
from eval_kit.files.formats import read_judgements, read_queries


def collection(folder: Path) -> Collection:
    """Read a folder; every split is named after its file in ``qrels`` (see :func:`split_name`)."""
    if not folder.is_dir():
        raise UserError(f"The folder {folder} does not exist")
    name = folder.resolve().name
    judgements: dict[str, Path] = {}
    for path in sorted((folder / "qrels").glob("[!.]*.tsv")):  # macOS leaves ._test.tsv in zips
        if (split := split_name(path.stem)) in judgements:
            raise UserError(
                f"{path} and {judgements[split].name} are both the split {split}", do="Leave one of them out"
            )
        judgements[split] = path
    if not judgements:
        raise UserError(f"{folder} has no qrels/*.tsv", "A BEIR dataset has its judgements there")
    paths = [folder / "corpus.jsonl", folder / "queries.jsonl", *judgements.values()]
    queries = _queries(paths[1])
    query_ids = set(queries["query_id"])
    judged_queries, qrels = {}, {}
    for split, path in judgements.items():
        qrels[split] = read_judgements(path, query_ids)
        judged_queries[split] = queries.filter(pl.col("query_id").is_in(qrels[split]["query-id"].implode()))
    rows = with_count(read_corpus(paths[0]), "reading corpus.jsonl", "passages")
    passages = pl.DataFrame(rows, {"passage_id": pl.String(), "text": pl.String()}, orient="row")
    return Collection(
        name=name,
        source=f"the BEIR folder {name}",
        queries=judged_queries,
        qrels=qrels,
        passages=passages,
        inputs=[input_record(path, f"{name}/{path.relative_to(folder).as_posix()}", NONE_IN_FOLDER) for path in paths],
        remarks=_remarks(passages, queries, qrels),
    )


def _remarks(passages: pl.DataFrame, queries: pl.DataFrame, qrels: Mapping[str, pl.DataFrame]) -> list[str]:
    """Counts of oddities that BEIR's own datasets have."""
    empty = passages.filter(pl.col("text") == "").height
    remarks = [f"{empty:,} passages of corpus.jsonl have neither title nor text; kept"] if empty else []
    same_ids = queries.join(passages, left_on="query_id", right_on="passage_id", how="semi").height
    if same_ids:
        remarks.append(
            f"{same_ids:,} queries have the id of a passage, as ArguAna's have; 'eval_kit score' leaves that passage "
            "out of the query's ranking if its --release is the BEIR folder, and does not if it is this release"
        )
    for split, pairs in qrels.items():
        absent = pairs.join(passages, left_on="corpus-id", right_on="passage_id", how="anti").height
        if absent:
            remarks.append(f"{absent:,} judgements of {split} are of passages that corpus.jsonl lacks; kept")
    return remarks


def _queries(path: Path) -> pl.DataFrame:
    queries = read_queries(path)
    empty = queries["text"].str.strip_chars() == ""
    if empty.any():
        raise UserError(f"{path}:{(empty.arg_max() or 0) + 1}: the text is empty ({int(empty.sum()):,} in all)")
    return queries
