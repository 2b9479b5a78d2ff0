"""One training of a grid, with everything that decides its result."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eval_kit import __version__, cells
from eval_kit.release import Release


@dataclass(frozen=True)
class Cell:
    """A system that is trained on a shift without one part of it (for ReSTrain: on that part).

    Attributes:
        place: system, shift, held-out part and seed; it names the run.
        release: whose queries, judgements and negatives are used.
        options: of this system, from a checked config (:mod:`baselines.config`).
        root: folder of the grid; the cell's own lies below it, named by its digest.
    """

    place: cells.Cell
    release: Release
    options: Mapping[str, Any]
    root: Path

    @cached_property
    def digest(self) -> str:
        """sha256 over release, options, place and code version: cells with one digest have one result."""
        decides = [self.release.digest, dict(self.options), self.place.file, __version__]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    @property
    def folder(self) -> Path:
        """Where the cell's model, index and run are."""
        return self.root / self.digest[:16]

    @property
    def model(self) -> Path:
        """The trained model; it stands there only when training is finished."""
        return self.folder / "model"

    @property
    def index(self) -> Path:
        """What the model has made of the passages."""
        return self.folder / "index"

    @property
    def run(self) -> Path:
        """The run; it stands there only when it is complete."""
        return self.folder / self.place.file
