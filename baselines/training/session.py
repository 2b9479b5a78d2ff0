"""What training has in common for the four systems: the cell's examples, teacher, mining, and number of steps."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baselines.cells.cell import Cell
from baselines.cells.journal import Report
from baselines.options import Trained
from baselines.training import early_stopping
from baselines.training.compiling import compile_layers
from baselines.training.distillation import teacher
from baselines.training.mining import miner
from baselines.training.queries import Lookup, dataset, passage_texts, steps, training
from baselines.training.trainer import Build, Parts, fit
from eval_kit.models import token_ids
from eval_kit.search.retriever import Retriever
from eval_kit.search.texts import PassageTexts
from eval_kit.search.tokens import PassageTokens

if TYPE_CHECKING:
    from transformers import TrainerCallback

type Opener = Callable[[str | Path, Mapping[str, Any]], Retriever]


class Session:
    """One training of a cell.

    Attributes:
        judged: the training queries with their passages.
        dataset: the examples, with texts or token ids made as they are read.
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
        self.steps = steps(cell, sum(map(len, self.judged.positives.values())))
        self._lookup = lookup = Lookup(self.judged.texts, passage_texts(cell), teacher(options, cell.teacher_commit))
        self.dataset, self._sha256 = dataset(cell, self.judged, lookup, self.steps * options.batch_size)
        self._contents: PassageTexts | PassageTokens = self._lookup.texts
        self._callbacks = []
        if options.mine_every is not None:
            self._callbacks.append(
                miner(cell, options.mine_every, self.judged, lookup, lambda model: opener(model, options.as_json()))
            )

    def feed(self, model: Any) -> None:
        """Make the dataset supply passages as the model reads them, as token ids if it can."""
        contents = token_ids.read(model, self._lookup.texts, token_ids.prompt_of(model))
        self._lookup.tokens = contents if isinstance(contents, PassageTokens) else None
        self._contents = contents

    def parts(
        self, model: Any, loss: Any, trainer: type, arguments: type, callbacks: Sequence["TrainerCallback"] = ()
    ) -> Parts:
        """The parts of a training: a system's own, and the examples, evaluator and callbacks of this session.

        Args:
            model: that :meth:`feed` was called with.
            loss: of the model.
            trainer: class of sentence-transformers, with its class of ``arguments``.
            arguments: see ``trainer``.
            callbacks: the system's own.
        """
        compile_layers(model, self.cell.options_as(Trained))
        return Parts(
            trainer=trainer,
            arguments=arguments,
            model=model,
            loss=loss,
            dataset=self.dataset,
            evaluator=early_stopping.evaluator(self.cell, self._contents),
            metric=early_stopping.METRIC,
            callbacks=[*self._callbacks, *callbacks],
        )

    def train(self, build: Build, progress: Report | None) -> dict[str, Any]:
        """Fit, and add the number of queries and the examples' number and digest to the facts."""
        facts = {"train_queries": len(self.judged.texts), "examples": len(self.dataset)}
        return fit(self.cell, self.steps, build, progress) | facts | {"examples_sha256": self._sha256}
