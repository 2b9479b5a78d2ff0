"""Score retrieval runs on ms-marco-shift releases.

Everything heavy is imported where it is used, so that ``eval_kit --help`` starts at once.
"""

from importlib.metadata import version

__version__ = version("ms-marco-shift")
