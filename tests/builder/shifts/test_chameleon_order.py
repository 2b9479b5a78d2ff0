"""The rankers' order parts no ties: sums of fractions that are equal stay equal as floats."""

import random
from fractions import Fraction

import polars as pl

from builder.shifts.chameleons import assign

NAMES = [f"r{number}" for number in range(6)]
RULES = {6: "lesser", 5: "pygmy", 4: "veiled"}


def test_the_order_of_rankers_changes_no_label() -> None:
    draw = random.Random(1)
    queries = [str(number) for number in draw.sample(range(10**6), 3_000)]
    ranks = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 50)
    exact = {
        name: [Fraction(0) if draw.random() < 0.25 else Fraction(1, draw.choice(ranks)) for _ in queries]
        for name in NAMES
    }
    values = {name: list(map(float, column)) for name, column in exact.items()}
    given, turned = (
        assign(pl.DataFrame({"query_id": queries, **{n: values[n] for n in o}})) for o in (NAMES, NAMES[::-1])
    )
    assert given.equals(turned)
    mean = [sum(exact[name][row] for name in NAMES) for row in range(len(queries))]
    for level in (10, 50):
        counts = dict.fromkeys(queries, 0)
        for name in NAMES:
            order = sorted(range(len(queries)), key=lambda row: (exact[name][row], mean[row], queries[row]))
            for row in order[: round(level * len(queries) / 100)]:
                counts[queries[row]] += 1
        assert given[f"level_{level}"].to_list() == [RULES.get(counts[query], "none") for query in queries]
