"""Where results go: a screen that is wide enough when it is none, and files that are nobody's input."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from eval_kit import atomic
from eval_kit.errors import UserError

WIDTH_OF_A_FILE = 160


def screen() -> Console:
    """The console for results; as wide as tables need where the output is a file or a pipe."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return Console()
    return Console(width=WIDTH_OF_A_FILE)


def refuse_overwriting(inputs: Sequence[Path], outputs: Sequence[Path | None]) -> None:
    """Refuse an output file that is one of the inputs, or that is named twice.

    Raises:
        UserError: naming the file; before anything is read or written.
    """
    taken = {path.resolve() for path in inputs}
    for path in outputs:
        if path is None or path == Path("-"):
            continue
        if path.resolve() in taken:
            raise UserError(f"{path}: is read, or written already, by this command; name another file to write")
        taken.add(path.resolve())


def write_json(document: Any, path: Path | None) -> bool:
    """Write results as JSON, if asked for: to a file, or for ``-`` to the screen.

    Returns:
        Whether they went to the screen, where nothing else should follow.
    """
    if path is None:
        return False
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if path == Path("-"):
        sys.stdout.write(text)
        return True
    atomic.write_text(path, text)
    return False
