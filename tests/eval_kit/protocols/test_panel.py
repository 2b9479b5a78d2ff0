"""The panel: values beside trec_eval's of runs that are here, places beside scipy, and what is refused."""

from pathlib import Path

import pytest
from scipy import stats

from eval_kit import score
from eval_kit.errors import UserError
from eval_kit.protocols import panel
from eval_kit.release import Release
from eval_kit.stats.losses import holm
from tests.eval_kit.protocols.test_generalise import ndcg, ranked


def test_values_are_those_of_trec_eval_of_the_runs_that_are_here(shared: Path, published_release: Release) -> None:
    for name, system in (("tas-b", "TAS-B"), ("bm25", "BM25"), ("splade-pp-ed", "SPLADE++ ED")):
        grades: dict[str, dict[str, int]] = {}
        for query, passage, grade in published_release.qrels("dl19").iter_rows():
            grades.setdefault(query, {})[passage] = grade
        queries = published_release.queries("dl19")["query_id"].sort()
        theirs = ndcg(ranked(shared / f"real-slice/runs/{name}.dl19.trec"), grades, queries)
        assert panel.columns_of("dl19", "nDCG@10")[system] == pytest.approx(theirs, abs=2e-6)


def test_a_run_has_the_places_that_paired_tests_leave(shared: Path, published_release: Release) -> None:
    run = shared / "real-slice/runs/tas-b.dl19.trec"
    result = score([run], published_release, panel=True)
    [standing] = result.standings
    columns = panel.columns_of("dl19", "nDCG@10")
    own = columns.pop("TAS-B")
    tests = [stats.ttest_rel(column, own) for column in columns.values()]
    corrected = holm([1.0, *(test.pvalue for test in tests)])[1:]  # beside itself, too
    shown = [test.statistic > 0 for test, p in zip(tests, corrected, strict=True) if p < 0.05]
    assert (standing.low, standing.high, standing.of) == (1 + sum(shown), 13 - shown.count(False), 13)
    assert standing.worse == ["BM25", "BM25+RM3"] and standing.better == []
    assert (standing.differ, standing.pairs) == (6, 45) and standing.detectable == pytest.approx(0.067, abs=0.001)
    assert standing.system == "tas-b.dl19" and result.as_json()["panel"][0]["high"] == 11
    assert str(standing) in result.said() and score([run], published_release).standings == ()


def test_runs_of_other_test_sets_are_refused(mini_release: Release, tmp_path: Path) -> None:
    """Also where one has the name of the panel's, but other queries."""
    for name in ("wh.how", "dl19"):
        run = tmp_path / "other.trec"
        run.write_text("".join(f"{each} Q0 p 1 1 x\n" for each in mini_release.test_sets[name].queries))
        with pytest.raises(UserError, match="dl19, dl20"):
            score([run], mini_release, panel=True)
