"""The training sets of the published lists are the authors', the same for ir_datasets and the baselines."""

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


def test_restrain_trains_on_the_authors_lists_and_on_no_query_that_is_tested(published_release: Release):
    assert "validation" not in published_release.configs
    tested = {query for year in ("dl19", "dl20") for query in published_release.test_sets[year].queries}
    for part, queries in RESTRAIN.items():
        training = SHIFTS["restrain"].training(published_release, part)
        assert training.queries["query_id"].n_unique() == training.queries.height == queries
        assert training.excluded == {"held-out part": 0, "test sets": 0, "validation": 0}
        assert tested.isdisjoint(training.queries["query_id"])
