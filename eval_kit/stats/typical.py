"""Clusters of queries, described by the words that are typical of each and by queries full of them."""

from dataclasses import asdict, dataclass

import polars as pl

from eval_kit.release import Release
from eval_kit.shifts import main_split, named
from eval_kit.tables.table import Column, Table, laid_out
from eval_kit.words import all_spaced

TERMS = 10
EXAMPLES = 3

_WORD = r"[\p{L}\p{N}][\p{L}\p{M}\p{N}'’-]*"
_UNNAMED = {"topic": "cluster", "resttest": "bucket"}
_TABLE = (
    Column("", "heading", "cluster"),
    Column("queries", "number", format=","),
    Column("typical words", source="terms", format=", ".join),
    Column("typical queries", source="examples", format="; ".join),
)
_FEWEST_WORDS = 4
"""In an example: a shorter query says less, and a single word can make it typical."""


@dataclass(frozen=True)
class Topic:
    """One cluster in words.

    Attributes:
        cluster: its name.
        queries: how many it has.
        terms: its most typical words, the most typical first.
        examples: texts of the queries whose words are most typical of it, each with a different most typical word.
    """

    cluster: str
    queries: int
    terms: list[str]
    examples: list[str]


def topics(
    queries: pl.DataFrame, label: str = "cluster", examples: int = EXAMPLES, without: frozenset[str] = frozenset()
) -> list[Topic]:
    """Say in words what each cluster is about.

    A word is typical by the z-score of its log-odds in the cluster's queries against all others', with all queries as
    the prior (Monroe, Colaresi and Quinn, "Fightin' Words", Political Analysis 2008, §3.5.1): words that are frequent
    everywhere score nothing, and rare ones little. A query counts a word once.

    Args:
        queries: ``query_id``, ``text`` and the cluster; a query of several clusters counts in each.
        label: the column of the cluster.
        examples: how many example queries each cluster gets.
        without: words that are no terms.

    Returns:
        In the order of the clusters' names; the same queries in another order give the same.
    """
    lower_case = all_spaced(queries["text"]).str.to_lowercase()
    words = (
        queries.select(label, "query_id", "text", word=lower_case.str.extract_all(_WORD))
        .explode("word")
        .drop_nulls("word")
        .unique([label, "query_id", "word"])
    )
    counts = words.group_by(label, "word").agg(count=pl.len().cast(pl.Float64))
    counts = counts.with_columns(
        of_cluster=pl.col("count").sum().over(label),
        of_word=pl.col("count").sum().over("word"),
        total=pl.col("count").sum(),
    )
    inside = pl.col("count") + pl.col("of_word")
    outside = 2 * pl.col("of_word") - pl.col("count")
    odds = (inside / (pl.col("of_cluster") + pl.col("total") - inside)).log()
    odds -= (outside / (2 * pl.col("total") - pl.col("of_cluster") - outside)).log()
    scores = counts.select(label, "word", score=odds / (1 / inside + 1 / outside).sqrt())
    all_topics = []
    for (cluster,), of_cluster in sorted(queries.group_by(label), key=lambda item: str(item[0][0])):
        typical = scores.filter(pl.col(label) == cluster).sort(["score", "word"], descending=[True, False])
        cluster_words = (
            words.filter(pl.col(label) == cluster).join(typical, on="word").sort("score", "word", descending=True)
        )
        rows = (
            cluster_words.group_by("query_id", "text", maintain_order=True)
            .agg(pl.col("score").mean(), pl.len(), word=pl.col("word").first())
            .filter(pl.col("len") >= _FEWEST_WORDS)
            .sort(["score", "query_id"], descending=[True, False])
            .unique("word", keep="first", maintain_order=True)
        )
        terms = [word for word in typical["word"].head(TERMS + len(without)) if word not in without][:TERMS]
        all_topics.append(Topic(str(cluster), of_cluster.height, terms, rows["text"].head(examples).to_list()))
    return all_topics


def about(release: Release, without: frozenset[str] = frozenset()) -> dict[str, Table]:
    """A table for each shift of the release whose parts' ids say nothing: typical words and queries of each part.

    ``without`` are words that are no terms.
    """
    tables = {}
    for shift, label in _UNNAMED.items():
        splits = release.configs.get(shift, [])
        split = "test" if shift == "topic" and "test" in splits else main_split(splits)
        if split:
            found = topics(release.table(shift, split), label, without=without)
            rows = [{**asdict(topic), "cluster": named(topic.cluster, release.manifest)} for topic in found]
            tables[shift] = laid_out(rows, _TABLE, title=f"What the parts of {shift} are about")
    return tables
