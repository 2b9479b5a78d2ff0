"""What outside users install: one small wheel that starts at once and works without the rest of the clone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from eval_kit.release import Release

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "datasets", "ir_datasets", "pyserini", "scipy", "huggingface_hub", "polars"}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_one_package_with_the_schemas_inside(unpacked: Path):
    tops = {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")}
    assert tops == {"eval_kit"}
    assert {path.name for path in (unpacked / "eval_kit/schema_files").glob("*.json")} == {
        path.name for path in (ROOT / "schemas").glob("*.json")
    }


def test_the_wheel_holds_the_published_tables(unpacked: Path):
    assert {path.name for path in (unpacked / "eval_kit/release/published").iterdir()} == {
        path.name for path in (ROOT / "eval_kit/release/published").glob("*.json")
    }


@pytest.mark.parametrize("folder", ["assets", "templates"])
def test_the_wheel_holds_what_its_pages_need(unpacked: Path, folder: str):
    names = {path.name for path in (ROOT / "eval_kit/pages" / folder).iterdir()}
    assert names
    assert {path.name for path in (unpacked / "eval_kit/pages" / folder).iterdir()} == names


@pytest.mark.slow
def test_the_wheel_scores_a_run(unpacked: Path, mini_release: Release, tmp_path: Path):
    run = tmp_path / "one.trec"
    lines = (f"{query} Q0 p 1 1.0 t\n" for query in mini_release.test_sets["dl19"].queries)
    run.write_text("".join(lines))
    code = "import eval_kit, sys; print(eval_kit.__file__); from eval_kit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "score", run, "--release", mini_release.folder],
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(unpacked))
    assert "dl19" in done.stdout


def test_the_command_line_imports_nothing_heavy():
    code = f"import sys, eval_kit.cli; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_scoring_needs_core_dependencies_only():
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'datasets', 'ir_datasets', 'pyserini', 'faiss', 'builder'):\n"
        "    sys.modules[name] = None\n"
        "import eval_kit.measures.score, eval_kit.tables.scores, eval_kit.release, eval_kit.cli\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
