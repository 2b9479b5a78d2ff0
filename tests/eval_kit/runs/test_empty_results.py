"""BM25 retrieves nothing for some queries of NFCorpus: its run scores in every command, a run cut short in none."""

import shutil

import pytest


@pytest.mark.slow
def test_bm25_on_nfcorpus_scores_and_a_cut_run_does_not(shared, tmp_path, command):
    release = ("--release", shared / "beir" / "nfcorpus")
    done = command("eval_kit", "run", "bm25", *release, "--test-set", "dev", "--no-pivot", "--out", tmp_path, status=0)
    run, cut, other = tmp_path / "bm25.trec", tmp_path / "cut.trec", tmp_path / "other.trec"
    lines = run.read_text().splitlines(keepends=True)
    assert len({line.split()[0] for line in lines}) < 324 * 0.95, "the queries with a result"
    cut.write_text("".join(lines[: len(lines) * 9 // 10]))
    shutil.copy(run, other)
    for name, others in (("score", ()), ("compare", (other,))):
        done = command("eval_kit", name, run, *others, *release, status=0)
        done = command("eval_kit", name, cut, *others, *release, status=2)
        assert "lacks 50 of the 324 queries" in done.stderr
        done = command("eval_kit", name, cut, *others, *release, "--allow-missing", status=0)
