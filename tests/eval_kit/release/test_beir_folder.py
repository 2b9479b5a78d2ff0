"""A folder in BEIR's format is a release: opened, scored and compared like one."""

import shutil
from pathlib import Path

import pytest

from eval_kit.errors import UserError
from eval_kit.release import open_release
from eval_kit.search.passages import passages


def test_its_splits_are_test_sets(shared: Path) -> None:
    """Figures are those of trec_eval: tests/independent/test_beir_by_hand.py."""
    release = open_release(shared / "beir/nfcorpus")
    assert {name: len(each.queries) for name, each in release.test_sets.items()} == {"dev": 324, "test": 323}
    assert release.queries("test").null_count().row(0) == (0, 0)
    assert "beir" in repr(release) and "dev, test, train" in release._repr_html_()
    assert len(list(passages(release))) == 3_633


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
    with pytest.raises(UserError, match="12336: query nosuch "):
        open_release(folder)
