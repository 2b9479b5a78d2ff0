"""Values of each query as input: what ``score`` wrote gives what its runs give, in any form; and what is refused."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import eval_kit
from eval_kit.cli import score as score_command
from eval_kit.errors import UserError
from eval_kit.measures.definitions import parse
from eval_kit.release import Release
from tests.eval_kit.plain_runs import ranked_run

ROWS = [
    (system, "faithfulness", f"q{query}", round(float(value), 3))
    for system, shift in (("old", 0.0), ("new", 0.1))
    for query, value in enumerate(np.random.default_rng(round(10 * shift)).random(30) + shift)
]


@pytest.mark.filterwarnings("ignore")
def test_what_score_wrote_gives_the_same_figures_as_its_runs(mini_release: Release, tmp_path: Path) -> None:
    names = ("dev", "topic.c0", "topic.c1")
    rng = np.random.default_rng(7)
    qrels = pl.concat(mini_release.qrels(split) for split in {mini_release.test_sets[name].qrels for name in names})
    relevant = qrels.filter(pl.col("relevance") > 0).unique("query_id", maintain_order=True).sort("query_id")
    found = list(relevant.select("query_id", "passage_id").iter_rows())
    ranks = rng.geometric(0.4, len(found))
    kept = rng.random(len(found)) < 0.9  # of the others both runs hold nothing
    files = {name: tmp_path / f"{name}.trec" for name in ("a", "b")}
    for name, file in files.items():
        ranks = ranks + (rng.random(len(found)) < 0.3) * (name == "b")
        held = [(*pair, rank) for pair, rank, keep in zip(found, ranks, kept, strict=True) if keep]
        ranked_run(file, [row for row in held if name == "a" or rng.random() < 0.99])

    def write(measures: list[str] | None = None) -> None:
        score_command(
            runs=list(files.values()),
            release=str(mini_release.folder),
            test_sets=list(names),
            allow_missing=True,
            per_query=tmp_path / "values.tsv",
            measures=measures,
        )

    write()
    how = {"by": ["topic", "words"], "no_worse_than": 0.05, "test_sets": names}
    for more in (how, {"baseline": "b"}, how | {"measures": ["ASL@100"]}):
        more = {"test_sets": names} | more
        if "measures" in more:
            write(more["measures"])
        of_runs = eval_kit.compare(list(files.values()), mini_release, allow_missing=True, **more)
        of_values = eval_kit.compare(values=tmp_path / "values.tsv", release=mini_release, **more)
        for table in ("rows", "parts", "over_parts"):
            one, two = (getattr(each, table) for each in (of_runs, of_values))
            assert one.drop("trained_on", strict=False).equals(two.drop("trained_on", strict=False)), (table, more)
        assert of_runs.verdict == of_values.verdict
        assert of_runs.rows["missing"].max() > 0
    assert of_runs.summary() == of_values.summary()


def test_every_form_gives_one_result_and_other_measures_are_tested_as_scipy_does(tmp_path: Path) -> None:
    frame = pl.DataFrame(ROWS, ["System", "metric", "qid", "score"], orient="row")
    frame.write_csv(tmp_path / "a.csv")
    frame.write_csv(tmp_path / "a.tsv", separator="\t")
    frame.write_parquet(tmp_path / "a.parquet")
    frame.rename(str.lower).write_ndjson(tmp_path / "a.jsonl")
    bare = [f"{system} {query} {measure} {value}\n" for system, measure, query, value in ROWS]
    (tmp_path / "bare.txt").write_text("".join(bare))
    (tmp_path / "packed.csv").write_text("# made by hand\n" + (tmp_path / "a.csv").read_text())
    forms = [*sorted(tmp_path.iterdir()), frame, frame.to_pandas()]
    found = [eval_kit.compare(values=form).rows.to_dicts() for form in forms]
    assert len(found) == 8 and all(rows == found[0] for rows in found)
    old, new = (np.array([row[3] for row in ROWS if row[0] == name]) for name in ("old", "new"))
    row = found[0][1]
    assert (row["system"], row["measure"], row["test_set"], row["queries"]) == ("new", "faithfulness", "test", 30)
    assert row["difference"] == pytest.approx((new - old).mean(), abs=1e-12)
    assert row["p"] == pytest.approx(stats.ttest_rel(new, old).pvalue, rel=1e-9)
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1).sort("System", descending=True)
    assert eval_kit.compare(values=shuffled).rows.to_dicts() == found[0]


def test_parts_need_no_release_and_names_of_other_tools_are_known() -> None:
    frame = pl.DataFrame(ROWS, ["run", "measure", "query", "value"], orient="row")
    kinds = {f"q{query}": "even" if query % 2 == 0 else "odd" for query in range(30)}
    texts = {f"q{query}": "one two" if query < 12 else "one two three four" for query in range(30)}
    result = eval_kit.compare(values=frame, by=[kinds, "words"], queries=texts)
    assert result.parts.group_by("by", maintain_order=True).agg(pl.col("queries").sum())["queries"].to_list() == [
        30,
        30,
    ]
    assert any("Higher" in note and "faithfulness" in note for note in result.notes())
    alias = frame.with_columns(measure=pl.lit("ndcg_cut_10"))
    result = eval_kit.compare(values=alias, measures=["nDCG@10"])
    assert result.rows["measure"].unique().to_list() == ["nDCG@10"] and not any("Higher" in x for x in result.notes())
    lower = frame.with_columns(pl.col("value") + 2 * (pl.col("run") == "new"), measure=pl.lit("ASL@100"))
    assert eval_kit.compare(values=lower, no_worse_than=0.01).verdict == "worse", "a greater ASL is a loss"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda rows: [*rows, rows[3]], r"v\.tsv:6[0-9]: .*second"),
        (lambda rows: [(*rows[0][:3], "nan"), *rows[1:]], r"v\.tsv:2: .*nan"),
        (lambda rows: [("", *rows[0][1:]), *rows[1:]], r"v\.tsv:2: 3 columns"),
        (lambda rows: rows[:-1], "new has faithfulness of 29 of the 30 queries"),
        (lambda rows: [row for row in rows if row[0] == "old"], "one system"),
        (lambda rows: [*rows, *(("new", "map", *row[2:]) for row in rows[:30])], "old has AP of 0 of the 30"),
        (lambda rows: [], "run, query, measure and value"),
    ],
)  # fmt: skip
def test_what_is_no_whole_table_is_refused(change, match: str, tmp_path: Path) -> None:
    lines = [("run", "measure", "query", "value"), *change(ROWS)]
    (tmp_path / "v.tsv").write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    with pytest.raises(UserError, match=match):
        eval_kit.compare(values=tmp_path / "v.tsv")


def test_what_needs_ranks_is_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame(ROWS, ["run", "measure", "query", "value"], orient="row")
    for more in ({"panel": True}, {"qrels": {"q": {"p": 1}}}, {"runs": {"a": {}}}, {"allow_missing": True}):
        with pytest.raises(UserError, match=f"Leave {next(iter(more))} out"):
            eval_kit.compare(values=frame, **more)
    judged = {"q": {"p": 1}}
    for none in ({}, {"qrels": {"a": judged, "b": judged}}, {"against": judged, "qrels": judged}):
        with pytest.raises(UserError):
            eval_kit.compare([], **none)
    with pytest.raises(UserError, match="faithfulness is no measure"):
        eval_kit.compare(values=frame)
        eval_kit.score({"a": {"q": {"p": 1.0}}}, qrels={"q": {"p": 1}}, measures=["faithfulness"])
    (tmp_path / "run.trec").write_text("q1 Q0 p1 1 2.5 mine\nq2 Q0 p1 1 2.5 mine\n")
    with pytest.raises(UserError, match=r"run\.trec:1: expected run, query, measure and value"):
        eval_kit.compare(values=tmp_path / "run.trec")
    with pytest.raises(UserError, match="Unknown"):
        parse("p1")
    json.dumps(eval_kit.compare(values=frame).as_json())
