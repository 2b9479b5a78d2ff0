"""Leaks between training and test, for every train/test pair of a release.

Query variations are also compared with all training queries: a spell-checker or a generator may turn a test query into
one that was trained on.

There are four kinds of leak, each counted in *test queries* for which training holds at least one:

* equal: a training query with the same id or exactly the same text;
* normalised: one with the same text but for case, Unicode form (NFKC), punctuation and spaces (:func:`normalised`);
* near: one whose vector has a cosine of at least a threshold with the test query's (equal queries count here too);
* passages: a passage that is relevant to the test query (at each level of relevance) and labelled relevant to a
  training query. CIKM 2022 §3.2 defines it so: "at least one". The script released with that paper counts from two
  passages on, and the figures of its Table 3 fit the script.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from builder.encode import encode
from builder.encoders import by_name, public_name
from builder.near_duplicates import THRESHOLDS, Rows, characters, nearest, words
from builder.release import VARIATIONS
from eval_kit.console import counting
from eval_kit.errors import UserError
from eval_kit.files.schemas import validate
from eval_kit.release import Release, Variation
from eval_kit.shifts import CLUSTERED, SHIFTS, TREC_DL
from eval_kit.tables.table import Column, Table

EXAMPLES = 5
ROUNDING = 1e-9
STAND_IN = "other test queries"
WHOLE = ("dl_typo", "dlhard")
"""Test sets that belong to no shift."""
DEFAULT = "characters"
SPARSE = {"characters": characters, "words": words}
"""Encoders that count the texts' own words or characters; all others come from :mod:`builder.encoders`."""


@dataclass(frozen=True)
class Pair:
    """The queries that a model is trained on, and those that it is tested on.

    Attributes:
        name: for people, such as ``topic.c0 held out``.
        train: query ids, each once.
        test: query ids, each once.
        train_qrels: splits of the release's qrels that hold the training judgements.
        test_qrels: the split that holds the test judgements; None for other wordings of a test set's queries, where
            only texts are compared: near-duplicates and passages would be those of the test set.
    """

    name: str
    train: pl.Series
    test: pl.Series
    train_qrels: Sequence[str]
    test_qrels: str | None


def audit(
    release: Release, near: float | None = None, encoder: str = DEFAULT, cache: Path | None = None
) -> dict[str, Any]:
    """Look for leaks in every train/test pair of a release (see :func:`pairs`).

    Args:
        release: from :func:`eval_kit.release.open_release`.
        near: the cosine from which two queries are near-duplicates; None for the encoder's measured threshold.
        encoder: of the queries: ``characters``, ``words``, or a name as :mod:`builder.encoders` takes it.
        cache: where vectors are kept; None keeps none.

    Returns:
        A document of the schema ``audit``.

    Raises:
        UserError: the threshold is not in 0 to 1 or is missing for this encoder, the release has no pair, or the
            encoder cannot be loaded.
    """
    measured = THRESHOLDS.get(encoder)
    if near is None and measured is None:
        raise UserError(f"no threshold was measured for the encoder {encoder!r}: give one with --near")
    near = measured.cosine if near is None and measured else near
    if near is None or not 0 < near <= 1:
        raise UserError(f"the threshold of near-duplicates must be above 0 and at most 1, not {near}")
    to_compare = list(pairs(release))
    if not to_compare:
        raise UserError(f"{release.folder}: holds no two sets of queries to compare")
    queries = _queries(release, to_compare)
    vectors, described = _vectors(queries.drop_nulls("row")["text"], encoder, cache)
    trained = sum(_with_text(queries, pair.train).height for pair in to_compare if pair.test_qrels)
    compared = []
    with counting("comparing queries", "queries", trained) as advance:
        for pair in to_compare:
            leaks = [*_texts(queries, pair), _near(queries, vectors, pair, near, advance), *_passages(release, pair)]
            sides = {"train": _side(queries, pair.train), "test": _side(queries, pair.test)}
            compared.append({"name": pair.name, **sides, "leaks": leaks})
    document = {
        "release": {"version": release.version, "kind": release.manifest["kind"], "digest": release.digest},
        "near": near,
        "encoder": described,
        "headline": _headline(compared, near, described["name"]),
        "pairs": compared,
    }
    validate("audit", document)
    return document


def table(document: dict[str, Any]) -> Table:
    """An audit as a table: a row per pair, a column per kind of leak, with the number and share of test queries."""
    levels = sorted({leak["at_least"] for pair in document["pairs"] for leak in pair["leaks"] if "at_least" in leak})
    kinds: list[tuple[str, int | None]] = [(kind, None) for kind in ("equal", "normalised", "near")]
    kinds += [("passages", level) for level in levels]
    titles = [kind if level is None else f"passages ≥ {level}" for kind, level in kinds]
    columns = [Column("test queries that leak into training", wrap="never")]
    columns += [Column(title, "number") for title in ("train", "test", *titles)]
    lines = []
    for pair in document["pairs"]:
        leaks = {(leak["kind"], leak.get("at_least")): leak for leak in pair["leaks"]}
        counts = [_counts(pair[side]) for side in ("train", "test")]
        lines.append([pair["name"], *counts, *(_cell(leaks.get(kind)) for kind in kinds)])
    return Table(columns, [lines])


def pairs(release: Release) -> Iterator[Pair]:
    """Every train/test pair of a release, as its benchmarks define them.

    Topic, wh and length: for each held-out cluster, the training queries of the other clusters against the cluster's
    test queries; without training queries in the release, the test queries of the other clusters. ReSTTest: the
    training queries outside a bucket against the bucket's queries of each test split. ReSTrain: each set against each
    TREC DL year. Chameleons: all training queries against dev. DL-Typo, DL-HARD and the wordings of each method of
    variation, all replicas together: all training queries; without any, the test queries of the topic and wh clusters.
    """
    have = release.configs
    for shift in CLUSTERED:
        yield from _held_out(release, shift)
    if "train" in have.get("resttest", []):
        for split in (name for name in have["resttest"] if name != "train" and name in have["qrels"]):
            for bucket, test in _parts(release.table("resttest", split), "bucket"):
                outside = SHIFTS["resttest"].training(release, bucket).queries
                yield _pair(release, f"resttest.{bucket} held out, {split}", outside, test, ["train"], split)
    for name in have.get("restrain", []):
        for split in [name for name in TREC_DL if name in release.test_sets] or [*_whole_splits(release)]:
            test_set = release.test_sets[split]
            test, train = test_set.queries.to_frame(), SHIFTS["restrain"].training(release, name).queries
            yield _pair(release, f"restrain.{name}, {split}", train, test, [f"restrain_{name}"], test_set.qrels)
    trains = [release.table(config, "train") for config in (*CLUSTERED, "resttest") if "train" in have.get(config, [])]
    for split in have.get("chameleons", []) if trains else ():
        train = pl.concat(table.select("query_id") for table in trains)
        yield _pair(release, "chameleons", train, release.table("chameleons", split), ["train"], split)
    suffix = "" if trains else f", {STAND_IN}"
    trains = trains or [release.table(config, "test") for config in ("topic", "wh") if "test" in have.get(config, [])]
    if trains:
        train = pl.concat(table.select("query_id") for table in trains)
        for test_set in (release.test_sets[name] for name in WHOLE if name in release.test_sets):
            queries = test_set.queries.to_frame()
            yield _pair(release, f"{test_set.name}{suffix}", train, queries, ["train"], test_set.qrels)
        yield from _worded(release, train["query_id"].unique().sort(), suffix)


def normalised(text: str) -> str:
    """A text as compared for "the same query": NFKC, case folded, without apostrophes, words one space apart.

    All other punctuation (Unicode's categories P) separates words, as blanks do; symbols such as + are kept.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    words = "".join(_without_punctuation(char) for char in folded).split()
    return unicodedata.normalize("NFKC", " ".join(words))


def _held_out(release: Release, shift: str) -> Iterator[Pair]:
    tests = {name: test_set for name, test_set in release.test_sets.items() if test_set.shift == shift}
    trained = SHIFTS[shift].training_tables(release)
    for name, test_set in tests.items():
        cluster = name.removeprefix(f"{shift}.")
        if trained:
            outside = SHIFTS[shift].training(release, cluster).queries
        else:
            outside = release.table(shift, "test").filter(pl.col("cluster") != cluster)
        title = f"{name} held out" if trained else f"{name}, {STAND_IN}"
        qrels = ["train"] if trained else [test_set.qrels]
        if outside.height:
            yield _pair(release, title, outside, test_set.queries.to_frame(), qrels, test_set.qrels)


def _worded(release: Release, train: pl.Series, suffix: str) -> Iterator[Pair]:
    methods: dict[str, list[Variation]] = {}
    for variation in release.variations.values():
        methods.setdefault(f"{variation.base}.{variation.group}", []).append(variation)
    for method, replicas in methods.items():
        base = release.test_sets[replicas[0].base].queries
        worded = pl.concat(_wordings(release, variation)["query_id"] for variation in replicas)
        yield Pair(f"{method}{suffix}", train.filter(~train.is_in(base.implode())), worded, [], None)


def _wordings(release: Release, variation: Variation) -> pl.DataFrame:
    """``query_id`` and ``text``; the ids, which the test set has too, carry the variation's name."""
    named = pl.concat_str("query_id", pl.lit(f" ({variation.full_name})"))
    return release.wordings(variation).select(named.alias("query_id"), "text")


def _whole_splits(release: Release) -> Iterator[str]:
    for entry in release.manifest["test_sets"]:
        if entry["config"] == "resttest" and "column" not in entry:
            yield entry["name"]


def _parts(table: pl.DataFrame, column: str) -> Iterator[tuple[str, pl.DataFrame]]:
    for part in table.sort(column, maintain_order=True).partition_by(column, maintain_order=True):
        yield part[column][0], part


def _pair(
    release: Release, name: str, train: pl.DataFrame, test: pl.DataFrame, train_qrels: list[str], test_qrels: str
) -> Pair:
    splits = [split for split in train_qrels if split in release.configs.get("qrels", [])]
    return Pair(name, train["query_id"].unique().sort(), test["query_id"].unique().sort(), splits, test_qrels)


def _queries(release: Release, to_compare: Sequence[Pair]) -> pl.DataFrame:
    """``query_id``, ``text``, ``normal`` and ``row`` (of the vectors) of every query of the pairs; null if unknown.

    Queries that are compared by text only have no row.
    """
    tables = [
        release.table(table["config"], table["split"])
        for table in release.manifest["tables"]
        if table["config"] != VARIATIONS
    ]
    with_text = [table.select("query_id", "text") for table in tables if {"query_id", "text"} <= set(table.columns)]
    with_text += [_wordings(release, variation) for variation in release.variations.values()]
    ids = [*(pair.train for pair in to_compare), *(pair.test for pair in to_compare)]
    texts = pl.concat(with_text).drop_nulls().sort("text").unique("query_id", keep="first")
    distinct = pl.concat(ids).unique().sort().to_frame()
    queries = distinct.join(texts, on="query_id", how="left", maintain_order="left")
    with_vectors = pl.concat([pl.concat([pair.train, pair.test]) for pair in to_compare if pair.test_qrels])
    known = pl.col("text").is_not_null() & pl.col("query_id").is_in(with_vectors.unique().implode())
    return queries.with_columns(
        normal=pl.Series([None if text is None else normalised(text) for text in queries["text"]], dtype=pl.String),
        row=pl.when(known).then(known.cum_sum().cast(pl.Int64) - 1),
    )


def _vectors(texts: pl.Series, encoder: str, cache: Path | None) -> tuple[Rows, dict[str, str]]:
    """The vectors of the texts, and their description for the report."""
    if encoder in SPARSE:
        import sklearn

        return SPARSE[encoder](texts.to_list()), {"name": encoder, "revision": f"scikit-learn {sklearn.__version__}"}
    chosen = by_name(encoder)
    return encode(texts, chosen, cache), {"name": public_name(chosen), "revision": chosen.revision}


def _with_text(queries: pl.DataFrame, ids: pl.Series) -> pl.DataFrame:
    return queries.join(ids.to_frame(), on="query_id", how="semi", maintain_order="left").drop_nulls("text")


def _side(queries: pl.DataFrame, ids: pl.Series) -> dict[str, int]:
    return {"queries": len(ids), "with_text": _with_text(queries, ids).height}


def _texts(queries: pl.DataFrame, pair: Pair) -> Iterator[dict[str, Any]]:
    train, test = _with_text(queries, pair.train), _with_text(queries, pair.test)
    names = {"query_id": "train_query_id", "text": "train_text"}
    same_id = test.join(train.select("query_id", **{new: old for old, new in names.items()}), on="query_id")
    for kind, key in (("equal", "text"), ("normalised", "normal")):
        renamed = train.select(pl.col(key), *(pl.col(old).alias(new) for old, new in names.items()))
        same = test.join(renamed, on=key)
        columns = ["query_id", "text", *names.values()]
        leaking = pl.concat([same_id.select(columns), same.select(columns)])
        yield _leak(kind, leaking, test.height if train.height else 0)


def _near(queries: pl.DataFrame, vectors: Rows, pair: Pair, near: float, advance: Any) -> dict[str, Any]:
    """The leak by near-duplicates; its examples are still different after normalisation, the nearest first."""
    train, test = _with_text(queries, pair.train), _with_text(queries, pair.test)
    if not (pair.test_qrels and train.height and test.height):
        return _leak("near", pl.DataFrame(schema={"query_id": pl.String}), 0)
    cosines, rows = nearest(vectors[test["row"].to_numpy()], vectors[train["row"].to_numpy()], advance)
    neighbours = train[rows]
    leaking = test.with_columns(
        neighbours["query_id"].alias("train_query_id"),
        neighbours["text"].alias("train_text"),
        pl.Series("cosine", cosines.round(6)),
        (test["normal"] == neighbours["normal"]).alias("same"),
    ).filter(pl.Series(cosines >= near - ROUNDING))
    novel = leaking.filter(~pl.col("same")).sort("cosine", "query_id", descending=[True, False])
    shown = novel.select("query_id", "text", "train_query_id", "train_text", "cosine")
    return _leak("near", leaking, test.height) | {"examples": shown.head(EXAMPLES).to_dicts()}


def _passages(release: Release, pair: Pair) -> Iterator[dict[str, Any]]:
    if pair.test_qrels is None:
        return
    qrels = release.qrels(pair.test_qrels)
    judged = qrels.join(pair.test.to_frame(), on="query_id", how="semi")
    empty = pl.DataFrame(schema={"train_query_id": pl.String, "passage_id": pl.String})
    labelled = [
        release.qrels(split)
        .filter(pl.col("relevance") >= 1)
        .join(pair.train.to_frame(), on="query_id", how="semi")
        .select(pl.col("query_id").alias("train_query_id"), "passage_id")
        for split in pair.train_qrels
    ]
    shared = judged.filter(pl.col("relevance") >= 1).join(pl.concat([empty, *labelled]), on="passage_id")
    for level in sorted({1, *qrels["relevance"].filter(qrels["relevance"] > 1)}):
        leaking = shared.filter(pl.col("relevance") >= level).select("query_id", "train_query_id", "passage_id")
        yield {"at_least": level} | _leak("passages", leaking, len(pair.test) if labelled else 0)


def _leak(kind: str, leaking: pl.DataFrame, of: int) -> dict[str, Any]:
    """One kind of leak: how many of ``of`` test queries it concerns; ``of`` is 0 where it could not be checked."""
    each = leaking.sort(leaking.columns).unique("query_id", keep="first", maintain_order=True)
    return {
        "kind": kind,
        "queries": each.height,
        "of": of,
        "share": each.height / of if of else None,
        "examples": each.head(EXAMPLES).to_dicts(),
    }


def _counts(side: dict[str, int]) -> str:
    known = "" if side["with_text"] == side["queries"] else f" ({side['with_text']:,} with text)"
    return f"{side['queries']:,}{known}"


def _cell(leak: dict[str, Any] | None) -> str:
    if leak is None:
        return ""
    return "–" if leak["share"] is None else f"{leak['queries']:,} ({leak['share']:.1%})"


def _headline(compared: Sequence[dict[str, Any]], near: float, encoder: str) -> str:
    """The worst share of each kind, over all pairs, and what limits the figures."""
    words = {
        "equal": "appear word for word in the training queries",
        "normalised": "do so apart from case, punctuation and spaces",
        "near": "have a near-duplicate there",
        "passages": "share a relevant passage with one",
    }
    worst: dict[str, tuple[float, str]] = {}
    for pair in compared:
        for leak in pair["leaks"]:
            kind, share = leak["kind"], leak["share"]
            if share is not None and (kind not in worst or share > worst[kind][0]):
                worst[kind] = share, pair["name"]
    clauses = []
    for kind, text in words.items():
        if kind in worst:
            share, name = worst[kind]
            clauses.append(f"up to {share:.1%} {text}" + (f" ({name})" if share else ""))
    limits = []
    if stand_ins := sum(pair["name"].endswith(STAND_IN) for pair in compared):
        limits.append(f"In {stand_ins} pairs other test queries stand in for missing training queries.")
    if textless := sum(pair["train"]["with_text"] < pair["train"]["queries"] for pair in compared):
        limits.append(
            f"In {textless} pairs the release lacks the text of some training queries, so the counts of equal "
            "queries and near-duplicates are lower bounds."
        )
    limits.append(f"Near-duplicates have a cosine of at least {near:g} ({encoder})")
    measured = THRESHOLDS.get(encoder)
    if measured and near == measured.cosine:
        limits[-1] += (
            f": precision {measured.precision:.2f} and recall {measured.recall:.2f} on as many duplicate as different "
            "pairs, and a lower precision here, where each query is compared with many"
        )
    return (
        f"In {len(compared)} pairs of training and test queries, of a pair's test queries {', '.join(clauses)}. "
        f"{' '.join(limits)}."
    )


@cache
def _without_punctuation(char: str) -> str:
    if char in "'\u2019":
        return ""
    return " " if unicodedata.category(char).startswith("P") else char
