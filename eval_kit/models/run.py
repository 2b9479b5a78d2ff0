"""From a model to its figures on a release, beside those of its pivots."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from eval_kit import plots, svg
from eval_kit.api import ReleaseSource
from eval_kit.divisions import FEW, Parts
from eval_kit.errors import UserError
from eval_kit.files import atomic, checkpoint
from eval_kit.measures.definitions import parse
from eval_kit.models.bm25 import Bm25
from eval_kit.models.cross import Cross
from eval_kit.models.dense import Dense
from eval_kit.models.opening import BM25, open_retriever
from eval_kit.models.runs import DEPTH, make_runs, only, variation_queries
from eval_kit.program import check_outputs
from eval_kit.protocols.by_part import scores_by_part
from eval_kit.protocols.clean import Clean, clean
from eval_kit.protocols.compare import Comparison, compare
from eval_kit.protocols.generalise import Generalisation, generalise
from eval_kit.protocols.scores import Scores
from eval_kit.protocols.scoring import score
from eval_kit.protocols.variations import Variations
from eval_kit.protocols.variations import variations as varied
from eval_kit.release import Release, open_release
from eval_kit.release.manifest import title
from eval_kit.results import Picture, Result
from eval_kit.runs import contamination
from eval_kit.runs.training import TrainingQueries
from eval_kit.search.encoders import weights_digest
from eval_kit.search.passages import Collection, collection_of, with_titles
from eval_kit.search.retriever import Retriever
from eval_kit.tables import markdown, terminal
from eval_kit.tables.table import Table, loss

SCATTERED = 600
"""Queries that the scatter shows, with their texts: a page of thousands would be megabytes."""


_OF_ALL = re.compile(r"checkpoint-\d+|final|best|last|model|output|snapshots|[0-9a-f]{40}")
"""Names that trainers and the Hub's cache give every model's folder."""


@dataclass(frozen=True, repr=False)
class Card(Result):
    """What a model does on a release.

    Attributes:
        figures_of: its figures beside the pivots', or alone where there is no pivot.
        variations: what other wordings of the queries cost, if any were searched.
        trained_on: what the model was trained on, as its card or the kit's registry says; None where neither does.
        provenance: of the figures.
        model: as it was named.
        system: the name of its run.
        release: what it was searched on.
        leaks: the test queries that its training gives away; None where the training queries are not known.
        generalises: whether far queries cost it more than the pivots; None likewise, or without a pivot.
    """

    title = "A model's card"

    figures_of: Comparison | Scores
    variations: Variations | None
    trained_on: list[str] | None
    provenance: dict[str, Any]
    model: str
    system: str
    release: Release
    leaks: Clean | None = None
    generalises: Generalisation | None = None

    @property
    def heading(self) -> str:
        """The model and the data."""
        return f"{self.model} on {title(self.release.manifest)}"

    def summary(self) -> list[str]:
        """The queries; the gain on each shift, where it is least, what other wordings cost, leaks and the verdict."""
        rows = self.to_polars()
        of_sets = rows.unique("test_set", maintain_order=True)
        sets = f"{of_sets.height} test sets" if of_sets.height > 1 else f"the test set {of_sets['test_set'][0]}"
        sentences = [f"Scored on {of_sets['queries'].sum():,} queries of {sets}."]
        if isinstance(self.figures_of, Comparison):
            sentences += self._by_shift(self.figures_of)
        else:
            sentences += [*self.figures_of.summary(), "Compared with nothing: leave out --no-pivot to add BM25."]
        if self.variations:
            of_model = self.variations.results.filter(pl.col("system") == self.system)
            for (method,), group in of_model.group_by("method", maintain_order=True):
                row = group.row(0, named=True)
                place = f"{row['test_set']}, n = {row['queries']:,}"
                sentences.append(f"Wordings by {method} cost {loss(row['rel_loss'])} of {row['measure']} ({place}).")
        else:
            sentences.append("What typos cost is not told: add --variation, such as dev.typo.")
        sentences += self.leaks.summary() if self.leaks else [self._declared()]
        if self.generalises:
            sentences += self.generalises.summary()
        return sentences

    def _declared(self) -> str:
        """Whether training held queries of the release, as declared; and how to tell whether it held these."""
        rows = self.to_polars()
        own = rows.filter(pl.col("system" if "system" in rows.columns else "run") == self.system)
        known = contamination.worst(own["trained_on"])
        said = {
            contamination.TrainedOn.YES: "By its declared training data, it was trained on test queries",
            contamination.TrainedOn.NO: "By its declared training data, it was not trained on test queries",
            contamination.TrainedOn.UNKNOWN: "Whether it was trained on test queries is unknown",
        }[known]
        return f"{said}; whether training gives them away, and what far queries cost, needs --trained-on FILE."

    def _by_shift(self, comparison: Comparison) -> Iterator[str]:
        """A sentence for each shift: the mean difference over its queries, and the part with the least."""
        differences = comparison.first_measures().filter(pl.col("system") == self.system)
        shift = pl.col("test_set").str.split(".").list.first()
        lower = parse(differences["measure"][0]).kind.lower_is_better if differences.height else False
        weighted = (pl.col("difference") * pl.col("queries")).sum() / pl.col("queries").sum()
        for (name, measure), rows in differences.group_by(shift.alias("shift"), "measure", maintain_order=True):
            text = f"{str(name).capitalize() if rows.height > 1 else name}: "
            text += f"{rows.select(weighted).item():+.4f} {measure} against {comparison.systems[0]}"
            better, worse = (rows.filter(pl.col("p_holm") < 0.05, sign * pl.col("difference") > 0) for sign in (1, -1))
            if rows.height > 1:
                text += f"; better in {better.height} of {rows.height} parts, worse in {worse.height}"
            elif not better.height and not worse.height:
                text += " (not significant over queries)"
            yield f"{text}.".replace(" -0", " \u22120")
        enough = differences.filter(pl.col("queries") >= FEW)
        if enough.height > 1:
            row = enough.sort("difference", descending=lower, maintain_order=True).row(0, named=True)
            text = f"Worst at {row['test_set']}: {row['difference']:+.4f} {row['measure']}, n = {row['queries']:,}."
            yield text.replace(" -0", " \u22120")

    def to_polars(self) -> pl.DataFrame:
        """The rows of the figures."""
        return self.figures_of.to_polars()

    def tables(self) -> list[Table]:
        """The figures; then what other wordings cost in each test set's first measure."""
        changes = self.variations.by_test_set() if self.variations else []
        further = [part.tables() for part in (self.leaks, self.generalises) if part]
        return [*self.figures_of.tables(), *(tables[0] for tables in changes), *chain.from_iterable(further)]

    def figures(self) -> list[Picture]:
        """The pictures of both."""
        parts = (self.figures_of, self.variations, self.generalises)
        pictures = list(chain.from_iterable(part.figures() for part in parts if part))
        if isinstance(self.figures_of, Comparison):
            pictures.insert(1, self._against(self.figures_of))
        return pictures

    def _against(self, comparison: Comparison) -> Picture:
        """A point a query: the pivot's value and the model's, on the test set with most queries; its text on hover."""
        pivot = comparison.systems[0]
        differences = comparison.first_measures().filter(pl.col("system") == self.system)
        row = differences.sort("queries", descending=True, maintain_order=True).row(0, named=True)
        values = comparison.values.filter(test_set=pl.lit(row["test_set"]), measure=pl.lit(row["measure"]))
        by_system = values.select("query_id", "system", "value").partition_by("system", as_dict=True)
        both = (
            by_system[pivot,]
            .select("query_id", x="value")
            .join(by_system[self.system,].select("query_id", y="value"), on="query_id")
        )
        both = both.join(self.release.queries(row["test_set"]).select("query_id", "text"), on="query_id")
        shown = both.sort("query_id").gather_every(-(-both.height // SCATTERED))
        marks = []
        for x, y, text in shown.select("x", "y", "text").iter_rows():
            marks.append(svg.Point(x, y, f"{text}: {pivot} {x:.3f}, {self.system} {y:.3f}"))
        queries = f"{shown.height:,} of the {both.height:,} queries of {row['test_set']}"
        caption = f"{row['measure']} of {queries}: above the diagonal {self.system} is better."
        picture = plots.points({self.system: marks}, pivot, self.system, caption, connect=False, diagonal=True)
        return Picture(picture, caption)

    def notes(self) -> list[str]:
        """What the model was trained on, and the notes of both."""
        sources = "unknown" if self.trained_on is None else ", ".join(self.trained_on) or "nothing"
        notes = [*self.figures_of.notes(), *(self.variations.notes() if self.variations else [])]
        notes += [*(self.generalises.notes() if self.generalises else []), *(self.leaks.notes() if self.leaks else [])]
        return [f"Training data, as declared: {sources}", *dict.fromkeys(notes)]

    def to_markdown(self) -> str:
        """A model card for the Hub: the heading and what it has to say, then the tables and notes."""
        said = "".join(f"{markdown.escape(sentence)}\n\n" for sentence in self.summary())
        return f"# {markdown.escape(self.heading)}\n\n{said}{super().to_markdown()}"

    def show(self, console: Console) -> None:
        """Print what it has to say, then the tables and notes."""
        terminal.show_notes([self.heading, *self.summary(), ""], console)
        super().show(console)

    def as_json(self) -> dict[str, Any]:
        """The documents of both, and the declared training data."""
        varied_figures = self.variations.as_json() if self.variations else None
        leaks = None if self.leaks is None else self.leaks.counts().to_dicts()
        further: dict[str, Any] = {"variations": varied_figures, "training_data": self.trained_on, "model": self.model}
        further |= {"summary": self.summary(), "leaks": leaks}
        return self.figures_of.as_json() | further | {"generalises": self.generalises and self.generalises.as_json()}


def run(
    model: Any,
    release: ReleaseSource,
    out: Path = Path("runs"),
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
    training: TrainingQueries | None = None,
    kind: str | None = None,
    replace: bool = False,
) -> Card:
    """Search a release with a model, score the runs, and set them beside the pivots'.

    Every call searches again, so that no run is older than its passages, queries or model. What was encoded or indexed
    is kept in ``out`` and not made again, by this or a later call, for the same passages and model.

    Args:
        model: a name, as :func:`eval_kit.models.opening.open_retriever` takes it; or a model in memory: one of
            sentence-transformers, or any object that encodes (:mod:`eval_kit.models.own`).
        release: an open one, a folder or Hub id; with passages, unless a ``collection`` is named.
        out: folder for the runs and the index.
        pivots: runs to compare with, or none; by default BM25's, which is searched too.
        test_sets: names of those to search and score; by default all.
        variations: names of variations to search as well, as
            :func:`eval_kit.models.runs.variation_queries` takes them.
        name: of the run; by default :func:`name_of` the model, or the name of its class.
        seed: of the bootstrap.
        outputs: other files that the caller will write; no run may be one of them.
        options: of the model's architecture, by name, such as ``query_prompt``.
        depth: passages per query.
        collection: what is searched, as :func:`collection_of` takes it.
        training: what the model was trained on, to tell leaks and whether far queries cost it more.
        by: divisions of the queries, to show each part as well (:func:`eval_kit.divisions.divide`).
        kind: ``dense``, ``sparse``, ``late`` or ``cross``, where the model's files do not tell.
        replace: whether the run may replace one of that name by another model.

    Raises:
        UserError: a model that cannot be used, a release without passages, an unknown test set or variation; a run that
            would replace a pivot or one of the outputs, or a run of another model.
    """
    release, out = open_release(release), Path(out)
    loaded, model = (None, str(model)) if isinstance(model, str | Path) else (model, name or type(model).__name__)
    texts = collection_of(release, collection)
    run_name = name or name_of(model)
    if Path(run_name).name != run_name or run_name.startswith("."):
        raise UserError(f"--name: {run_name!r:.60} is no name of a file in {out}; choose another")
    if run_name == BM25 != model and pivots is None:
        raise UserError(f"{BM25} is the name of what the model is compared with; give another --name")
    if loaded is None and Path(model).is_dir() and out.resolve().is_relative_to(Path(model).resolve()):
        raise UserError(f"{out}: lies in the model's folder, whose files say whether it changed; name another --out")
    queries = {"": only(release, test_sets)} | variation_queries(release, variations, test_sets)
    runs: dict[str, dict[Path, pl.DataFrame]] = {}
    for system in [run_name] if pivots is not None or model == BM25 else [BM25, run_name]:
        names = {f"{system}.{variation}".rstrip("."): wording for variation, wording in queries.items()}
        runs[system] = {out / f"{file}.trec": wording for file, wording in names.items()}
    run_files = list(chain.from_iterable(runs.values()))
    check_outputs({"pivots": list(pivots or ()), "collection": collection, "out": [*run_files, *outputs]})
    maker, source = out / f"{run_name}.index" / "model.txt", _source(model, loaded)
    if not replace and any(file.exists() for file in runs[run_name]) and run_name != BM25:
        before = maker.read_text(encoding="utf-8", errors="replace") if maker.exists() else "another model"
        if before != source:
            raise UserError(f"{next(iter(runs[run_name]))}: is a run of {before}; give another --name, or --replace")
    opened = open_retriever(model, options, kind, loaded)
    if run_name != BM25:
        maker.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(maker, source)
    trained_on = _search(opened, texts, runs[run_name], out / run_name, depth)
    if len(runs) > 1:  # the model first: if it cannot be used, that is said at once
        _search(open_retriever(BM25), texts, runs[BM25], out / BM25, depth)
    systems = [*(pivots or ()), *(out / f"{system}.trec" for system in runs)]
    train = training.queries if training else None
    figures_of: Comparison | Scores
    if len(systems) > 1:
        figures_of = compare(systems, release, only=test_sets, seed=seed, allow_missing=True, by=by, training=train)
    else:
        figures_of = score(systems, release, allow_missing=True, only=test_sets)
        if by:
            figures_of = scores_by_part(figures_of, by, release, train)
    changes = varied(run_files, release, seed=seed, allow_missing=True) if variations else None
    leaks = clean(release, training, test_sets) if training else None
    generalises = None
    if training and len(systems) > 1:
        untrained = [path for path in systems[:-1] if contamination.declared_beside(path) == []]
        far_on = next(iter(test_sets), None)
        if untrained:
            generalises = generalise(
                systems[-1:], release, untrained, far_on, training.queries, seed=seed, allow_missing=True
            )
    provenance = figures_of.provenance
    # a folder is often called "model" or after a step: the one above it says more
    shown = "/".join(Path(model).resolve().parts[-2:]) if Path(model).is_dir() else model
    return Card(figures_of, changes, trained_on, provenance, shown, run_name, release, leaks, generalises)


def name_of(model: str) -> str:
    """What a model's run is called by default: the last part of its name, after those that tell it apart."""
    parts = Path(model.replace(":", ".")).resolve().parts[1:]
    first = next((place for place in reversed(range(len(parts))) if not _OF_ALL.fullmatch(parts[place])), 0)
    return "-".join(parts[first:])


def _source(model: str, loaded: Any) -> str:
    """What a run is known to be of: the folder, or the name; a model in memory by its weights, or its class."""
    if loaded is None:
        return str(Path(model).resolve()) if Path(model).exists() else model
    return weights_digest(loaded) if checkpoint.kind_of_object(loaded) else type(loaded).__qualname__


def _search(
    opened: tuple[Retriever, list[str] | None],
    texts: Collection,
    runs: Mapping[Path, pl.DataFrame],
    index: Path,
    depth: int,
) -> list[str] | None:
    """Make the runs of a model; what it was trained on, as declared."""
    retriever, trained_on = opened
    if isinstance(retriever, Bm25):
        retriever = retriever.over(texts)
    elif isinstance(retriever, Cross) and (texts.corpus is not None if retriever.fields is None else retriever.fields):
        retriever.first = Bm25(retriever.k1, retriever.b, fields=True).over(texts)
    elif isinstance(retriever, Dense):
        texts = with_titles(texts, retriever.title_separator)
    for file in runs:  # before the run, which a kill would leave with what was declared of an earlier one
        contamination.declare(file, trained_on)
    folder = index.with_name(f"{index.name}.{'lucene' if isinstance(retriever, Bm25) else 'index'}")
    make_runs(retriever, texts.read(), runs, folder, depth)
    return trained_on
