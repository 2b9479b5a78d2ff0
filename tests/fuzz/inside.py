"""A folder with a small release, and all else that commands read."""

from pathlib import Path

import polars as pl

from builder import release as releases
from eval_kit.authors import draft
from eval_kit.documents import Rule
from tests.beir_folders import beir_folder
from tests.fuzz.strange import RUN


def small_draft():
    """Four queries in two clusters."""
    clusters = pl.Series("cluster", ["short", "long", "short", "short"], dtype=pl.Enum(["short", "long"]))
    queries = pl.DataFrame({"query_id": ["1", "2", "10", "30"], "text": ["a cat", "the naïve café", "é", "d"]})
    frames = {
        ("length", "test"): queries.with_columns(clusters),
        ("qrels", "dev"): pl.DataFrame(
            {"query-id": ["1", "2", "10", "30"], "corpus-id": ["7", "8", "7", "8"], "score": [1, 2, 1, 0]}
        ),
        ("passages", "passages"): pl.DataFrame({"passage_id": ["7", "8"], "text": ["seven", "eight"]}),
    }
    rule = Rule("made by hand", "tests/fuzz")
    return draft.Draft(
        kind="mini",
        version="1.0.0",
        collection=None,
        seed=0,
        tables=[draft.Table(*key, frame, rule) for key, frame in frames.items()],
        test_sets=[
            draft.new_test_set(f"length.{name}", "length", "length", "test", "dev", ["RR@10"], ("cluster", [name]))
            for name in ("short", "long")
        ],
    )


def make(folder: Path) -> Path:
    """A small release ``release``, a run ``run.trec`` that fits it, and a BEIR folder."""
    releases.write(small_draft(), folder / "release")
    (folder / "run.trec").write_bytes(RUN)
    passages = [{"_id": "7", "title": "a", "text": "b"}, {"_id": "8", "text": "c"}]
    beir_folder(folder / "beir", passages, {"1": "a", "2": "b"}, [("1", "7"), ("2", "8", 2)])
    (folder / "beir.trec").write_bytes(RUN)
    return folder
