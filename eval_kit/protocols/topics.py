"""Tables that say what a release's topics and buckets are about: they are found by k-means and have no names."""

from eval_kit.release import Release
from eval_kit.shifts import main_split
from eval_kit.stats.typical import topics
from eval_kit.tables.table import Column, Table

_SHIFTS = {"topic": "cluster", "resttest": "bucket"}
_COLUMNS = (Column("", "heading"), Column("queries", "number"), Column("typical words"), Column("typical queries"))


def about(release: Release) -> dict[str, Table]:
    """A table for each shift of the release whose parts have no names: typical words and queries of each part."""
    tables = {}
    for shift, label in _SHIFTS.items():
        splits = release.configs.get(shift, [])
        split = "test" if shift == "topic" and "test" in splits else main_split(splits)
        if split:
            rows = [
                [topic.cluster, f"{topic.queries:,}", ", ".join(topic.terms), "; ".join(topic.examples)]
                for topic in topics(release.table(shift, split), label)
            ]
            tables[shift] = Table(_COLUMNS, [rows], f"What the parts of {shift} are about")
    return tables
