"""Splits of any queries: given parts, logs, languages, sizes, passages that no two sides share."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builder import rebuilt
from builder import release as releases
from builder.assembly import apart
from builder.collection import Collection
from builder.encoders import Lsa
from builder.parameters import for_mini
from builder.shifts import length, wh
from builder.shifts.given import part_names, read_given
from builder.sources import log, mini
from builder.verify import verify
from eval_kit import languages
from eval_kit.errors import UserError
from eval_kit.release import open_release
from eval_kit.shifts import SHIFTS
from eval_kit.stats.similarity import weighted_jaccard, word_counts
from eval_kit.words import all_spaced, with_spaces, words

LSA = Lsa(dimensions=8)


@pytest.fixture(scope="module")
def collection() -> Collection:
    return mini.collection(mini.MiniParameters(queries=3_000))


def test_words_are_those_between_blanks_and_pairs_where_there_are_none() -> None:
    english = pl.Series(["What's  the\tU.S. GDP?", "naïve café", ""])
    assert all_spaced(english) is english
    assert words("What's a U.S. GDP") == ["what", "gdp"]
    assert with_spaces("我爱北京 GDP").split() == ["我爱", "爱北", "北京", "GDP"]
    assert words("黑豹队 2015 स्थिति ภาษาไทย")[:4] == ["黑豹", "豹队", "2015", "स्थिति"]
    chinese = pl.Series(["黑豹队的防守丢了多少分", "贾里德有多少次擒杀"])
    assert 0 < weighted_jaccard(word_counts(chinese[:1]), word_counts(chinese[1:])) < 1
    assert length.lengths(pl.Series(["a  b", "中国人"])).to_list() == [3, 2]
    assert length.even_cut(pl.Series(["a", "a b", "a b", "a b c", "a b c d", "a b c d e"])) == 2


def test_the_likely_language_of_texts() -> None:
    for language, texts in (
        ("de", ["Wie viele Spiele gab es?", "Wer war das in Wien?", "Was bedeutet Wasser?"]),
        ("fr", ["Qui a gagné ?", "Combien de jeux ?", "Que veut dire eau ?"]),
        ("zh", ["什么是水?", "谁赢了比赛?", "多少分?"]),
        ("en", ["what is water", "who won", "how many games"]),
        ("ja", ["日本の首都はどこですか", "東京都の人口"]),
        ("pt", ["O que é a água?", "Quem não foi para o jogo?"]),
        (None, ["Kdo vyhrál zápas?", "Jaké je hlavní město?"]),
        (None, ["Ποια είναι η πρωτεύουσα της Ελλάδας;"]),
    ):
        assert languages.likely(pl.Series(texts)) == language, texts


def test_own_question_words() -> None:
    queries = pl.DataFrame({"query_id": list("abc"), "text": ["jak to", "kdo je", "Jakub"]})
    found = wh.assign(queries, wh.WhParameters(terms="how:jak,who:kdo|kdy", test_share=0.5))
    assert dict(found.select("query_id", pl.col("cluster").cast(pl.String)).iter_rows()) == {"a": "how", "b": "who"}


@pytest.mark.parametrize("of_passages", [True, False])
def test_topics_are_told_from_clusters_of_function_words(of_passages: bool) -> None:
    """Mini's topics, which its passages show, and clusters by an encoder that knows its queries alone."""
    source = mini.collection(mini.MiniParameters(queries=1_500))
    encoder = mini.encoder(source) if of_passages else Lsa()
    remarks = rebuilt.draft(source, ["topic"], encoder, for_mini(source.train.height)).remarks
    [said] = [remark for remark in remarks if "a relevant passage tells" in remark]
    assert said.endswith("do not read them as topics") != of_passages
    without = rebuilt.draft(replace(source, passages=None), ["topic"], encoder, for_mini(source.train.height)).remarks
    assert any("without passages nothing says whether" in remark for remark in without)


def test_no_passage_is_shared_where_the_sides_are_apart() -> None:
    ids = [str(i) for i in range(400)]
    assigned = pl.DataFrame({"query_id": ids, "cluster": ["a", "b"] * 200, "split": ["train"] * 320 + ["test"] * 80})
    pairs = pl.DataFrame(
        {
            "query-id": [*ids, *ids[1:]],
            "corpus-id": [*(f"p{i // 4}" for i in range(400)), *(f"q{i // 4}" for i in range(1, 400))],
        }
    )
    halves = apart("topic", assigned, pairs, 13)
    train, test = (
        pairs.join(halves.filter(split=split), left_on="query-id", right_on="query_id", how="semi")
        for split in ("train", "test")
    )
    assert not set(train["corpus-id"]) & set(test["corpus-id"]) and abs(halves.filter(split="test").height - 80) <= 4
    with pytest.raises(UserError, match="400 of 400 queries"):
        apart("topic", assigned, pairs.with_columns(pl.lit("p").alias("corpus-id")), 13)


def test_length_leaves_out_training_queries_that_share_a_tested_passage(collection: Collection, tmp_path: Path) -> None:
    source = collection
    pairs = source.qrels["dev"]
    first = pairs.filter(pl.col("score") > 0)["corpus-id"][0]
    shared = pl.DataFrame([(source.train["query_id"][0], first, 1)], source.qrels["train"].schema, orient="row")
    train = pl.concat([source.qrels["train"], shared])
    source = replace(source, qrels={**source.qrels, "train": train})
    releases.write(rebuilt.draft(source, ["length"], disjoint_passages=True), tmp_path / "release")
    release = open_release(tmp_path / "release")
    tested = pairs.join(release.table("length", "test"), left_on="query-id", right_on="query_id", how="semi")
    trained = train.join(release.table("length", "train"), left_on="query-id", right_on="query_id", how="semi")
    assert trained.height and not set(trained["corpus-id"]) & set(tested.filter(pl.col("score") > 0)["corpus-id"])
    assert any("training queries left out that share" in remark for remark in release.manifest.remarks)


def test_given_parts_are_a_shift_like_the_others(collection: Collection, tmp_path: Path) -> None:
    file = tmp_path / "parts.tsv"
    train = collection.train["query_id"].to_list()
    file.write_text("".join(f"{query}\tZürich {i % 7}\n" for i, query in enumerate(train)), encoding="utf-8")
    parts = read_given(str(file), tmp_path)
    releases.write(rebuilt.draft(replace(collection, parts=parts), ["given"], LSA), tmp_path / "release")
    release = open_release(tmp_path / "release")
    assert not [check for check in verify(release.folder) if check.fault]
    shift = SHIFTS["given"]
    assert shift.parts(release) == [f"zurich_{i}" for i in range(7)]
    assert shift.test_sets(release) == [f"given.zurich_{i}" for i in range(7)]
    held_out = set(release.table("given", "train").filter(cluster="zurich_3")["query_id"])
    assert held_out and not held_out & set(shift.training(release, "zurich_3").queries["query_id"])
    assert "Zürich 3" in (release.folder / "reports" / "given.tsv").read_text(encoding="utf-8")


@given(st.lists(st.text(min_size=1, max_size=80), unique=True, max_size=30))
@example(["東京" * 40, "東京" * 41])
def test_every_part_gets_a_name_of_its_own_that_a_file_can_have(parts: list[str]) -> None:
    names = part_names(parts)
    assert list(names) == parts
    assert len(set(names.values())) == len(parts)
    assert all(re.fullmatch("[a-z0-9_]{1,64}", name) for name in names.values())


def test_parts_that_would_share_a_name_are_numbered() -> None:
    assert [*part_names(["A", "C", "C 2", "C#", "C++", "Å"]).values()] == ["a", "c", "c_2", "c_3", "c_4", "a_2"]


@pytest.mark.parametrize(
    ("part", "outcome"),
    [
        (lambda i: f"p{i % 5}", "at least 16 clusters.* 5$"),
        (lambda i: f"p{i % 20}" if i % 3 else "giant", "'giant' .* queries"),
        (lambda i: f"p{i % 900}", "crossed: 24 test parts of"),
        (lambda i: f"p{i % 40}" if i % 2 else None, "queries have no part and are left out"),
    ],
    ids=["a handful", "a giant", "tiny ones", "half without"],
)
def test_odd_parts_end_in_a_design_or_in_one_sentence(
    part: Callable[[int], str | None], outcome: str, collection: Collection
) -> None:
    ids = collection.train["query_id"]
    parts = pl.DataFrame({"query_id": ids, "part": [part(i) for i in range(len(ids))]}).drop_nulls()
    try:
        said = rebuilt.draft(replace(collection, parts=parts), ["crossed"], LSA).remarks
    except UserError as error:
        said = [str(error)]
    assert any(re.search(outcome, remark) for remark in said), said


def test_a_log_is_read_whatever_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text('date,query,count\n2026-01-01,"Öl, billig",3\n2026-01-02,"Öl, billig",2\n2026-01-03,wetter,1\n')
    found = log.collection(file)
    assert found.queries["train"]["text"].to_list() == ["Öl, billig", "wetter"]
    assert "3 rows of the log, asked 6 times, hold 2 distinct queries" in found.remarks[0]
