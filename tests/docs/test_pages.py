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
from dataclasses import dataclass, field
from pathlib import Path

import clients
import hub_server
import pytest
from typer.main import get_command

from builder import mini
from builder import release as releases
from eval_kit.release import Release

ROOT = Path(__file__).parents[2]
PROGRAMS = ("eval_kit", "builder", "baselines")
NOT_RUN = re.compile(r"^(git|pip|make|\.) |docs/(reference|pictures)\.py")
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
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "118", "PYTHONWARNINGS": "ignore"}
    environment |= clients.in_a_shell(folder.parent / "bin")
    shell = subprocess.run(
        ["bash", "-c", "\n".join(marks)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    parts = re.split(r"^=== \d+ (\d+)\n", shell.stdout.replace(f"{folder}/", ""), flags=re.MULTILINE)
    # how many lines of progress a command prints follows the machine's speed
    progress = re.compile(r"^.*(, \d+:\d\d:\d\d left|: 0 of [\d,]+ \w+)\n", re.MULTILINE)
    printed = [progress.sub("", part).rstrip().splitlines() for part in parts[:-1:2]]
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

    def set(self, name: str, value: object) -> None:
        patch: pytest.MonkeyPatch = self.request.getfixturevalue("monkeypatch")
        patch.setenv(name, str(value))

    def published(self) -> None:
        release: Release = self.request.getfixturevalue("published_release")
        link(release.folder, self.folder / "ms-marco-shift")

    def examples(self) -> None:
        link(ROOT / "examples", self.folder / "examples")

    def mini(self) -> None:
        """A copy of the mini release of 1,500 queries, as some pages add to it."""
        release: Release = self.request.getfixturevalue("mini_release")
        shutil.copytree(release.folder, self.folder / "mini")

    def real_runs(self) -> None:
        for run in (self.shared / "real-slice" / "runs").glob("*.dl19.trec"):
            link(run, self.folder / "runs" / run.name)

    def run_of_dl19(self) -> None:
        link(self.shared / "real-slice" / "runs" / "tas-b.dl19.trec", self.folder / "run.trec")

    def damaged_runs(self) -> None:
        lines = (self.folder / "runs" / "bm25.dl19.trec").read_text().splitlines()
        broken = [*lines[:3], re.sub(r"\S+( \S+)$", r"high\1", lines[3]), *lines[4:]]
        (self.folder / "broken.trec").write_text("\n".join(broken) + "\n")
        queries = list(dict.fromkeys(line.split()[0] for line in lines))[:30]
        cut = [line for line in lines if line.split()[0] in queries]
        (self.folder / "cut.trec").write_text("\n".join(cut) + "\n")

    def tutorial_runs(self) -> None:
        """Runs of a grid on the full-size mini."""
        trained: Path = self.request.getfixturevalue("tutorial")
        for path in trained.glob("mine.topic.*.trec"):
            link(path, self.folder / path.name)

    def tutorial_release(self) -> None:
        link(self.request.getfixturevalue("tutorial") / "mini", self.folder / "mini")

    def collection(self) -> None:
        link(self.shared / "real-slice" / "collection.tsv", self.folder / "collection.tsv")

    def dl_hard_runs(self) -> None:
        for run in (self.shared / "upstream/grill-lab/DL-Hard/dataset/baselines/passage").glob("*.run"):
            link(run, self.folder / run.name)

    def script_of_triplets(self) -> None:
        page = (ROOT / "docs/integrations/triplets.md").read_text(encoding="utf-8")
        (self.folder / "train.py").write_text(page.split("```python\n")[1].split("```")[0])

    def upstream(self) -> None:
        link(self.shared / "upstream", self.folder / "upstream")

    def hub(self) -> None:
        """A local Hub, for a user who may write to it."""
        hub = hub_server.Hub()
        self.request.addfinalizer(hub.stop)
        self.set("HF_ENDPOINT", hub.url)
        self.set("HF_TOKEN", hub_server.TOKEN)
        self.set("HF_HUB_DISABLE_XET", "1")
        self.set("HF_HOME", self.folder.parent / "hub")

    def without_ir_datasets(self) -> None:
        """An ir_datasets that has nothing, instead of the tests' own, which cannot have anything."""
        self.set("IR_DATASETS_HOME", self.folder.parent / "ir_datasets")


@pytest.fixture(scope="session")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the full-size mini, and runs of a model that was trained without each topic."""
    folder = tmp_path_factory.mktemp("tutorial")
    releases.write(mini.draft(), folder / "mini")
    script, path = ROOT / "tests/word_model.py", str(ROOT)
    subprocess.run([sys.executable, script], cwd=folder, env=os.environ | {"PYTHONPATH": path}, check=True)
    return folder


PAGES = {
    "README.md": "published tutorial_runs run_of_dl19 examples",
    "docs/index.md": "upstream",
    "docs/integrations/ir-datasets.md": "published without_ir_datasets",
    "docs/integrations/sentence-transformers.md": "",
    "docs/integrations/triplets.md": "script_of_triplets",
    "docs/load.md": "mini",
    "docs/protocol.md": "tutorial_runs tutorial_release",
    "docs/tutorials/publish.md": "hub upstream",
    "docs/tutorials/score.md": "published real_runs damaged_runs",
    "docs/tutorials/your-collection.md": "published mini",
    "docs/variations.md": "published without_ir_datasets collection dl_hard_runs",
}
"""What a page's commands find in their folder; they build the rest."""


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
    for what in PAGES[page].split():
        getattr(folder, what)()
    listed = commands(page)
    assert listed, f"{page} has no command that can be run"
    wrong = [
        f"{page}:{command.line}: $ {command.text}\n" + "\n".join(printed)
        for command, (printed, status) in zip(listed, outputs(listed, folder.folder), strict=True)
        if not agrees(command.shown, printed, status)
    ]
    assert not wrong, "\n\n".join(wrong)
