"""From a model to its figures on a release, beside those of its pivots."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from eval_kit import __version__
from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.divisions import DISTANCE, LEAKED, WORDS, Parts
from eval_kit.documents import Training
from eval_kit.errors import UserError, parameter
from eval_kit.files import atomic, checkpoint
from eval_kit.models import finished
from eval_kit.models.bm25 import Bm25
from eval_kit.models.card import Card
from eval_kit.models.cross import Cross
from eval_kit.models.dense import Dense
from eval_kit.models.first import FirstRun
from eval_kit.models.opening import BM25, open_retriever
from eval_kit.models.precision import checked
from eval_kit.models.runs import DEPTH, make_runs, only, variation_queries
from eval_kit.models.shown import Shown, lines_of
from eval_kit.models.typos import with_typos
from eval_kit.program import check_outputs
from eval_kit.protocols.by_part import divisions, scores_by_part
from eval_kit.protocols.clean import clean
from eval_kit.protocols.compare import Comparison, compared
from eval_kit.protocols.generalise import contrasts, far_test_set, near_and_far
from eval_kit.protocols.scores import Scores
from eval_kit.protocols.scoring import named, scores_of
from eval_kit.protocols.variations import varied_beside
from eval_kit.runs import contamination
from eval_kit.runs.given import take
from eval_kit.runs.training import TrainingQueries, queries_of, read
from eval_kit.search.encoders import weights_digest
from eval_kit.search.passages import Collection, collection_of, first_of, with_titles
from eval_kit.search.retriever import Retriever
from eval_kit.sentences import counted
from eval_kit.tables import terminal

_OF_ALL = re.compile(r"checkpoint-\d+|final|best|last|model|output|snapshots|[0-9a-f]{40}")
"""Names that trainers and the Hub's cache give every model's folder."""


def run(
    model: Any,
    release: ReleaseSource = None,
    out: Path = Path("runs"),
    *,
    pivots: Sequence[Path] | None = None,
    test_sets: Sequence[str] = (),
    variations: Sequence[str] = (),
    by: Sequence[str | Parts] = (),
    trained_on: TrainingQueries | str | PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
    kind: str | None = None,
    passages: str | None = None,
    depth: int = DEPTH,
    first: Path | None = None,
    limit: int | None = None,
    check: bool = False,
    name: str | None = None,
    replace: bool = False,
    seed: int = 0,
    outputs: Sequence[Path | None] = (),
) -> Card | Shown:
    """Search a release with a model, score the runs, and set them beside the pivots'.

    No run is older than its passages, queries, model or options: a later call searches again if one of them changed,
    and else uses the finished run. What was encoded or indexed is kept in ``out`` too, for the same passages and model.
    What will run is printed before it does, and is on the card.

    Args:
        model: a name, as :func:`eval_kit.models.opening.open_retriever` takes it; or a model in memory: one of
            sentence-transformers, or any object that encodes (:mod:`eval_kit.models.own`).
        release: an open one, a folder or Hub id; with passages, unless others are named.
        out: folder for the runs and the index.
        pivots: runs to compare with, or none; by default BM25's, which is searched too.
        test_sets: names of those to search and score; by default all.
        variations: names of variations to search as well, as
            :func:`eval_kit.models.runs.variation_queries` takes them; ``<test set>.typo`` is made where there is none.
        by: divisions of the queries, to show each part as well (:func:`eval_kit.divisions.divide`); by default of a
            folder in BEIR's format, by the number of words.
        trained_on: what the model was trained on, to tell leaks and whether far queries cost it more.
        options: of the model's architecture, by name, such as ``query_prompt``.
        kind: ``dense``, ``sparse``, ``late`` or ``cross``, where the model's files do not tell.
        passages: what is searched, as :func:`collection_of` takes it.
        depth: passages per query; with ``first``, those that are re-ranked.
        first: a run of the queries that a cross-encoder re-ranks, and is compared with, in place of BM25's.
        limit: search the first passages alone, as a try, whose figures are set beside none.
        check: only show what would run; nothing is searched or written.
        name: of the run; by default :func:`name_of` the model, or the name of its class.
        replace: whether the run may replace one of that name by another model.
        seed: of the bootstrap.
        outputs: other files that the caller will write; no run may be one of them.

    Raises:
        UserError: a model that cannot be used, a release without passages, an unknown test set or variation; a run that
            would replace a pivot or one of the outputs, or a run of another model.
    """
    release, out = with_typos(open_release(release), variations), Path(out)
    loaded, model = (None, str(model)) if isinstance(model, str | Path) else (model, name or _class_of(model).__name__)
    training = read(Path(trained_on)) if isinstance(trained_on, str | PathLike) else trained_on
    train = queries_of(training)
    texts = collection_of(release, passages)
    scored_on = named(release.test_sets, test_sets)
    test_sets = [*scored_on] if test_sets else []
    divisions([each for each in by if train is None or not _compares(each)], release, [*scored_on])
    run_name = name or name_of(model)
    if limit is not None:
        if limit < 1 or pivots or first:
            raise UserError(f"{parameter('limit')} takes one passage or more, and neither a pivot nor a first run")
        texts, pivots, run_name = first_of(texts, limit), (), f"{run_name}-first-{limit}"
    elif first is not None:
        if variations:
            raise UserError(f"{first} has no passages for query variations", do=f"Leave {parameter('variations')} out")
        pivots = [first] if pivots is None else pivots
    if Path(run_name).name != run_name or run_name.startswith("."):
        raise UserError(
            f"{run_name!r:.60} cannot be the name of a file in {out}", do=f"Choose another {parameter('name')}"
        )
    if run_name == BM25 != model and pivots is None:
        raise UserError(f"The name {BM25} is taken by the baseline", do=f"Choose another {parameter('name')}")
    if loaded is None and Path(model).is_dir() and out.resolve().is_relative_to(Path(model).resolve()):
        raise UserError(
            f"{out} is inside the model's folder, whose files say whether the model changed",
            do=f"Choose another {parameter('out')}",
        )
    queries = {"": only(release, test_sets)} | variation_queries(release, variations, test_sets, True)
    runs: dict[str, dict[Path, pl.DataFrame]] = {}
    for system in [run_name] if pivots is not None or model == BM25 else [BM25, run_name]:
        names = {f"{system}.{variation}".rstrip("."): wording for variation, wording in queries.items()}
        runs[system] = {out / f"{file}.trec": wording for file, wording in names.items()}
    run_files = list(chain.from_iterable(runs.values()))
    read_files = [*(pivots or ()), *([first] if first else [])]
    check_outputs({"pivots": list(dict.fromkeys(read_files)), "collection": passages, "out": [*run_files, *outputs]})
    maker, source = out / f"{run_name}.index" / "model.txt", _source(model, loaded)
    with ExitStack() as held:  # the runs are files, and what is scored must be what was searched
        if not check:
            held.enter_context(_alone(out / f"{run_name}.trec"))
        there = [file for file in runs[run_name] if file.exists()]
        if there and run_name != BM25 and not (replace or check):
            before = maker.read_text(encoding="utf-8", errors="replace") if maker.exists() else "another model"
            if before != source:
                instead = f"Use another {parameter('name')}, or {parameter('replace')}"
                raise UserError(f"{there[0]} is a run of {before}", do=instead)
        opened, declared = open_retriever(model, options, kind, loaded)
        examples = [_spread(of_role) for of_role in (queries[""]["text"], (text for _, text in texts.read()))]
        opened, remark = checked(opened, *examples)
        lines = lines_of(opened, *(each[len(each) // 2] for each in examples), remark=remark)
        # a folder is often called "model" or after a step: the one above it says more
        name_shown = "/".join(Path(model).resolve().parts[-2:]) if Path(model).is_dir() else model
        shown = Shown(lines, name_shown, {"kit_version": __version__, "release": release.identity})
        if check:
            return shown
        terminal.show_notes(shown.sentences(), Console(stderr=True))
        if run_name != BM25:
            maker.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_text(maker, source)
        leaks = clean(training, release, test_sets=test_sets) if training else None
        compared_with = None
        if leaks and declared != []:
            compared_with = leaks.compared()
            declared = list(dict.fromkeys([*(declared or ()), compared_with.source]))
        asked = Training(declared, compared=compared_with)
        made = _search(opened, asked, texts, runs[run_name], out / run_name, depth, first)
        if len(runs) > 1:  # the model first: if it cannot be used, that is said at once
            held.enter_context(_alone(out / f"{BM25}.trec"))
            made += _search(open_retriever(BM25)[0], Training([]), texts, runs[BM25], out / BM25, depth)
        pivot_files = [*(pivots or ()), *(out / f"{system}.trec" for system in [*runs][:-1])]
        untrained, systems, worded = take(pivots=pivot_files, runs=[out / f"{run_name}.trec"], variations=run_files)
        scores = scores_of([*untrained, *systems], release, allow_missing=True, test_sets=scored_on)
        by = by or ([WORDS] if release.in_beir_format else [])  # no shift of its own says where it is worst
        figures_of: Comparison | Scores = scores
        if untrained:
            figures_of = compared(scores, release, test_sets=scored_on, by=by, training=train)
        elif by:
            figures_of = scores_by_part(scores, by, release, train)
        changes = varied_beside(scores, worded, release, seed) if variations else None
        generalises = None
        never_trained = [each for each in untrained if contamination.training_beside(each.path).training_data == []]
        if training and never_trained:
            far_on = far_test_set(release, next(iter(test_sets), None))
            sides = near_and_far(release, far_on, training=train, seed=seed)
            generalises = contrasts(scores, release, systems, pivots=never_trained, test_set=far_on, sides=sides)
        for run_made in made:
            if not finished.is_finished(*run_made):
                raise UserError(f"{run_made[0]} was replaced while it was scored", do="Run the command again")
    provenance = figures_of.provenance
    return Card(
        figures_of,
        variations=changes,
        trained_on=declared,
        provenance=provenance,
        model=name_shown,
        system=run_name,
        release=release,
        leaks=leaks,
        generalises=generalises,
        shown=shown,
        limit=limit,
    )


def _alone(run: Path) -> AbstractContextManager[Any]:
    """The lock of a run's name, for the whole of a command: another of that name waits, and says so."""
    from filelock import Timeout

    lock = atomic.lock(run)
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        terminal.show_notes([f"Waiting for another command that makes {run}"], Console(stderr=True))
        return lock.acquire()


def name_of(model: str) -> str:
    """What a model's run is called by default: the last part of its name, after those that tell it apart."""
    parts = Path(model.replace(":", ".")).resolve().parts[1:]
    first = next((place for place in reversed(range(len(parts))) if not _OF_ALL.fullmatch(parts[place])), 0)
    return "-".join(parts[first:])


def _source(model: str, loaded: Any) -> str:
    """What a run is known to be of: the folder, or the name; a model in memory by its weights, or its class."""
    if loaded is None:
        return str(Path(model).resolve()) if Path(model).exists() else model
    return weights_digest(loaded) if checkpoint.kind_of_object(loaded) else _class_of(loaded).__qualname__


def _class_of(loaded: Any) -> Any:
    """What a model in memory is called by: its class; a function is called by itself."""
    return loaded if hasattr(loaded, "__name__") else type(loaded)


def _compares(by: str | Parts) -> bool:
    """Whether a division compares queries with those of training, which takes its time."""
    return isinstance(by, str) and (DISTANCE in by or LEAKED in by)


def _spread(texts: Iterable[str]) -> list[str]:
    """Sixteen of the first texts, of all lengths."""
    some = sorted(islice(texts, 16 * 16), key=len) or [""]
    return some[:: -(-len(some) // 16)]


def _search(
    retriever: Retriever,
    training: Training,
    texts: Collection,
    runs: Mapping[Path, pl.DataFrame],
    index: Path,
    depth: int,
    first: Path | None = None,
) -> list[tuple[Path, Path, str]]:
    """Make the runs of a model; what is asked again of each after it is scored."""
    if isinstance(retriever, Bm25):
        retriever = retriever.over(texts)
    elif first is not None:
        if not isinstance(retriever, Cross):
            raise UserError("Only a cross-encoder re-ranks a run", do=f"Leave {parameter('first')} out")
        [[run]] = take(first=first)
        first = run.path
        retriever.first, retriever.candidates = FirstRun(run), min(depth, retriever.candidates)
    elif isinstance(retriever, Cross) and (texts.corpus is not None if retriever.fields is None else retriever.fields):
        retriever.first = Bm25(retriever.k1, retriever.b, fields=True).over(texts)
    elif isinstance(retriever, Dense):
        texts = with_titles(texts, retriever.title_separator)
    for file in runs:  # before the run, which a kill would leave with what was declared of an earlier one
        contamination.declare(file, training.training_data, compared=training.compared)
    folder = index.with_name(f"{index.name}.{'lucene' if isinstance(retriever, Bm25) else 'index'}")
    kept, made_of = make_runs(retriever, texts, runs, folder, depth, first)
    if kept:
        why = "the model, passages, queries, depth and options are the same"
        note = f"Used {counted(kept, 'finished run')} in {folder.parent} again, because {why}"
        terminal.show_notes([note], Console(stderr=True))
    return [(run, folder, made_of[run]) for run in runs]
