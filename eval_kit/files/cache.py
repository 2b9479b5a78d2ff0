"""The folder for whatever is expensive to get or make, shared by all of a user's releases and grids."""

import os
from pathlib import Path

VARIABLE = "MS_MARCO_SHIFT_CACHE"


def cache_folder() -> Path:
    """``$MS_MARCO_SHIFT_CACHE``, else ``ms-marco-shift`` in the user's cache folder."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ms-marco-shift"
