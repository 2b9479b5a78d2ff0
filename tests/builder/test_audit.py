"""The audit finds exactly what was planted, and on the real lists what can be counted by other means."""

import json
import re
import string
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
from eval_kit.protocols.clean import KINDS
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


def row(document: dict, name: str) -> dict:
    [pair] = [pair for pair in document["pairs"] if pair["name"] == name]
    return pair


def counts(document: dict, name: str) -> list[int | None]:
    return [row(document, name)[kind] for kind in ("queries", *KINDS)]


# --- what was planted


def test_planted_leaks_are_found_and_nothing_else(document: dict) -> None:
    """Of c0, 106 is equal, 3 is too when normalised, 4 is near; 3 and 5 share a passage that was relevant in training.
    Of c1, 1 is equal to and shares the passage of 101; 2 is in training, but in its own cluster."""
    assert counts(document, "topic.c0 held out") == [4, 1, 2, 3, 2]
    assert counts(document, "topic.c1 held out") == [2, 1, 1, 1, 1]
    worst = re.findall(r"up to (\d+\.\d%) [a-z, -]+ \((topic\.c\d) held out\)", document["headline"])
    assert worst == [("50.0%", "topic.c1"), ("50.0%", "topic.c0"), ("75.0%", "topic.c0"), ("50.0%", "topic.c0")]
    assert "In 2 pairs" in document["headline"] and "precision 0.98 and recall 0.97" in document["headline"]


def test_without_training_queries_the_test_clusters_are_compared(tmp_path: Path) -> None:
    document = audit(written(tmp_path / "ms-marco-shift", draft(train=False)))
    assert [pair["name"] for pair in document["pairs"]] == [f"topic.{c}, other test queries" for c in ("c0", "c1")]
    assert counts(document, "topic.c0, other test queries") == [4, 0, 0, 0, 1]
    assert "In 2 pairs other test queries stand in for missing training queries." in document["headline"]


def test_what_cannot_be_looked_for_is_not_zero(planted: Release) -> None:
    table = planted.table("topic", "train").with_columns(pl.lit(None, pl.String).alias("text"))
    tables = [table for table in planted.manifest.tables if table.key != ("qrels", "train")]
    manifest = structs.replace(planted.manifest, tables=tables)
    document = audit(Release(planted.folder, manifest, {("topic", "train"): table}))
    found = row(document, "topic.c0 held out")
    assert (found["train"], found["with_text"], found["passages"]) == (4, 0, None)
    assert counts(document, "topic.c1 held out") == [2, None, None, None, None]
    assert "In 2 pairs the release lacks the text of some training queries" in document["headline"]


def test_a_query_log_of_train_and_test_parts_is_audited(tmp_path: Path) -> None:
    """Without judgements there are no test sets, and no passages to compare."""
    tables = [table for table in draft().tables if table.config != "qrels"]
    document = audit(written(tmp_path / "ms-marco-shift", Draft("rebuilt", None, 0, tables, [])))
    assert [pair["name"] for pair in document["pairs"]] == ["topic.c0 held out", "topic.c1 held out"]
    assert counts(document, "topic.c0 held out") == [4, 1, 2, 3, None]
    assert counts(document, "topic.c1 held out") == [2, 1, 1, 1, None]
    assert "passage" not in document["headline"]


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
    found = counts(worded, "topic.c1.typo" if train else "topic.c1.typo, other test queries")
    assert found == ([4, 2, 3, None, None] if train else [4, 1, 1, None, None])
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
    equal = [row(document, f"wh.{name}, other test queries")["equal"] for name in ("wha", "how", "who")]
    assert equal == [20, 16, 22]
    for split in splits:
        labels = {passage for _, passage, grade in published_release.qrels(f"restrain_{split}").iter_rows() if grade}
        for year, n in (("dl19", 43), ("dl20", 54)):
            found = row(document, f"restrain.{split}, {year}")
            judged = published_release.qrels(year).iter_rows()
            hit = {query for query, passage, grade in judged if grade and passage in labels}
            assert (found["passages"], found["queries"]) == (len(hit), n)


def test_cikm_table_3_counts_two_shared_passages_or_more(published_release: Release) -> None:
    """By the judgements of training queries that are at hand, 4 of its 6 figures are as printed."""
    others = ("restrain_", "topic_test", "wh_test")
    splits = [split for split in published_release.configs["qrels"] if split.startswith(others)]
    training = pl.concat(published_release.qrels(split) for split in splits).filter(pl.col("relevance") >= 1)
    printed = {(cell["test_set"], cell["measure"]): cell["value"] for cell in load("cikm2022-table3")["cells"]}
    differ = set()
    for year, queries in (("dl19", 43), ("dl20", 54)):
        shared = published_release.qrels(year).join(training, on="passage_id", how="semi")
        for grade in (1, 2, 3):
            passages = shared.filter(pl.col("relevance") >= grade).group_by("query_id").len()["len"]
            share = (passages > 1).sum() / queries
            if abs(share - printed[year, f"overlap(rel={grade})"]) > 0.005:
                differ.add((year, grade))
    assert differ == {("dl19", 3), ("dl20", 1)} and len(printed) == 6


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
    line = next(line for line in done.stdout.splitlines() if line.startswith("topic.c0"))
    assert line.split()[3:] == ["4", "4", "1", "(25.0%)", "2", "(50.0%)", "3", "(75.0%)", "2", "(50.0%)"]
    assert document["headline"] in done.stdout
    (planted.folder / "reports" / "audit.json").unlink()
    assert json.loads(command("builder", "audit", planted.folder, "--json", "-").stdout) == document
    assert not (planted.folder / "reports" / "audit.json").exists()


def test_nothing_to_compare(tmp_path: Path) -> None:
    tables = [Table("validation", "validation", draft().tables[2].frame, BY_HAND)]
    release = written(tmp_path / "ms-marco-shift", Draft("rebuilt", None, 0, tables, []))
    with pytest.raises(UserError, match="no two sets of queries to compare"):
        audit(release)
