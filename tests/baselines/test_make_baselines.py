"""``make baselines``: from a BEIR folder to the report, on a part of NFCorpus; and what it checks before it draws."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from builder import mini as planted
from builder import release as releases
from eval_kit.release import open_release

ROOT = Path(__file__).parents[2]
QUERIES = {"train": 300, "dev": 60, "test": 20}
JUDGED = 3
SHIFTS = "--shift topic --shift length --set topic.topics=2 --set topic.k=20 --set topic.size=40"


def _part_of_nfcorpus(whole: Path, folder: Path) -> None:
    """The first queries of each split, with the first passages judged for them."""
    (folder / "qrels").mkdir(parents=True)
    kept: set[str] = set()
    for split, count in QUERIES.items():
        header, *lines = (whole / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        by_query: dict[str, list[list[str]]] = {}
        for row in (line.split("\t") for line in lines):
            by_query.setdefault(row[0], []).append(row)
        chosen = list(by_query)[:count]
        judged = [row for query in chosen for row in by_query[query][:JUDGED]]
        kept |= {*chosen} | {passage for _, passage, _ in judged}
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join([header, *map("\t".join, judged)]) + "\n")
    for name in ("corpus.jsonl", "queries.jsonl"):
        entries = (whole / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / name).write_text("".join(entry for entry in entries if json.loads(entry)["_id"] in kept))


def _make_baselines(folder: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "Makefile", folder)
    make = ["make", "-o", ".venv/.ready", "baselines", f"BIN={Path(sys.executable).parent}", *variables]
    own = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(make, cwd=folder, env=own, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_from_a_folder_to_the_report(shared: Path, tmp_path: Path) -> None:
    _part_of_nfcorpus(shared / "beir" / "nfcorpus", tmp_path / "beir" / "nfcorpus")
    done = _make_baselines(tmp_path, "CONFIG=nfcorpus", f"SHIFTS={SHIFTS}", "BACKBONE=", "FLAGS=--system bm25")
    assert done.returncode == 0, done.stderr
    release = open_release(tmp_path / "nfcorpus-shift")
    assert set(release.test_sets) == {"topic.c0", "topic.c1", "length.short", "length.long"}
    assert "RR@10" in done.stdout and "left out" not in done.stdout
    runs = {run.name for run in (tmp_path / "grid-nfcorpus" / "runs").glob("*.trec")}
    assert runs == {f"bm25.{part}.trec" for part in ("topic.c0", "topic.c1", "length.short", "length.long")}
    assert "topic.c1" in (tmp_path / "grid-nfcorpus" / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("variables", [["CONFIG=mini", "RELEASE=ms-marco-shift"], ["CONFIG=day"]])
def test_a_grid_that_cannot_run_draws_nothing(variables: list[str], tmp_path: Path) -> None:
    releases.write(planted.draft(queries=500), tmp_path / "ms-marco-shift")
    before = sorted(tmp_path.rglob("*"))
    done = _make_baselines(tmp_path, *variables, "BACKBONE=no/where/at-all")
    assert done.returncode == 2
    assert done.stderr.startswith("baselines: Could not find no/where/at-all")
    assert set(tmp_path.rglob("*")) - {*before} == {tmp_path / "Makefile"}
