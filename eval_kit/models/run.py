"""From a model to its figures on a release, beside those of its pivots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.divisions import Parts
from eval_kit.errors import UserError
from eval_kit.models.bm25 import Bm25
from eval_kit.models.cross import Cross
from eval_kit.models.dense import Dense
from eval_kit.models.opening import BM25, open_retriever
from eval_kit.models.runs import DEPTH, make_runs, only, variation_queries
from eval_kit.program import check_outputs
from eval_kit.protocols.by_part import scores_by_part
from eval_kit.protocols.compare import Comparison, compare
from eval_kit.protocols.scores import Scores
from eval_kit.protocols.scoring import score
from eval_kit.protocols.variations import Variations
from eval_kit.protocols.variations import variations as varied
from eval_kit.release import Release
from eval_kit.results import Picture, Result
from eval_kit.runs import contamination
from eval_kit.search.passages import Collection, collection_of, with_titles
from eval_kit.tables.table import Table


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

    def figures(self) -> list[Picture]:
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
    pivots: Sequence[Path] | None = None,
    test_sets: Sequence[str] = (),
    variations: Sequence[str] = (),
    name: str | None = None,
    seed: int = 0,
    outputs: Sequence[Path | None] = (),
    options: Mapping[str, Any] | None = None,
    depth: int = DEPTH,
    collection: str | None = None,
    by: Sequence[str | Parts] = (),
) -> Card:
    """Search a release with a model, score the runs, and set them beside the pivots'.

    Every call searches again, so that no run is older than its passages, queries or model. What was encoded or indexed
    is kept in ``out`` and not made again, by this or a later call, for the same passages and model.

    Args:
        model: as :func:`eval_kit.models.opening.open_retriever` takes it.
        release: with passages, unless a ``collection`` is named.
        out: folder for the runs and the index.
        pivots: runs to compare with, or none; by default BM25's, which is searched too.
        test_sets: names of those to search and score; by default all.
        variations: names of variations to search as well, as
            :func:`eval_kit.models.runs.variation_queries` takes them.
        name: of the run; by default :func:`name_of` the model.
        seed: of the bootstrap.
        outputs: other files that the caller will write; no run may be one of them.
        options: of the model's architecture, by name, such as ``query_prompt``.
        depth: passages per query.
        collection: what is searched, as :func:`collection_of` takes it.
        by: divisions of the queries, to show each part as well (:func:`eval_kit.divisions.divide`).

    Raises:
        UserError: a model that cannot be used, a release without passages, an unknown test set or variation; a run that
            would replace a pivot or one of the outputs.
    """
    texts = collection_of(release, collection)
    run_name = name or name_of(model)
    if Path(run_name).name != run_name or run_name.startswith("."):
        raise UserError(f"--name: {run_name!r:.60} is no name of a file in {out}; choose another")
    if run_name == BM25 != model and pivots is None:
        raise UserError(f"{BM25} is the name of what the model is compared with; give another --name")
    if Path(model).is_dir() and out.resolve().is_relative_to(Path(model).resolve()):
        raise UserError(f"{out}: lies in the model's folder, whose files say whether it changed; name another --out")
    queries = {"": only(release, test_sets)} | variation_queries(release, variations, test_sets)
    runs: dict[str, dict[Path, pl.DataFrame]] = {}
    for system in [run_name] if pivots is not None or model == BM25 else [BM25, run_name]:
        names = {f"{system}.{variation}".rstrip("."): wording for variation, wording in queries.items()}
        runs[system] = {out / f"{file}.trec": wording for file, wording in names.items()}
    run_files = list(chain.from_iterable(runs.values()))
    check_outputs({"pivots": list(pivots or ()), "collection": collection, "out": [*run_files, *outputs]})
    trained_on = _search(model, options, texts, runs[run_name], out / run_name, depth)
    if len(runs) > 1:  # the model first: if it cannot be used, that is said at once
        _search(BM25, None, texts, runs[BM25], out / BM25, depth)
    systems = [*(pivots or ()), *(out / f"{system}.trec" for system in runs)]
    figures_of: Comparison | Scores
    if len(systems) > 1:
        figures_of = compare(systems, release, only=test_sets, seed=seed, allow_missing=True, by=by)
    else:
        figures_of = score(systems, release, allow_missing=True, only=test_sets)
        if by:
            figures_of = scores_by_part(figures_of, by, release)
    changes = varied(run_files, release, seed=seed, allow_missing=True) if variations else None
    return Card(figures_of, changes, trained_on, figures_of.provenance)


def name_of(model: str) -> str:
    """What a model's run is called by default: the last part of its name."""
    return Path(model.replace(":", ".")).resolve().name


def _search(
    model: str,
    options: Mapping[str, Any] | None,
    texts: Collection,
    runs: Mapping[Path, pl.DataFrame],
    index: Path,
    depth: int,
) -> list[str] | None:
    """Make the runs of a model; what it was trained on, as declared."""
    retriever, trained_on = open_retriever(model, options)
    if isinstance(retriever, Bm25):
        retriever = retriever.over(texts)
    elif isinstance(retriever, Cross) and retriever.fields:
        retriever.first = Bm25(retriever.k1, retriever.b, fields=True).over(texts)
    elif isinstance(retriever, Dense):
        texts = with_titles(texts, retriever.title_separator)
    for file in runs:  # before the run, which a kill would leave with what was declared of an earlier one
        contamination.declare(file, trained_on)
    folder = index.with_name(f"{index.name}.{'lucene' if isinstance(retriever, Bm25) else 'index'}")
    make_runs(retriever, texts.read(), runs, folder, depth)
    return trained_on
