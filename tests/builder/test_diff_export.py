"""What changed between two releases, and releases in other tools' formats."""

import errno
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import ir_measures
import polars as pl
import pytest
from drafts import BY_HAND, PASSAGES, QRELS, QUERIES, content, small_draft, written
from msgspec import structs

from builder.diff import TableDiff, diff
from builder.export import export
from eval_kit.authors.draft import Draft, Table
from eval_kit.errors import UserError
from eval_kit.files.formats import tab_separated
from eval_kit.release import Release, Variation
from eval_kit.shifts import SHIFTS

TEXTS = dict(zip(QUERIES["query_id"], QUERIES["text"], strict=True))
OF_TEST_SETS = {"length.short": ["1", "10", "30"], "length.long": ["2"]}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Draft], Release]:
    """Write releases, each to a folder of its own."""
    folders = (tmp_path / str(number) / "ms-marco-shift" for number in range(9))
    return lambda draft: written(next(folders), draft)


def with_table(draft: Draft, number: int, frame: pl.DataFrame) -> Draft:
    tables = list(draft.tables)
    tables[number] = replace(tables[number], frame=frame)
    return replace(draft, tables=tables)


def test_equal_releases(write: Callable[[Draft], Release], command) -> None:
    release, other = write(small_draft()), write(small_draft(shuffle=1, version="2.0.0"))
    done = command("builder", "verify", other.folder, "--against", release.folder)
    assert (done.returncode, done.stdout) == (0, "the releases have the same content\n")
    done = command("builder", "verify", other.folder, "--against", release.folder, "--json", "-")
    assert (done.returncode, done.stdout.strip()) == (0, "[]") and diff(release, other) == []


def test_entered_left_moved(write: Callable[[Draft], Release], command) -> None:
    frame = small_draft().tables[0].frame
    changed = pl.concat([frame[1:], frame[:1].with_columns(query_id=pl.lit("99"))])  # 1 left, 99 entered
    changed = changed.with_columns(
        cluster=pl.when(pl.col("query_id") == "10").then(pl.lit("long", frame["cluster"].dtype)).otherwise("cluster"),
        text=pl.when(pl.col("query_id") == "30").then(pl.lit("new text")).otherwise("text"),
    )
    judged = {
        "query-id": [*QRELS["query-id"], "30"],
        "corpus-id": [*QRELS["corpus-id"], "7"],
        "score": [2, 0, 3, 1, 2, 1],
    }
    old, new = write(small_draft()), write(with_table(small_draft(qrels=judged), 0, changed))
    assert [replace(table, moved=sorted(table.moved)) for table in diff(old, new)] == [
        TableDiff("length", "test", entered=["99"], left=["1"], moved=["10", "30"]),
        TableDiff("qrels", "dev", entered=["30 7"], moved=["1 7"]),
    ]
    back = diff(new, old)[0]
    assert (back.config, back.entered, back.left) == ("length", ["1"], ["99"])

    given = ("builder", "verify", new.folder, "--against")
    done = command(*given, old.folder)
    assert done.returncode == 1
    headlines = [line for line in done.stdout.splitlines() if not line.startswith("  ")]
    assert headlines == ["length/test: 1 entered, 1 left, 2 moved", "qrels/dev: 1 entered, 0 left, 1 moved"]
    assert "  + 99\n  - 1\n" in done.stdout
    done = command(*given, old.folder, "--json", "-")
    rows = json.loads(done.stdout)
    assert done.returncode == 1 and rows[1]["entered"] == ["30 7"] and rows[1]["config"] == "qrels"
    done = command(*given, old.folder.parent / "nowhere")
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.count("\n") == 1


def test_tables_and_columns(write: Callable[[Draft], Release]) -> None:
    draft = small_draft()
    frame = draft.tables[0].frame

    def with_negatives(last: list[str]) -> Release:
        negatives = pl.DataFrame({"query_id": ["1", "2"], "passage_ids": [["7"], last]})
        return write(replace(draft, tables=[*draft.tables, Table("negatives", "train", negatives, BY_HAND)]))

    without, with_it = write(draft), with_negatives(["8", "9"])
    assert diff(without, with_it) == [TableDiff("negatives", "train", whole="entered")]
    assert diff(with_it, without) == [TableDiff("negatives", "train", whole="left")]
    assert diff(with_it, with_negatives(["9", "8"])) == [TableDiff("negatives", "train", moved=["2"])]

    # a membership is known by query and cluster, even if only one of the releases has a query twice
    second = frame[:1].with_columns(cluster=pl.lit("long").cast(frame["cluster"].dtype))
    twice = write(with_table(draft, 0, pl.concat([frame, second])))
    assert diff(without, twice) == [TableDiff("length", "test", entered=["1 long"])]
    assert diff(twice, without) == [TableDiff("length", "test", left=["1 long"])]

    fewer = with_table(replace(draft, test_sets=[]), 0, frame.drop("cluster"))
    (columns, *sets) = diff(without, write(fewer))
    assert columns.whole.startswith("columns changed from") and not columns.moved
    assert sets == [TableDiff("test_sets", f"length.{name}", whole="left") for name in ("short", "long")]

    numbers = frame.with_columns(pl.col("cluster").cast(pl.String).cast(pl.Enum(["long", "short"])))
    renumbered = write(with_table(draft, 0, numbers))
    assert renumbered.digest != without.digest
    assert diff(without, renumbered) == [TableDiff("length", "test", whole="the labels' numbers changed")]


def test_test_sets_and_variations_are_content(write: Callable[[Draft], Release]) -> None:
    draft = small_draft()
    short, long = draft.test_sets
    frame = pl.DataFrame({"query_id": ["1", "10"], "text": ["waht is a cat", "cafe pirces"]})
    typos = Variation("length.short", "typo", None, 1, "typos", None, "by hand", "none stated", 2)

    def worded(variation: Variation, frame: pl.DataFrame) -> Release:
        table = Table("variations", "typos", frame, BY_HAND)
        return write(replace(draft, tables=[*draft.tables, table], variations=[variation]))

    plain = write(draft)
    other = write(replace(draft, test_sets=[short, structs.replace(long, measures=["R@1000"])]))
    assert plain.digest != other.digest
    assert diff(plain, other) == [TableDiff("test_sets", "length.long", whole="changed its measures")]
    fewer = write(replace(draft, test_sets=[short]))
    assert diff(plain, fewer) == [TableDiff("test_sets", "length.long", whole="left")]
    varied = worded(typos, frame)
    other = worded(structs.replace(typos, licence="Apache-2.0", invalid=["10"]), frame.with_columns(text=pl.lit("x")))
    assert diff(varied, other) == [
        TableDiff("variations", "typos", moved=["1", "10"]),
        TableDiff("variations", "length.short.typo.1", whole="changed its invalid, licence"),
    ]
    assert diff(varied, plain) == [
        TableDiff("variations", name, whole="left") for name in ("typos", "length.short.typo.1")
    ]


def documents(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


def test_beir_and_tevatron(write: Callable[[Draft], Release], tmp_path: Path) -> None:
    """BEIR's files, which its loader reads in test_neighbours.py; the fields of Tevatron's ``EncodeDataset``."""
    release = write(small_draft())
    passages = list(zip(PASSAGES["passage_id"], PASSAGES["text"], strict=True))
    folders = export(release, tmp_path / "beir", "beir")
    assert [folder.name for folder in folders] == list(OF_TEST_SETS)
    files = {str(path.relative_to(folders[0])) for path in folders[0].rglob("*") if path.is_file()}
    assert files == {"queries.jsonl", "corpus.jsonl", "qrels/test.tsv", "qrels/test.jsonl", "README.md", "LICENSE.md"}
    for folder in folders:
        said = (folder / "README.md").read_text("utf-8")
        assert f"\n# {folder.name}\n" in said and release.digest[:16] in said
    for folder in export(release, tmp_path / "tevatron", "tevatron"):
        assert (folder / "LICENSE.md").read_bytes() == (release.folder / "LICENSE.md").read_bytes()
        queries = OF_TEST_SETS[folder.name]
        corpus = [{"docid": passage, "text": text} for passage, text in passages]
        assert documents(folder / "corpus.jsonl") == corpus
        expected = [{"query_id": query, "query": TEXTS[query]} for query in queries]
        assert documents(folder / "queries.jsonl") == expected
        judged = [tuple(judgement)[:3] for judgement in ir_measures.read_trec_qrels(str(folder / "qrels.txt"))]
        assert judged == [row for row in zip(*QRELS.values(), strict=True) if row[0] in queries]


def test_beir_again_over_other_content(write: Callable[[Draft], Release], tmp_path: Path) -> None:
    """The corpora are one linked file; the folders must still follow the release, and a reader's cache notice."""
    draft = small_draft()
    cards = {(folder / "README.md").read_text() for folder in export(write(draft), tmp_path / "out", "beir")}
    passages = pl.DataFrame({"passage_id": ["7"], "text": ["seven again"]})
    for folder in export(write(with_table(draft, 2, passages)), tmp_path / "out", "beir"):
        assert (folder / "corpus.jsonl").read_text() == '{"_id": "7", "title": "", "text": "seven again"}\n'
        assert (folder / "README.md").read_text() not in cards
    for folder in export(write(replace(draft, tables=draft.tables[:2])), tmp_path / "without", "beir"):
        assert not (folder / "corpus.jsonl").exists() and "corpus" not in (folder / "README.md").read_text()


def test_an_export_replaces_its_own_folders_whole_or_not_at_all(
    write: Callable[[Draft], Release], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    release = write(small_draft())
    export(release, out, "beir")

    before = content(out)

    def full_disk(path: Path, lines: Iterable[str]) -> None:
        path.write_text("half")
        if ".length.long." in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("builder.export.atomic.write_lines", full_disk)
        with pytest.raises(UserError, match=rf"{out}.*No space left on device"):
            export(release, out, "beir")
    assert content(out) == before
    (strange := out / "length.long" / "notes.txt").write_text("mine")
    for format, foreign in (("beir", strange), ("tevatron", out / "length.short" / "qrels/test.jsonl")):
        with pytest.raises(UserError, match=f"^{foreign} is not part of the export"):
            export(release, out, format)
    strange.unlink()
    shutil.copytree(out / "length.short", out / ".length.short.part")  # as a killed export leaves it
    export(release, out, "beir")
    assert content(out) == before


def test_beirs_loader_opens_the_published_lists_with_their_passages(
    published_release: Release, shared: Path, tmp_path: Path, command
) -> None:
    def export(*options: object) -> str:
        done = command("builder", "export", published_release.folder, "--out", tmp_path, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    lacking = "passages are ir_datasets msmarco-passage"
    assert lacking in export("--test-set", "length.short")
    table = published_release.table("length", "test").filter(pl.col("cluster") == "short")
    expected = table.select(_id="query_id", text="text").to_dicts()
    assert documents(tmp_path / "length.short/queries.jsonl") == expected and len(expected) == 3_434

    loader = pytest.importorskip("beir.datasets.data_loader").GenericDataLoader
    passages = shared / "real-slice" / "collection.tsv"
    export("--test-set", "dl19", "--test-set", "topic.c0", "--passages", passages)
    assert {path.name for path in tmp_path.iterdir()} == {"length.short", "dl19", "topic.c0"}
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


def test_texts_and_ids_that_would_become_others() -> None:
    """The texts of BEIR's corpora hold tabs and line breaks; no reader of lines knows quotes."""
    frame = pl.DataFrame({"query_id": ["1", "2"], "text": ["a\n999\tinjected\r\ntopic\u2028x", "plain"]})
    with pytest.warns(UserWarning, match="tabs and line breaks in 1"):
        lines = list(tab_separated(frame))
    assert [line.split("\t")[0] for line in lines] == ["1", "2"]
    assert all(line.count("\t") == 1 and len(line.splitlines()) == 1 for line in lines)


@pytest.mark.parametrize("format", ["tevatron", "beir"])
@pytest.mark.parametrize("column", [pl.col("query_id") + "\n999 Q0 x", pl.lit(None, pl.String).alias("text")])
def test_strange_ids_and_missing_texts_are_not_exported(
    column: pl.Expr, format: str, write: Callable[[Draft], Release], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = write(small_draft())
    queries = release.queries("length.short").with_columns(column)
    monkeypatch.setattr(Release, "queries", lambda release, test_set: queries)
    with pytest.raises(UserError):
        export(release, tmp_path / "out", format, ["length.short"])
    assert not list((tmp_path / "out").glob("*"))
