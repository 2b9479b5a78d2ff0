"""Leaks between training and test, for every train/test pair of a release.

Query variations are also compared with all training queries: a spell-checker or a generator may turn a test query into
one that was trained on.

There are four kinds of leak, each counted in *test queries* for which training holds at least one:

* equal: a training query with the same id or exactly the same text;
* normalised: one with the same text but for case, Unicode form (NFKC), punctuation and spaces (:func:`normalised`);
* near: one whose trigrams have a cosine of at least a threshold with the test query's (equal queries count here too);
* passages: a passage that is relevant to the test query (at each level of relevance) and labelled relevant to a
  training query. CIKM 2022 §3.2 defines it so: "at least one". The script released with that paper counts from two
  passages on, and the figures of its Table 3 fit the script.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import polars as pl

from builder.release import VARIATIONS
from eval_kit.errors import UserError
from eval_kit.release import Release, Variation
from eval_kit.release.reference import published_cells
from eval_kit.shifts import CLUSTERED, SHIFTS, TREC_DL
from eval_kit.stats import leaks
from eval_kit.tables.table import Column, Table, number_columns

EXAMPLES = 5
GRADES = (3, 2, 1)
TABLE_3 = "cikm2022-table3"
STAND_IN = "other test queries"
PASSAGES = "passages ≥ {}"
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

    Raises:
        UserError: the release has no pair.
    """
    to_compare = list(pairs(release))
    if not to_compare:
        raise UserError(f"{release.folder}: holds no two sets of queries to compare")
    queries = _queries(release, to_compare)
    comparisons = []
    for pair in to_compare:
        train, test = _with_text(queries, pair.train), _with_text(queries, pair.test)
        comparisons.append(
            {
                "name": pair.name,
                "train": {"queries": len(pair.train), "with_text": train.height},
                "test": {"queries": len(pair.test), "with_text": test.height},
                "leaks": [*_texts(train, test), _near(train, test, pair), *_passages(release, pair)],
            }
        )
    return {
        "release": {"version": release.version, "kind": release.manifest.kind, "digest": release.digest},
        "near": leaks.NEAR,
        "headline": _headline(comparisons),
        "pairs": comparisons,
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
    suffix = "" if trains else f", {STAND_IN}"
    trains = trains or _queries_of(release, "test", "topic", "wh")
    if trains:
        train = pl.concat(trains).unique().sort()
        for name in sorted(release.test_sets.keys() & WHOLE):
            test_set = release.test_sets[name]
            yield _pair(release, f"{name}{suffix}", train, test_set.queries, "train", test_set.qrels)
        yield from _pairs_of_variations(release, train, suffix)


def shared_passages(release: Release) -> dict[str, Any]:
    """Count the queries of each TREC DL year whose relevant passages are labelled relevant to a training query.

    The training queries are all that have judgements in the release: the train splits and ReSTrain's lists. The paper
    defines the overlap by "at least one" shared passage; its script counts from two on, and its figures fit the script.

    Returns:
        ``training_queries``; ``rows`` with ``test_set``, ``grade`` (the lowest that counts as relevant), ``queries``,
        ``at_least_one`` and ``at_least_two`` (shares of the queries) and ``published`` (the paper's share; None for
        a release whose queries are not the authors').

    Raises:
        UserError: the release has no training judgements, or no TREC DL year.
    """
    splits = [split for split in release.configs.get("qrels", []) if split == "train" or split.startswith("restrain_")]
    years = sorted(release.test_sets.keys() & TREC_DL)
    if not splits or not years:
        lacking = "judgements of training queries" if years else f"test set {' or '.join(TREC_DL)}"
        raise UserError(f"{release.folder}: holds no {lacking}")
    labels = pl.concat(map(release.qrels, splits)).filter(pl.col("relevance") >= 1)
    cells = published_cells(TABLE_3) if release.manifest.kind == "published" else []
    paper = {(cell["test_set"], cell["measure"]): cell["value"] for cell in cells}
    rows = []
    for year in years:
        test_set = release.test_sets[year]
        judgements = release.qrels(test_set.qrels).join(test_set.queries.to_frame(), on="query_id", how="semi")
        in_training = judgements.join(labels.select("passage_id").unique(), on="passage_id", how="semi")
        for grade in GRADES:
            passages = in_training.filter(pl.col("relevance") >= grade).group_by("query_id").len()["len"]
            rows.append(
                {
                    "test_set": year,
                    "grade": grade,
                    "queries": len(test_set.queries),
                    "at_least_one": len(passages) / len(test_set.queries),
                    "at_least_two": int((passages >= 2).sum()) / len(test_set.queries),
                    "published": paper.get((year, f"overlap(rel={grade})")),
                }
            )
    return {"training_queries": labels["query_id"].n_unique(), "rows": rows}


def shared_table(document: dict[str, Any]) -> Table:
    """These counts as a table, with the paper's figures in the last column."""
    names = ("grade", "queries", "at least one", "at least two", "published")
    lines = []
    for row in document["rows"]:
        in_paper = "–" if row["published"] is None else f"{row['published']:.0%}"
        shares = f"{row['at_least_one']:.0%}", f"{row['at_least_two']:.0%}", in_paper
        lines.append([row["test_set"], f"\u2265 {row['grade']}", str(row["queries"]), *shares])
    title = (
        "Test queries that share a relevant passage with training queries (CIKM 2022, Table 3): "
        f"{document['training_queries']:,} training queries, in the paper 502,939"
    )
    return Table([Column("test set"), *number_columns(*names)], [lines], title)


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
            title, outside, qrels = f"{name}, {STAND_IN}", others, test_set.qrels
        if outside.height:
            yield _pair(release, title, outside["query_id"], test_set.queries, qrels, test_set.qrels)


def _queries_of(release: Release, split: str, *configs: str) -> list[pl.Series]:
    """The query ids of a split of each of the configs that have it."""
    query_ids = []
    for config in configs:
        if split in release.configs.get(config, []):
            query_ids.append(release.table(config, split)["query_id"])
    return query_ids


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


def _queries(release: Release, to_compare: Sequence[Pair]) -> pl.DataFrame:
    """``query_id``, ``text`` and ``normal`` of every query of the pairs; null if unknown."""
    with_text = [_wordings(release, variation) for variation in release.variations.values()]
    for entry in release.manifest.tables:
        if entry.config != VARIATIONS and {"query_id", "text"} <= set(release.table(*entry.key).columns):
            with_text.append(release.table(*entry.key).select("query_id", "text"))
    ids = []
    for pair in to_compare:
        ids += [pair.train, pair.test]
    # mis-decoded texts give an id several; the same one counts at every run
    texts = pl.concat(with_text).drop_nulls().sort("text").unique("query_id", keep="first")
    distinct = pl.concat(ids).unique().sort().to_frame()
    return leaks.with_normal(distinct.join(texts, on="query_id", how="left", maintain_order="left"))


def _with_text(queries: pl.DataFrame, ids: pl.Series) -> pl.DataFrame:
    return queries.join(ids.to_frame(), on="query_id", how="semi", maintain_order="left").drop_nulls("text")


def _texts(train: pl.DataFrame, test: pl.DataFrame) -> Iterator[dict[str, Any]]:
    same_id = test.join(train.select("query_id", train_query_id="query_id", train_text="text"), on="query_id")
    for kind, column in (("equal", "text"), ("normalised", "normal")):
        same = leaks.same_text(test, train, column)
        yield _leak(kind, pl.concat([same_id.select(same.columns), same]), test.height if train.height else 0)


def _near(train: pl.DataFrame, test: pl.DataFrame, pair: Pair) -> dict[str, Any]:
    """The leak by near-duplicates; its examples are still different after normalisation, the nearest first."""
    if not (pair.test_qrels and train.height and test.height):
        return _leak("near", pl.DataFrame(schema={"query_id": pl.String}), 0)
    leaking = leaks.near(test, train, leaks.NEAR, f"comparing {pair.name}")
    examples = leaking.filter(~pl.col("same")).drop("same")
    return _leak("near", leaking, test.height) | {"examples": examples.head(EXAMPLES).to_dicts()}


def _passages(release: Release, pair: Pair) -> Iterator[dict[str, Any]]:
    if pair.test_qrels is None:
        return
    qrels = release.qrels(pair.test_qrels)
    labels = qrels.clear() if pair.train_qrels is None else release.qrels(pair.train_qrels)
    relevant = pl.col("relevance") >= 1
    judgements = qrels.filter(relevant).join(pair.test.to_frame(), on="query_id", how="semi")
    labels = labels.filter(relevant).join(pair.train.to_frame(), on="query_id", how="semi")
    both = judgements.join(labels.select("passage_id", train_query_id="query_id"), on="passage_id")
    for level in sorted({1, *qrels["relevance"].filter(qrels["relevance"] > 1)}):
        leaking = both.filter(pl.col("relevance") >= level).select("query_id", "train_query_id", "passage_id")
        yield {"at_least": level} | _leak("passages", leaking, len(pair.test) if pair.train_qrels else 0)


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
    worst: dict[str, tuple[float, str]] = {}
    stand_ins = textless = 0
    for pair in comparisons:
        stand_ins += pair["name"].endswith(STAND_IN)
        textless += pair["train"]["with_text"] < pair["train"]["queries"]
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
    if stand_ins:
        limits.append(f"In {stand_ins} pairs other test queries stand in for missing training queries.")
    if textless:
        limits.append(
            f"In {textless} pairs the release lacks the text of some training queries, so the counts of equal "
            "queries and near-duplicates are lower bounds."
        )
    limits.append(
        f"Near-duplicates have a cosine of at least {leaks.NEAR:g} (of trigrams): precision {leaks.PRECISION:.2f} and "
        f"recall {leaks.RECALL:.2f} on as many duplicate as different pairs, and a lower precision here, where each "
        "query is compared with many"
    )
    return (
        f"In {len(comparisons)} pairs of training and test queries, of a pair's test queries {', '.join(clauses)}. "
        f"{' '.join(limits)}."
    )
