"""What training has in common for the four systems: the cell's examples, teacher, mining, and number of steps."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from baselines.architectures import token_ids
from baselines.grid.cell import Cell
from baselines.grid.journal import Report
from baselines.training.distillation import teacher
from baselines.training.mining import miner
from baselines.training.queries import Lookup, dataset, examples_a_step, passage_texts, steps, training
from baselines.training.trainer import Build, fit
from search.retriever import Retriever
from search.texts import PassageTexts
from search.tokens import PassageTokens

type Opener = Callable[[str | Path, Mapping[str, Any]], Retriever]


class Session:
    """One training of a cell.

    Attributes:
        judged: the training queries with their passages.
        dataset: the examples, with texts or token ids made as they are read.
        callbacks: mining, if the options set it.
        steps: updates of the weights.
    """

    def __init__(self, cell: Cell, opener: Opener) -> None:
        """Read the release.

        Raises:
            UserError: it lacks queries, judgements, negatives or passages; or the teacher cannot be obtained.
        """
        options = cell.options
        self.cell = cell
        self.judged = training(cell)
        self.steps = steps(cell, sum(map(len, self.judged.positives.values())))
        self._lookup = lookup = Lookup(self.judged.texts, passage_texts(cell), teacher(options, cell.teacher_commit))
        self.dataset, self._sha256 = dataset(cell, self.judged, lookup, self.steps * examples_a_step(cell))
        self.callbacks = []
        if "mine_every" in options:
            self.callbacks.append(miner(cell, self.judged, lookup, lambda model: opener(model, options)))

    def feed(self, model: Any) -> PassageTexts | PassageTokens:
        """Make the dataset supply passages as the model reads them, as token ids if it can, and return them."""
        texts = self._lookup.texts
        contents = token_ids.stored(model, texts, token_ids.prompt_of(model))
        self._lookup.tokens = contents if isinstance(contents, PassageTokens) else None
        return contents

    def train(self, build: Build, progress: Report | None) -> dict[str, Any]:
        """Fit, and add the number of queries and the examples' number and digest to the facts."""
        facts = {"train_queries": len(self.judged.texts), "examples": len(self.dataset)}
        return fit(self.cell, self.steps, build, progress) | facts | {"examples_sha256": self._sha256}
