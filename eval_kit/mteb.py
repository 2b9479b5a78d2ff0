"""A release's test sets as MTEB's tasks, and MTEB's predictions as runs.

    import mteb
    from eval_kit.mteb import run, tasks
    mteb.evaluate(model, tasks("mini", "topic"), prediction_folder="predictions")
    eval_kit.score(run("predictions/ms-marco-shift-mini-topic_predictions.json"), "mini")

A task is a shift: its collection is encoded once. MTEB's own figures are over all the shift's queries together; beside
them are the kit's figures for each test set, under names such as ``topic.c0 RR@10``.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

try:
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}; run: pip install 'mteb>=2.26'", name=error.name) from None

from eval_kit import api
from eval_kit.api import ReleaseSource
from eval_kit.errors import UserError
from eval_kit.release import Release, open_release
from eval_kit.release.pool import pool

SUBSET, SPLIT = "default", "test"
"""Where MTEB keeps the queries of a task that has no languages and one split."""


class ShiftTask(AbsTaskRetrieval):
    """All test queries of one shift, searched in the passages that a release embeds."""

    def __init__(self, release: Release, shift: str) -> None:
        """Read the shift.

        Args:
            release: with embedded passages. Its digest is the task's revision, so MTEB never takes the results of
                another release from its cache.
            shift: of the test sets, such as ``topic``.

        Raises:
            UserError: the release embeds no passages, or has no test set of the shift.
        """
        self._pool = pool(release, shift)
        super().__init__()

    @cached_property
    def metadata(self) -> TaskMetadata:  # type: ignore[override]  # MTEB drops what an instance was given
        """MTEB's description of the task."""
        release, test_sets = self._pool.release, self._pool.test_sets
        return TaskMetadata(
            name=f"{release.collection}-{test_sets[0].shift}",
            description=f"Test sets {', '.join(test_set.name for test_set in test_sets)} of ms-marco-shift.",
            dataset={"path": release.collection, "revision": release.digest},
            type="Retrieval",
            category="t2t",
            eval_splits=[SPLIT],
            eval_langs=["eng-Latn"],
            main_score="mrr_at_10",
        )

    def load_data(self, num_proc: int | None = None, **_: Any) -> None:
        """Hand over the queries, passages and judgements."""
        judged = self._pool.qrels.rows_by_key("query_id")
        data: Any = {
            "corpus": Dataset.from_polars(self._pool.passages.rename({"passage_id": "id"})),
            "queries": Dataset.from_polars(self._pool.queries.rename({"query_id": "id"})),
            "relevant_docs": {query: dict(grades) for query, grades in judged.items()},
            "top_ranked": None,
        }
        self.dataset = {SUBSET: {SPLIT: data}}
        self.data_loaded = True

    def task_specific_scores(
        self, scores: Any, qrels: Any, results: Mapping[str, Mapping[str, float]], hf_split: str, hf_subset: str
    ) -> dict[str, float]:
        """The kit's figures of every test set, in its own measures."""
        names = {test_set.name for test_set in self._pool.test_sets}
        scored = api.score(results, self._pool.release, allow_missing=True)
        return {
            f"{figure.test_set} {figure.measure}": figure.value for figure in scored.figures if figure.test_set in names
        }


def tasks(release: ReleaseSource = None, *shifts: str) -> list[ShiftTask]:
    """MTEB's tasks of a release, one per shift.

    Args:
        release: an open one, a folder or Hub id, with embedded passages: ``mini``, or a part of a release that
            ``python -m builder lite`` made; None: the default release.
        shifts: such as ``topic``; without any, every shift and benchmark that the release has test sets of.

    Raises:
        UserError: the release embeds no passages, or has no test set of a shift.
    """
    opened = open_release(release)
    chosen = shifts or dict.fromkeys(test_set.shift for test_set in opened.test_sets.values())
    return [ShiftTask(opened, shift) for shift in chosen]


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
        raise UserError(f"{predictions}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{predictions}: holds no predictions of MTEB for a task of this kit") from None
    return scores
