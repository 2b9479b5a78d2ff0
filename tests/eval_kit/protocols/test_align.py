"""Out-of-distribution alignment: correlations against scipy, Table 5's layout, and the reader."""

import json

import numpy as np
import polars as pl
import pytest
from scipy import stats

from eval_kit.errors import UserError
from eval_kit.protocols.align import TRAININGS, align, correlations, read


def models(n=24, seed=0):
    """n models of each training; the extrapolation ones' scores tell their BEIR scores better. With ties."""
    rng = np.random.default_rng(seed)
    rows = []
    for training, noise in (("interpolation", 2.0), ("extrapolation", 0.3)):
        ability = rng.normal(size=n)
        scores = np.round(0.5 + 0.1 * ability, 2)
        for dataset, sign in (("nq", 1), ("touche-2020", -1)):
            values = 0.3 + 0.05 * sign * (ability + noise * rng.normal(size=n))
            rows += [(f"m{i}", training, scores[i], dataset, values[i]) for i in range(n)]
    names = ["system", "training", "score", "dataset", "value"]
    return pl.DataFrame(rows, names, orient="row")


def test_correlations_are_scipys():
    table = models()
    found = correlations(table)
    assert found.height == 2 * 2
    for row in found.iter_rows(named=True):
        here = table.filter(pl.col("dataset") == row["dataset"], pl.col("training") == row["training"])
        expected = stats.spearmanr(here["score"].to_numpy(), here["value"].to_numpy())
        assert row["value"] == pytest.approx(expected.statistic, abs=1e-12)
        assert row["p"] == pytest.approx(expected.pvalue)
        kendall = stats.kendalltau(here["score"].to_numpy(), here["value"].to_numpy())
        assert row["kendall"] == pytest.approx(kendall.statistic, abs=1e-12)
        assert row["n"] == 24
        assert row["low"] < row["value"] < row["high"]
    by = {(row["dataset"], row["training"]): row["value"] for row in found.iter_rows(named=True)}
    assert by["nq", "extrapolation"] > by["nq", "interpolation"]
    assert by["touche-2020", "extrapolation"] < 0
    too_few = correlations(models(n=2))
    assert too_few.select("value", "kendall", "n").rows() == [(None, None, 2)] * 4
    assert set(correlations(models().filter(training="interpolation"))["training"]) == {"interpolation"}


def test_a_table_is_read_as_written(tmp_path):
    table = models()
    order = ["training", "system", "dataset"]
    table.pivot("dataset", index=["system", "training", "score"], values="value").write_csv(tmp_path / "m.csv")
    assert read(tmp_path / "m.csv").sort(order).equals(table.sort(order))
    found = align(tmp_path / "m.csv", seed=3)
    document = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert document["alignment"] == correlations(table, seed=3).to_dicts()
    assert (document["provenance"]["resamples"], document["provenance"]["seed"]) == (10_000, 3)
    [source] = document["provenance"]["files"]
    assert len(source["sha256"]) == 64


def test_the_layout_is_table_5s(tmp_path):
    lines = ["system,training,score,[red]<x>"]
    lines += [f"m{i},{training},{i},{i * i}" for training in TRAININGS for i in range(4 + (training == TRAININGS[0]))]
    (tmp_path / "m.csv").write_text("\n".join(lines))
    found = align(tmp_path / "m.csv")
    [table] = found.tables()
    kinds = [f"{name} {training}" for name in ("Spearman", "Kendall") for training in ("Inter.", "Extra.")]
    assert [column.header for column in table.columns] == ["Datasets", "n", *kinds]
    [[name, n, *figures]] = table.rows()
    assert (name.text, n.text, [figure.text for figure in figures]) == ("[red]<x>", "5/4", ["1.000"] * 4)
    assert len(found.figures()) == 2


HEADER = "system,training,score,nq\n"


@pytest.mark.parametrize(
    ("text", "line", "noun"),
    [
        ("a,interpolation,0.5,1\n", 1, "named"),
        ("system,training,score\na,interpolation,1\n", 2, "dataset"),
        ("system,training,score,nq,nq\n", 1, "name"),
        (HEADER + "a,interpolation,0.5\n", 2, "columns"),
        (HEADER + "a,interpolation,0.5,\n", 2, "finite"),
        (HEADER + "a,interpolation,1_000,1\n", 2, "1_000"),
        (HEADER + "a,interpolation,٣,1\n", 2, "٣"),
        (HEADER + "a,interpolation,1e999,1\n", 2, "finite"),
        (HEADER + "a,inter,1,1\n", 2, "training"),
        (HEADER + "a,interpolation,1,1\n" * 2, 3, "twice"),
        (HEADER + "ÿ\n", 2, "UTF-8"),
        (HEADER + 'a,"x"y,1,1\n', 2, "expected"),
    ],
)
def test_faults_of_csv(tmp_path, text, line, noun):
    path = tmp_path / "m.csv"
    path.write_text(text, encoding="latin-1" if "ÿ" in text else "utf-8")
    with pytest.raises(UserError, match=rf"m\.csv:{line}: .*{noun}"):
        read(path)
    path.write_text(HEADER)
    with pytest.raises(UserError, match="no model"):
        read(path)
