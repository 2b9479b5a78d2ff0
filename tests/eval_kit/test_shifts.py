"""The training sets of the published lists are the authors', the same for ir_datasets and the baselines."""

import pytest

from eval_kit.release import Release
from eval_kit.shifts import SHIFTS

RESTRAIN = {
    "interpolate_14k": 13_175,
    "extrapolate_14k": 13_763,
    "interpolate_45k": 42_725,
    "extrapolate_45k": 44_747,
    "interpolate_200k": 194_113,
    "extrapolate_200k": 200_137,
}
"""Distinct queries of the authors' files; the partial release has no validation queries to leave out."""


@pytest.mark.parametrize(("part", "queries"), RESTRAIN.items())
def test_restrain_trains_on_the_authors_lists(published_release: Release, part: str, queries: int):
    assert "validation" not in published_release.configs
    training = SHIFTS["restrain"].training(published_release, part)
    assert training.queries["query_id"].n_unique() == training.queries.height == queries
    assert training.excluded == {"held-out part": 0, "test sets": 0, "validation": 0}


def test_no_published_training_query_of_restrain_is_tested_on(published_release: Release):
    tested = {query for year in ("dl19", "dl20") for query in published_release.test_sets[year].queries}
    for part in RESTRAIN:
        assert tested.isdisjoint(SHIFTS["restrain"].training(published_release, part).queries["query_id"])
