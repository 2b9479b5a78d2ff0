"""A folder in BEIR's format is a release: opened, scored and compared like one."""

import shutil
from pathlib import Path

import ir_measures
import pytest
from ir_measures import RR, R, nDCG

import eval_kit
from eval_kit.errors import UserError
from eval_kit.release import open_release
from eval_kit.search.passages import passages


def test_its_splits_are_test_sets_and_figures_are_those_of_ir_measures(shared: Path) -> None:
    release = open_release(shared / "beir/nfcorpus")
    assert {name: len(each.queries) for name, each in release.test_sets.items()} == {"dev": 324, "test": 323}
    assert release.queries("test").null_count().row(0) == (0, 0)
    assert "beir" in repr(release) and "dev, test, train" in release._repr_html_()
    ids = [passage for passage, _ in passages(release)]
    assert len(ids) == 3_633
    run = {
        query: {ids[(7 * number + 13 * rank) % len(ids)]: 200.0 - rank for rank in range(150)}
        for number, query in enumerate(release.test_sets["test"].queries)
    }
    judged = release.qrels("test").rename({"passage_id": "doc_id"}).to_pandas()
    for query, passage, _ in judged.iloc[::9].itertuples(index=False):
        run[query][passage] = 199.5
    scores = {mean.measure: mean.value for mean in eval_kit.score({"r": run}, release).means}
    expected = ir_measures.calc_aggregate([nDCG @ 10, RR @ 10, R @ 100], judged, run)
    assert scores == pytest.approx({str(measure): value for measure, value in expected.items()}, abs=1e-12)


def test_its_digest_is_of_what_it_holds(shared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "nfcorpus"
    shutil.copytree(shared / "beir/nfcorpus", folder, ignore=shutil.ignore_patterns("corpus.jsonl"))
    whole = open_release(shared / "beir/nfcorpus").digest
    assert open_release(folder).digest == whole
    qrels = folder / "qrels/test.tsv"
    lines = qrels.read_text().splitlines()
    qrels.write_text("\n".join(lines[:-1]) + "\n")
    assert open_release(folder).digest != whole
    qrels.write_text("\n".join([*lines, "nosuch\tMED-1\t1"]) + "\n")
    with pytest.raises(UserError, match="query nosuch is not in queries"):
        open_release(folder)
