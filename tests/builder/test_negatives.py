"""BM25 negatives: what is drawn, that nothing interrupts it for good, and that releases stay whole."""

import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import clients
import polars as pl
import pytest
from drafts import content
from msgspec import structs

from builder import cli, negatives
from builder import mini as planted
from builder import release as releases
from builder.verify import verify
from eval_kit.errors import UserError
from eval_kit.files.digests import table_digest
from eval_kit.release import Release, open_release
from eval_kit.search import lucene

DEPTH, SAMPLE = 100, 20  # as the trainable release's
DRAW = f"""
import sys
from pathlib import Path
from builder import cli, negatives
negatives.SHARD = 40
negatives.add(Path(sys.argv[1]), negatives.NegativeParameters({DEPTH}, {SAMPLE}), Path(sys.argv[2]), int(sys.argv[3]))
"""


def drawing(folder: Path, cache: Path, threads: int = 1) -> clients.Running:
    return clients.Running(["-c", DRAW, str(folder), str(cache), str(threads)], os.environ)


def finish(process: clients.Running) -> None:
    done = process.wait()
    assert done.returncode == 0, done.stderr


def kill_after(process: clients.Running, cache: Path, count: int) -> list[Path]:
    deadline = time.monotonic() + 120
    while len(list(cache.glob("negatives/*/shards/*.parquet"))) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.kill().returncode == -signal.SIGKILL
    shards = sorted(cache.glob("negatives/*/shards/*.parquet"))
    assert len(shards) >= count
    return shards


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare") / "ms-marco-shift"
    releases.write(planted.draft(queries=500), folder)
    return folder


@pytest.fixture(scope="module")
def drawn(trainable_release: Release) -> Release:
    return trainable_release


@pytest.fixture(scope="module")
def cache(drawn: Release) -> Path:
    return drawn.folder.parent / "cache"


def training_texts(release: Release) -> dict[str, str]:
    texts: dict[str, str] = {}
    for config in ("topic", "wh", "length", "resttest"):
        texts |= dict(release.table(config, "train").select("query_id", "text").iter_rows())
    for split in release.configs["restrain"]:
        texts |= dict(release.table("restrain", split).iter_rows())
    return texts | dict(release.table("validation", "validation").iter_rows())


def relevant(release: Release) -> set[tuple[str, str]]:
    splits = release.configs["qrels"]
    return {pair[:2] for split in splits for pair in release.qrels(split).iter_rows() if pair[2] >= 1}


# --- what is drawn


def test_drawn_from_what_pyserini_ranks_in_its_order(drawn: Release, cache: Path) -> None:
    """Pyserini's own rankings for forty of the queries."""
    lucene.start()  # where another worker has drawn
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(next(path for path in (cache / "bm25").iterdir() if path.is_dir())))
    searcher.set_bm25(0.9, 0.4)
    queries = list(training_texts(drawn).items())[:40]
    rankings = {query: [hit.docid for hit in searcher.search(text, DEPTH)] for query, text in queries}
    table, positives = dict(drawn.table("negatives", "train").iter_rows()), relevant(drawn)
    fewer = 0
    for query_id, ranking in rankings.items():
        candidates = [passage for passage in ranking if (query_id, passage) not in positives]
        ranks = [candidates.index(passage) for passage in table[query_id]]
        assert ranks == sorted(ranks)
        if len(candidates) <= SAMPLE:
            assert table[query_id] == candidates
            fewer += 1
        else:
            assert len(ranks) == SAMPLE
            assert ranks[-1] >= SAMPLE  # not just the best ones
    assert 0 < fewer < len(rankings) == 40


def test_each_query_has_a_draw_of_its_own_that_favours_no_rank() -> None:
    candidates = [str(i) for i in range(50)]
    draw = negatives.draw("7", candidates, 10, 13)
    assert draw == negatives.draw("7", candidates, 10, 13)
    assert draw != negatives.draw("8", candidates, 10, 13)
    assert draw != negatives.draw("7", candidates, 10, 14)
    assert negatives.draw("7", candidates[:10], 10, 13) == candidates[:10]
    counts = Counter(
        passage for query in range(4_000) for passage in negatives.draw(str(query), candidates[:20], 5, 13)
    )
    assert len(counts) == 20
    assert all(abs(count - 1_000) < 150 for count in counts.values()), counts  # more than 5 standard deviations


# --- in the release


def test_the_release_stays_whole(bare: Path, drawn: Release) -> None:
    before = open_release(bare)
    assert drawn.digest != before.digest
    assert drawn.manifest.tables[:-1] == before.manifest.tables
    entry = drawn.manifest.tables[-1]
    assert sorted(drawn.table("negatives", "train")["query_id"]) == sorted(training_texts(drawn))
    assert entry.digest == table_digest(drawn.table("negatives", "train"), entry.columns)
    assert (entry.rule.parameters["depth"], entry.rule.parameters["sample"]) == (DEPTH, SAMPLE)
    checks = {check.what: check.fault for check in verify(drawn.folder)}
    assert not any(checks.values())
    assert "negatives are passages of the collection that nobody judged relevant" in checks
    assert "\n| negatives |" in (drawn.folder / "README.md").read_text()


def test_faults_are_found(drawn: Release) -> None:
    table = drawn.table("negatives", "train")
    query_id, passage_ids = table.row(5)
    positive = next(passage for query, passage in relevant(drawn) if query == query_id)
    for faulty, sentence in (
        ([positive, *passage_ids], "is judged relevant to query"),
        ([*passage_ids, passage_ids[0]], "appears twice for query"),
        ([*passage_ids, "no such passage"], "is not in the collection"),
    ):
        rows = [*table.rows()[:5], (query_id, faulty), *table.rows()[6:]]
        damaged = pl.DataFrame(rows, table.schema, orient="row")
        fault = negatives.fault(Release(drawn.folder, drawn.manifest, {("negatives", "train"): damaged}))
        assert sentence in fault and query_id in fault


# --- interruptions and company


@pytest.mark.slow
def test_killed_and_taken_up_by_two_at_once_to_the_same_bytes(
    bare: Path, drawn: Release, cache: Path, tmp_path: Path
) -> None:
    folder, own = tmp_path / "ms-marco-shift", tmp_path / "cache"
    undisturbed = tmp_path / "undisturbed" / "ms-marco-shift"
    for copy in (folder, undisturbed):
        shutil.copytree(bare, copy)
        shutil.copytree(cache / "bm25", copy.parent / "cache" / "bm25")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(negatives, "SHARD", 40)
        negatives.add(undisturbed, negatives.NegativeParameters(DEPTH, SAMPLE), undisturbed.parent / "cache", threads=1)
    killed = drawing(folder, own)
    shards = kill_after(killed, own, 3)
    assert content(folder) == content(bare)
    made = {path: path.stat().st_mtime_ns for path in shards}
    two = [drawing(folder, own, threads=1), drawing(folder, own, threads=2)]
    while len(now := sorted(own.glob("negatives/*/shards/*.parquet"))) == len(shards) and not two[0].ended():
        time.sleep(0.01)
    assert {path: path.stat().st_mtime_ns for path in now if path in made} in (made, {})  # {}: it is done already
    for process in two:
        finish(process)
    assert content(folder) == content(undisturbed) and open_release(folder).digest == drawn.digest
    assert not list(own.glob("negatives/*/shards"))


def test_queries_without_text(bare: Path) -> None:
    """Such a query is refused, unless another table has its text."""
    release = open_release(bare)
    table = release.table("topic", "train")
    query_id = table["query_id"][0]
    blank = table.with_columns(pl.when(pl.col("query_id") != query_id).then("text").alias("text"))
    topics = [entry for entry in release.manifest.tables if entry.config == "topic"]
    alone = structs.replace(release.manifest, tables=topics)
    with pytest.raises(UserError, match=rf"1 of the {table.height} .* such as {query_id}"):
        negatives.training_queries(Release(bare, alone, {("topic", "train"): blank}))

    split = release.configs["restrain"][0]
    blank = release.table("restrain", split).with_columns(pl.lit(None, pl.String).alias("text"))
    queries = negatives.training_queries(Release(bare, release.manifest, {("restrain", split): blank}))
    assert dict(queries.iter_rows()) == training_texts(release)


def test_the_command(bare: Path, cache: Path, drawn: Release, tmp_path: Path, monkeypatch, capsys) -> None:
    """In this process, whose Java runs already; tests/test_kills.py runs it as a process."""
    folder = tmp_path / "ms-marco-shift"
    shutil.copytree(bare, folder)
    line = ("negatives", folder, "--depth", 10, "--sample", 5, "--cache", cache, "--json", "-")
    monkeypatch.setattr(sys, "argv", ["builder", *map(str, line)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    output = capsys.readouterr()
    release = open_release(folder)
    table = release.table("negatives", "train")
    assert json.loads(output.out) == {
        "folder": str(folder),
        "queries": table.height,
        "negatives": table["passage_ids"].list.len().sum(),
        "fewer": (table["passage_ids"].list.len() < 5).sum(),
        "digest": release.digest,
    }
    assert table["passage_ids"].list.len().max() == 5
