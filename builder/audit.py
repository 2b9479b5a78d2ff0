"""Leaks between training and test, for every train/test pair of a release: :mod:`eval_kit.protocols.clean` for each.

A passage leaks that is relevant to a test query and labelled relevant to a training query (CIKM 2022 §3.2).

Query variations are compared with all training queries, by equal texts alone: a spell-checker or a generator may turn a
test query into one that was trained on, but near-duplicates and passages would be those of the test set.
"""

from collections.abc import Iterator
from itertools import groupby, product
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import polars as pl

from builder.release import VARIATIONS
from eval_kit.errors import UserError
from eval_kit.protocols.clean import KINDS, Clean, flagged, of_test_set, with_share
from eval_kit.release import Release
from eval_kit.shifts import CLUSTERED, SHIFTS, CrossedHoldOuts, Shift
from eval_kit.stats import leaks
from eval_kit.tables.table import Column, Fields, Table, laid_out

_STAND_IN = "other test queries"
WHOLE = ("dl_typo", "dlhard")
"""Test sets that belong to no shift."""
_WORDS = (
    "appear word for word in the training queries",
    "do so apart from case, punctuation and spaces",
    "have a near-duplicate there",
    "share a relevant passage with one",
)
"""Of each kind of leak."""


class Pair(NamedTuple):
    """Ids of the queries that a model is trained and tested on (or other wordings), and the splits of their qrels."""

    name: str
    train: pl.Series
    test: pl.Series | pl.DataFrame
    train_qrels: str | None = None
    test_qrels: str | None = None


def audit(release: Release) -> dict[str, Any]:
    """Look for leaks in every train/test pair of a release (see :func:`pairs`).

    Returns:
        The document that is written to ``reports/audit.json``; a count is null where the release lacks what it needs.
    """
    texts, frames, sizes = _texts(release), [], []
    for pair in pairs(release):
        known = texts.filter(pl.col("query_id").is_in(pair.train.implode()))
        if isinstance(pair.test, pl.DataFrame):
            ids, flags = pair.test["query_id"], flagged(leaks.with_normal(pair.test), known)
        else:
            ids = pair.test.unique().sort()
            asked = texts.filter(pl.col("query_id").is_in(ids.implode()))
            flags = flagged(asked, known, leaks.NEAR, f"comparing {pair.name}")
        frames.append(of_test_set(pair.name, ids, flags, _sharing(release, pair)))
        sizes.append((pair.name, pair.train.n_unique(), known.height))
    if not frames:
        raise UserError(f"{release.folder} has no two sets of queries to compare")
    training = pl.DataFrame(sizes, ["test_set", "train", "with_text"], orient="row")
    counts = training.join(Clean(pl.concat(frames), {}).counts(), on="test_set", maintain_order="left")
    rows = counts.select(pl.col("test_set").alias("name"), "train", "with_text", "queries", *KINDS).to_dicts()
    return {
        "release": {"version": release.version, "kind": release.manifest.kind, "digest": release.digest},
        "near": leaks.NEAR,
        "headline": _headline(rows),
        "pairs": rows,
    }


def table(document: dict[str, Any]) -> Table:
    """An audit as a table: a row per pair, a column per kind of leak, with the number and share of test queries."""
    columns = [Column("test queries that leak into training", source="name", wrap="never")]
    columns += [Column("train", "number", lambda row: f"{row['train']:,}" + _lacking(row))]
    columns += [Column("test", "number", source="queries", format=",")]
    columns += [Column(kind, "number", with_share(kind)) for kind in KINDS]
    return laid_out(pl.DataFrame(document["pairs"], infer_schema_length=None), columns)


def pairs(release: Release) -> Iterator[Pair]:
    """Every train/test pair of a release, as its benchmarks define them.

    Of each shift, what the model without a part trains on, and the part's test queries (of ReSTrain, the test queries
    of each TREC DL year); without training queries, for topic, wh and length, the test queries of the other clusters.
    Chameleons: all training queries against dev. DL-Typo, DL-HARD and the wordings of each method of variation, all
    replicas together: all training queries; without any, the test queries of the topic and wh clusters.
    """
    for shift in SHIFTS.values():
        yield from _pairs_of(release, shift)
    trains, suffix = _queries_of(release, "train", *CLUSTERED, "resttest"), ""
    for split in release.configs.get("chameleons", []) if trains else ():
        yield Pair("chameleons", pl.concat(trains), release.table("chameleons", split)["query_id"], "train", split)
    if not trains:
        trains, suffix = _queries_of(release, "test", "topic", "wh"), f", {_STAND_IN}"
    train = pl.concat(trains) if trains else pl.Series()
    for name in sorted(release.test_sets.keys() & WHOLE) if trains else ():
        yield Pair(name + suffix, train, release.test_sets[name].queries, "train", release.test_sets[name].qrels)
    method, variations = attrgetter("base", "group"), release.variations.values()
    for (base, group), replicas in groupby(sorted(variations, key=method), method) if trains else ():
        others = train.filter(~train.is_in(release.test_sets[base].queries.implode()))
        # a query has the same id in each replica
        named = ((each, pl.concat_str("query_id", pl.lit(f" ({each.full_name})"))) for each in replicas)
        wordings = [release.wordings(each).select(query_id, "text") for each, query_id in named]
        yield Pair(f"{base}.{group}{suffix}", others, pl.concat(wordings))


def _pairs_of(release: Release, shift: Shift) -> Iterator[Pair]:
    trained = shift.training_tables(release)
    stand_ins = shift.has_clusters and not trained and "test" in release.configs.get(shift.name, [])
    qrels = {entry.table: entry.qrels for entry in release.manifest.test_sets}
    parts = shift.parts(release) if stand_ins else list(trained)
    for part, (config, split) in product(parts, shift.test_tables(release)):
        name, rows = f"{shift.name}.{part}", release.table(config, split)
        test, test_qrels = rows, qrels.get((config, split))
        if isinstance(shift, CrossedHoldOuts):
            test = rows.filter(pl.col(part) != "train")
        elif shift.label:
            test = rows.filter(pl.col(shift.label) == part)
        if stand_ins:
            name, train_qrels = f"{name}, {_STAND_IN}", test_qrels
            train = rows.filter(pl.col(shift.label) != part)
        else:
            name += " held out" * bool(shift.label) + f", {split}" * (config == "resttest")
            train, train_qrels = shift.training(release, part).queries, shift.training_qrels(part)
        if train.height and test.height:
            yield Pair(name, train["query_id"], test["query_id"], train_qrels, test_qrels)


def _queries_of(release: Release, split: str, *configs: str) -> list[pl.Series]:
    """The query ids of a split of each of the configs that have it."""
    return [release.table(config, split)["query_id"] for config in configs if split in release.configs.get(config, [])]


def _texts(release: Release) -> pl.DataFrame:
    """``query_id``, ``text`` and ``normal`` of every query whose text the release has in any table."""
    tables = (release.table(*entry.key) for entry in release.manifest.tables if entry.config != VARIATIONS)
    texts = [table.select("query_id", "text") for table in tables if {"query_id", "text"} <= set(table.columns)]
    # mis-decoded texts give an id several; the same one counts at every run
    distinct = pl.concat(texts).drop_nulls().sort("text").unique("query_id", keep="first").sort("query_id")
    return leaks.with_normal(distinct)


def _sharing(release: Release, pair: Pair) -> pl.Series | None:
    """Test queries that have a relevant passage in common with training; None where either is not judged."""
    if pair.test_qrels is None or pair.train_qrels not in release.configs.get("qrels", []):
        return None
    relevant = pl.col("relevance") >= 1
    labels = release.qrels(pair.train_qrels).filter(relevant, pl.col("query_id").is_in(pair.train.implode()))
    judged = release.qrels(pair.test_qrels).filter(relevant)
    return judged.join(labels, on="passage_id", how="semi")["query_id"]


def _lacking(row: Fields) -> str:
    return f" ({row['with_text']:,} with text)" * bool(row["with_text"] < row["train"])


def _headline(rows: list[dict[str, Any]]) -> str:
    """The worst share of each kind, over all pairs, and what limits the figures."""
    clauses = []
    for kind, text in zip(KINDS, _WORDS, strict=True):
        if found := [(row[kind] / row["queries"], row["name"]) for row in rows if row[kind] is not None]:
            share, name = max(found, key=itemgetter(0))
            clauses.append(f"up to {share:.1%} {text}" + (f" ({name})" if share else ""))
    text = f"In {len(rows)} pairs of training and test queries, of a pair's test queries {', '.join(clauses)}. "
    if stand_ins := sum(row["name"].endswith(_STAND_IN) for row in rows):
        text += f"In {stand_ins} pairs other test queries stand in for missing training queries. "
    if textless := sum(map(bool, map(_lacking, rows))):
        text += f"In {textless} pairs the release lacks the text of some training queries, so the counts of equal "
        text += "queries and near-duplicates are lower bounds. "
    text += f"Near-duplicates have a cosine of at least {leaks.NEAR:g} (of trigrams): precision {leaks.PRECISION:.2f} "
    text += f"and recall {leaks.RECALL:.2f} on as many duplicate as different pairs, and a lower precision here, where "
    return text + "each query is compared with many."
