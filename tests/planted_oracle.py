"""A ranker that knows the words it was taught: the truth planted in a mini collection."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from builder.sources.mini import Mini
from builder.sources.mini.planted import ASPECTS, CLUSTERS

DEPTH = 100


def oracle_ranking(mini: Mini, shift: str, held_out: str | None, query_ids: Iterable[str]) -> pl.DataFrame:
    """Rank passages knowing exactly the synonyms of the training queries outside one cluster.

    The training queries are those of population train, not test, in a cluster of `shift` other than
    `held_out`; `held_out=None` knows every synonym. Returns query_id, passage_id, score with 100 rows
    for each query, best first, queries in the order of `queries`.

    Raises ValueError for an unknown shift, cluster or query id.
    """
    if shift not in CLUSTERS:
        raise ValueError(f"unknown shift {shift!r}: expected one of {', '.join(CLUSTERS)}")
    if held_out not in (None, *(clusters := CLUSTERS[shift])):
        raise ValueError(f"unknown {shift} cluster {held_out!r}: expected one of {', '.join(clusters)}")
    if held_out is None:
        return taught_ranking(mini, mini.queries["query_id"], query_ids)
    training = mini.queries.filter(~pl.col("test"), pl.col(shift) != held_out, population="train")
    return taught_ranking(mini, training["query_id"], query_ids)


def taught_ranking(mini: Mini, training: pl.Series, query_ids: Iterable[str]) -> pl.DataFrame:
    """As :func:`oracle_ranking`, knowing the synonyms of the queries whose ids are in `training`."""
    ids = pl.Series("query_id", list(query_ids), pl.String).unique(maintain_order=True)
    if unknown := ids.filter(~ids.is_in(mini.queries["query_id"].implode())).to_list():
        raise ValueError(f"unknown query id {unknown[0]!r} (and {len(unknown) - 1} more)")

    everything = mini.queries.hstack(_words(mini)).with_row_index("row")
    taught = everything.filter(pl.col("query_id").is_in(training.implode()))
    known = pl.col("literal") | pl.col("word").is_in(taught["word"].unique().implode())
    asked_for = everything.filter(pl.col("query_id").is_in(ids.implode())).select(
        "row", "head", "tail", wants=pl.when(known).then("aspect")
    )

    names = pl.concat(
        asked_for.select("row", "wants", name=name, importance=pl.lit(importance))
        for name, importance in (("head", 8.0), ("tail", 2.0))
    )
    on_aspect = pl.col("aspect").eq(pl.col("wants")).fill_null(False)
    named = (
        names.join(_names(mini), on="name")
        .group_by("row", "wants", "passage_id")
        .agg(match=(pl.col("importance") * pl.col("weight")).max())
        .join(_aspects(mini), on="passage_id")
        .select("row", "passage_id", score=pl.col("match") + 4.0 * on_aspect + pl.col("prior"))
    )
    passage = (pl.col("row").cast(pl.Int64) * 7_919 + pl.col("rank") * 104_729) % len(mini.passages)
    arbitrary = asked_for.join(pl.select(rank=pl.int_range(DEPTH)), how="cross").select(
        "row", passage_id=passage.cast(pl.String), score=-1.0 - pl.col("rank")
    )
    return (
        pl.concat([named, arbitrary])
        .group_by("row", "passage_id")
        .agg(pl.col("score").max())
        .sort("row", "score", "passage_id", descending=[False, True, True])
        .group_by("row", maintain_order=True)
        .head(DEPTH)
        .join(everything.select("row", "query_id"), on="row", maintain_order="left")
        .select("query_id", "passage_id", "score")
    )


def _words(mini: Mini) -> pl.DataFrame:
    """By row of the queries: head and tail (word numbers of the entity's name), aspect, word, literal."""
    entities, intents = mini.entities, mini.intents
    head = np.where(intents.typo, 0, entities.head[intents.entity])
    words = {"head": head, "tail": entities.tail[intents.entity], "aspect": intents.aspect, "word": intents.word}
    return pl.DataFrame({**words, "literal": intents.literal})


def _aspects(mini: Mini) -> pl.DataFrame:
    """Each passage's aspect, and the prior that parts equal ones."""
    return mini.passages.select("passage_id", aspect=mini.subjects.pair % ASPECTS, prior=mini.prior)


def _names(mini: Mini) -> pl.DataFrame:
    """The names in each passage: its entity's, and with less weight those of the entity it mentions."""
    parts = []
    for entity, weight in ((mini.subjects.entity, 1.0), (mini.subjects.mentioned, 0.8)):
        for names in mini.entities.names(entity).T:
            parts.append(mini.passages.select("passage_id", name=names, weight=pl.lit(weight)))
    return pl.concat(parts).filter(pl.col("name") != 0)
