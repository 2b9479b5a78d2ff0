"""Contamination: whether a model was trained on the queries that it is scored on.

The test queries of topic and wh are MS MARCO *training* queries, held back from those shifts' own training sets alone
(ECIR 2023 §3.1). A model that was trained on all of MS MARCO's training queries has seen them.

What a model was trained on is declared, never guessed: beside a run in ``<run>.training.json``
(training.schema.json), which the grid and ``eval_kit run`` write. Sources
are ir_datasets ids where there are any: ``msmarco-passage/train``; ``msmarco-passage/shift/topic/not-c0`` for the
training set of one model of a grid, ``msmarco-passage/shift/topic`` for those of all its models, each its own.
"""

import json
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

import polars as pl

from eval_kit.documents import Compared, Training
from eval_kit.errors import disk_errors
from eval_kit.files import atomic, strict_json
from eval_kit.release import Release, TestSet
from eval_kit.release.manifest import is_of_ms_marco
from eval_kit.runs.names import run_name
from eval_kit.shifts import CONTROL, SHIFTS

MARK = "†"
_TRAINING_QUERIES = "train"
_NAMES_OF_SPLITS = {"dev": r"dev", "dl19": r"dl(20)?19(?!\d)", "dl20": r"dl(20)?20(?!\d)"}
"""Patterns, without punctuation, of names of sources that mean these queries and not the training queries."""
_BY_CHANCE = 0.05
"""The share of test queries that may have the text of a training query by chance, as people ask the same things: 1.2 %
of NFCorpus' test queries and one of MS MARCO's 6,980 dev queries do. The card and ``clean`` count them."""
_CASES = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word begins in names such as mteb's ``NanoNFCorpusRetrieval``."""


class Seen(StrEnum):
    """Whether a model was trained on some of a test set's queries."""

    NO = "no"
    UNKNOWN = "unknown"
    YES = "yes"


COLUMN = pl.Enum(Seen)
"""A column of :class:`Seen`; its greatest value is the worst."""
WORST = pl.col("trained_on").sort().last()
"""The worst of a group, in which polars 1.34 finds no greatest label."""


def trained_on(
    training_data: Sequence[str] | None, test_set: TestSet, release: Release, compared: Compared | None = None
) -> Seen:
    """Whether a model was trained on queries of a test set of a release: the one rule.

    A source that names the release's collection means its training queries, unless it names another split; one that
    names a training set of the release means just these. In a release of another collection than MS MARCO a source
    that names neither may be anything. ``training_data`` is every source, as declared; None where nobody declared it.
    The source that was ``compared`` with test queries holds them if more than :data:`_BY_CHANCE` of these have the text
    of a training query; of other test sets it may hold anything.
    """
    if training_data is None:
        return Seen.UNKNOWN
    verdicts = []
    for source in training_data:
        if compared is None or source != compared.source:
            verdicts.append(_trained_on(source, test_set, release))
        elif release.digest != compared.release or test_set.name not in compared.test_sets:
            verdicts.append(Seen.UNKNOWN)
        else:
            same = compared.test_sets[test_set.name] / max(len(test_set.queries), 1)
            verdicts.append(Seen.YES if same > _BY_CHANCE else Seen.NO)
    return worst([Seen.NO, *verdicts])


def worst(verdicts: Iterable[str]) -> Seen:
    """The worst of several verdicts: whether any model was, or may have been, trained on the queries."""
    return max(map(Seen, verdicts), key=list(Seen).index)


def training_beside(run: Path | None) -> Training:
    """What the file beside a run declares; nothing where there is none, or no file of the run."""
    for file in (run, run.resolve()) if run else ():
        if (path := declaration(file)).is_file():
            return strict_json.load(Training, path)
    return Training(None)


def declare(
    run: Path, training_data: list[str] | None, batch_size: int | None = None, compared: Compared | None = None
) -> None:
    """Declare beside a run how its model was trained; what an older run of that name declared is replaced or removed.

    Neither the run nor its folder need exist. The training data are its sources, None where unknown; the batch size is
    the queries of a training step, if it was trained here.
    """
    path = declaration(run)
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    if training_data is None and batch_size is None:
        path.unlink(missing_ok=True)
        return
    atomic.write_text(path, json.dumps(Training(training_data, batch_size, compared=compared).as_json()) + "\n")


def declaration(run: Path) -> Path:
    """The file that declares a run's training data."""
    return run.with_name(f"{run_name(run)}.training.json")


def training_set_id(release: Release, shift: str, held_out: str) -> str:
    """The ir_datasets id of what the model without ``held_out`` is trained on (of ReSTrain: with it)."""
    if shift == CONTROL.name:
        return f"{release.collection}/train"
    return f"{release.collection}/shift/{shift}/{SHIFTS[shift].training_name(held_out)}"


def mark(verdict: str) -> str:
    """The mark to put after the figures of such a model."""
    return MARK if verdict == Seen.YES else ""


def _trained_on(source: str, test_set: TestSet, release: Release) -> Seen:
    name = source.strip().casefold()
    held_back = _is_held_back(test_set)
    training_sets = f"{release.collection}/shift/".casefold()
    if name == "none":
        return Seen.NO
    if name.startswith(training_sets):
        return _in_training_set(name.removeprefix(training_sets), test_set, release) if held_back else Seen.NO
    whole = release.manifest.built_from or release.collection  # a lite release's queries are the whole one's
    words = _CASES.sub(" ", source.strip()).casefold()
    rest = _without(whole.removesuffix("-passage"), words)
    if rest != words:
        letters = re.sub(r"[\W_]", "", rest)
        splits = {split for split, pattern in _NAMES_OF_SPLITS.items() if re.search(pattern, letters)}
        for test_set_of in release.test_sets.values():
            if not _is_held_back(test_set_of) and _without(test_set_of.qrels, rest) != rest:
                splits.add(test_set_of.qrels)
        if "train" in letters or not splits:
            splits.add(_TRAINING_QUERIES)
        return Seen.YES if (_TRAINING_QUERIES if held_back else test_set.qrels) in splits else Seen.NO
    is_known = release.manifest.kind == "published" or is_of_ms_marco(release.manifest)
    return Seen.NO if is_known else Seen.UNKNOWN


def _is_held_back(test_set: TestSet) -> bool:
    """Whether its queries are training queries that a shift keeps for its test."""
    return test_set.qrels == f"{test_set.shift}_test"


def _without(name: str, words: str) -> str:
    """The words without a name of theirs, whose letters may stand apart (``ms marco``) and precede a version.

    A name of six letters may also begin a word: ``msmarcotriplets``.
    """
    letters = re.sub(r"[\W_]", "", name.casefold())
    # shorter names, such as nq, fiqa and quora, begin ordinary words
    end = "" if len(letters) >= 6 else r"(v\d+)?(?![^\W_])"
    pattern = rf"(?<![^\W_]){r'[\W_]*'.join(letters)}{end}"
    return re.sub(pattern, " ", words) if letters else words


def _in_training_set(name: str, test_set: TestSet, release: Release) -> Seen:
    """A shift's training sets leave out its own test queries (:meth:`eval_kit.shifts.Shift.training`), not others'."""
    shift, _, training_name = name.partition("/")
    if shift == test_set.shift:
        return Seen.NO
    tables = SHIFTS[shift].training_tables(release) if shift in SHIFTS else {}
    parts = [part for part in tables if training_name in ("", SHIFTS[shift].training_name(part))]
    for part in parts:
        if not test_set.query_ids.isdisjoint(SHIFTS[shift].training(release, part).queries["query_id"]):
            return Seen.YES
    return Seen.NO if parts else Seen.UNKNOWN
