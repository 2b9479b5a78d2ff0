"""From a model to its figures on a release, beside those of its pivots."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import api, models
from eval_kit.errors import UserError
from eval_kit.exchange.compare import Comparison
from eval_kit.measures.score import Scores
from eval_kit.models import checkpoints
from eval_kit.models.bm25 import Bm25
from eval_kit.models.own import Own
from eval_kit.models.runs import make_runs, only, varied
from eval_kit.program import check_outputs
from eval_kit.protocols.variations import Variations
from eval_kit.release import Release
from eval_kit.results import Figure, Result
from eval_kit.runs import contamination
from eval_kit.search import checkpoint
from eval_kit.search.gpus import refuse_unusable_gpus
from eval_kit.search.passages import has_passages, passages
from eval_kit.search.retriever import Retriever
from eval_kit.tables.table import Table

BM25 = "bm25"


@dataclass(frozen=True, repr=False)
class Card(Result):
    """What a model does on a release.

    Attributes:
        figures_of: its figures beside the pivots', or alone where there is no pivot.
        variations: what other wordings of the queries cost, if any were searched.
        trained_on: what the model was trained on, as its card or the kit's registry says; None where neither does.
        provenance: of the figures.
    """

    title = "A model's card"

    figures_of: Comparison | Scores
    variations: Variations | None
    trained_on: list[str] | None
    provenance: dict[str, Any]

    def to_polars(self) -> pl.DataFrame:
        """The rows of the figures."""
        return self.figures_of.to_polars()

    def tables(self) -> list[Table]:
        """The figures; then what other wordings cost in each test set's first measure."""
        changes = self.variations.by_test_set() if self.variations else []
        return [*self.figures_of.tables(), *(tables[0] for tables in changes)]

    def figures(self) -> list[Figure]:
        """The pictures of both."""
        return [*self.figures_of.figures(), *(self.variations.figures() if self.variations else [])]

    def notes(self) -> list[str]:
        """What the model was trained on, and the notes of both."""
        sources = "unknown" if self.trained_on is None else ", ".join(self.trained_on) or "nothing"
        notes = [*self.figures_of.notes(), *(self.variations.notes() if self.variations else [])]
        return [f"Training data, as declared: {sources}", *notes]

    def as_json(self) -> dict[str, Any]:
        """The documents of both, and the declared training data."""
        varied_figures = self.variations.as_json() if self.variations else None
        return self.figures_of.as_json() | {"variations": varied_figures, "training_data": self.trained_on}


def run(
    model: str,
    release: Release,
    out: Path,
    pivots: Sequence[Path] = (),
    test_sets: Sequence[str] = (),
    variations: Sequence[str] = (),
    name: str | None = None,
    seed: int = 0,
    outputs: Sequence[Path | None] = (),
) -> Card:
    """Search a release with a model, score the runs, and set them beside the pivots'.

    What was encoded is kept in ``out`` and not encoded again, by this or a later call with the same model.

    Args:
        model: Hub id or folder of a model of sentence-transformers, ``module:object`` of an object of your own (see
            :mod:`eval_kit.models.own`), or ``bm25``.
        release: with passages.
        out: folder for the runs and the index.
        pivots: runs to compare with; by default BM25's, which is searched too.
        test_sets: names of those to search and score; by default all.
        variations: names of variations to search as well, as :func:`eval_kit.models.runs.varied` takes them.
        name: of the run; by default the last part of ``model``.
        seed: of the bootstrap.
        outputs: other files that the caller will write; no run may be one of them.

    Raises:
        UserError: a model that cannot be used, a release without passages, an unknown test set or variation; a run that
            would replace a pivot or one of the outputs.
    """
    if not has_passages(release):
        raise UserError(
            f"{release.folder}: holds no passages to search; make a small release of it with: "
            f"python -m builder lite {release.folder} --queries 100 --passages 20000"
        )
    called = name or Path(model.replace(":", ".")).resolve().name
    sources = {called: model} if pivots or model == BM25 else {BM25: BM25, called: model}
    queries = {"": only(release, test_sets)} | varied(release, variations, test_sets)
    runs: dict[str, dict[Path, pl.DataFrame]] = {}
    for system in sources:
        names = {f"{system}.{variation}".rstrip("."): texts for variation, texts in queries.items()}
        runs[system] = {out / f"{file}.trec": texts for file, texts in names.items()}
    written = [file for files in runs.values() for file in files]
    check_outputs({"pivots": list(pivots), "out": [*written, *outputs]})
    searchers = [opened(source) for source in sources.values()]  # a model that cannot be used is refused at once
    for (system, source), (retriever, training_data) in zip(sources.items(), searchers, strict=True):
        index = out / f"{system}.{'lucene' if source == BM25 else 'index'}"
        make_runs(retriever, passages(release), runs[system], index)
        for file in runs[system]:
            contamination.declare(file, training_data)
    systems = [*pivots, *(out / f"{system}.trec" for system in sources)]
    figures_of: Comparison | Scores
    if len(systems) > 1:
        figures_of = api.compare(systems, release, seed=seed, allow_missing=True)
    else:
        figures_of = api.score(systems, release, allow_missing=True, test_sets=test_sets)
    changes = api.variations(written, release, seed=seed, allow_missing=True) if variations else None
    _, training_data = searchers[-1]  # the model's, after BM25's
    return Card(figures_of, changes, training_data, figures_of.provenance)


def opened(model: str) -> tuple[Retriever, list[str] | None]:
    """The model as a retriever, by the kind that its files show, and what it was trained on; None where unknown.

    Raises:
        UserError: there is no such model, or it has no way to make vectors.
    """
    if model == BM25:
        return Bm25(), []
    if importlib.util.find_spec("sentence_transformers") is None:
        raise UserError(f"{model}: needs sentence-transformers 6.2 or newer; in a clone, run: pip install '.[models]'")
    refuse_unusable_gpus()
    if ":" in model and not Path(model).exists():
        return Own(model), None
    kind = checkpoint.kind(model)
    if kind == "transformer":
        raise UserError(
            f"{model}: is a bare transformer, without a way to make vectors; save it with "
            "sentence-transformers, or name its pooling: python -m baselines search --model … "
            "--architecture dense --option pooling=cls"
        )
    return models.retriever("sparse" if kind == "masked" else kind, model, {}), _training_data(model)


def _training_data(model: str) -> list[str] | None:
    """The training data that the kit's registry or the model's card declares; None where unknown."""
    from huggingface_hub import ModelCard

    known = checkpoints.training_data(model)
    card = Path(model, "README.md")
    if known is not None or not card.is_file():
        return known
    declared = ModelCard.load(card, ignore_metadata_errors=True).data.get("datasets")
    return list(declared) if declared else None
