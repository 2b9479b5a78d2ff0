"""Folders of runs: whoever names one means the runs in it."""

import warnings
from pathlib import Path

from eval_kit.errors import UserError
from eval_kit.files.endings import ENDINGS, PACKED_ENDINGS, run_name
from eval_kit.files.opening import is_folder
from eval_kit.runs.reader import is_run


def run_files(path: Path) -> list[Path]:
    """The runs that lie in a folder, by name; of anything else the path itself.

    A file ``*.trec`` is a run, and one with another of :data:`eval_kit.files.endings.ENDINGS` if it begins like one.
    Warns of the rest, once.
    """
    if not is_folder(path):
        return [path]
    sure = tuple(f".trec{packed}" for packed in ("", *PACKED_ENDINGS))
    files: list[Path] = []
    others: list[str] = []
    for file in sorted(path.iterdir()):
        if not file.name.endswith(".ids.txt") and run_name(file) != file.name and not is_folder(file):
            if file.name.lower().endswith(sure) or is_run(file):
                files.append(file)
            else:
                others.append(file.name)
    if not files:
        raise UserError(
            f"The folder {path} contains no runs", f"Their names end in {', '.join(ENDINGS)}, packed or not"
        )
    if others:
        more = f" and {len(others) - 1} more" if others[1:] else ""
        warnings.warn(f"The kit left out {others[0]}{more} of {path}, which do not begin like a run", stacklevel=2)
    return files
