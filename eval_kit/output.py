"""The one way out of the commands: results on the screen, as text for papers and spreadsheets, as JSON, and as a page.

Every command that computes something takes the same options, ``--format``, ``--json`` and ``--page``, and gives its
:class:`~eval_kit.results.Result` to :func:`emit`.
"""

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from eval_kit.errors import printable
from eval_kit.files.opening import is_input
from eval_kit.program import typed

if TYPE_CHECKING:  # so that --help, which needs the formats, starts at once
    from eval_kit.results import Result


_MOST_FILES = 3


class Format(StrEnum):
    """How results can be printed."""

    table = "table"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


def emit(
    result: "Result", *, format: Format = Format.table, json: Path | None = None, page: Path | None = None
) -> None:
    """Write a result wherever a command's options ask for it; ``-`` for ``json`` prints that and nothing else."""
    from eval_kit.console import screen, write_json
    from eval_kit.sentences import counted

    if page is not None:
        from eval_kit.pages.page import write_page

        write_page(result, page)
    if json is not None and write_json(result.as_json(), json):
        return
    if format is Format.table:
        left_out = result.show(screen())
        if page is None and (words := typed()):
            more = f" and {counted(left_out, 'more note')}" if left_out else ""
            runs = [at for at, word in enumerate(words) if is_input(Path(word)) and not words[at - 1].startswith("-")]
            quoted = [*map(shlex.quote, words[1:]), "--page", f"{words[0].split()[-1]}.html"]
            for at in runs[1:] if len(runs) > _MOST_FILES else ():
                quoted[at - 1] = "…" * (at == runs[1])
            print(printable(" ".join([f"Next (pictures{more}): {words[0]}", *filter(None, quoted)])))
    else:
        text = {Format.markdown: result.to_markdown, Format.latex: result.to_latex, Format.csv: result.to_csv}
        sys.stdout.write(text[format]())
