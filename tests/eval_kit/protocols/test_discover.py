"""Kinds that lose are found in one half and tested in the other; what is written for --by gives the same figures."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eval_kit import compare, discover
from eval_kit.errors import UserError
from eval_kit.files.parts import read_parts, write_parts
from eval_kit.pages.page import result_page
from eval_kit.stats.halves import worst
from eval_kit.stats.kinds import kinds
from tests.beir_folders import beir_folder
from tests.eval_kit.plain_runs import ranked_run

QUERIES = 1_200


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fifth of the queries say *river*: run B ranks these at 4, and else is as often better as worse."""
    folder, rng = tmp_path_factory.mktemp("discover"), np.random.default_rng(0)
    vocabulary = [f"{a}{b}" for a in ("lo", "ma", "ti", "re", "su", "ka") for b in ("ne", "po", "ri", "ta")]
    texts, ranks = {}, {"a": [], "b": []}
    for number in range(QUERIES):
        said = list(rng.choice(vocabulary, 5, replace=False))
        is_river = number % 5 == 0
        texts[f"q{number}"] = {"text": " ".join(["river", *said[1:]] if is_river else said), "metadata": {"half": "x"}}
        pair = [1, 4] if is_river else list(rng.permutation([1, int(rng.choice([1, 2]))]))
        for name, rank in zip(ranks, pair, strict=True):
            ranks[name].append((f"q{number}", "d1", rank))
    beir_folder(folder / "data", [], texts, [(query, "d1") for query in texts])
    for name, found in ranks.items():
        ranked_run(folder / f"{name}.trec", found)
    return folder


def test_a_kind_that_loses_is_named_and_its_file_gives_the_same_figures(place: Path, tmp_path: Path) -> None:
    runs = [place / "a.trec", place / "b.trec"]
    result = discover(runs, place / "data", measure="RR@10")
    rows = result.to_polars().filter(pl.col("loses") & (pl.col("p_rest_holm") < 0.05))
    assert rows["kind"].str.contains("river").all() and rows["half"].sort().to_list() == [1, 2]
    assert rows["difference"].to_list() == pytest.approx([-0.75, -0.75]) == rows["found"].to_list()
    assert "river" in result.summary()[0] and "river" in result_page(result)
    for name in ("parts.tsv", "parts.csv"):
        write_parts(result.parts(), tmp_path / name)
        again = compare(runs, place / "data", measures=["RR@10"], by=[str(tmp_path / name)]).parts
        expected = result.to_polars().select(part=pl.format("{} (half {})", "kind", "half"), difference="difference")
        both = expected.join(again, on="part")
        assert (
            both.height == result.to_polars().height
            and both["difference"].to_list() == both["difference_right"].to_list()
        )
        assert read_parts(tmp_path / name).height == result.parts().height


def test_the_other_way_round_nothing_is_said_to_lose(place: Path) -> None:
    result = discover(place / "b.trec", place / "data", place / "a.trec", measure="RR@10")
    other = discover([place / "b.trec", place / "a.trec"], place / "data", measure="RR@10")
    assert result.systems == ("a", "b") and other.systems == ("b", "a")
    assert not other.to_polars()["loses"].any()


def test_a_kind_that_was_picked_is_tested_on_queries_that_did_not_pick_it() -> None:
    """Noise alone: the worst of many loses where it was picked, and as much as any other in the other half."""
    rng = np.random.default_rng(1)
    many = {str(kind): np.flatnonzero(rng.random(600) < 0.1) for kind in range(300)}
    found = [kind for draw in range(40) for kind in worst(rng.normal(size=600), many, 10, seed=draw)]
    assert np.mean([kind.found for kind in found]) < -0.3
    assert abs(np.mean([kind.held.value for kind in found])) < 0.06
    assert sum(kind.loses for kind in found) <= 5


def test_kinds_do_not_depend_on_the_language() -> None:
    texts = pl.Series(["was ist eine katze", "wie alt wird eine katze", "什么是量子力学", "量子力学是什么"] * 10)
    found = kinds(texts, 20)
    assert {"says “katze”", "says “量子”"} <= found.keys()
    assert not {"says “eine”", "says “ist”"} & found.keys()


def test_what_cannot_be_compared_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pivot"):
        discover(place / "a.trec", place / "data")
    (tmp_path / "qrels.txt").write_text("".join(f"q{number} 0 d1 1\n" for number in range(QUERIES)))
    with pytest.raises(UserError, match="queries"):
        discover([place / "a.trec", place / "b.trec"], qrels=tmp_path / "qrels.txt")
