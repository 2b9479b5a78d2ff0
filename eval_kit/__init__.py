"""Score retrieval runs on ms-marco-shift releases.

Everything heavy is imported where it is used, so that ``eval_kit --help`` starts at once.
"""

__version__ = "0.2.0"
