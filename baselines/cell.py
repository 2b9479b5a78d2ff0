"""One training of a grid, with everything that decides its result."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from baselines.options import Biencoder, Options, Trained
from eval_kit import __version__
from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.models import checkpoints
from eval_kit.release import Release
from eval_kit.runs import names
from eval_kit.runs.contamination import training_set_id
from eval_kit.shifts import CONTROL, TRAINED_FOR
from eval_kit.stats.vectors import ENDING, IDS_ENDING

MODELS = ("backbone", "teacher")
"""Options that name pretrained models."""


@dataclass(frozen=True)
class Cell:
    """A system that is trained on a shift without one part of it (for ReSTrain: on that part; or on everything).

    The cell's own folder lies below ``root``, the grid's, named by its digest. The ``variations``, by their full names,
    are searched too and do not affect the model; ``benchmarks`` are dev and TREC DL, searched in the same run.
    ``start`` are the options of the system that this one starts from, ``resolved`` the :attr:`weights`, if another
    process has looked them up.
    """

    name: names.RunName
    release: Release
    options: Options
    root: Path
    variations: tuple[str, ...] = ()
    benchmarks: bool = True
    start: Options | None = None
    resolved: Mapping[str, str] | None = None

    def options_as[O: Options](self, kind: type[O]) -> O:
        """The options, of which the caller knows that they are of this class."""
        assert isinstance(self.options, kind), f"{self.name.file}: has options of {type(self.options).__name__}"
        return self.options

    @property
    def beginning(self) -> "Cell":
        """The cell whose model this one starts from: of another system, trained on the same queries."""
        assert self.start is not None, f"{self.name.file}: starts from no other system"
        name = dataclasses.replace(self.name, system=str(self.options_as(Biencoder).starts_from))
        cell = dataclasses.replace(self, name=name, options=self.start, start=None, resolved=None)
        of_the_same = cell.named_models == self.named_models
        return dataclasses.replace(cell, resolved=self.resolved) if of_the_same else cell

    @property
    def named_models(self) -> dict[str, str]:
        """The ``backbone`` and the ``teacher`` named in the options: Hub ids or folders."""
        models = {role: getattr(self.options, role, None) for role in MODELS}
        return {role: model for role, model in models.items() if isinstance(model, str)}

    @cached_property
    def weights(self) -> Mapping[str, str]:
        """For each of the :attr:`named_models`, its commit on the Hub, or the sha256 of a folder's files."""
        if self.resolved is not None:
            return self.resolved
        return {role: checkpoint.digest(model) for role, model in self.named_models.items()}

    @cached_property
    def digest(self) -> str:
        """sha256 over everything that decides the run: cells with the same digest have the same result."""
        of_backbone, of_teacher = map(self.weights.get, MODELS)
        options = self.options.as_json()
        decides = [self.release.digest, options, of_backbone, self.name.file, self.benchmarks, __version__]
        if of_teacher is not None:
            decides.append(of_teacher)
        if self.start is not None:
            decides.append(self.beginning.digest)
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def commit(self, role: str) -> str | None:
        """The commit of the ``backbone`` or the ``teacher`` on the Hub; None for a folder, or without such a model."""
        # without such a model, the path is ".", which is a folder
        return None if Path(self.named_models.get(role, "")).is_dir() else self.weights.get(role)

    @property
    def folder(self) -> Path:
        """Where the cell's model, index and run are."""
        return self.root / self.digest[:16]

    @property
    def model(self) -> Path:
        """The trained model; it exists only when training is finished."""
        return self.folder / "model"

    @property
    def own_index(self) -> Path:
        """The cell's own index, made with the trained model."""
        return self.folder / "index"

    @property
    def run(self) -> Path:
        """The run; it exists only when it is complete."""
        return self.folder / self.name.file

    @property
    def runs_of_variations(self) -> dict[str, Path]:
        """The run of each variation, by the variation's full name."""
        return {name: self.folder / f"{self.run.stem}.{name}.trec" for name in self.variations}

    @property
    def query_vectors(self) -> tuple[Path, Path]:
        """A bi-encoder's query vectors, and the queries' ids (:mod:`eval_kit.stats.vectors`)."""
        return self.run.with_suffix(ENDING), self.run.with_suffix(IDS_ENDING)

    @property
    def sparsity(self) -> Path:
        """The number of non-zero weights of a SPLADE model."""
        return self.folder / "sparsity.json"

    @property
    def seconds(self) -> dict[str, float]:
        """What each step has taken so far."""
        path = self.folder / "seconds.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    @property
    def published_run(self) -> Path:
        """The finished run among those of the whole grid."""
        return published(self.root, self.name)

    @property
    def outputs(self) -> dict[Path, Path]:
        """Each file that the finished cell contributes to the grid's folders, and its path there."""
        variations = {run: self.root / "variations" / run.name for run in self.runs_of_variations.values()}
        vectors = {file: self.published_run.with_name(file.name) for file in self.query_vectors if file.is_file()}
        return {self.run: self.published_run, **variations, **vectors}

    @property
    def is_searched(self) -> bool:
        """Whether every run is complete."""
        return all(run.is_file() for run in (self.run, *self.runs_of_variations.values()))

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return (self.folder / "done.json").is_file() and self.is_searched

    def test_queries(self) -> pl.DataFrame:
        """``query_id`` and ``text`` of the queries that the cell's run must hold, each once, in the release's order."""
        trained_for = TRAINED_FOR[self.name.shift]
        if not trained_for.test_tables(self.release):
            what = f"{self.release.folder} has no test queries of {self.name.shift}"
            raise UserError(what, do="Choose a shift of the release with --shift")
        return trained_for.test_queries(self.release, self.name.held_out, self.benchmarks)

    def searches(self) -> dict[Path, pl.DataFrame]:
        """``query_id`` and ``text`` of every run's queries, by run."""
        variations = self.release.variations
        wordings = {run: self.release.wordings(variations[name]) for name, run in self.runs_of_variations.items()}
        return {self.run: self.test_queries(), **wordings}

    def training_data(self) -> list[str] | None:
        """The queries that the model was trained on, its backbone and its teacher included.

        Returns sources as :mod:`eval_kit.runs.contamination` reads them; None if the teacher's are unknown. A backbone
        that is not a registered checkpoint counts as pretrained without queries.
        """
        if not isinstance(self.options, Trained):
            return []
        backbone, teacher = self.options.backbone, self.options.teacher
        sources = [training_set_id(self.release, self.name.shift, self.name.held_out)]
        if isinstance(backbone, str):
            sources += checkpoints.training_data(backbone) or []
        of_teacher = [] if teacher is None else checkpoints.training_data(teacher)
        return None if of_teacher is None else list(dict.fromkeys(sources + of_teacher))

    def portable(self) -> "Cell":
        """The cell to send to another process: absolute paths, without the tables that the release has read so far."""
        release = Release(self.release.folder.resolve(), self.release.manifest)
        return dataclasses.replace(self, release=release, root=self.root.resolve(), resolved=self.weights)


def published(root: Path, name: names.RunName) -> Path:
    """Where a grid's folder has the run of the cell of that name."""
    return root / ("control" if name.shift == CONTROL.name else "runs") / name.file
