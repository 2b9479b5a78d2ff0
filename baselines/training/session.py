"""What training has in common for all systems: the cell's examples, teacher, mining, and number of steps."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from baselines.cells.cell import Cell
from baselines.cells.journal import Report
from baselines.options import Trained
from baselines.training import early_stopping
from baselines.training.distillation import teacher
from baselines.training.mining import Opener, miner
from baselines.training.queries import Lookup, dataset, passage_texts, training
from baselines.training.trainer import Parts, fit

if TYPE_CHECKING:
    from transformers import TrainerCallback


class Session:
    """One training of a cell.

    Attributes:
        cell: whose model is trained.
        judged: the training queries with their passages.
        dataset: the examples, with texts looked up as they are read.
        sha256: over the ids of all examples.
        steps: updates of the weights.
    """

    def __init__(self, cell: Cell, opener: Opener) -> None:
        """Read the release.

        Raises:
            UserError: it lacks queries, judgements, negatives or passages; or the teacher cannot be obtained.
        """
        options = cell.options_as(Trained)
        self.cell = cell
        self.judged = training(cell)
        pairs = sum(map(len, self.judged.positives.values()))
        self.steps = options.steps or max(1, math.ceil(pairs * (options.epochs or 0) / options.batch_size))
        labels = teacher(options, cell.commit("teacher"))
        self._lookup = lookup = Lookup(self.judged.texts, passage_texts(cell), labels)
        self.dataset, self.sha256 = dataset(cell, self.judged, lookup, self.steps * options.batch_size)
        self._callbacks = []
        if options.mine_every is not None:
            self._callbacks.append(miner(cell, options.mine_every, self.judged, lookup, opener))

    def parts(self, model: Any, loss: Any, trainer: Any, callbacks: Sequence["TrainerCallback"] = ()) -> Parts:
        """The parts of a training: a system's own, and the examples, evaluator and callbacks of this session.

        Args:
            model: to be trained.
            loss: of the model.
            trainer: class of sentence-transformers.
            callbacks: the system's own.
        """
        evaluator = early_stopping.evaluator(self.cell, self._lookup.texts)
        return Parts(trainer, model, loss, self.dataset, evaluator, [*self._callbacks, *callbacks])


def train_by(
    build: Callable[[Session, int | None], Parts], opener: Opener, cell: Cell, progress: Report | None = None
) -> dict[str, Any]:
    """Fit, and add the number of queries and the examples' number and digest to the facts.

    Args:
        build: makes the parts of each attempt, with a loss as of :func:`baselines.training.trainer.fit`.
        opener: makes a retriever of a saved model.
        cell: whose model is trained.
        progress: see :func:`baselines.training.trainer.fit`.
    """
    session = Session(cell, opener)
    facts = fit(cell, session.steps, partial(build, session), progress)
    facts |= {"train_queries": len(session.judged.texts), "examples": len(session.dataset)}
    return facts | {"examples_sha256": session.sha256}
