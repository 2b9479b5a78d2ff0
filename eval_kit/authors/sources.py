"""The authors' files that are declared in ``sources.json``: what and where they are, and the bytes they must have."""

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

SHIFT_TEST = "naver/ms-marco-shift/EVAL"
RESTTEST = "jingtaozhan/extrapolate-eval/resttest_files/msmarco-passage"
ANSERINI = "castorini/anserini-tools"


@dataclass(frozen=True)
class SourceFile:
    """One declared file: its location and the bytes it must have."""

    repository: str
    commit: str
    path: str
    git_blob: str
    licence: str
    url: str

    @property
    def id(self) -> str:
        """``owner/name/path``: also its place below an ``--upstream`` folder."""
        return f"{self.repository}/{self.path}"


def declared_files() -> dict[str, SourceFile]:
    """Every file of ``sources.json`` by its id."""
    document = json.loads(Path(__file__).with_name("sources.json").read_text(encoding="utf-8"))
    files = {}
    for source in document["sources"]:
        repository, commit = source["repository"], source["commit"]
        for path, git_blob in source["files"].items():
            url = document["url"].format(repository=repository, commit=commit, path=quote(path))
            file = SourceFile(repository, commit, path, git_blob, source["licence"], url)
            files[file.id] = file
    return files
