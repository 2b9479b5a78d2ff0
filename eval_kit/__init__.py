"""Score retrieval runs on ms-marco-shift releases, in Python as on the command line.

    import eval_kit
    scores = eval_kit.score({"bm25": frame}, "ms-marco-shift")
    scores.to_polars()

Everything heavy is imported where it is used, so that ``import eval_kit`` and ``eval_kit --help`` start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from eval_kit.api import (
        UserError,
        clean,
        compare,
        generalise,
        open_release,
        protocol,
        report,
        score,
        similarity,
        snapshots,
        variations,
        write_run,
    )
    from eval_kit.models.run import run

__all__ = [
    "UserError",
    "clean",
    "compare",
    "generalise",
    "open_release",
    "protocol",
    "report",
    "run",
    "score",
    "similarity",
    "snapshots",
    "variations",
    "write_run",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'eval_kit' has no attribute {name!r}")
    return getattr(import_module("eval_kit.models.run" if name == "run" else "eval_kit.api"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
