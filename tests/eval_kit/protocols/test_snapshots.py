"""Two snapshots: LongEval's figures beside plain loops and a bootstrap, and what cannot be told."""

from dataclasses import replace
from pathlib import Path

import ir_measures
import numpy as np
import pytest

import eval_kit
from eval_kit.authors.opening import open_judgements
from eval_kit.errors import UserError
from eval_kit.protocols.judged_in_both import of_both
from eval_kit.protocols.snapshots import CANNOT_TELL, LESS, snapshots
from eval_kit.release import Release, open_release
from eval_kit.runs.given import take
from eval_kit.stats.snapshots import delta_ri, effect_ratio, relative_change
from tests.beir_folders import beir_folder
from tests.eval_kit.plain_runs import ranked_run

BEFORE, AFTER = range(300), range(240, 640)
SYSTEMS = {"bm25": (0.4, 0.25), "mine": (0.6, 0.55)}


def write(folder: Path, queries: range, finds: dict[str, float], rng: np.random.Generator, text: str = "t") -> Release:
    """A BEIR folder, and runs that find each query's passage at a random rank: better where ``finds`` is greater."""
    beir_folder(folder, [], {f"q{i}": f"{text} {i}" for i in queries}, [(f"q{i}", f"p{i}") for i in queries])
    for name, chance in finds.items():
        ranked_run(folder / f"{name}.trec", [(f"q{i}", f"p{i}", rng.geometric(chance)) for i in queries])
    return open_release(folder)


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Release]:
    folder, rng = tmp_path_factory.mktemp("months"), np.random.default_rng(1)
    june = write(folder / "june", BEFORE, {name: ends[0] for name, ends in SYSTEMS.items()}, rng)
    return june, write(folder / "july", AFTER, {name: ends[1] for name, ends in SYSTEMS.items()}, rng)


def runs(release: Release, *names: str) -> list[Path]:
    return [release.folder / f"{name}.trec" for name in names]


def reciprocal_ranks(run: Path) -> dict[int, float]:
    found = dict.fromkeys((int(line.split()[0][1:]) for line in run.read_text().splitlines()), 0.0)
    for query, _, passage, rank, *_ in map(str.split, run.read_text().splitlines()):
        if passage == f"p{query[1:]}":
            found[int(query[1:])] = 1 / int(rank)
    return found


def test_figures_are_those_of_plain_loops_and_intervals_those_of_a_bootstrap(months) -> None:
    june, july = months
    july_runs = runs(july, "mine", "bm25")  # of the same names, in another order
    result = snapshots(runs(june, "bm25", "mine"), june, july, july_runs, measures=["RR@10"])
    pivot, row = result.rows.to_dicts()
    assert (row["queries"], row["queries_after"], row["shared"]) == (300, 400, 60)
    sides = [reciprocal_ranks(run) for name in ("mine", "bm25") for month in months for run in runs(month, name)]
    before, after, pivot_before, pivot_after = [sum(side.values()) / len(side) for side in sides]
    assert (row["before"], row["after"]) == pytest.approx((before, after), abs=1e-12)
    assert row["rc"] == pytest.approx((before - after) / before, abs=1e-12)
    assert pivot["rc"] == pytest.approx((pivot_before - pivot_after) / pivot_before, abs=1e-12)
    assert row["effect_ratio"] == pytest.approx((after - pivot_after) / (before - pivot_before), abs=1e-12)
    improvement = (before - pivot_before) / pivot_before - (after - pivot_after) / pivot_after
    assert row["delta_ri"] == pytest.approx(improvement, abs=1e-12)
    assert row["verdict"] == LESS and pivot["verdict"] is None

    columns = np.array([[side.get(i, np.nan) for i in range(640)] for side in sides])
    rng = np.random.default_rng(2)
    drawn = rng.integers(640, size=(4000, 640))  # a query of both months is drawn for both
    draws = np.stack([np.nanmean(column[drawn], axis=1) for column in columns], axis=1)
    s, s_after, p, p_after = draws.T
    for name, drawn in (("rc", 1 - s_after / s), ("delta_ri", s / p - s_after / p_after)):
        width = 2 * 1.97 * drawn.std()
        assert row[f"{name}_high"] - row[f"{name}_low"] == pytest.approx(width, rel=0.05), name
    low, high = np.quantile((s_after - p_after) / (s - p), [0.025, 0.975])
    assert (row["effect_ratio_low"], row["effect_ratio_high"]) == pytest.approx((low, high), rel=0.1)


def test_one_system_with_itself_loses_nothing(months) -> None:
    june, _ = months
    result = snapshots(runs(june, "bm25", "mine"), june, june)
    assert result.rows["shared"].unique().to_list() == [300]
    for row in result.rows.iter_rows(named=True):
        assert (row["rc"], row["rc_low"], row["rc_high"], row["p"]) == (0, None, None, None)
        if row["system"] == "mine":
            assert row["delta_ri"] == 0 and row["verdict"] == CANNOT_TELL


def test_python_takes_dictionaries(months) -> None:
    june, july = months
    held = [{"one": {f"q{i}": {f"p{i}": 1.0} for i in queries}} for queries in (BEFORE, AFTER)]
    row = eval_kit.snapshots(held[0], june, july, held[1], measures=["RR@10"]).to_polars().row(0, named=True)
    assert (row["system"], row["before"], row["after"], row["rc"]) == ("one", 1, 1, 0)


def test_ids_with_another_text_are_other_queries(months, tmp_path: Path) -> None:
    june, _ = months
    other = write(tmp_path / "other", range(200), {"bm25": 0.4}, np.random.default_rng(3), "another")
    result = snapshots(runs(june, "bm25"), june, other, runs(other, "bm25"))
    assert result.rows["shared"].unique().to_list() == [0]
    assert any("200 ids" in note for note in result.notes())


def test_no_difference_before_gives_any_ratio_and_pairs_matter() -> None:
    rng = np.random.default_rng(4)
    before = rng.random(50)
    equal = np.stack([before, before - 0.1 * rng.random(50), before + 0.01 * (rng.random(50) - 0.5), before])
    assert effect_ratio(equal).value is None
    paired = relative_change(equal[:2])
    apart = np.full((2, 100), np.nan)
    apart[0, :50], apart[1, 50:] = equal[:2]
    alone = relative_change(apart)
    assert alone.value == pytest.approx(paired.value) and alone.p > 0.05 > paired.p
    assert np.diff(alone.interval) > 5 * np.diff(paired.interval)
    nothing = np.zeros((4, 9))
    assert [f(nothing[:k]).value for f, k in ((relative_change, 2), (effect_ratio, 4), (delta_ri, 4))] == [None] * 3
    assert relative_change(np.array([[0.5], [0.25]])).interval == (None, None)


def test_intervals_hold_the_truth_of_small_snapshots_of_skewed_values() -> None:
    rng = np.random.default_rng(5)
    need = rng.beta(0.6, 0.9, size=(2, 200_000))
    systems, pivots = np.clip(need + rng.normal([[[0.1]], [[0.0]]], 0.2, size=(2, *need.shape)), 0, 1)
    systems[1] *= 0.8
    (s, s_after), (p, p_after) = systems.mean(axis=1), pivots.mean(axis=1)
    truths = (1 - s_after / s, (s_after - p_after) / (s - p), s / p - s_after / p_after)
    held = np.zeros(3)
    for _ in range(500):
        columns = np.full((4, 130), np.nan)
        first, second = rng.integers(200_000, size=60), rng.integers(200_000, size=70)
        columns[0, :60], columns[2, :60] = systems[0, first], pivots[0, first]
        columns[1, 60:], columns[3, 60:] = systems[1, second], pivots[1, second]
        figures = relative_change(columns[:2]), effect_ratio(columns), delta_ri(columns)
        ends = [(truth, *figure.interval) for figure, truth in zip(figures, truths, strict=True)]
        held += [low is None or low <= truth <= high for truth, low, high in ends]
    assert np.all((held / 500 > 0.92) & (held / 500 < 0.99)), held


def test_what_cannot_be_paired_is_refused(months) -> None:
    june, july = months
    with pytest.raises(UserError, match="for each"):
        snapshots(runs(june, "bm25", "mine"), june, july, runs(july, "bm25"))


def test_judgements_that_differ_in_depth_are_said(tmp_path: Path) -> None:
    """An unchanged run on an early file that judges two of ten passages, and on a later one that judges all."""
    run = {f"q{query}": {f"p{query}-{rank}": 10.0 - rank for rank in range(10)} for query in range(30)}
    full = {
        query: {passage: int(passage.endswith(("4", "7"))) for passage in passages} for query, passages in run.items()
    }
    early = {
        query: {passage: grade for passage, grade in grades.items() if passage[-1] in "04"}
        for query, grades in full.items()
    }
    result = eval_kit.snapshots({"a": run}, early, full, measures=["nDCG@10"])
    assert [note for note in result.notes() if "Judged@10 on test: a on before 0.20, a on after 1.00" in note]
    on_pairs, plain = result.rows.to_dicts()
    assert (on_pairs["judged_in_both"], on_pairs["queries"], on_pairs["rc"]) == (60, 30, 0.0)
    assert plain["judged_in_both"] is None and plain["p_holm"] < 0.05, "which is of the judgements alone"
    assert eval_kit.snapshots({"a": run}, full, full, measures=["nDCG@10"]).rows["judged_in_both"].to_list() == [
        None,
        300,
    ], "judged alike, the plain figures come first"
    scores = eval_kit.score({"a": run}, early)
    assert scores.provenance["runs"][0]["judged"] == {"test": pytest.approx(0.2)}
    assert any("Judged@10" in note for note in scores.notes())
    assert not any("Judged@10" in note for note in eval_kit.score({"a": run}, full).notes())
    positives = {query: {passage: 1 for passage, grade in grades.items() if grade} for query, grades in full.items()}
    assert "judged" not in eval_kit.score({"a": run}, positives).provenance["runs"][0], "of no pool"
    others = {query: {"other": 0, "more": 1} for query in full}
    renamed = {query: {f"new-{name}": grade for name, grade in each.items()} for query, each in full.items()}
    moved = {query: {f"new-{name}": score for name, score in each.items()} for query, each in run.items()}
    change = eval_kit.snapshots({"a": run}, full, renamed, {"a": moved}, measures=["nDCG@10"])
    assert change.rows["rc"].to_list() == [0.0] and any("No pair" in note for note in change.notes())
    change = eval_kit.snapshots({"a": run}, positives, positives, measures=["nDCG@10"])
    assert not any("No pair" in note for note in change.notes()), "who names relevant passages alone"
    for sides in ((early, positives), (positives, full), (others, full)):
        assert eval_kit.snapshots({"a": run}, *sides).rows["judged_in_both"].count() == 0
    regraded = {
        query: {passage: grade + passage.endswith("7") for passage, grade in each.items()}
        for query, each in full.items()
    }
    result = eval_kit.snapshots({"a": run}, full, regraded, measures=["nDCG@10"])
    assert any("30 of the 300 pairs" in note for note in result.notes()), "the judgements change, not the run"
    assert any("No pair" in note for note in eval_kit.snapshots({"a": run}, others, full).notes())


def test_pairs_are_those_of_the_test_sets_queries() -> None:
    """Test sets may share their judgements."""
    judged = {f"q{number}": {"p0": 0, "p1": 1} for number in range(10)}
    release = open_judgements(judged)
    test_set = release.test_sets["test"]
    [run] = take(runs={"a": {query: {"p1": 1.0} for query in judged}})[0]
    some = replace(test_set, queries=test_set.queries.head(4))
    pairs, regraded, (before, after) = of_both([(release, test_set), (release, some)], [[run], [run]], {"a": "a"})
    assert (pairs, regraded, before["RR@10", "a"].queries, after["RR@10", "a"].queries) == (8, 0, 4, 4)


def test_a_system_is_compared_on_the_test_sets_that_it_covers_alone(tmp_path: Path) -> None:
    for name, grade in (("june", 1), ("july", 0)):
        beir_folder(tmp_path / name, [], {f"q{i}": "t" for i in range(40)}, [])
        for split, queries in (("dev", range(20)), ("test", range(20, 40))):
            lines = [f"q{i}\tp{at}\t{int(at == grade)}\n" for i in queries for at in range(4)]
            (tmp_path / name / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    files = [
        ranked_run(tmp_path / f"{name}.trec", [(f"q{i}", "p1", 1 + i % 3) for i in queries])
        for name, queries in (("a", range(40)), ("b", range(20, 40)))
    ]
    result = snapshots(files, tmp_path / "june", tmp_path / "july", measures=["RR@10"])
    assert set(result.rows.select("test_set", "system").iter_rows()) == {("dev", "a"), ("test", "a"), ("test", "b")}
    assert result.rows["judged_in_both"].to_list().count(80) == 3


@pytest.mark.parametrize("measure", ["nDCG@10", "AP(rel=2)", "R@20", "RR", "P@5", "Bpref"])
def test_on_pairs_that_both_judge_means_are_those_of_ir_measures(measure: str, shared: Path, tmp_path: Path) -> None:
    """Of real runs and judgements, of which the second lacks some and has other grades: condensed by hand."""
    runs = [shared / "real-slice/runs" / f"{name}.dl19.trec" for name in ("bm25", "tas-b")]
    lines = (shared / "upstream/castorini/anserini-tools/qrels/qrels.dl19-passage.txt").read_text().splitlines()
    rng = np.random.default_rng(6)
    pairs = [(query, passage, int(grade)) for query, _, passage, grade in map(str.split, lines)]
    sides = [
        {(q, p): g for q, p, g in pairs if rng.random() < 0.6},
        {(q, p): max(0, g - (rng.random() < 0.3)) for q, p, g in pairs if rng.random() < 0.5},
    ]
    files = [tmp_path / f"{name}/qrels.txt" for name in ("june", "july")]
    for file, side in zip(files, sides, strict=True):
        file.parent.mkdir()
        file.write_text("".join(f"{q} 0 {p} {g}\n" for (q, p), g in side.items()))
    both = sides[0].keys() & sides[1].keys()
    result = snapshots(runs, against=files[1], qrels=files[0], measures=[measure])
    assert result.names == ("june/qrels", "july/qrels")
    rows = result.rows.filter(judged_in_both=len(both)).to_dicts()
    assert len(rows) == 2
    for run, row in zip(runs, rows, strict=True):
        kept = [each for each in ir_measures.read_trec_run(str(run)) if (each.query_id, each.doc_id) in both]
        for side, name in zip(sides, ("before", "after"), strict=True):
            qrels = [ir_measures.Qrel(q, p, side[q, p]) for q, p in both]
            queries = {q for q, _ in both}
            values = ir_measures.iter_calc([ir_measures.parse_measure(measure)], qrels, kept)
            expected = sum(each.value for each in values) / len(queries)
            assert row[name] == pytest.approx(expected, abs=1e-9), (run, name)
