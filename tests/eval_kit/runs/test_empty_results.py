"""BM25 retrieves nothing for some queries of NFCorpus: its run scores in every command, a run cut short in none."""

import pytest


@pytest.fixture(scope="module")
def nfcorpus(shared, tmp_path_factory, command):
    """A release of NFCorpus and BM25's run on it."""
    folder = tmp_path_factory.mktemp("nfcorpus")
    built = ("rebuilt", "--collection", shared / "beir" / "nfcorpus", "--encoder", "lsa")
    done = command("builder", "build", *built, "--out", folder / "release")
    assert done.returncode == 0, done.stderr
    done = command("baselines", "search", "bm25", "--release", folder / "release", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_bm25_on_nfcorpus_scores_and_a_cut_run_does_not(nfcorpus, command):
    run, cut, other = nfcorpus / "bm25.trec", nfcorpus / "cut.trec", nfcorpus / "other.trec"
    lines = run.read_text().splitlines(keepends=True)
    cut.write_text("".join(lines[: len(lines) * 9 // 10]))
    other.write_text("".join(lines))
    for name in ("score", "compare"):
        systems = (run, other) if name == "compare" else (run,)
        done = command("eval_kit", name, *systems, "--release", nfcorpus / "release")
        assert done.returncode == 0, done.stderr
        done = command("eval_kit", name, cut, *systems[1:], "--release", nfcorpus / "release")
        assert done.returncode == 2
        assert "are missing" in done.stderr
        done = command("eval_kit", name, cut, *systems[1:], "--release", nfcorpus / "release", "--allow-missing")
        assert done.returncode == 0, done.stderr
