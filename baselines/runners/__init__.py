"""Where a grid's cells are run and passages encoded: processes on this machine, or a Ray cluster."""

from enum import StrEnum


class Runner(StrEnum):
    """Where work is done."""

    local = "local"
    ray = "ray"
