"""Leaks between training and test, for every train/test pair of a release: ``eval_kit clean`` for each of them.

Query variations are also compared with all training queries: a spell-checker or a generator may turn a test query into
one that was trained on.

There are four kinds of leak (:mod:`eval_kit.stats.leaks`), each counted in *test queries* for which training holds at
least one: a query with equal text; one with the same text when normalised; a near-duplicate (equal queries count here
too); and a passage that is relevant to the test query (at each level of relevance) and labelled relevant to a training
query.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import polars as pl

from builder.release import VARIATIONS
from eval_kit.errors import UserError
from eval_kit.release import Release, Variation
from eval_kit.shifts import CLUSTERED, SHIFTS, TREC_DL
from eval_kit.stats import leaks
from eval_kit.tables.table import Column, Table, number_columns

EXAMPLES = 5
_STAND_IN = "other test queries"
PASSAGES = "passages ≥ {}"
_OF_TRAINING = ("restrain_", "topic_test", "wh_test")
"""How splits of training queries' judgements begin, besides ``train``: topic and wh are tested on queries held back."""
WHOLE = ("dl_typo", "dlhard")
"""Test sets that belong to no shift."""


@dataclass(frozen=True)
class Pair:
    """The queries that a model is trained on, and those that it is tested on.

    Attributes:
        name: for people, such as ``topic.c0 held out``.
        train: query ids, each once.
        test: query ids, each once.
        train_qrels: the split of the release's qrels that holds the training judgements; None if it has none.
        test_qrels: the split that holds the test judgements; None for other wordings of a test set's queries, where
            only texts are compared: near-duplicates and passages would be those of the test set.
    """

    name: str
    train: pl.Series
    test: pl.Series
    train_qrels: str | None
    test_qrels: str | None


def audit(release: Release) -> dict[str, Any]:
    """Look for leaks in every train/test pair of a release (see :func:`pairs`).

    Returns:
        The document that is written to ``reports/audit.json``.
    """
    to_compare = list(pairs(release))
    if not to_compare:
        raise UserError(f"{release.folder} has no two sets of queries to compare")
    queries = _queries(release)
    comparisons = []
    for pair in to_compare:
        train, test = (queries.filter(pl.col("query_id").is_in(ids.implode())) for ids in (pair.train, pair.test))
        comparisons.append(
            {
                "name": pair.name,
                "train": {"queries": len(pair.train), "with_text": train.height},
                "test": {"queries": len(pair.test), "with_text": test.height},
                "leaks": [*_texts(train, test, pair), *_passages(release, pair)],
            }
        )
    return {
        "release": {"version": release.version, "kind": release.manifest.kind, "digest": release.digest},
        "near": leaks.NEAR,
        "headline": _headline(comparisons),
        "pairs": comparisons,
        "shared": list(_shared(release)),
    }


def table(document: dict[str, Any]) -> Table:
    """An audit as a table: a row per pair, a column per kind of leak, with the number and share of test queries."""
    levels = sorted({leak["at_least"] for pair in document["pairs"] for leak in pair["leaks"] if "at_least" in leak})
    titles = ["equal", "normalised", "near", *map(PASSAGES.format, levels)]
    lines = []
    for pair in document["pairs"]:
        cells = dict.fromkeys(titles, "")
        for leak in pair["leaks"]:
            title = PASSAGES.format(leak["at_least"]) if "at_least" in leak else leak["kind"]
            cells[title] = "–" if leak["share"] is None else f"{leak['queries']:,} ({leak['share']:.1%})"
        lines.append([pair["name"], _count(pair["train"]), _count(pair["test"]), *cells.values()])
    columns = [Column("test queries that leak into training", wrap="never"), *number_columns("train", "test", *titles)]
    return Table(columns, [lines])


def shared_table(document: dict[str, Any]) -> Table | None:
    """CIKM 2022's Table 3, which has the figures of two passages or more; None without TREC DL or training queries."""
    rows = []
    for row in document["shared"]:
        name = f"{row['test_set']}, grade {row['grade']} or more"
        rows.append([name, *(f"{row[count] / row['queries']:.0%}" for count in ("one", "two")), f"{row['queries']:,}"])
    titles = ("one passage or more", "two or more", "n")
    columns = [Column("queries that share passages with training queries", wrap="never"), *number_columns(*titles)]
    return Table(columns, [rows]) if rows else None


def _shared(release: Release) -> Iterator[dict[str, Any]]:
    """Of each TREC DL year, how many queries have passages of a grade that are relevant to a training query at hand."""
    splits = [name for name in release.configs.get("qrels", []) if name.startswith(_OF_TRAINING) or name == "train"]
    labels = [release.qrels(split).filter(pl.col("relevance") >= 1).select("passage_id") for split in splits]
    for year in sorted(release.test_sets.keys() & TREC_DL) if labels else ():
        queries = release.test_sets[year].queries
        judged = release.qrels(year).filter(pl.col("query_id").is_in(queries.implode()))
        both = judged.join(pl.concat(labels), on="passage_id", how="semi")
        for grade in (3, 2, 1):
            passages = both.filter(pl.col("relevance") >= grade).group_by("query_id").len()["len"]
            counts = {"one": len(passages), "two": int((passages > 1).sum())}
            yield {"test_set": year, "grade": grade, "queries": len(queries), **counts}


def pairs(release: Release) -> Iterator[Pair]:
    """Every train/test pair of a release, as its benchmarks define them.

    Crossed: for each model, its training queries against its test queries. Topic, wh and length: for each held-out
    cluster, the training queries of the other clusters against the cluster's test queries; without training queries in
    the release, the test queries of the other clusters. ReSTTest: the training queries outside a bucket against the
    bucket's queries of each test split. ReSTrain: each set against each TREC DL year. Chameleons: all training queries
    against dev. DL-Typo, DL-HARD and the wordings of each method of variation, all replicas together: all training
    queries; without any, the test queries of the topic and wh clusters.
    """
    have = release.configs
    for shift in ("crossed", *CLUSTERED):
        yield from _held_out(release, shift)
    if "train" in have.get("resttest", []):
        for split in have["resttest"]:
            if split == "train" or split not in have.get("qrels", []):
                continue
            table = release.table("resttest", split).sort("bucket", maintain_order=True)
            for (bucket,), test in table.group_by("bucket", maintain_order=True):
                outside = SHIFTS["resttest"].training(release, str(bucket)).queries
                name = f"resttest.{bucket} held out, {split}"
                yield _pair(release, name, outside["query_id"], test["query_id"], "train", split)
    entries, years = release.manifest.test_sets, sorted(release.test_sets.keys() & TREC_DL)
    years = years or [entry.name for entry in entries if entry.config == "resttest" and entry.column is None]
    for part, year in product(have.get("restrain", []), years):
        train, test_set = SHIFTS["restrain"].training(release, part).queries["query_id"], release.test_sets[year]
        yield _pair(release, f"restrain.{part}, {year}", train, test_set.queries, f"restrain_{part}", test_set.qrels)
    trains = _queries_of(release, "train", *CLUSTERED, "resttest")
    for split in have.get("chameleons", []) if trains else ():
        hard_queries = release.table("chameleons", split)["query_id"]
        yield _pair(release, "chameleons", pl.concat(trains), hard_queries, "train", split)
    suffix = "" if trains else f", {_STAND_IN}"
    trains = trains or _queries_of(release, "test", "topic", "wh")
    if trains:
        train = pl.concat(trains).unique().sort()
        for name in sorted(release.test_sets.keys() & WHOLE):
            test_set = release.test_sets[name]
            yield _pair(release, f"{name}{suffix}", train, test_set.queries, "train", test_set.qrels)
        yield from _pairs_of_variations(release, train, suffix)


def _held_out(release: Release, shift: str) -> Iterator[Pair]:
    tables = SHIFTS[shift].training_tables(release)
    for name, test_set in release.test_sets.items():
        if test_set.shift != shift:
            continue
        cluster = name.removeprefix(f"{shift}.")
        if tables:
            title, outside, qrels = f"{name} held out", SHIFTS[shift].training(release, cluster).queries, "train"
        else:
            others = release.table(shift, "test").filter(pl.col("cluster") != cluster)
            title, outside, qrels = f"{name}, {_STAND_IN}", others, test_set.qrels
        if outside.height:
            yield _pair(release, title, outside["query_id"], test_set.queries, qrels, test_set.qrels)


def _queries_of(release: Release, split: str, *configs: str) -> list[pl.Series]:
    """The query ids of a split of each of the configs that have it."""
    return [release.table(config, split)["query_id"] for config in configs if split in release.configs.get(config, [])]


def _pairs_of_variations(release: Release, train: pl.Series, suffix: str) -> Iterator[Pair]:
    methods: dict[str, list[Variation]] = {}
    for variation in release.variations.values():
        methods.setdefault(f"{variation.base}.{variation.group}", []).append(variation)
    for method, replicas in methods.items():
        base = release.test_sets[replicas[0].base].queries
        ids = pl.concat(_wordings(release, variation)["query_id"] for variation in replicas)
        yield Pair(f"{method}{suffix}", train.filter(~train.is_in(base.implode())), ids, None, None)


def _wordings(release: Release, variation: Variation) -> pl.DataFrame:
    """``query_id`` and ``text``; the ids, which the test set has too, carry the variation's name."""
    name = pl.concat_str("query_id", pl.lit(f" ({variation.full_name})"))
    return release.wordings(variation).select(name.alias("query_id"), "text")


def _pair(release: Release, name: str, train: pl.Series, test: pl.Series, train_qrels: str, test_qrels: str) -> Pair:
    labels = train_qrels if train_qrels in release.configs.get("qrels", []) else None
    return Pair(name, train.unique().sort(), test.unique().sort(), labels, test_qrels)


def _queries(release: Release) -> pl.DataFrame:
    """``query_id``, ``text`` and ``normal`` of every query whose text the release has."""
    texts = [_wordings(release, variation) for variation in release.variations.values()]
    for entry in release.manifest.tables:
        if entry.config != VARIATIONS and {"query_id", "text"} <= set(release.table(*entry.key).columns):
            texts.append(release.table(*entry.key).select("query_id", "text"))
    # mis-decoded texts give an id several; the same one counts at every run
    distinct = pl.concat(texts).drop_nulls().sort("text").unique("query_id", keep="first").sort("query_id")
    return leaks.with_normal(distinct)


def _texts(train: pl.DataFrame, test: pl.DataFrame, pair: Pair) -> Iterator[dict[str, Any]]:
    """The leaks by texts; the examples of near-duplicates are still different after normalisation, nearest first."""
    of = test.height if train.height else 0
    flags = leaks.with_same(test, train)
    for kind in ("equal", "normalised"):
        yield _leak(kind, flags.filter(kind).select("query_id", "text"), of)
    if not (pair.test_qrels and of):
        yield _leak("near", flags.clear(), 0)
        return
    flags = leaks.with_near(flags, train, leaks.NEAR, f"comparing {pair.name}").filter("near")
    examples = flags.filter(~pl.col("normalised")).sort("cosine", "query_id", descending=[True, False]).head(EXAMPLES)
    examples = examples.select("query_id", "text", "cosine", train_text="nearest")
    yield _leak("near", flags, of) | {"examples": examples.to_dicts()}


def _passages(release: Release, pair: Pair) -> Iterator[dict[str, Any]]:
    """The leaks by passages: CIKM 2022 §3.2 counts a query from "at least one" on (its script from two)."""
    if pair.test_qrels is None:
        return
    qrels = release.qrels(pair.test_qrels)
    labels = qrels.clear() if pair.train_qrels is None else release.qrels(pair.train_qrels)
    relevant = pl.col("relevance") >= 1
    labels = labels.filter(relevant).join(pair.train.to_frame("query_id"), on="query_id", how="semi")
    judgements = qrels.filter(relevant).join(pair.test.to_frame("query_id"), on="query_id", how="semi")
    both = judgements.join(labels, on="passage_id", how="semi").sort("query_id", "passage_id")
    for level in sorted({1, *qrels["relevance"].filter(qrels["relevance"] > 1)}):
        leaking = both.filter(pl.col("relevance") >= level).unique("query_id", keep="first", maintain_order=True)
        of = len(pair.test) if pair.train_qrels else 0
        yield {"at_least": level} | _leak("passages", leaking.select("query_id", "passage_id"), of)


def _leak(kind: str, leaking: pl.DataFrame, of: int) -> dict[str, Any]:
    """One kind of leak, a row a query, of ``of`` test queries; ``of`` is 0 where it could not be checked."""
    share = leaking.height / of if of else None
    examples = leaking.head(EXAMPLES).to_dicts()
    return {"kind": kind, "queries": leaking.height, "of": of, "share": share, "examples": examples}


def _count(side: dict[str, int]) -> str:
    suffix = "" if side["with_text"] == side["queries"] else f" ({side['with_text']:,} with text)"
    return f"{side['queries']:,}{suffix}"


def _headline(comparisons: Sequence[dict[str, Any]]) -> str:
    """The worst share of each kind, over all pairs, and what limits the figures."""
    words = {
        "equal": "appear word for word in the training queries",
        "normalised": "do so apart from case, punctuation and spaces",
        "near": "have a near-duplicate there",
        "passages": "share a relevant passage with one",
    }
    clauses = []
    for kind, text in words.items():
        found = [
            (leak["share"], pair["name"])
            for pair in comparisons
            for leak in pair["leaks"]
            if leak["kind"] == kind and leak["share"] is not None
        ]
        if found:
            share, name = max(found, key=lambda item: item[0])
            clauses.append(f"up to {share:.1%} {text}" + (f" ({name})" if share else ""))
    stand_ins = sum(pair["name"].endswith(_STAND_IN) for pair in comparisons)
    textless = sum(pair["train"]["with_text"] < pair["train"]["queries"] for pair in comparisons)
    sentences = [
        f"In {len(comparisons)} pairs of training and test queries, of a pair's test queries {', '.join(clauses)}"
    ]
    if stand_ins:
        sentences.append(f"In {stand_ins} pairs other test queries stand in for missing training queries")
    if textless:
        sentences.append(
            f"In {textless} pairs the release lacks the text of some training queries, so the counts of equal "
            "queries and near-duplicates are lower bounds"
        )
    sentences.append(
        f"Near-duplicates have a cosine of at least {leaks.NEAR:g} (of trigrams): precision {leaks.PRECISION:.2f} and "
        f"recall {leaks.RECALL:.2f} on as many duplicate as different pairs, and a lower precision here, where each "
        "query is compared with many"
    )
    return "".join(f"{sentence}. " for sentence in sentences).rstrip()
