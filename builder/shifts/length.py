"""The query-length shift: short and long queries (ECIR 2023 §3.1, "Short and Long Queries").

The paper splits at the median of 6 words; the published test sets follow, without exception, the rule
"short if splitting at single spaces gives at most 5 words" (double spaces therefore count).
"""

from dataclasses import dataclass

import polars as pl

from builder.assembly import FEWEST_TESTED, Build, ShiftResult, check_clusters, interval_remark
from builder.validation import check_share, draw_ids
from eval_kit.authors.lists import LENGTH_RULE as RULE
from eval_kit.authors.lists import LENGTH_SOURCE as SOURCE
from eval_kit.authors.lists import LENGTHS as CLUSTERS
from eval_kit.authors.lists import LONGEST_SHORT
from eval_kit.errors import UserError
from eval_kit.shifts import main_split
from eval_kit.words import SPACELESS, all_spaced

DRAWN = "; of a cluster larger than the size a random part (seeded)"
LIMITS = (
    "Membership is a rule without exception on the released test sets, and is the same for every query; the test "
    "queries are dev-small, so nothing is drawn. Which training queries were kept is not stated.",
    "The paper says 'median length of 6 words'; the released lists have up to 5 words in short, counted between "
    "single spaces.",
)
"""What no rebuild can reproduce of the published lists, and why."""


@dataclass(frozen=True)
class LengthParameters:
    """Training-set size from arXiv 2205.02870 §3.1; our share of test queries for collections without
    dev or test."""

    words: int = LONGEST_SHORT
    size: int = 100_000
    test_share: float = 0.2
    seed: int = 13


def lengths(texts: pl.Series) -> pl.Series:
    """Words of each text between single spaces; pairs of characters where a script has no spaces."""
    spread = all_spaced(texts).str.strip_chars().zip_with(texts.str.contains(SPACELESS), texts)
    return spread.str.count_matches(" ", literal=True) + 1


def even_cut(texts: pl.Series) -> int:
    """The length up to which queries are short, such that short and long have the most equal numbers."""
    counts = lengths(texts).value_counts(sort=False).sort(texts.name)
    shares = counts["count"].cum_sum() / texts.len()
    return int(counts[texts.name][(shares - 0.5).abs().arg_min() or 0])


def cluster(texts: pl.Series, longest_short: int = LONGEST_SHORT) -> pl.Series:
    """The cluster, ``short`` or ``long``, of each query text."""
    words = lengths(texts)
    label = pl.when(words <= longest_short).then(pl.lit("short")).otherwise(pl.lit("long"))
    return pl.select(cluster=label.cast(pl.Enum(CLUSTERS))).to_series()


def assign(
    train: pl.DataFrame, dev: pl.DataFrame | None = None, parameters: LengthParameters = LengthParameters()
) -> dict[str, pl.DataFrame]:
    """Cluster of each query, by split.

    Without ``dev``, a share of the training queries is held back. Returns ``train`` and ``test``, each with
    ``query_id``, ``text``, ``cluster`` (Enum short, long).
    """
    check_share(parameters.test_share)
    if parameters.size < 1:
        raise UserError(f"A length cluster must have at least one query, not {parameters.size}")
    if dev is None:
        count = round(parameters.test_share * train.height)
        test = pl.col("query_id").is_in(draw_ids(train["query_id"], count, parameters.seed, "length test").implode())
        train, dev = train.filter(~test), train.filter(test)
    train, dev = (rows.select("query_id", "text", cluster(rows["text"], parameters.words)) for rows in (train, dev))
    samples = []
    for name in CLUSTERS:
        members = train["query_id"].filter(train["cluster"] == name)
        samples.append(draw_ids(members, parameters.size, parameters.seed, f"length {name}"))
    return {"train": train.filter(pl.col("query_id").is_in(pl.concat(samples).implode())), "test": dev}


def lacking(build: Build) -> str:
    """What the collection lacks for the length shift; empty if nothing."""
    enough = build.train.height or main_split(build.collection.evaluation)
    return "" if enough else f"{build.collection.name} has no train, dev or test split with judgements"


def rebuild(build: Build, parameters: LengthParameters) -> ShiftResult:
    """The shift's tables; if the collection has dev, else test, its queries are the test queries.

    Without training queries there is no training set.
    """
    split = main_split(build.collection.evaluation)
    dev = build.collection.evaluation[split] if split else None
    parts = assign(build.train, dev, parameters)
    parts = {split: queries for split, queries in parts.items() if queries.height}
    remarks = []
    if build.disjoint_passages and "train" in parts:
        test_ids = _relevant(build, split or "train", parts["test"])
        sharing = _relevant(build, "train", parts["train"]).join(test_ids, on="corpus-id", how="semi")
        parts["train"] = parts["train"].join(sharing, left_on="query_id", right_on="query-id", how="anti")
        left_out = sharing["query-id"].n_unique()
        remarks.append(
            f"length: {left_out:,} training queries left out that share a relevant passage with a test query"
        )
    check_clusters("length", parts)
    sizes = parts["test"]["cluster"].value_counts().sort("cluster")["count"].to_list()
    if min(sizes) < FEWEST_TESTED and "length" not in build.required:
        shares = " and ".join(f"{size:,} {name}" for size, name in zip(sizes, CLUSTERS, strict=True))
        raise UserError(
            f"{shares} test queries are too few, cut at {parameters.words} words between blanks",
            do="Choose another cut with --set length.words",
        )
    rule = build.rule(RULE.replace(f"= {LONGEST_SHORT},", f"= {parameters.words},") + DRAWN, SOURCE, parameters)
    tables = [build.table("length", split, queries, ["cluster"], rule) for split, queries in parts.items()]
    if dev is None:
        tables += build.qrels("length_test", "train", parts["test"])
    return ShiftResult(tables, [*remarks, interval_remark("length", sizes)])


def _relevant(build: Build, split: str, queries: pl.DataFrame) -> pl.DataFrame:
    pairs = build.pairs(split).filter(pl.col("score") > 0)
    return pairs.join(queries, left_on="query-id", right_on="query_id", how="semi")
