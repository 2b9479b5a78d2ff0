"""Avg In, Out, Rel Loss, the paired t-test and Holm's correction of random grids, by scipy and plain Python.

ECIR 2023 §3.2 and §4, CIKM 2022 §4.1.2 and §4.1.3; ties as in trec_eval. The kit reads the runs, and is compared.
"""

import math
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.stats

from eval_kit.protocols.grid_results import protocol
from eval_kit.release import Release

SYSTEMS = ("alpha", "beta")
PARTS = {
    "topic": ["c0", "c1", "c2", "c3", "c4"],
    "wh": ["wha", "how", "who"],
    "length": ["short", "long"],
    "resttest": ["b1", "b2", "b3", "b4", "b5"],
    "restrain": ["interpolate_small", "extrapolate_small"],
}
MEASURES = {"restrain": "nDCG@10"}

type Ranking = list[str]
type Values = dict[str, float]


def queries_by_part(release: Release, shift: str) -> dict[str, list[str]]:
    """Part -> its test queries; of ReSTrain all of TREC DL's."""
    tables = {"resttest": [("resttest", "dev")], "restrain": [("resttest", "dl19"), ("resttest", "dl20")]}
    parts = defaultdict(list)
    for config, split in tables.get(shift, [(shift, "test")]):
        table = release.table(config, split)
        for query, part in zip(table["query_id"], table[table.columns[-1]], strict=True):
            parts["small" if shift == "restrain" else part].append(query)
    return parts


def by_test_set(release: Release, shift: str, queries: list[str]) -> list[tuple[str, list[str]]]:
    """The queries of a part, of each test set: ReSTrain's part has those of both years, and the first before."""
    if shift != "restrain":
        return [("", queries)]
    years = {year: set(release.table("resttest", year)["query_id"]) for year in ("dl19", "dl20")}
    return [(year, [query for query in queries if query in own]) for year, own in years.items()]


def judged(release: Release) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    for split in release.configs["qrels"]:
        for query, passage, grade in release.table("qrels", split).iter_rows():
            grades[query][passage] = max(grade, grades[query].get(passage, 0))
    return grades


def draw(path: Path, queries: list[str], grades: dict[str, dict[str, int]], seed: str) -> dict[str, Ranking]:
    """Write a random run with many ties, its lines shuffled, and give the rankings that trec_eval would make of it."""
    rng = random.Random(seed)
    lines, rankings = [], {}
    for query in queries:
        passages = {*(f"x{number}" for number in range(11)), *rng.sample(sorted(grades[query]), 1)}
        scores = {passage: rng.randrange(6) for passage in sorted(passages)}
        lines += [f"{query} Q0 {passage} 1 {score} r\n" for passage, score in scores.items()]
        rankings[query] = sorted(scores, key=lambda passage: (scores[passage], passage.encode()), reverse=True)
    rng.shuffle(lines)
    path.write_text("".join(lines))
    return rankings


def value(measure: str, ranking: Ranking, grades: dict[str, int]) -> float:
    gains = [grades.get(passage, 0) for passage in ranking[:10]]
    if measure == "RR@10":
        return next((1 / rank for rank, gain in enumerate(gains, start=1) if gain > 0), 0.0)
    best = sorted(grades.values(), reverse=True)[:10]
    dcg = [sum(max(gain, 0) / math.log2(rank + 1) for rank, gain in enumerate(row, start=1)) for row in (gains, best)]
    return dcg[0] / dcg[1] if dcg[1] else 0.0


def holm(p_values: dict[tuple, float]) -> dict[tuple, float]:
    corrected, greatest = {}, 0.0
    for number, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        greatest = max(greatest, min(1.0, p_values[name] * (len(p_values) - number)))
        corrected[name] = greatest
    return corrected


def is_out(shift: str, held_out: str, part: str) -> bool:
    return held_out.startswith("extrapolate") if shift == "restrain" else held_out == part


@pytest.mark.parametrize("shift", PARTS)
def test_a_random_grid(mini_release: Release, tmp_path: Path, shift: str) -> None:
    grades, parts, measure = judged(mini_release), queries_by_part(mini_release, shift), MEASURES.get(shift, "RR@10")
    queries = sorted({query for own in parts.values() for query in own})
    runs = {
        (system, held_out): draw(tmp_path / f"{system}.{shift}.{held_out}.trec", queries, grades, system + held_out)
        for system in SYSTEMS
        for held_out in PARTS[shift]
    }
    rows = [("all", parts)] if shift == "resttest" else [(part, {part: own}) for part, own in parts.items()]
    expected, p_values, columns = {}, {}, {}
    for system in SYSTEMS:
        for name, of_row in rows:
            inside, out = [], []
            for part, own in of_row.items():
                for query in own:
                    values: dict[bool, list[float]] = {True: [], False: []}
                    for held_out in PARTS[shift]:
                        figure = value(measure, runs[system, held_out][query], grades[query])
                        values[is_out(shift, held_out, part)].append(figure)
                    inside.append(sum(values[False]) / len(values[False]))
                    [only] = values[True]
                    out.append(only)
            means = sum(inside) / len(out), sum(out) / len(out)
            expected[system, name] = [*means, 1 - means[1] / means[0], len(out)]
            queries_of = [query for own in of_row.values() for query in own]
            p_values[system, name] = p_by_groups(np.subtract(inside, out), groups(mini_release, queries_of, grades))
            columns[system, name] = np.array([inside, out])
    corrected = holm(p_values)

    results = protocol([tmp_path / f"{system}.{shift}.{held_out}.trec" for system, held_out in runs], mini_release)
    by_name = {}
    for row in results.results[shift].iter_rows(named=True):
        if row["measure"] == measure:
            by_name[row["system"], row.get("cluster") or row.get("size") or "all"] = row
    assert by_name.keys() == expected.keys()
    for name, figures in expected.items():
        row = by_name[name]
        assert [row["avg_in"], row["out"], row["rel_loss"], row["queries"]] == pytest.approx(figures, abs=1e-12)
        assert (row["p"], row["p_holm"]) == pytest.approx((p_values[name], corrected[name]), abs=1e-7)
        assert row["rel_loss_low"] < row["rel_loss"] < row["rel_loss_high"]
        assert row["seeds"] == 1
        if "models_in" in row:
            assert row["models_in"] == len(PARTS[shift]) - 1
        else:
            assert row["delta"] == -row["rel_loss"]
    if shift in results.overall:
        of_parts = {system: [columns[system, part] for part in parts] for system in SYSTEMS}
        overall = results.overall[shift].rows_by_key("system", named=True, unique=True)
        assert_parts_are_random(overall, of_parts)
        for system, pairs in of_parts.items():
            [inside, out], row = np.hstack(pairs).mean(axis=1), overall[system]
            assert [row["avg_in"], row["out"], row["rel_loss"]] == pytest.approx([inside, out, 1 - out / inside])
        [row] = results.differences[shift].to_dicts()
        terms = linearised(np.hstack(of_parts["alpha"])) - linearised(np.hstack(of_parts["beta"]))
        expected_p = scipy.stats.ttest_1samp(terms, 0).pvalue
        found = row["difference"], row["p"], row["p_holm"]
        assert found == pytest.approx((terms.mean(), expected_p, expected_p), abs=1e-7)


def groups(release: Release, queries: list[str], grades: dict[str, dict[str, int]]) -> list[int]:
    """The connected queries: with one text, or a relevant passage in common; by walking from each."""
    texts = dict(pl.concat(release.queries(name) for name in release.test_sets).iter_rows())
    keys = {
        query: {texts[query]} | {passage for passage, grade in grades[query].items() if grade > 0} for query in queries
    }
    found: dict[str, int] = {}
    for number, first in enumerate(queries):
        reached = [] if first in found else [first]
        while reached:
            query = reached.pop()
            found[query] = number
            reached += [other for other in queries if other not in found and keys[other] & keys[query]]
    return [found[query] for query in queries]


def p_by_groups(differences: np.ndarray, of_query: list[tuple[str, int]]) -> float:
    """The paired t-test over queries, or over groups where there are few, or their error is 1.05 times as great."""
    off, n = differences - differences.mean(), len(differences)
    sums = [off[[own == group for own in of_query]].sum() for group in set(of_query)]
    by_groups = (len(sums) / (len(sums) - 1) * np.square(sums).sum()) ** 0.5 / n
    error, count = scipy.stats.sem(differences), n
    if by_groups >= 1.05 * error or len(sums) < 10:
        error, count = max(by_groups, error), len(sums)
    return float(2 * scipy.stats.t.sf(abs(differences.mean() / error), count - 1))


def linearised(pair: np.ndarray) -> np.ndarray:
    """A column whose mean is Rel Loss, and whose mean's error is that of Rel Loss."""
    (inside, out), ratio = pair, pair[1].mean() / pair[0].mean()
    return 1 - ratio + (ratio * inside - out) / inside.mean()


def assert_parts_are_random(rows: dict[str, dict], of_parts: dict[str, list[np.ndarray]]) -> None:
    """Rel Losses of parts by Brown and Forsythe's F, and the interval that takes parts as draws.

    The variance of queries is pooled over parts; the interval also covers that of the plain mean.
    """
    for system, pairs in of_parts.items():
        row, terms = rows[system], list(map(linearised, pairs))
        means, sizes = (np.array([function(each) for each in terms]) for function in (np.mean, len))
        own = np.array([each.var(ddof=1) for each in terms])
        shares = sizes / sizes.sum()
        f = (sizes * (means - shares @ means) ** 2).sum() / ((1 - shares) * own).sum()
        assert (row["parts"], row["q"]) == (len(pairs), pytest.approx(f))
        below = ((1 - shares) * own).sum() ** 2 / (((1 - shares) * own) ** 2 / (sizes - 1)).sum()
        above = ((1 - shares) * own).sum() ** 2 / ((own**2).sum() + (shares @ own) ** 2 - 2 * (shares @ own**2))
        assert row["p_q"] == pytest.approx(scipy.stats.f.sf(f, above, below))
        t = scipy.stats.t.ppf(0.975, len(means) - 1)
        if len(pairs) < 5:  # too few to be drawn at random
            assert row["of_parts"] is None and row["of_parts_high"] is None
        else:  # the interval covers at least that of the plain mean
            assert min(means) < row["of_parts"] < max(means)
            assert row["of_parts_high"] >= means.mean() + t * scipy.stats.sem(means) - 1e-12
