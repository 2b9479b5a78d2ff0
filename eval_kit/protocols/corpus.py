"""What a BEIR folder's passages say of its judgements and of runs on it."""

from collections.abc import Collection, Mapping, Sequence

import polars as pl

from eval_kit.protocols.scores import Mean
from eval_kit.release import Release, TestSet
from eval_kit.release.beir_folder import CORPUS_FILE
from eval_kit.search.passages import passages as passages_of

_LARGEST = 64 << 20
"""Bytes of a corpus up to which relevant passages are looked for in it: half a second."""


def with_another_text(release: Release, test_sets: Collection[TestSet]) -> pl.Series:
    """The queries of which a passage with their id has another text, so that it is not the query itself."""
    texts = dict(pl.concat(release.queries(each.name) for each in test_sets).drop_nulls().iter_rows())
    found = (id for id, text in passages_of(release) if id in texts and not text.strip().endswith(texts[id].strip()))
    return pl.Series("query_id", list(found), pl.String)


def not_in_corpus(
    release: Release, means: Sequence[Mean], qrels: Mapping[str, pl.DataFrame]
) -> dict[str, dict[str, float]]:
    """Of each test set whose corpus lacks relevant passages: how many, of how many, and the most that R can be."""
    if (release.folder / CORPUS_FILE).stat().st_size > _LARGEST:
        return {}
    ids, found = pl.Series("passage_id", [id for id, _ in passages_of(release)], pl.String), {}
    for name in dict.fromkeys(mean.test_set for mean in means):
        test_set = release.test_sets[name]
        relevant = qrels[test_set.qrels].filter(
            pl.col("relevance") > 0, pl.col("query_id").is_in(test_set.queries.implode())
        )
        held = relevant.with_columns(held=pl.col("passage_id").is_in(ids.implode()))
        lacking = held.height - int(held["held"].sum())
        if lacking:
            most = held.group_by("query_id").agg(pl.col("held").mean())["held"].sum() / len(test_set.queries)
            found[name] = {"lacking": lacking, "of": held.height, "most": float(most)}
    return found
