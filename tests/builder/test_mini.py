import math
from collections import Counter, defaultdict
from collections.abc import Iterable

import polars as pl
import pytest
from planted_oracle import oracle_ranking
from polars.testing import assert_frame_equal

from builder.sources.mini import Mini, MiniParameters, generate
from builder.sources.mini.planted import CLUSTERS, STRENGTHS
from builder.sources.mini.queries import TEMPLATES
from eval_kit.shifts import WH_TERMS

FRAMES = ("passages", "queries", "qrels")
SHIFTS = [(shift, cluster) for shift, clusters in CLUSTERS.items() for cluster in clusters]


@pytest.fixture(scope="module")
def mini() -> Mini:
    return generate()


@pytest.fixture(scope="module")
def unshifted() -> Mini:
    return generate(MiniParameters(strength=0))


def relevant(mini: Mini) -> dict[str, set[str]]:
    passages = defaultdict(set)
    for query_id, passage_id in mini.qrels.filter(pl.col("score") >= 1).select("query_id", "passage_id").iter_rows():
        passages[query_id].add(passage_id)
    return passages


def mean_rr10(run: pl.DataFrame, truth: dict[str, set[str]], query_ids: list[str]) -> float:
    ranked = defaultdict(list)
    for query_id, passage_id in run.select("query_id", "passage_id").iter_rows():
        ranked[query_id].append(passage_id)
    total = 0.0
    for query_id in query_ids:
        ranks = [r for r, p in enumerate(ranked[query_id][:10], 1) if p in truth[query_id]]
        total += 1 / ranks[0] if ranks else 0.0
    return total / len(query_ids)


def held_back(mini: Mini, shift: str, cluster: str) -> list[str]:
    among = pl.col("population") == "dev" if shift == "length" else pl.col("test")
    return mini.queries.filter(among, pl.col(shift) == cluster)["query_id"].to_list()


def relative_losses(mini: Mini, shift: str) -> list[float]:
    truth = relevant(mini)
    losses = []
    clusters = CLUSTERS[shift]
    for cluster in clusters:
        ids = held_back(mini, shift, cluster)
        rr = {held_out: mean_rr10(oracle_ranking(mini, shift, held_out, ids), truth, ids) for held_out in clusters}
        out = rr.pop(cluster)
        inside = sum(rr.values()) / len(rr)
        losses.append((inside - out) / inside)
    return losses


def words(texts: Iterable[str]) -> Counter[str]:
    return Counter(word for text in texts for word in set(text.split(" ")))


def test_same_parameters_same_frames(mini: Mini) -> None:
    again, other = generate(MiniParameters()), generate(MiniParameters(seed=14))
    for name in FRAMES:
        assert_frame_equal(getattr(mini, name), getattr(again, name))
        assert not getattr(mini, name).equals(getattr(other, name))


def test_counts(mini: Mini) -> None:
    assert len(mini.queries) == 10_000
    assert len(mini.passages) == 20_000
    sizes = dict(mini.queries.group_by("population").len().iter_rows())
    assert sizes == {"train": 8_703, "dev": 1_000, "validation": 200, "dl19": 43, "dl20": 54}
    assert mini.queries.filter(pl.col("test"))["population"].unique().to_list() == ["train"]
    for shift, cluster in SHIFTS[:8]:
        of_train = mini.queries.filter(population="train").filter(pl.col(shift) == cluster)
        assert of_train["test"].mean() == pytest.approx(0.2, abs=0.01)
    for (population,), group in mini.queries.group_by("population"):
        assert 0.3 < group.filter(length="short").height / group.height < 0.7, population


@pytest.mark.parametrize("queries", [500, 3_000])
def test_other_sizes(queries: int) -> None:
    small = generate(MiniParameters(queries=queries))
    assert (len(small.queries), len(small.passages)) == (queries, 2 * queries)
    assert small.queries["population"].n_unique() == 5


def test_ids_rules_and_judgements(mini: Mini) -> None:
    for ids in (mini.queries["query_id"], mini.passages["passage_id"]):
        assert ids.n_unique() == len(ids)
        assert ids.str.contains(r"^(0|[1-9]\d*)$").all()
    for text, wh, length in mini.queries.select("text", "wh", "length").iter_rows():
        clusters = [cluster for cluster, terms in WH_TERMS.items() if any(term in text.lower() for term in terms)]
        assert clusters == ([] if wh is None else [wh]), text
        assert length == ("short" if len(text.split(" ")) <= 5 else "long"), text
    assert mini.passages["text"].str.split(" ").list.len().is_between(30, 60).all()
    assert mini.qrels["passage_id"].is_in(mini.passages["passage_id"].implode()).all()
    assert set(relevant(mini)) == set(mini.queries["query_id"])
    assert mini.qrels.select("query_id", "passage_id").is_unique().all()
    judged = mini.qrels.join(mini.queries, on="query_id")
    dl = pl.col("population").str.starts_with("dl")
    assert judged.filter(~dl)["score"].unique().to_list() == [1]
    for (query_id,), group in judged.filter(dl).group_by("query_id"):
        assert 20 <= len(group) <= 60, query_id
        assert {0, 2, 3} <= set(group["score"]) <= {0, 1, 2, 3}


@pytest.mark.parametrize(("shift", "cluster"), SHIFTS)
def test_planted_share_can_be_read_from_the_texts(mini: Mini, shift: str, cluster: str) -> None:
    inside = mini.queries.filter(pl.col(shift) == cluster)["text"].to_list()
    elsewhere = words(mini.queries.filter(pl.col(shift) != cluster)["text"])
    in_passages = words(mini.passages["text"])
    templates = {word for line in TEMPLATES for word in line.split()}
    often = {word for word, count in words(inside).items() if count >= 3}
    reserved = often - elsewhere.keys() - in_passages.keys() - templates
    share = sum(not reserved.isdisjoint(text.split(" ")) for text in inside) / len(inside)
    assert share == pytest.approx(mini.strengths[shift][cluster], abs=0.02)


@pytest.mark.parametrize("shift", CLUSTERS)
def test_oracle_recovers_the_order_of_the_strengths(mini: Mini, shift: str) -> None:
    losses = relative_losses(mini, shift)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] > 0.02
    assert list(mini.strengths[shift].values()) == list(STRENGTHS[shift])


@pytest.mark.parametrize("shift", CLUSTERS)
def test_no_strength_no_loss(unshifted: Mini, shift: str) -> None:
    assert set(unshifted.strengths[shift].values()) == {0.0}
    assert max(map(abs, relative_losses(unshifted, shift))) < 0.005


def test_strength_changes_only_query_words(mini: Mini, unshifted: Mini) -> None:
    assert_frame_equal(mini.passages, unshifted.passages)
    assert_frame_equal(mini.qrels, unshifted.qrels)
    assert_frame_equal(mini.queries.drop("text", "hardness"), unshifted.queries.drop("text", "hardness"))


@pytest.mark.slow
def test_hardness_separates_a_lexical_ranker() -> None:
    made = generate(MiniParameters(queries=4_000))
    truth = relevant(made)
    postings = defaultdict(list)
    for passage_id, text in made.passages.iter_rows():
        for word, times in Counter(text.split()).items():
            postings[word].append((passage_id, times / (times + 0.9)))
    dev = made.queries.filter(population="dev").sort("hardness")
    assert dev["hardness"].is_between(0, 1).all()
    fifth = len(dev) // 5

    def total(queries: pl.DataFrame) -> float:
        """The sum of reciprocal ranks by BM25 without lengths."""
        reciprocal = 0.0
        for query_id, text in queries.select("query_id", "text").iter_rows():
            scores: dict[str, float] = defaultdict(float)
            for word in text.split():
                for passage_id, weight in postings[word]:
                    scores[passage_id] += weight * math.log(1 + len(made.passages) / len(postings[word]))
            best = sorted(scores, key=lambda passage: (-scores[passage], passage))[:100]
            reciprocal += sum(1 / rank for rank, passage in enumerate(best, 1) if passage in truth[query_id])
        return reciprocal

    assert total(dev.tail(fifth)) < 0.6 * total(dev.head(fifth))


def test_nearness_is_planted_for_train_only(mini: Mini) -> None:
    train = pl.col("population") == "train"
    assert mini.queries.filter(~train)["nearness"].null_count() == len(mini.queries.filter(~train))
    near = mini.queries.filter(train).sort("nearness", descending=True)
    assert near["nearness"].is_unique().all()
    dl_words = words(mini.queries.filter(pl.col("population").str.starts_with("dl"))["text"])
    shares = [any(len(w) == 8 and w in dl_words for w in text.split(" ")) for text in near["text"]]
    assert sum(shares[:100]) > 70
    assert sum(shares[-1000:]) == 0
