"""A release with a part of its collection: small enough for one GPU to index in minutes, yet not trivial for BM25.

It keeps the queries and judgements of the original release, and of its passages those that are judged,
the best of BM25 and of other rankers for every test query, and others drawn at random. Its figures are
not comparable with the papers': fewer passages compete. Where queries have one label, a pool of BM25
alone lifts every other ranker, so by default a dense encoder searches too. Given a number of queries,
it keeps that many of each test set and no training data: small enough for an evaluation during
training to search in seconds.
"""

import hashlib
import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import structs

from builder.collection import NONE_IN_FOLDER, NONE_STATED
from builder.release import write
from eval_kit.authors.draft import Draft, Table, input_record
from eval_kit.console import with_count
from eval_kit.documents import Input, Manifest, Rule, TableEntry, TestSetEntry
from eval_kit.errors import UserError
from eval_kit.files import beir
from eval_kit.files.cache import cache_folder
from eval_kit.files.formats import QRELS_SCHEMA, read_judgements, read_queries
from eval_kit.release import Release
from eval_kit.runs.names import run_name
from eval_kit.runs.reader import read_pieces
from eval_kit.search import bm25
from eval_kit.search.passages import collection_key, of_file, passages
from eval_kit.search.retriever import Hits, Retriever

PASSAGES, DEPTH, SEED = 1_000_000, 100, 13
"""One GPU encodes a million passages with ``ENCODER`` in minutes (14,200 texts a second on a V100, by sbert.net)."""
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
"""Searches beside BM25 unless runs are given."""
_SPARSE_LABELS = 2.0
"""With fewer labels a query, a pool lifts systems that did not contribute: BM25's best 20 lift TAS-B from 0.138 to
0.237 with the first label of DL19 and DL20; with all their labels no system moved by 0.01 (docs/baselines.md)."""
_ALONE = "other rankers' figures are too high, and their order is not to be trusted"
_SEVERAL = "figures of systems unlike these may be too high"
_LEFT_OUT = ("passages", "negatives")
"""Tables that are not copied: the lite release has its own; negatives are drawn again, from its own passages."""
_SOURCE = "ms-marco-shift"
_TEXTS: dict[str, pl.DataType] = {"passage_id": pl.String(), "text": pl.String()}


def make(
    release: Release,
    out: Path,
    size: int = PASSAGES,
    depth: int = DEPTH,
    seed: int = SEED,
    cache: Path | None = None,
    queries: int | None = None,
    shifts: Collection[str] = (),
    rankers: Sequence[Path] = (),
    dense: str | None = None,
) -> Manifest:
    """Write the lite release of ``release``, with a pool of its passages, to the folder ``out``.

    It holds ``size`` passages, or more if judged ones and candidates are more: of BM25, of ``rankers`` (runs over all
    passages; ``tas-b.dl19`` is of ``tas-b``) and of a ``dense`` model, the ``depth`` best for every test query. Others
    are drawn, the same whatever their order. ``queries`` are drawn from each test set of the ``shifts``, and tables
    keep what was drawn for all; by default all queries of the release stay, training ones too.
    """
    if release.manifest.kind == "lite":
        raise UserError(f"{release.folder} is already a lite release", do="Use a release with all passages")
    test_sets = _test_sets(release, shifts)
    if not test_sets:
        raise UserError(f"{release.folder} has no test queries to find passages for")
    tables = _tables(release, test_sets, queries, seed)
    of_test_sets = {entry.table for entry in test_sets}
    frames = (table.frame.select("query_id", "text") for table in tables if table.key in of_test_sets)
    texts = pl.concat(frames).unique("query_id").sort("query_id")
    encoder = None if dense is None else _open_encoder(dense)
    cache = cache or cache_folder()
    index = bm25.index_of(release, cache)
    hits = bm25.search(with_count(texts.rows(), "finding candidates", "queries"), index, depth)
    best = {"bm25": _passages(hits)}
    if encoder is not None:
        name, retriever = encoder
        folder = cache / "encoded" / f"{collection_key(release)}.{name}"
        retriever.index(passages(release), folder)
        best[name] = _passages(retriever.search(texts, folder, depth))
    for path in rankers:
        system = min((run_name(path).removesuffix(f".{name}") for name in release.test_sets), key=len)
        best[system] = best.get(system, set()) | _best(path, texts, depth)
    needs = set[str]().union(*best.values())
    for table in tables:
        if table.config == "qrels":
            needs.update(table.frame["corpus-id"])
    others = (passage_id for passage_id, _ in _read(release, "drawing passages") if passage_id not in needs)
    sample = heapq.nsmallest(max(0, size - len(needs)), others, key=lambda passage_id: _draw(seed, passage_id))
    parameters: dict[str, Any] = {"size": size, "depth": depth, "seed": seed, "rankers": [*best]}
    parameters |= {} if queries is None else {"queries": queries}
    needs.update(sample)
    rows = [(passage_id, text) for passage_id, text in _read(release, "reading passages") if passage_id in needs]
    rule = Rule(
        "all judged passages, each ranker's best (depth) for the test queries, and others drawn at random (seed) up to "
        "size",
        _SOURCE,
        parameters=parameters | {"release": release.digest, "k1": bm25.K1, "b": bm25.B},
    )
    part = "" if queries is None else f" and at least {queries:,} queries of each test set"
    remark = f"lite: {len(rows):,} passages of the collection{part}; not comparable with figures on all of them"
    remarks = [*release.manifest.remarks, *_cautions(best, release), remark]
    variations = list(release.variations.values()) if queries is None else []
    tables.append(Table("passages", "passages", pl.DataFrame(rows, _TEXTS, orient="row"), rule))
    draft = _draft(release, seed, test_sets, tables)
    return write(replace(draft, variations=variations, remarks=remarks, missing=release.manifest.missing), out)


def of_passages(release: Release, source: Path, out: Path, shifts: Collection[str] = ()) -> Manifest:
    """Write the release of the test sets that can be searched in passages which somebody has, to the folder ``out``.

    Kept are the test sets whose every query still has a relevant passage, without training data, and the judgements of
    passages that are there; a BEIR folder's own judgements of the same queries are added.
    ``source`` is a BEIR folder with ``corpus.jsonl``, or a file of passage ids, tabs and texts; without ``shifts``,
    test sets of all are kept.
    """
    read = beir.read_corpus(source / "corpus.jsonl") if source.is_dir() else of_file(source)
    of_shifts = _test_sets(release, shifts)
    texts = pl.DataFrame(with_count(read, "reading passages", "passages"), _TEXTS, orient="row")
    ids = texts["passage_id"]
    if ids.is_duplicated().any():
        raise UserError(f"The passage {ids.filter(ids.is_duplicated())[0]} appears twice in {source}")
    inputs = _inputs(source)
    files = [record.id for record in inputs]
    judgements = _judgements(source, ids)
    qrels: dict[str, pl.DataFrame] = {}
    test_sets, left_out, kept_tables = [], [], set()
    for entry in release.manifest.test_sets:
        split, queries = entry.qrels, release.test_sets[entry.name].queries
        if split not in qrels:
            whole = release.table("qrels", split)
            of_queries = judgements.filter(pl.col("query-id").is_in(whole["query-id"].implode())).cast(whole.schema)
            of_pool = whole.filter(pl.col("corpus-id").is_in(ids.implode()))
            qrels[split] = pl.concat([of_pool, of_queries]).unique(
                ["query-id", "corpus-id"], keep="first", maintain_order=True
            )
        relevant = qrels[split].filter(pl.col("score") >= 1)["query-id"]
        if not queries.is_in(relevant.implode()).all():
            left_out.append(entry.name)
        elif entry in of_shifts:
            test_sets.append(entry)
            kept_tables.update([entry.table, ("qrels", split)])
    if not test_sets:
        raise UserError(f"{source} lacks a relevant passage of some query of every test set of {release.folder}")
    text = f"the passages of {source.name}"
    names = {entry.name for entry in test_sets}
    variations, tables = [], []
    for variation in release.variations.values():
        if variation.base in names:
            variations.append(variation)
            kept_tables.add(("variations", variation.split))
    for entry_of_table in release.manifest.tables:
        if entry_of_table.key in kept_tables:
            table = _table(release, entry_of_table)
            if table.config == "qrels":
                rule_text = f"{table.rule.text}; of {text}"
                rule = structs.replace(table.rule, text=rule_text, inputs=[*table.rule.inputs, *files])
                table = replace(table, frame=qrels[table.split], rule=rule)
            tables.append(table)
    rule = Rule(text, _SOURCE, files, {"release": release.digest})
    remarks = [
        f"pool of {source.name}: how far figures on it are from those on all passages is unknown",
        f"lite: {texts.height:,} passages; not comparable with figures on all of them",
    ]
    if left_out:
        remarks.append(f"left out, as they lack a relevant passage of some query: {', '.join(left_out)}")
    tables.append(Table("passages", "passages", texts, rule))
    draft = _draft(release, SEED, test_sets, tables)
    return write(replace(draft, variations=variations, remarks=remarks, inputs=[*draft.inputs, *inputs]), out)


def _test_sets(release: Release, shifts: Collection[str]) -> list[TestSetEntry]:
    """The test sets of some shifts, each of which the release must have; all of them if none is named."""
    for shift in shifts:
        release.test_sets_of(shift)
    return [entry for entry in release.manifest.test_sets if not shifts or entry.shift in shifts]


def _tables(release: Release, test_sets: Sequence[TestSetEntry], queries: int | None, seed: int) -> list[Table]:
    """All tables not in ``_LEFT_OUT``; with ``queries`` only the test sets', with the rows of the queries drawn."""
    tables = [_table(release, entry) for entry in release.manifest.tables if entry.config not in _LEFT_OUT]
    if queries is None:
        return tables
    in_use: set[tuple[str, str]] = set()
    sample: set[str] = set()
    for test_set in test_sets:
        in_use.update([test_set.table, ("qrels", test_set.qrels)])
        ids = release.test_sets[test_set.name].queries
        sample.update(heapq.nsmallest(queries, ids, key=lambda query_id: _draw(seed, query_id)))
    parts = []
    for table in tables:
        if table.key in in_use:
            rows = table.frame.filter(pl.col(table.frame.columns[0]).is_in(sample))
            text = f"{table.rule.text}; of each test set {queries:,} queries, drawn at random (seed), all together"
            parts.append(replace(table, frame=rows, rule=structs.replace(table.rule, text=text)))
    return parts


def _open_encoder(model: str) -> tuple[str, Retriever]:
    """A dense encoder for the pool, and its name, before BM25 has indexed anything."""
    from eval_kit.models.opening import open_retriever

    try:
        retriever, _ = open_retriever(model)
    except UserError as error:
        raise UserError(
            f"{error}", do="Choose another encoder with --dense, runs with --pool, or --dense none"
        ) from error
    return Path(model.replace(":", ".")).name, retriever


def _passages(hits: Hits) -> set[str]:
    return {passage for _, found in hits for passage, _ in found}


def _best(path: Path, queries: pl.DataFrame, depth: int) -> set[str]:
    """The passages that a run ranks best for these queries, equal scores by id, descending, as in trec_eval."""
    run = pl.concat(read_pieces(path)).join(queries, on="query_id", how="semi")
    if not run.height:
        raise UserError(f"{path} covers none of the test queries", do="Check that it is a run of this release")
    by_score = run.sort("score", "passage_id", descending=True)
    return set(by_score.group_by("query_id", maintain_order=True).head(depth)["passage_id"])


def _judgements(source: Path, ids: pl.Series) -> pl.DataFrame:
    """``query-id``, ``corpus-id`` and ``score`` of all splits of a BEIR folder, of its passages."""
    frames = [pl.DataFrame(schema=QRELS_SCHEMA)]
    if source.is_dir():
        queries = set(read_queries(source / "queries.jsonl")["query_id"])
        for path in sorted((source / "qrels").glob("[!.]*.tsv")):
            frames.append(read_judgements(path, queries))
    return pl.concat(frames).filter(pl.col("corpus-id").is_in(ids.implode()))


def _inputs(source: Path) -> list[Input]:
    """Records of the files of somebody's passages and judgements, whose licence nobody states."""
    if not source.is_dir():
        return [input_record(source, source.name, NONE_STATED)]
    paths = [source / "corpus.jsonl", *sorted((source / "qrels").glob("[!.]*.tsv"))]
    name = source.resolve().name
    return [input_record(path, f"{name}/{path.relative_to(source).as_posix()}", NONE_IN_FOLDER) for path in paths]


def _draft(release: Release, seed: int, test_sets: Sequence[TestSetEntry], tables: Sequence[Table]) -> Draft:
    return Draft(
        kind="lite",
        version=release.version,
        collection=None,
        seed=seed,
        tables=tables,
        test_sets=test_sets,
        inputs=release.manifest.inputs,
        built_from=release.manifest.built_from or release.collection,
    )


def _table(release: Release, entry: TableEntry) -> Table:
    labels: dict[Any, pl.Enum] = {column.name: pl.Enum(column.labels) for column in entry.columns if column.labels}
    return Table(entry.config, entry.split, release.table(*entry.key).cast(labels), entry.rule)


def _read(release: Release, doing: str) -> Iterator[tuple[str, str]]:
    return with_count(passages(release), doing, "passages")


def _draw(seed: int, passage_id: str) -> bytes:
    # a hash does not depend on the order of millions of passages, of which a heap keeps a few
    return hashlib.sha256(f"{seed}\t{passage_id}".encode()).digest()


def _cautions(contributors: Collection[str], release: Release) -> list[str]:
    """What a reader of figures on a pool of these systems' best must know; nothing where queries have many labels."""
    if _labels_of_most(release) >= _SPARSE_LABELS:
        return []
    return [f"pool of {', '.join(contributors)}: {_ALONE if len(contributors) == 1 else _SEVERAL}"]


def _labels_of_most(release: Release) -> float:
    """The median over queries of their relevant labels: a few deeply judged queries do not count."""
    relevant = [release.qrels(split).filter(pl.col("relevance") > 0) for split in release.configs["qrels"]]
    counts = pl.concat(relevant).group_by("query_id").len()["len"]
    return float(counts.median() or 0)  # type: ignore[arg-type]
