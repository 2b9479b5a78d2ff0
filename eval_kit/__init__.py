"""Score retrieval runs on ms-marco-shift releases, in Python as on the command line.

    import eval_kit
    scores = eval_kit.score({"bm25": frame}, "ms-marco-shift")
    scores.to_polars()

Everything heavy is imported where it is used, so that ``import eval_kit`` and ``eval_kit --help`` start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.4.0"

if TYPE_CHECKING:
    from eval_kit.authors.opening import open_release
    from eval_kit.errors import UserError
    from eval_kit.models.run import run
    from eval_kit.pages.page import write_page
    from eval_kit.pages.report import report
    from eval_kit.protocols.beir import beir
    from eval_kit.protocols.chameleons import chameleons
    from eval_kit.protocols.clean import clean
    from eval_kit.protocols.compare import compare
    from eval_kit.protocols.discover import discover
    from eval_kit.protocols.generalise import generalise
    from eval_kit.protocols.grid_results import protocol
    from eval_kit.protocols.scoring import score
    from eval_kit.protocols.similarity import similarity
    from eval_kit.protocols.variations import variations
    from eval_kit.runs.saving import write_run

_MODULES = {
    "UserError": "errors",
    "beir": "protocols.beir",
    "chameleons": "protocols.chameleons",
    "clean": "protocols.clean",
    "compare": "protocols.compare",
    "discover": "protocols.discover",
    "generalise": "protocols.generalise",
    "open_release": "authors.opening",
    "protocol": "protocols.grid_results",
    "report": "pages.report",
    "run": "models.run",
    "score": "protocols.scoring",
    "similarity": "protocols.similarity",
    "variations": "protocols.variations",
    "write_page": "pages.page",
    "write_run": "runs.saving",
}
"""Where each name of the package is."""

__all__ = [
    "UserError",
    "beir",
    "chameleons",
    "clean",
    "compare",
    "discover",
    "generalise",
    "open_release",
    "protocol",
    "report",
    "run",
    "score",
    "similarity",
    "variations",
    "write_page",
    "write_run",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'eval_kit' has no attribute {name!r}")
    return getattr(import_module(f"eval_kit.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
