"""What outside users install: one small wheel that starts at once and works without the rest of the clone."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from eval_kit import __version__

ROOT = Path(__file__).parents[2]
HEAVY = {
    "torch",
    "transformers",
    "datasets",
    "ir_datasets",
    "pyserini",
    "scipy",
    "huggingface_hub",
    "polars",
    "yaml",
    "pydantic",
}


@pytest.fixture(scope="module")
def unpacked(wheel: Path) -> Path:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(wheel.parent / "site")
    return wheel.parent / "site"


def test_the_wheel_is_one_small_package_that_holds_what_it_reads(wheel: Path, unpacked: Path):
    assert wheel.stat().st_size < 640_000
    assert {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")} == {"eval_kit"}
    for folder in ("release/printed_tables", "pages/assets", "pages/templates"):
        names = {path.name for path in (ROOT / "eval_kit" / folder).iterdir()} - {"__pycache__"}
        assert names
        assert {path.name for path in (unpacked / "eval_kit" / folder).iterdir()} == names
    for file in ("bm25.trec", "noisy.trec", "queries.jsonl", "qrels/test.tsv"):
        assert (unpacked / "eval_kit/example" / file).read_bytes() == (ROOT / "examples" / file).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_an_environment_of_its_own_builds_the_published_lists_and_scores(version, wheel, shared, tmp_path):
    uv = shutil.which("uv") or ROOT / ".bootstrap" / "bin" / "uv"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    interpreter = next(pyenv.glob(f"{version}*/bin/python{version}"), shutil.which(f"python{version}"))
    if not Path(uv).exists() or interpreter is None:
        pytest.skip(f"needs uv and Python {version}")

    def run(*arguments: object, cwd: Path = tmp_path) -> str:
        outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(list(map(str, arguments)), cwd=cwd, env=outside, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    python = tmp_path / "env" / "bin" / "python"
    install = (uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python)
    run(uv, "venv", "--quiet", "--python", interpreter, tmp_path / "env")
    run(*install, wheel)
    site = tmp_path / "env" / "lib" / f"python{version}" / "site-packages"
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 300e6
    run(*install, f"ms-marco-shift[release] @ {wheel.as_uri()}")
    build = ("build", "published", "--upstream", shared / "upstream", "--allow-partial", "--out", tmp_path / "release")
    run(python, "-m", "builder", *build, cwd=ROOT)
    bm25 = shared / "real-slice" / "runs" / "bm25.dl19.trec"
    scored = run(tmp_path / "env" / "bin" / "eval_kit", "score", bm25, "--release", tmp_path / "release", "--json", "-")
    assert json.loads(scored)["measures"][0]["value"] == pytest.approx(0.5058, abs=5e-5)


def test_the_citation_and_the_changelog_are_of_this_version():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n### Code {__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_command_line_imports_nothing_heavy_and_scoring_needs_core_dependencies_only():
    code = (
        f"import sys, eval_kit.cli; assert not {HEAVY!r} & set(sys.modules)\n"
        f"for name in {HEAVY - {'polars'} | {'faiss', 'builder'}!r}:\n"
        "    sys.modules[name] = None\n"
        "import eval_kit.protocols.scoring, eval_kit.release\n"
        "from eval_kit.stats.losses import paired_t_test, spearman\n"
        "paired_t_test([1, 2, 4], [1, 1, 1]), spearman([1, 2, 4], [3, 1, 2], resamples=10)\n"
        "try:\n    eval_kit.release.open_release('org/name')\n"
        "except eval_kit.UserError as error:\n    assert '[hub]' in str(error)\n"
        "try:\n    eval_kit.nothing\n"
        "except AttributeError as error:\n    assert 'nothing' in str(error)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plain_score_loads_neither_numpy_nor_pydantic():
    """Each of them costs a quarter of the time that one run takes."""
    code = (
        "import sys\nfrom eval_kit import cli\n"
        "sys.argv = ['eval_kit', 'score', 'examples/bm25.trec', '--release', 'examples']\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert not {'numpy', 'pydantic', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
