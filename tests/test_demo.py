"""The demo, shortened: two systems, two cells each, few steps; in a process of its own, as users start it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DEMO = """
import sys
from pathlib import Path
from msgspec.structs import replace
from rich.console import Console
from baselines import config
from demo import demo

if __name__ == "__main__":
    options = {system: config.read("mini").systems[system] for system in ("bm25", "biencoder")}
    options["biencoder"] = replace(options["biencoder"], steps=60)
    demo(Path(sys.argv[1]), Console(width=120), queries=600, shift="length", options=options)
"""


def demo(folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    script = folder / "short_demo.py"
    script.write_text(DEMO)
    path = str(Path(__file__).parents[1])
    return subprocess.run(
        [sys.executable, script, folder / "demo"],
        cwd=folder,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_the_demo_ends_in_the_papers_table_and_a_report(tmp_path: Path):
    done = demo(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 cells" in done.stdout
    table = done.stdout[done.stdout.index("RR@10") :]
    for line in ("bm25", "biencoder  Avg In", "Out", "Rel Loss"):
        assert line in table
    assert "typo.swap_key" in done.stdout[done.stdout.index("dl19, nDCG@10") :]
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "biencoder" in page and "dl19.typo.swap_key.1" in page
    models = {model: model.stat().st_mtime_ns for model in (tmp_path / "demo" / "grid").glob("*/model")}
    assert len(models) == 2

    again = demo(tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout == done.stdout
    assert models == {model: model.stat().st_mtime_ns for model in models}
    assert not list(tmp_path.glob("hs_err*"))
