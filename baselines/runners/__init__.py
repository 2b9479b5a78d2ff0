"""Where the cells of a grid are done and passages encoded: processes of this machine, or a Ray cluster."""

from enum import StrEnum


class Runner(StrEnum):
    """Where work is done."""

    local = "local"
    ray = "ray"
