"""The published release against the golden values of the papers and of the authors' own files."""

from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from builder import verify
from builder.shifts import wh
from builder.sources import published
from eval_kit.authors import lists
from eval_kit.authors.sources import declared_files
from eval_kit.authors.test_sets import BUCKETS, LEVELS
from eval_kit.errors import UserError
from eval_kit.release import Release

pytestmark = pytest.mark.usefixtures("shared")

MS_SHIFT = {
    **{f"topic.c{i}": n for i, n in enumerate([6595, 5960, 6255, 5868, 6566])},
    "wh.wha": 6496,
    "wh.how": 6497,
    "wh.who": 6494,
    "length.short": 3434,
    "length.long": 3546,
}
RESTRAIN = {  # distinct queries; lines upstream; pairs that appear twice
    "interpolate_14k": (13_175, 14_295, 0),
    "extrapolate_14k": (13_763, 14_363, 0),
    "interpolate_45k": (42_725, 46_291, 0),
    "extrapolate_45k": (44_747, 46_691, 0),
    "interpolate_200k": (194_113, 208_017, 5),
    "extrapolate_200k": (200_137, 209_681, 3),
}
CHAMELEONS = {  # CIKM 2021: Table 3 (sizes), Table 5 (relevant passages), Table 6 (query length), 10 % to 50 %
    "lesser": ["95 1.06 6.30", "359 1.09 6.72", "705 1.08 6.62", "1170 1.09 6.51", "1693 1.09 6.45"],
    "pygmy": ["223 1.05 6.56", "615 1.08 6.71", "1154 1.082 6.64", "1763 1.08 6.51", "2473 1.08 6.35"],
    "veiled": ["400 1.06 6.73", "982 1.07 6.70", "1640 1.08 6.54", "2390 1.07 6.37", "3119 1.07 6.24"],
}
QUERYLESS = {"c0": ["54", "749567"], "c1": ["55", "540270"], "c2": ["675535", "794137"], "c4": ["878557", "1070274"]}


def ids(release: Release, test_set: str) -> set[str]:
    return set(release.test_sets[test_set].queries)


def test_shift_sizes(published_release: Release) -> None:
    sets = published_release.test_sets
    assert {name: len(sets[name].queries) for name in MS_SHIFT} == MS_SHIFT
    assert len(set().union(*(ids(published_release, name) for name in MS_SHIFT))) == 56_390
    short, long, dev = (ids(published_release, name) for name in ("length.short", "length.long", "dev"))
    assert short | long == dev
    topic = published_release.table("topic", "test")
    assert (topic.height, topic["query_id"].n_unique()) == (31_244, 31_244)


def test_wh_overlaps(published_release: Release) -> None:
    wha, how, who = (ids(published_release, f"wh.{cluster}") for cluster in wh.CLUSTERS)
    assert (len(wha & how), len(wha & who), len(how & who)) == (7, 13, 9)
    topics = [ids(published_release, f"topic.c{i}") for i in range(5)]
    overlaps = [len(topic & cluster) for topic in topics for cluster in (wha, how, who)]
    assert (min(overlaps), max(overlaps)) == (27, 200)


def test_words_are_counted_between_single_blanks(published_release: Release) -> None:
    """The rules themselves are checked by verify."""
    lengths = published_release.table("length", "test")
    naive = lengths["text"].str.extract_all(r"[^ ]+").list.len()
    assert ((naive <= 5) != (lengths["cluster"] == "short")).sum() == 4, "text.split() would get four wrong"


def test_restrain(published_release: Release) -> None:
    for split, (queries, lines, twice) in RESTRAIN.items():
        table, qrels = published_release.table("restrain", split), published_release.qrels(f"restrain_{split}")
        assert (table.height, table["query_id"].n_unique()) == (queries, queries)
        assert (qrels.height, qrels.unique(["query_id", "passage_id"]).height) == (lines - twice, lines - twice)
        assert set(qrels["query_id"]) == set(table["query_id"])


@pytest.mark.parametrize(
    ("split", "sizes"), [("dev", [981, 2206, 1824, 1491, 478]), ("dl19", [5, 17, 7, 13, 1]), ("dl20", None)]
)
def test_resttest(published_release: Release, split: str, sizes: list[int] | None) -> None:
    table = published_release.table("resttest", split)
    counts = dict(table.group_by("bucket").len().iter_rows())
    assert set(counts) == set(BUCKETS)
    if sizes:
        assert [counts[bucket] for bucket in BUCKETS] == sizes
    total = {"dev": 6_980, "dl19": 43, "dl20": 54}[split]
    assert table["query_id"].n_unique() == table.height == len(ids(published_release, split)) == total
    assert table["text"].null_count() == 0
    if split == "dev":
        named = [len(published_release.test_sets[f"resttest.{bucket}"].queries) for bucket in BUCKETS]
        assert named == sizes


def test_chameleons_are_the_authors_lists_and_nest(published_release: Release, shared: Path) -> None:
    sets: dict[tuple[str, int], set[str]] = {}
    for name, (title, rankers) in lists.CHAMELEON_FILES.items():
        for level in LEVELS:
            file = f"{lists.CHAMELEONS}/{title}(common{rankers})/{title}_common{rankers}_0.{level // 10}"
            lines = (shared / "upstream" / file).read_text().splitlines()
            sets[name, level] = ids(published_release, f"chameleons.{name}.{level}")
            assert sets[name, level] == {line.split("\t")[0] for line in lines}
        assert [len(sets[name, level]) for level in LEVELS] == [int(row.split()[0]) for row in CHAMELEONS[name]]
        assert all(sets[name, lower] <= sets[name, higher] for lower, higher in pairwise(LEVELS))
    for level in LEVELS:
        assert sets["lesser", level] <= sets["pygmy", level] <= sets["veiled", level]


def test_chameleons_tables_5_and_6(published_release: Release) -> None:
    """The paper rounds some of its means (6.7187 is 6.72) and truncates others (6.4566 is 6.45)."""
    relevant = dict(published_release.qrels("dev").group_by("query_id").len().iter_rows())
    texts = published_release.table("resttest", "dev").select("query_id", "text").iter_rows()
    words = {query: len(text.split()) for query, text in texts}
    printed = {
        f"chameleons.{name}.{level}": row.split()[1:]
        for name, rows in CHAMELEONS.items()
        for level, row in zip(LEVELS, rows, strict=True)
    }
    for test_set, row in {"dev": ("1.06", "5.92"), **printed}.items():
        queries = ids(published_release, test_set)
        for figure, values in zip(row, (relevant, words), strict=True):
            mean = Decimal(sum(values[query] for query in queries)) / len(queries)
            rounded = {mean.quantize(Decimal(figure), way) for way in (ROUND_HALF_UP, ROUND_DOWN)}
            assert Decimal(figure) in rounded, test_set


def test_oddities_are_remarked(published_release: Release) -> None:
    remarks = published_release.manifest.remarks
    for cluster, odd in QUERYLESS.items():
        assert [remark for remark in remarks if f"topic {cluster}" in remark and f"({', '.join(odd)})" in remark]
        assert set(odd) <= set(published_release.qrels("topic_test")["query_id"])
        assert not set(odd) & ids(published_release, f"topic.{cluster}")
    assert not [remark for remark in remarks if "topic c3" in remark]
    for split, (_, _, twice) in RESTRAIN.items():
        sentences = [remark for remark in remarks if remark.startswith(f"restrain/{split}: {twice} ")]
        assert any("twice" in sentence for sentence in sentences) == bool(twice)


def test_no_carriage_return(published_release: Release, shared: Path) -> None:
    assert b"\r\n" in (shared / "upstream" / lists.DL_TOPICS["dl20"]).read_bytes()
    for config, splits in published_release.configs.items():
        for split in splits:
            texts = published_release.table(config, split).select(pl.col(pl.String).str.contains(r"[\r\n\t]").any())
            assert not any(texts.row(0)), f"{config}/{split}"


def test_every_text_is_the_authors(published_release: Release, shared: Path) -> None:
    for cluster, number in {"c0": 0, "c3": 3}.items():
        lines = (shared / "upstream" / f"{lists.SHIFT_TEST}/queries/queries_{number}.tsv").read_text().split("\n")
        table = published_release.table("topic", "test").filter(cluster=cluster).select("query_id", "text")
        assert sorted(table.iter_rows()) == sorted(tuple(line.split("\t")) for line in lines if line)


def test_missing_is_named(published_release: Release) -> None:
    missing = {item.what: item.because for item in published_release.manifest.missing}
    parts = {what for what in missing if not what.startswith("text of ")}
    assert parts == {"topic/train, wh/train and length/train", "resttest/train", "qrels/train", "validation"}
    assert "TRAIN/queries_clustering.tsv" in missing["topic/train, wh/train and length/train"]
    assert "bucket-1/train-qrel.txt" in missing["resttest/train"] and "4 more files" in missing["resttest/train"]
    for split in RESTRAIN:
        without = published_release.table("restrain", split)["text"].null_count()
        assert any(
            what.startswith(f"text of {without:,} of ") and what.endswith(f"restrain/{split}") for what in missing
        )
    assert all(missing.values()), "each with its reason"
    inputs = {one.id for one in published_release.manifest.inputs}
    rules = {file for table in published_release.manifest.tables for file in table.rule.inputs}
    assert inputs == rules and len(inputs) >= 50
    assert all(one.licence and one.git_blob for one in published_release.manifest.inputs)


def test_verify_finds_no_fault(published_release: Release) -> None:
    checks = {check.what: check.fault for check in verify.verify(published_release.folder)}
    assert not any(checks.values())
    rules = {"clusters follow the length rule (length/test)", "clusters follow the wh-word rule (wh/test)"}
    assert {*rules, "interpolate and extrapolate share no query"} <= checks.keys()


def test_tampered_upstream_is_refused(shared: Path, tmp_path: Path) -> None:
    file = next(file for file in declared_files().values() if "Lesser" in file.path)
    content = bytearray((shared / "upstream" / file.id).read_bytes())
    content[100] ^= 1
    (tmp_path / file.id).parent.mkdir(parents=True)
    (tmp_path / file.id).write_bytes(content)
    with pytest.raises(UserError, match="is not the"):
        published.draft(tmp_path, allow_partial=True)
