"""The mean over random orders beside every order there is; and what is said of a run that is no better."""

from itertools import permutations
from pathlib import Path

import polars as pl
import pytest

import eval_kit
from eval_kit.measures import chance
from eval_kit.measures.definitions import parse, per_query
from eval_kit.release import Release

GRADES = {"some": [2, 1, 0, 0, 0], "one": [0, 0, 3, 0, 0], "all": [1, 1, 1, 2, 2], "none": [0, 0, 0, 0, 0]}
"""Of the passages that a run has; two relevant ones it lacks."""
NAMES = "RR RR@2 RR@10 Success@2 P@2 P@9 R@3 R(rel=2)@3 R_cap@2 AP AP@3 AP(rel=2) nDCG nDCG@3 nDCG(dcg='exp-log2')@3"


def judgements(query: str, grades: list[int], ranks: tuple[int, ...]) -> pl.DataFrame:
    rows = {"query_id": query, "relevance": [*grades, 1, 2], "rank": [*ranks, None, None], "retrieved": len(grades)}
    return pl.DataFrame(rows, schema_overrides={"rank": pl.UInt32, "relevance": pl.Int64})


def test_it_is_the_mean_over_all_orders() -> None:
    orders = dict(enumerate(permutations(range(1, 6))))
    every = pl.concat(judgements(f"{one} {at}", GRADES[one], order) for one in GRADES for at, order in orders.items())
    frame = pl.concat(judgements(one, GRADES[one], orders[0]) for one in GRADES)
    for measure in map(parse, NAMES.split()):
        found = chance.expected(measure, frame, pl.Series("query_id", [*GRADES, "lacking"]))
        values = per_query(measure, every, pl.Series(f"{one} {at}" for one in GRADES for at in orders))
        means = [values[at : at + len(orders)].mean() for at in range(0, len(values), len(orders))]
        assert found is not None and found.to_list() == pytest.approx([*means, 0.0], abs=1e-12), measure.name


def test_a_measure_whose_mean_is_not_known_has_none() -> None:
    assert chance.expected(parse("ASL@100"), judgements("q", GRADES["some"], (1, 2, 3, 4, 5)), pl.Series(["q"])) is None


@pytest.mark.parametrize(("count", "quantile"), [(4, 2.353363), (11, 1.812461), (101, 1.660234)])
def test_a_mean_exceeds_by_students_t(count: int, quantile: float) -> None:
    """Quantiles of scipy 1.16's ``t.ppf(0.95, count - 1)``."""
    spread = pl.Series([1.0, -1.0] * (count // 2) + [0.0] * (count % 2))
    error = float(spread.std() or 0) / count**0.5  # type: ignore[arg-type]
    assert chance.is_exceeded(spread + quantile * error * 1.01)
    assert not chance.is_exceeded(spread + quantile * error * 0.99)
    assert not chance.is_exceeded(spread - 1) and not chance.is_exceeded(pl.Series([0.0] * count))
    assert chance.is_exceeded(pl.Series([0.5] * count)) and not chance.is_exceeded(pl.Series([0.5]))


def test_what_is_no_better_is_said_beside_the_figure(mini_release: Release, tmp_path: Path) -> None:
    qrels = mini_release.qrels(mini_release.test_sets["dl19"].qrels)
    queries = mini_release.test_sets["dl19"].queries.to_list()
    relevant = dict(qrels.filter(pl.col("relevance") >= 2).group_by("query_id").agg("passage_id").iter_rows())
    for name in ("random", "good"):
        lines = []
        for row, query in enumerate(queries):
            own = relevant.get(query, [])[:2]
            others = [f"other-{number}" for number in range(28)]
            place = row % 28 if name == "random" else 0
            ranked = [*others[:place], *own, *others[place:]]
            lines += [f"{query} Q0 {passage} 1 {-rank} x" for rank, passage in enumerate(ranked)]
        (tmp_path / f"{name}.trec").write_text("\n".join(lines) + "\n")
    runs = [tmp_path / "random.trec", tmp_path / "good.trec"]
    for result in (
        eval_kit.score(runs, mini_release, test_sets=["dl19"]),
        eval_kit.compare(runs, mini_release, test_sets=["dl19"]),
    ):
        [said] = [line for line in result.reservations() if "chance" in line]
        assert said.startswith("random is not shown")
    [random] = eval_kit.score(runs[:1], mini_release, test_sets=["dl19"]).provenance["runs"]
    assert [each["test_set"] for each in random["at_chance"]] == ["dl19"]
    shallow = tmp_path / "shallow.trec"
    lines = runs[0].read_text().splitlines()
    shallow.write_text("\n".join(line for line in lines if int(line.split()[4]) > -10) + "\n")
    assert not any("chance" in line for line in eval_kit.score(shallow, mini_release).reservations())
