"""The audit finds exactly what was planted, and on the real lists what can be counted by other means."""

import json
import re
import string
from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from drafts import part, written
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from builder.audit import audit, pairs
from eval_kit.authors.draft import Draft, Table, new_test_set
from eval_kit.documents import Rule
from eval_kit.errors import UserError
from eval_kit.files.formats import read_queries
from eval_kit.release import Release, Variation, open_release
from eval_kit.release.reference import load
from eval_kit.stats.leaks import NEAR, PRECISION, RECALL, normal_form, with_near
from tests.conftest import ROOT

CLUSTERS = pl.Enum(["c0", "c1"])
BY_HAND = Rule("made by hand", "tests/builder/test_audit.py")
TRAIN = {
    "101": ("how tall is a red oak", "c0"),
    "102": ("what is the capital of peru", "c1"),
    "103": ("Rock 'n' Roll,  when did it BEGIN?", "c1"),
    "104": ("average cost of wedding dress alterations", "c1"),
    "105": ("why is the sky blue", "c0"),
    "107": ("boiling point of ethanol", "c1"),
}
TEST = {
    "1": ("how tall is a red oak", "c1"),  # equal to 101, of the other cluster
    "2": ("what is the capital of peru", "c1"),  # equal to 102, but of its own cluster: no leak
    "3": ("rock n roll when did it begin", "c0"),  # 103 but for case, punctuation and spaces
    "4": ("alterations of average wedding dress cost", "c0"),  # the words of 104
    "5": ("who was the first emperor of rome", "c0"),
    "106": ("boiling point of ethanol", "c0"),  # the text of 107
}
QRELS_TRAIN = [("101", "p1", 1), ("102", "p2", 1), ("103", "p3", 1), ("104", "p4", 0), ("105", "p5", 1)]
QRELS_TEST = [("1", "p1", 1), ("3", "p3", 2), ("3", "p9", 3), ("4", "p4", 3), ("5", "p2", 3), ("2", "p2", 1)]


def draft(train: bool = True) -> Draft:
    def table(split: str, of: dict[str, tuple[str, str]]) -> Table:
        rows = [(query, text, cluster) for query, (text, cluster) in of.items()]
        schema = {"query_id": pl.String, "text": pl.String, "cluster": CLUSTERS}
        return Table("topic", split, pl.DataFrame(rows, schema, orient="row"), BY_HAND)

    def qrels(split: str, rows: list[tuple[str, str, int]]) -> Table:
        frame = pl.DataFrame(rows, ["query-id", "corpus-id", "score"], orient="row")
        return Table("qrels", split, frame, BY_HAND)

    tables = [table("test", TEST), qrels("topic_test", QRELS_TEST)]
    if train:
        tables += [table("train", TRAIN), qrels("train", QRELS_TRAIN)]
    test_sets = [
        new_test_set(f"topic.{cluster}", "topic", "topic", "test", "topic_test", ["RR@10"], ("cluster", [cluster]))
        for cluster in CLUSTERS.categories
    ]
    return Draft("mini", "msmarco-passage", 0, tables, test_sets)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return written(tmp_path_factory.mktemp("planted") / "ms-marco-shift", draft())


@pytest.fixture(scope="module")
def document(planted: Release) -> dict:
    return audit(planted)


def leaks(document: dict, name: str) -> dict[tuple[str, int | None], dict]:
    [pair] = [pair for pair in document["pairs"] if pair["name"] == name]
    return {(leak["kind"], leak.get("at_least")): leak for leak in pair["leaks"]}


def concerned(leak: dict) -> set[str]:
    assert len(leak["examples"]) == leak["queries"]  # none of ours has more than five
    return {example["query_id"] for example in leak["examples"]}


# --- what was planted


def test_planted_leaks_are_found_and_nothing_else(document: dict) -> None:
    held_out = leaks(document, "topic.c0 held out")
    assert concerned(held_out["equal", None]) == {"106"}
    assert concerned(held_out["normalised", None]) == {"3", "106"}
    assert (held_out["near", None]["queries"], held_out["near", None]["of"]) == (3, 4)
    assert held_out["near", None]["examples"] == [
        {"query_id": "4", "text": TEST["4"][0], "train_text": TRAIN["104"][0], "cosine": pytest.approx(0.77, abs=0.2)}
    ]
    assert [concerned(held_out["passages", level]) for level in (1, 2, 3)] == [{"3", "5"}, {"3", "5"}, {"5"}]
    assert {"query_id": "5", "passage_id": "p2"} in held_out["passages", 3]["examples"]
    other = leaks(document, "topic.c1 held out")
    assert concerned(other["equal", None]) == concerned(other["normalised", None]) == {"1"}
    assert (other["near", None]["queries"], other["near", None]["examples"]) == (1, [])
    assert concerned(other["passages", 1]) == {"1"}
    counts = [(leak["queries"], leak["of"], leak["share"]) for leak in other.values()]
    assert counts == [*[(1, 2, 0.5)] * 4, *[(0, 2, 0.0)] * 2]
    worst = re.findall(r"up to (\d+\.\d%) [a-z, -]+ \((topic\.c\d) held out\)", document["headline"])
    assert worst == [("50.0%", "topic.c1"), ("50.0%", "topic.c0"), ("75.0%", "topic.c0"), ("50.0%", "topic.c0")]
    assert "In 2 pairs" in document["headline"] and "precision 0.98 and recall 0.97" in document["headline"]


def test_without_training_queries_the_test_clusters_are_compared(tmp_path: Path) -> None:
    document = audit(written(tmp_path / "ms-marco-shift", draft(train=False)))
    assert [pair["name"] for pair in document["pairs"]] == [f"topic.{c}, other test queries" for c in ("c0", "c1")]
    first = leaks(document, "topic.c0, other test queries")
    assert concerned(first["passages", 1]) == {"5"}
    assert concerned(first["equal", None]) == set()
    assert "In 2 pairs other test queries stand in for missing training queries." in document["headline"]


def test_what_cannot_be_looked_for_is_not_zero(planted: Release) -> None:
    table = planted.table("topic", "train").with_columns(pl.lit(None, pl.String).alias("text"))
    tables = [table for table in planted.manifest.tables if table.key != ("qrels", "train")]
    manifest = structs.replace(planted.manifest, tables=tables)
    document = audit(Release(planted.folder, manifest, {("topic", "train"): table}))
    [pair] = [pair for pair in document["pairs"] if pair["name"] == "topic.c0 held out"]
    assert pair["train"] == {"queries": 4, "with_text": 0}
    assert leaks(document, "topic.c0 held out")["passages", 1]["share"] is None
    other = leaks(document, "topic.c1 held out")
    assert other["equal", None]["share"] is other["near", None]["share"] is None
    assert other["equal", None]["of"] == 0
    assert "In 2 pairs the release lacks the text of some training queries" in document["headline"]


def test_every_pair_of_a_whole_release(mini_release: Release) -> None:
    found = {pair.name: pair for pair in pairs(mini_release)}
    clusters = {"topic": 5, "wh": 3, "length": 2}
    restrain = len(mini_release.configs["restrain"])
    assert len(found) == sum(clusters.values()) + 5 * 3 + restrain * 2 + 1 + 5
    train = mini_release.table("topic", "train")
    pair = found["topic.c3 held out"]
    assert set(pair.train) == set(train.filter(pl.col("cluster") != "c3")["query_id"])
    assert set(pair.test) == set(mini_release.test_sets["topic.c3"].queries)
    buckets = [found[f"resttest.b{i} held out, dev"] for i in range(1, 6)]
    assert sorted(pl.concat(pair.test for pair in buckets)) == sorted(mini_release.test_sets["dev"].queries)
    in_bucket = mini_release.table("resttest", "train").filter(pl.col("bucket") == "b1")
    assert not set(buckets[0].train) & set(in_bucket["query_id"])


def test_passages_shared_with_any_training_query(mini_release: Release) -> None:
    document = audit(part(mini_release, "resttest/dl20", "qrels", "topic/test"))
    others = {"dev", "dl19", "dl20", "validation"}
    splits = [name for name in mini_release.configs["qrels"] if name not in others]
    relevant = {passage for name in splits for _, passage, grade in mini_release.qrels(name).iter_rows() if grade}
    judged = mini_release.qrels("dl20").rows()
    for row in document["shared"]:
        hits = Counter(query for query, passage, grade in judged if grade >= row["grade"] and passage in relevant)
        assert (row["one"], row["two"]) == (len(hits), sum(count > 1 for count in hits.values()))
        assert row["test_set"] == "dl20" and row["queries"] == len(mini_release.test_sets["dl20"].queries)
    assert [row["grade"] for row in document["shared"]] == [3, 2, 1]
    assert any(row["two"] for row in document["shared"])


@pytest.mark.parametrize("train", [True, False])
def test_other_wordings_are_compared_by_their_texts_alone(tmp_path: Path, document: dict, train: bool) -> None:
    """The queries of topic.c1 are worded otherwise, in two replicas, the first without a change."""
    texts = {"1": "who was the first emperor of rome" if not train else "Why is the sky blue?", "2": "nothing like it"}
    base = draft(train)
    tables, variations = list(base.tables), []
    for replica, wordings in enumerate(({query: TEST[query][0] for query in texts}, texts), start=1):
        frame = pl.DataFrame({"query_id": list(wordings), "text": list(wordings.values())})
        tables.append(Table("variations", f"typo_{replica}", frame, BY_HAND))
        variations.append(Variation("topic.c1", "typo", None, replica, f"typo_{replica}", None, "by hand", "none", 1))
    worded = audit(written(tmp_path / "ms-marco-shift", replace(base, tables=tables, variations=variations)))
    found = leaks(worded, "topic.c1.typo" if train else "topic.c1.typo, other test queries")
    assert concerned(found["normalised", None]) == (
        {"1 (topic.c1.typo.1)", "2 (topic.c1.typo.1)", "1 (topic.c1.typo.2)"} if train else {"1 (topic.c1.typo.2)"}
    )
    assert found["equal", None]["queries"] == (2 if train else 1) and found["equal", None]["of"] == 4
    assert found["near", None]["share"] is None and len(found) == 3
    if train:
        assert worded["pairs"][:2] == document["pairs"], "the test sets' own pairs do not change"


# --- the texts


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("What's  New?", "whats new", True),
        ("what\u2019s new", "whats new", True),
        ("rock-n-roll", "Rock N Roll", True),
        ("ﬁnance", "finance", True),
        ("STRASSE", "straße", True),
        ("cafe\u0301", "café", True),
        ("１ mile", "1\u00a0mile", True),
        ("c++", "c", False),
        ("5 %", "5 $", False),
        ("naïve", "naive", False),
        ("ab", "a b", False),
    ],
)
def test_the_same_query(text: str, other: str, same: bool) -> None:
    assert (normal_form(text) == normal_form(other)) == same


@given(st.text())
@example("a'\u0301")
def test_normalising_twice_is_normalising_once(text: str) -> None:
    assert normal_form(normal_form(text)) == normal_form(text)


@given(st.lists(st.text(string.ascii_letters + "äß漢", min_size=1), min_size=1), st.data())
def test_case_punctuation_and_spaces_do_not_matter(words: list[str], data: st.DataObject) -> None:
    gap = st.text(' \t\u00a0,.;:!?-()"', min_size=1)
    other = "".join(data.draw(gap) + data.draw(st.sampled_from([word, word.lower()])) for word in words)
    assert normal_form(other) == normal_form(" ".join(words)) == normal_form("'".join([" ".join(words), ""]))


# --- near-duplicates

TABLE_4 = {
    "average wedding dress alteration cost": "average cost for wedding dress alterations",
    "what does it mean if your tsh is low": "what does it mean if my tsh is low",
    "meaning of shebang": "what is a shebang",
    "do google docs auto save": "does google docs automatically save",
    "how long does it take to remove wisdom tooth": "how long does it take to have wisdom teeth removed",
    "how much would it cost to install my own wind turbine": "how much does it cost to install a wind turbine",
    "when did rock n roll begin?": "when did rock and roll begin",
}
"""CIKM 2022, Table 4: pairs of a TREC DL 2020 test query and a training query."""


def test_the_duplicates_that_the_paper_prints_are_near(shared: Path) -> None:
    """Among all dev queries; and as many of those with typing errors are near as the recorded figures say."""
    recorded = json.loads((ROOT / "bench/results/near_duplicates.json").read_text())["encoders"]["trigrams"]
    assert (recorded["cosine"], recorded["precision"], recorded["recall"]) == (NEAR, PRECISION, RECALL)
    dev = shared / "upstream/ielab/CharacterBERT-DR/data/marco_dev"
    written, mistyped = (read_queries(dev / f"queries.dev.small{end}.tsv").select("text") for end in ("", ".typo1"))
    train = pl.concat([written, pl.DataFrame({"text": list(TABLE_4.values())})])
    found = with_near(pl.DataFrame({"text": list(TABLE_4)}), train, NEAR, "")
    assert found["near"].all() and found["nearest"].to_list() == list(TABLE_4.values())
    typed = with_near(mistyped.gather_every(7), written, NEAR, "")["near"].mean()
    assert typed == pytest.approx(recorded["taken for duplicates"]["typing errors"], abs=0.02)


# --- the real lists


@pytest.mark.slow
def test_the_real_lists_share_what_is_known(published_release: Release) -> None:
    """wha and how share 7 queries, wha and who 13, how and who 9; passages are counted once more with plain sets."""
    splits = ("interpolate_14k", "extrapolate_200k")
    names = ("resttest/dl19", "resttest/dl20", *(f"restrain/{split}" for split in splits))
    document = audit(part(published_release, "wh", "qrels", *names))
    equal = [leaks(document, f"wh.{name}, other test queries")["equal", None] for name in ("wha", "how", "who")]
    assert [leak["queries"] for leak in equal] == [20, 16, 22]
    for split in splits:
        labels = {passage for _, passage, grade in published_release.qrels(f"restrain_{split}").iter_rows() if grade}
        for year, n in (("dl19", 43), ("dl20", 54)):
            found = leaks(document, f"restrain.{split}, {year}")
            shared = published_release.qrels(year).filter(pl.col("passage_id").is_in(labels))
            for level in (1, 2, 3):
                hit = {query for query, _, grade in shared.iter_rows() if grade >= level}
                assert (found["passages", level]["queries"], found["passages", level]["of"]) == (len(hit), n)
    printed = {(cell["test_set"], cell["measure"]): cell["value"] for cell in load("cikm2022-table3")["cells"]}
    shared_by_two = ((row, row["two"] / row["queries"]) for row in document["shared"])
    ours = {(row["test_set"], f"overlap(rel={row['grade']})"): share for row, share in shared_by_two}
    assert ours.keys() == printed.keys()
    equal = {key for key in ours if abs(ours[key] - printed[key]) <= 0.005}
    assert printed.keys() - equal == {("dl19", "overlap(rel=3)"), ("dl20", "overlap(rel=1)")}


# --- the command


def test_the_command(command, planted: Release, document: dict) -> None:
    done = command("builder", "audit", planted.folder, "--json", "/no/such/folder/audit.json")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "/no/such/folder/audit.json" in done.stderr
    assert not (planted.folder / "reports").exists()
    done = command("builder", "audit", planted.folder)
    assert done.returncode == 0, done.stderr
    assert json.loads((planted.folder / "reports" / "audit.json").read_text()) == document
    assert document["release"]["digest"] == planted.digest == open_release(planted.folder).digest
    row = next(line for line in done.stdout.splitlines() if line.startswith("topic.c0"))
    cells = "4 4 1 (25.0%) 2 (50.0%) 3 (75.0%) 2 (50.0%) 2 (50.0%) 1 (25.0%)"
    assert row.split()[3:] == cells.split()
    assert document["headline"] in done.stdout
    (planted.folder / "reports" / "audit.json").unlink()
    assert json.loads(command("builder", "audit", planted.folder, "--json", "-").stdout) == document
    assert not (planted.folder / "reports" / "audit.json").exists()


@pytest.mark.parametrize("splits", [[], ["crossed/train"], ["resttest/train", "resttest/dev"]])
def test_nothing_to_compare(tmp_path: Path, splits: list[str]) -> None:
    """A shift without judgements is passed over, as in a release of a query log, which has no test sets."""
    roles = pl.Series(["train", "in", "out"] * 2, dtype=pl.Enum(["train", "in", "out"]))
    queries = draft().tables[2].frame.with_columns(bucket="cluster", m1=roles)
    tables = [Table(*split.split("/"), queries, BY_HAND) for split in splits or ["validation/validation"]]
    release = written(tmp_path / "ms-marco-shift", Draft("rebuilt", None, 0, tables, []))
    with pytest.raises(UserError, match="no two sets of queries to compare"):
        audit(release)
