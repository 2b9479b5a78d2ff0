"""Every console block whose data is at hand is run, and prints what its page shows.

A page's commands run in one folder, in their order. A line ``...`` on the page stands for any lines, ``…`` in a line
for any characters; ``--format markdown`` with nothing below it stands for the table that follows the block.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import hub_server
import pytest
from typer.main import get_command

from eval_kit.release import Release

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "tutorials" / "your-model.ipynb"
PROGRAMS = ("eval_kit", "builder", "baselines")
NOT_RUN = re.compile(r"^(pip|make|\.) |docs/(reference|notebook)\.py")
"""Commands that install, fetch or take many minutes; `make demo`, `make reproduce` and the notebook have tests."""
ELLIPSIS = "..."


@dataclass
class Command:
    """A command of a page, and the lines that the page shows below it."""

    page: str
    line: int
    text: str
    shown: list[str] = field(default_factory=list)


def commands(page: str) -> list[Command]:
    """The commands of the page's console blocks, without those that are not run."""
    listed: list[Command] = []
    in_console = False
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if line.startswith("```"):
            in_console = line == "```console"
            if line == "```" and listed and "--format markdown" in listed[-1].text and not listed[-1].shown:
                listed[-1].shown = [ELLIPSIS, *_table_after(lines[number:]), ELLIPSIS]
        elif in_console and line.startswith("$ "):
            listed.append(Command(page, number, line.removeprefix("$ ")))
        elif in_console:
            listed[-1].shown.append(line)
    return [command for command in listed if not NOT_RUN.search(command.text)]


def _table_after(lines: list[str]) -> list[str]:
    text = "\n".join(lines).strip("\n")
    first = text.split("\n\n")[0].splitlines()
    return first if first and first[0].startswith("|") else []


def outputs(listed: list[Command], folder: Path) -> list[tuple[list[str], int]]:
    """What each command prints, and its exit status, when one shell runs them in the folder."""
    marks = [f"{command.text}\necho; echo '=== {command.line}' $?" for command in listed]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "118",
        "PYTHONWARNINGS": "ignore",
    }
    shell = subprocess.run(
        ["bash", "-c", "\n".join(marks)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    parts = re.split(r"^=== \d+ (\d+)\n", shell.stdout.replace(f"{folder}/", ""), flags=re.MULTILINE)
    printed = [part.rstrip().splitlines() for part in parts[:-1:2]]
    return list(zip(printed, map(int, parts[1::2]), strict=True))


def agrees(shown: list[str], printed: list[str], status: int) -> bool:
    """Whether the page shows what was printed, apart from spaces at the ends of lines.

    A command with nothing below it has to succeed; what it prints is left to other pages.
    """
    if not shown:
        return status == 0
    pattern = ""
    for line in shown:
        pattern += r"(.*\n)*?" if line.strip() == ELLIPSIS else re.escape(line.rstrip()).replace("…", ".*") + r"\n"
    return re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in printed)) is not None


def link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source)


class Folder:
    """The folder in which a page's commands run, and what may be put there beforehand."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest) -> None:
        self.folder, self.request = folder, request
        self.shared: Path = request.getfixturevalue("shared")
        link(self.shared, folder.parent / "shared")

    def published(self, name: str = "ms-marco-shift") -> None:
        release: Release = self.request.getfixturevalue("published_release")
        link(release.folder, self.folder / name)

    def real_runs(self) -> None:
        for run in sorted((self.shared / "real-slice" / "runs").glob("*.dl19.trec")):
            link(run, self.folder / "runs" / run.name)

    def mini(self) -> None:
        """A copy of the mini release of 1,500 queries, as some pages add to it."""
        release: Release = self.request.getfixturevalue("mini_release")
        shutil.copytree(release.folder, self.folder / "mini")

    def tutorial_runs(self, mini: bool = False) -> None:
        """The runs that the tutorial's notebook writes on the full-size mini, and with ``mini`` that release."""
        trained: Path = self.request.getfixturevalue("tutorial")
        for path in trained.glob("mine.topic.*.trec"):
            link(path, self.folder / path.name)
        if mini:
            link(trained / "mini", self.folder / "mini")

    def hub(self) -> None:
        """A local Hub, for a user who may write to it."""
        hub = hub_server.Hub()
        self.request.addfinalizer(hub.stop)
        patch: pytest.MonkeyPatch = self.request.getfixturevalue("monkeypatch")
        home = str(self.folder.parent / "hub")
        for name, value in {"ENDPOINT": hub.url, "TOKEN": hub_server.TOKEN, "HOME": home}.items():
            patch.setenv(f"HF_{name}", value)

    def without_ir_datasets(self) -> None:
        """An ir_datasets that has nothing, instead of the tests' own, which cannot have anything."""
        patch: pytest.MonkeyPatch = self.request.getfixturevalue("monkeypatch")
        patch.setenv("IR_DATASETS_HOME", str(self.folder.parent / "ir_datasets"))


@pytest.fixture(scope="session")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the cells of the tutorial's notebook ran, on the full-size mini."""
    folder = tmp_path_factory.mktemp("tutorial")
    script = (
        "import builder.mini, builder.release, notebook, pathlib, sys\n"
        "builder.release.write(builder.mini.draft(), pathlib.Path('mini'))\n"
        "notebook.run([code for code, _ in notebook.shown(pathlib.Path(sys.argv[1]))])\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "docs")])
    subprocess.run(
        [sys.executable, "-c", script, NOTEBOOK], cwd=folder, env=os.environ | {"PYTHONPATH": path}, check=True
    )
    return folder


def readme(folder: Folder) -> None:
    folder.published()
    folder.real_runs()
    folder.tutorial_runs()


def protocol(folder: Folder) -> None:
    folder.tutorial_runs(mini=True)


def published(folder: Folder) -> None:
    folder.published()
    folder.without_ir_datasets()


def audit(folder: Folder) -> None:
    release: Release = folder.request.getfixturevalue("published_release")
    shutil.copytree(release.folder, folder.folder / "ms-marco-shift")


def score(folder: Folder) -> None:
    folder.published()
    folder.real_runs()
    lines = (folder.folder / "runs" / "bm25.dl19.trec").read_text().splitlines()
    broken = [re.sub(r"\S+( \S+)$", r"high\1", line) if number == 4 else line for number, line in enumerate(lines, 1)]
    (folder.folder / "broken.trec").write_text("\n".join(broken) + "\n")
    queries = list(dict.fromkeys(line.split()[0] for line in lines))[:30]
    cut = [line for line in lines if line.split()[0] in queries]
    (folder.folder / "cut.trec").write_text("\n".join(cut) + "\n")


def index(folder: Folder) -> None:
    link(folder.shared / "upstream", folder.folder / "upstream")


def collection(folder: Folder) -> None:
    folder.published()
    folder.mini()


def nothing(folder: Folder) -> None:
    """The page builds what it needs."""


def load(folder: Folder) -> None:
    folder.mini()


def variations(folder: Folder) -> None:
    folder.published()
    folder.without_ir_datasets()
    link(folder.shared / "real-slice" / "collection.tsv", folder.folder / "collection.tsv")
    baselines = folder.shared / "upstream" / "grill-lab" / "DL-Hard" / "dataset" / "baselines" / "passage"
    for run in baselines.glob("*.run"):
        link(run, folder.folder / run.name)


def publish(folder: Folder) -> None:
    folder.hub()
    link(folder.shared / "upstream", folder.folder / "upstream")


PAGES: dict[str, Callable[[Folder], None]] = {
    "README.md": readme,
    "docs/audit.md": audit,
    "docs/index.md": index,
    "docs/integrations/ir-datasets.md": published,
    "docs/integrations/sentence-transformers.md": nothing,
    "docs/integrations/triplets.md": nothing,
    "docs/load.md": load,
    "docs/protocol.md": protocol,
    "docs/tutorials/publish.md": publish,
    "docs/tutorials/score.md": score,
    "docs/tutorials/your-collection.md": collection,
    "docs/variations.md": variations,
}


MENTION = re.compile(r"(?:python -m )?\b(eval_kit|builder|baselines) ([a-z][a-z-]*(?: [a-z][a-z-]*)?)([^`|\n]*)")
"""A command anywhere on a page: its program, its name or the group's and its own, and what follows."""


def every_page() -> list[str]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "hub_cards").glob("*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in pages if page.name != "CHANGELOG.md")


@pytest.mark.parametrize("page", every_page())
def test_the_options_on_a_page_exist(page: str):
    programs = {name: get_command(importlib.import_module(f"{name}.cli").app) for name in PROGRAMS}
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    wrong = []
    for program, name, rest in MENTION.findall(text):
        command = programs[program]
        for word in name.split():
            command = getattr(command, "commands", {}).get(word, command)
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest.partition(" #")[0])
        if command is not programs[program]:
            wrong += [f"{program} {name}: {option}" for option in options if option not in known | {"--help"}]
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_its_commands_print(page: str, tmp_path: Path, request: pytest.FixtureRequest):
    (tmp_path / "work").mkdir()
    folder = Folder(tmp_path / "work", request)
    PAGES[page](folder)
    listed = commands(page)
    assert listed, f"{page} has no command that can be run"
    wrong = [
        f"{page}:{command.line}: $ {command.text}\n" + "\n".join(printed)
        for command, (printed, status) in zip(listed, outputs(listed, folder.folder), strict=True)
        if not agrees(command.shown, printed, status)
    ]
    assert not wrong, "\n\n".join(wrong)
