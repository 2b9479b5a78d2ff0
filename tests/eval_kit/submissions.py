"""Submissions that tests make."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eval_kit.release import Release


def submit(release: Release, folder: Path, files: Iterable[object], system: str = "s", **changes: Any) -> Path:
    """Write the document of a submission into a folder: of runs by name, or as the document lists them."""
    document = {
        "system": system,
        "team": "t",
        "architecture": "dense",
        "training_data": ["MS MARCO train"],
        "licence": "MIT",
        "release": {"version": release.version, "digest": release.digest},
        "runs": [file if isinstance(file, dict) else {"file": str(file)} for file in files],
    }
    (folder / "submission.json").write_text(json.dumps(document | changes))
    return folder


def plain_run(release: Release, *test_sets: str) -> str:
    """The lines of a run that finds nothing for any query of these test sets."""
    queries = sorted({query for name in test_sets for query in release.test_sets[name].queries})
    return "".join(f"{query} Q0 p 1 1.0 t\n" for query in queries)
