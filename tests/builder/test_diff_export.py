"""What changed between two releases, and releases in other tools' formats."""

import csv
import errno
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import ir_measures
import polars as pl
import pytest
import pytrec_eval
from drafts import BY_HAND, PASSAGES, QRELS, QUERIES, small_draft
from msgspec import structs

from builder import release as releases
from builder.diff import TableDiff, diff
from builder.export import export
from builder.release import Draft, Table
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.release import Release, Variation, open_release
from eval_kit.shifts import SHIFTS

type Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Draft], Release]:
    written: list[Path] = []

    def write(draft: Draft) -> Release:
        written.append(tmp_path / str(len(written)) / "ms-marco-shift")
        releases.write(draft, written[-1])
        return open_release(written[-1])

    return write


def with_table(draft: Draft, place: int, frame: pl.DataFrame) -> Draft:
    tables = list(draft.tables)
    tables[place] = replace(tables[place], frame=frame)
    return replace(draft, tables=tables)


def test_equal_releases(write: Callable[[Draft], Release], command: Run) -> None:
    one, other = write(small_draft()), write(small_draft(shuffle=1, version="2.0.0"))
    assert diff(one, other) == []
    done = command("builder", "verify", other.folder, "--against", one.folder)
    assert (done.returncode, done.stdout) == (0, "the releases have the same content\n")
    done = command("builder", "verify", other.folder, "--against", one.folder, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_entered_left_moved(write: Callable[[Draft], Release], command: Run) -> None:
    frame = small_draft().tables[0].frame
    changed = pl.concat([frame[1:], frame[:1].with_columns(query_id=pl.lit("99"))])  # 1 left, 99 entered
    where = {"10": pl.col("query_id") == "10", "30": pl.col("query_id") == "30"}
    changed = changed.with_columns(
        cluster=pl.when(where["10"]).then(pl.lit("long", frame["cluster"].dtype)).otherwise("cluster"),
        text=pl.when(where["30"]).then(pl.lit("new text")).otherwise("text"),
    )
    judged = {
        "query-id": [*QRELS["query-id"], "30"],
        "corpus-id": [*QRELS["corpus-id"], "7"],
        "score": [2, 0, 3, 1, 2, 1],
    }
    old, new = write(small_draft()), write(with_table(small_draft(qrels=judged), 0, changed))
    expected = [
        TableDiff("length", "test", entered=["99"], left=["1"], moved=["10", "30"]),
        TableDiff("qrels", "dev", entered=["30 7"], moved=["1 7"]),
    ]
    assert [replace(one, moved=sorted(one.moved)) for one in diff(old, new)] == expected
    back = {(one.config, one.split): one for one in diff(new, old)}
    assert back["length", "test"].entered == ["1"] and back["length", "test"].left == ["99"]

    done = command("builder", "verify", new.folder, "--against", old.folder)
    assert done.returncode == 1
    assert "length/test: 1 entered, 1 left, 2 moved" in done.stdout and "  + 99\n  - 1\n" in done.stdout
    done = command("builder", "verify", new.folder, "--against", old.folder, "--summary")
    expected = "length/test: 1 entered, 1 left, 2 moved\nqrels/dev: 1 entered, 0 left, 1 moved\n"
    assert (done.returncode, done.stdout) == (1, expected)
    done = command("builder", "verify", new.folder, "--against", old.folder, "--json")
    rows = json.loads(done.stdout)
    assert done.returncode == 1 and rows[1]["entered"] == ["30 7"] and rows[1]["config"] == "qrels"
    done = command("builder", "verify", old.folder.parent / "nowhere", "--against", old.folder)
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.count("\n") == 1


def test_query_in_several_clusters(write: Callable[[Draft], Release]) -> None:
    """A membership is known by query and cluster, even if only one of the releases has a query twice."""
    frame = small_draft().tables[0].frame
    second = frame[:1].with_columns(cluster=pl.lit("long").cast(frame["cluster"].dtype))
    one, other = write(small_draft()), write(with_table(small_draft(), 0, pl.concat([frame, second])))
    assert diff(one, other) == [TableDiff("length", "test", entered=["1 long"])]
    assert diff(other, one) == [TableDiff("length", "test", left=["1 long"])]


def test_tables_and_columns(write: Callable[[Draft], Release]) -> None:
    draft = small_draft()
    extra = Table(
        "negatives", "train", pl.DataFrame({"query_id": ["1", "2"], "passage_ids": [["7"], ["8", "9"]]}), BY_HAND
    )
    other = replace(extra, frame=pl.DataFrame({"query_id": ["1", "2"], "passage_ids": [["7"], ["9", "8"]]}))
    without, with_it = write(draft), write(replace(draft, tables=[*draft.tables, extra]))
    assert diff(without, with_it) == [TableDiff("negatives", "train", whole="entered")]
    assert diff(with_it, without) == [TableDiff("negatives", "train", whole="left")]
    reordered = write(replace(draft, tables=[*draft.tables, other]))
    assert diff(with_it, reordered) == [TableDiff("negatives", "train", moved=["2"])]

    fewer = with_table(replace(draft, test_sets=[]), 0, draft.tables[0].frame.drop("cluster"))
    (columns, *sets) = diff(without, write(fewer))
    assert columns.whole.startswith("columns changed from") and not columns.moved
    assert sets == [TableDiff("test_sets", f"length.{name}", whole="left") for name in ("short", "long")]

    numbers = draft.tables[0].frame.with_columns(pl.col("cluster").cast(pl.String).cast(pl.Enum(["long", "short"])))
    renumbered = write(with_table(draft, 0, numbers))
    assert renumbered.digest != without.digest
    assert diff(without, renumbered) == [TableDiff("length", "test", whole="the labels' numbers changed")]


def test_test_sets_are_content(write: Callable[[Draft], Release], command: Run) -> None:
    draft = small_draft()
    other = structs.replace(draft.test_sets[1], measures=["R@1000"])
    one, new = write(draft), write(replace(draft, test_sets=[draft.test_sets[0], other]))
    assert one.digest != new.digest
    assert diff(one, new) == [TableDiff("test_sets", "length.long", whole="changed its measures")]
    fewer = write(small_draft(names=("short",)))
    assert diff(one, fewer) == [TableDiff("test_sets", "length.long", whole="left")]
    done = command("builder", "verify", fewer.folder, "--against", one.folder)
    assert (done.returncode, done.stdout) == (1, "test_sets/length.long: left\n")


def test_variations_are_content(write: Callable[[Draft], Release]) -> None:
    frame = pl.DataFrame({"query_id": ["1", "10"], "text": ["waht is a cat", "cafe pirces"]})
    typos = Variation("length.short", "typo", None, 1, "typos", None, "by hand", "none stated", 2)

    def worded(variation: Variation, frame: pl.DataFrame) -> Release:
        draft = small_draft()
        table = Table("variations", "typos", frame, BY_HAND)
        return write(replace(draft, tables=[*draft.tables, table], variations=[variation]))

    one = worded(typos, frame)
    other = worded(structs.replace(typos, licence="Apache-2.0", invalid=["10"]), frame.with_columns(text=pl.lit("x")))
    assert diff(one, other) == [
        TableDiff("variations", "typos", moved=["1", "10"]),
        TableDiff("variations", "length.short.typo.1", whole="changed its invalid, licence"),
    ]
    assert [(change.split, change.whole) for change in diff(one, write(small_draft()))] == [
        ("typos", "left"),
        ("length.short.typo.1", "left"),
    ]


def rows(path: Path, **options: str) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE, **options))


def test_beir(write: Callable[[Draft], Release], tmp_path: Path) -> None:
    folders = export(write(small_draft()), tmp_path / "out", "beir")
    assert [folder.name for folder in folders] == ["length.short", "length.long"]
    files = {str(path.relative_to(folders[0])) for path in folders[0].rglob("*") if path.is_file()}
    assert files == {"queries.jsonl", "corpus.jsonl", "qrels/test.tsv", "qrels/test.jsonl", "README.md"}
    corpus = [json.loads(line) for line in (folders[0] / "corpus.jsonl").read_text("utf-8").splitlines()]
    assert corpus == [
        {"_id": one, "title": "", "text": text}
        for one, text in zip(PASSAGES["passage_id"], PASSAGES["text"], strict=True)
    ]
    texts = dict(zip(QUERIES["query_id"], QUERIES["text"], strict=True))
    for folder, queries in zip(folders, (["1", "10", "30"], ["2"]), strict=True):
        lines = [json.loads(line) for line in (folder / "queries.jsonl").read_text("utf-8").split("\n")[:-1]]
        assert lines == [{"_id": query, "text": texts[query]} for query in queries]
        header, *judged = rows(folder / "qrels/test.tsv")
        assert header == ["query-id", "corpus-id", "score"]
        assert judged == [
            [query, passage, str(grade)]
            for query, passage, grade in zip(*QRELS.values(), strict=True)
            if query in queries
        ]


def test_tevatron(write: Callable[[Draft], Release], tmp_path: Path) -> None:
    """The fields that its ``EncodeDataset`` reads: ``query_id``, ``query``; ``docid``, ``text``."""
    folders = export(write(small_draft()), tmp_path, "tevatron")
    texts = dict(zip(QUERIES["query_id"], QUERIES["text"], strict=True))
    for folder, queries in zip(folders, (["1", "10", "30"], ["2"]), strict=True):
        lines = [json.loads(line) for line in (folder / "queries.jsonl").read_text("utf-8").split("\n")[:-1]]
        assert lines == [{"query_id": query, "query": texts[query]} for query in queries]
        corpus = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").split("\n")[:-1]]
        assert corpus == [
            {"docid": id, "text": text} for id, text in zip(PASSAGES["passage_id"], PASSAGES["text"], strict=True)
        ]
        judged = ir_measures.read_trec_qrels(str(folder / "qrels.txt"))
        assert {judgement.query_id for judgement in judged} == set(queries)


def test_beir_again_over_other_content(write: Callable[[Draft], Release], tmp_path: Path) -> None:
    """The corpora are one linked file; the folders must still follow the release, and a reader's cache notice."""
    first = export(write(small_draft()), tmp_path / "out", "beir")
    cards = {(folder / "README.md").read_text() for folder in first}
    passages = pl.DataFrame({"passage_id": ["7"], "text": ["seven again"]})
    for folder in export(write(with_table(small_draft(), 2, passages)), tmp_path / "out", "beir"):
        assert (folder / "corpus.jsonl").read_text() == '{"_id": "7", "title": "", "text": "seven again"}\n'
        assert (folder / "README.md").read_text() not in cards
    without = replace(small_draft(), tables=small_draft().tables[:2])
    for folder in export(write(without), tmp_path / "without", "beir"):
        assert not (folder / "corpus.jsonl").exists() and "corpus" not in (folder / "README.md").read_text()


def test_an_export_replaces_its_own_folders_whole_or_not_at_all(
    write: Callable[[Draft], Release], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    release = write(small_draft())
    export(release, out, "beir")

    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    before = content()

    def full_disk(path: Path, lines: Iterable[str]) -> None:
        path.write_text("half")
        if ".length.long." in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("builder.export.atomic.write_lines", full_disk)
        with pytest.raises(UserError, match=f"^{out}: cannot be written: No space left on device$"):
            export(release, out, "beir")
    assert content() == before
    (strange := out / "length.long" / "notes.txt").write_text("mine")
    for format, foreign in (("beir", strange), ("trec", out / "length.short" / "README.md")):
        with pytest.raises(UserError, match=f"^{foreign}: is not part of the export that would replace it"):
            export(release, out, format)
    strange.unlink()
    left = out / f".length.short.{'a' * 32}.part"  # as a killed export leaves it
    shutil.copytree(out / "length.short", left / "new")
    (left / atomic.MARK).touch()
    export(release, out, "beir")
    assert content() == before


def test_trec(mini_release: Release, tmp_path: Path) -> None:
    folders = export(mini_release, tmp_path, "trec")
    assert {folder.name for folder in folders} == {*mini_release.test_sets, *mini_release.variations}
    for folder in folders:
        topics = rows(folder / "topics.tsv")
        if folder.name in mini_release.variations:
            variation = mini_release.variations[folder.name]
            test_set = mini_release.test_sets[variation.base]
            assert list(map(tuple, topics)) == mini_release.wordings(variation).rows()
        else:
            test_set = mini_release.test_sets[folder.name]
            assert [query for query, _ in topics] == test_set.queries.to_list()
        judged = [tuple(one)[:3] for one in ir_measures.read_trec_qrels(str(folder / "qrels.txt"))]
        expected = [one for one in mini_release.qrels(test_set.qrels).iter_rows() if one[0] in set(test_set.queries)]
        assert judged == expected and {query for query, _, _ in judged} == set(test_set.queries)
    with (tmp_path / "dl19/qrels.txt").open() as file:
        qrels = pytrec_eval.parse_qrel(file)
    perfect = {query: {passage: float(grade) for passage, grade in judged.items()} for query, judged in qrels.items()}
    scores = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut_10"}).evaluate(perfect)
    assert len(scores) == 43 and all(score["ndcg_cut_10"] == pytest.approx(1) for score in scores.values())


@pytest.mark.slow
def test_pyserini_reads_the_topics_as_they_are(published_release: Release, tmp_path: Path) -> None:
    """Its readers of TSV files trim texts; in JSON blanks, quotes and wrong encodings stay."""
    lucene = pytest.importorskip("eval_kit.search.lucene", exc_type=ImportError)
    names = ("wh.how", "dl_typo")
    for folder in export(published_release, tmp_path, "pyserini", names):
        lucene.start()
        from pyserini.query_iterator import DefaultQueryIterator

        topics = dict(DefaultQueryIterator.from_topics(str(folder / "topics.json")))
        assert topics == dict(published_release.queries(folder.name).iter_rows())
        assert {line.split()[0] for line in (folder / "qrels.txt").read_text().splitlines()} == set(topics)


@pytest.mark.slow
def test_published_queries_are_exported_as_they_are(published_release: Release, tmp_path: Path, command: Run) -> None:
    done = command("builder", "export", published_release.folder, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no corpus.jsonl, which its loader needs: the passages are ir_datasets msmarco-passage" in done.stdout
    assert sum(path.is_dir() for path in tmp_path.iterdir()) == len(published_release.test_sets) + len(
        published_release.variations
    )
    lines = (tmp_path / "length.short/queries.jsonl").read_text("utf-8").split("\n")[:-1]
    table = published_release.table("length", "test")
    expected = table.filter(table["cluster"] == "short").select("query_id", "text").rows()
    assert [(one["_id"], one["text"]) for one in map(json.loads, lines)] == expected and len(expected) == 3_434


def test_beirs_loader_opens_the_published_lists_with_their_passages(
    published_release: Release, shared: Path, tmp_path: Path, command: Run
) -> None:
    loader = pytest.importorskip("beir.datasets.data_loader").GenericDataLoader
    names = ("dl19", "topic.c0")
    options = [word for name in names for word in ("--test-set", name)]
    passages = shared / "real-slice" / "collection.tsv"
    done = command("builder", "export", published_release.folder, "--out", tmp_path, "--passages", passages, *options)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {*names}
    corpus, queries, qrels = loader(str(tmp_path / "dl19")).load(split="test")
    assert len(corpus) == 30_005 and len(queries) == len(qrels) == 43
    assert (tmp_path / "topic.c0/corpus.jsonl").samefile(tmp_path / "dl19/corpus.jsonl")


def test_training_sets_are_what_the_baselines_train_on(mini_release: Release, tmp_path: Path) -> None:
    loader = pytest.importorskip("beir.datasets.data_loader").GenericDataLoader
    [folder] = export(mini_release, tmp_path, "beir", training_sets=["topic.not-c0"])
    _, queries, qrels = loader(str(folder)).load(split="train")
    permitted = SHIFTS["topic"].training(mini_release, "c0")
    judged = set(mini_release.qrels(permitted.qrels)["query_id"])
    assert set(queries) == set(qrels) == set(permitted.queries["query_id"]) & judged
    assert not set(queries) & set(mini_release.test_sets["topic.c1"].queries)


def test_export_faults(write: Callable[[Draft], Release], tmp_path: Path, command: Run) -> None:
    release = write(small_draft())
    with pytest.raises(UserError, match="unknown format 'csv'; there are beir, trec, pyserini"):
        export(release, tmp_path / "out", "csv")
    for options, message in (
        ({"test_sets": ["topic.c9"]}, "no test set or variation topic.c9; there are length.long, length.short"),
        ({"training_sets": ["length.not-long"]}, "no training set length.not-long; it has none"),
    ):
        with pytest.raises(UserError, match=message):
            export(release, tmp_path / "out", "beir", **options)
    (tmp_path / "file").write_text("x")
    (tmp_path / "half/length.short").mkdir(parents=True)
    (tmp_path / "half/length.short/qrels").write_text("a file where a folder should be")
    for place, message in (("file", "cannot be written"), ("half", "length.short/qrels: is not part of the export")):
        with pytest.raises(UserError, match=message):
            export(release, tmp_path / place, "beir")
