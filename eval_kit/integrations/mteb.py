"""A release's test sets as MTEB's tasks, and MTEB's predictions as runs.

    import mteb
    from eval_kit.integrations.mteb import run, tasks
    mteb.evaluate(model, tasks("mini", "topic"), prediction_folder="predictions")
    eval_kit.score(run("predictions/ms-marco-shift-mini-1e0e46de-topic_predictions.json"), "mini")

A task is a shift, and its name says of which content. Its collection is encoded once. MTEB's own figures are over all
the shift's queries together; beside them are the kit's figures for each test set, under names such as
``topic.c0 RR@10``.
"""

import json
from collections.abc import Mapping
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

try:
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.get_tasks import _TASKS_REGISTRY
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("datasets", "mteb"):
        raise
    raise type(error)(f"{error}; run: pip install 'mteb>=2.26'", name=error.name) from None

from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.protocols.scoring import score
from eval_kit.release.manifest import is_of_ms_marco, is_synthetic, language
from eval_kit.release.pool import Pool, pool

SUBSET, SPLIT = "default", "test"
"""Where MTEB keeps the queries of a task that has no languages and one split."""

SCRIPTS = {"en": "eng-Latn", "zxx": "zxx-Latn", None: "und-Zyyy"}
"""MTEB's names of the languages."""
MS_MARCO: dict[str, Any] = {
    "date": ("2016-01-01", "2016-12-31"),
    "domains": ["Web"],
    "task_subtypes": ["Question answering"],
    "license": "msr-la-nc",
    "annotations_creators": "human-annotated",
    "sample_creation": "found",
    "bibtex_citation": "@misc{bajaj2016msmarco, title={MS MARCO: A Human Generated MAchine Reading COmprehension "
    "Dataset}, author={Bajaj, Payal and others}, year={2016}, eprint={1611.09268}, archivePrefix={arXiv}}",
}
MINI: dict[str, Any] = {
    "date": ("2026-11-21", "2026-11-21"),
    "domains": ["Constructed"],
    "task_subtypes": [],
    "license": "apache-2.0",
    "annotations_creators": "automatic",
    "sample_creation": "created",
    "bibtex_citation": "",
}
UNKNOWN: dict[str, Any] = {"task_subtypes": [], "license": "not specified", "bibtex_citation": ""}
"""Of a collection of the user's own; MTEB's other questions about it stay open."""


class ShiftTask(AbsTaskRetrieval):
    """All test queries of one shift, searched in the passages that a release embeds.

    Each shift of a release has a subclass of its own, since MTEB takes a task to be a class.
    """

    _pool: ClassVar[Pool]

    def load_data(self, num_proc: int | None = None, **_: Any) -> None:
        """Hand over the queries, passages and judgements."""
        qrels = self._pool.qrels.rows_by_key("query_id")
        data: Any = {
            "corpus": Dataset.from_polars(self._pool.passages.rename({"passage_id": "id"})),
            "queries": Dataset.from_polars(self._pool.queries.rename({"query_id": "id"})),
            "relevant_docs": {query: dict(grades) for query, grades in qrels.items()},
            "top_ranked": None,
        }
        self.dataset = {SUBSET: {SPLIT: data}}
        self.data_loaded = True

    def evaluate(self, model: Any, *split: Any, encode_kwargs: Any, **options: Any) -> Any:
        """MTEB's evaluation.

        Raises:
            UserError: a cross-encoder of several scores a pair; vectors of packed bits or other whole numbers, which
                MTEB would multiply as they are.
        """
        from sentence_transformers import SentenceTransformer

        inner = getattr(model, "model", None)  # of MTEB's wrapper
        checkpoint.check_labels(type(inner).__name__, getattr(inner, "num_labels", 1))
        if isinstance(inner, SentenceTransformer):
            dtype = str(inner.encode_query(["one", "two"], **encode_kwargs).dtype)
            if "int" in dtype:
                raise UserError(
                    f"The model gives rows of {dtype}", "MTEB multiplies them as they are", "Use eval_kit run"
                )
        return super().evaluate(model, *split, encode_kwargs=encode_kwargs, **options)

    def task_specific_scores(
        self, scores: Any, qrels: Any, results: Mapping[str, Mapping[str, float]], hf_split: str, hf_subset: str
    ) -> dict[str, float]:
        """The kit's figures of every test set, in its own measures."""
        names = {test_set.name for test_set in self._pool.test_sets}
        result = score(results, self._pool.release, allow_missing=True)
        return {
            f"{figure.test_set} {figure.measure}": figure.value for figure in result.means if figure.test_set in names
        }


def _task(searched_pool: Pool) -> type[ShiftTask]:
    """The class of a shift's task, registered so that ``mteb.get_task`` finds it by name.

    The release's digest is the revision, so MTEB never takes another release's results from its cache; and it is in
    the name, which MTEB's files of results and predictions have.
    """
    release, test_sets = searched_pool.release, searched_pool.test_sets
    manifest = release.manifest
    task_metadata = MINI if is_synthetic(manifest) else MS_MARCO if is_of_ms_marco(manifest) else UNKNOWN
    metadata = TaskMetadata(
        name=f"{release.collection}-{release.digest[:8]}-{test_sets[0].shift}",
        description=f"Test sets {', '.join(test_set.name for test_set in test_sets)} of ms-marco-shift.",
        reference="https://arxiv.org/abs/2205.02870",
        dataset={"path": release.collection, "revision": release.digest},
        type="Retrieval",
        category="t2t",
        eval_splits=[SPLIT],
        eval_langs=[SCRIPTS[language(manifest)]],
        main_score="mrr_at_10",
        dialect=[],
        **task_metadata,
    )
    task = type("ShiftTask", (ShiftTask,), {"metadata": metadata, "_pool": searched_pool})
    _TASKS_REGISTRY[metadata.name] = task
    return task


def tasks(release: ReleaseSource = None, *shifts: str) -> list[ShiftTask]:
    """MTEB's tasks of a release, one per shift.

    Args:
        release: an open one, a folder or Hub id, with embedded passages: ``mini``, or a part of a release that
            ``python -m builder lite`` made; None: the default release.
        shifts: such as ``topic``; without any, every shift and benchmark that the release has test sets of.

    Raises:
        UserError: the release embeds no passages, or has no test set of a shift.
    """
    opened_release = open_release(release)
    names = shifts or dict.fromkeys(map(attrgetter("shift"), opened_release.test_sets.values()))
    return [_task(pool(opened_release, shift))() for shift in names]


def run(predictions: str | PathLike[str]) -> dict[str, dict[str, float]]:
    """The predictions of a task by ``mteb.evaluate(..., prediction_folder=...)``, as a run for the kit's functions.

    Args:
        predictions: the file, ``<folder>/<task>_predictions.json``.

    Returns:
        ``{query: {passage: score}}``, of all the shift's queries.

    Raises:
        UserError: the file cannot be read, or is not one of such a task.
    """
    try:
        content = json.loads(Path(predictions).read_text(encoding="utf-8"))
        scores: dict[str, dict[str, float]] = content[SUBSET][SPLIT]
    except OSError as error:
        raise UserError(f"Could not read {predictions}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{predictions} does not contain MTEB's predictions for a task of this kit") from None
    return scores
