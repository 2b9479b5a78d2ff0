"""Evaluators for the trainers of sentence-transformers: what each part of a shift gains while a model trains.

    from eval_kit.integrations.sentence_transformers import ShiftEvaluator
    SentenceTransformerTrainer(..., evaluator=ShiftEvaluator("mini", "topic"))

They take the library's four kinds of models: ``SentenceTransformer``, ``SparseEncoder``, ``MultiVectorEncoder`` and
``CrossEncoder``.
"""

from collections.abc import Mapping, Sequence
from itertools import batched
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

try:
    import torch
    from sentence_transformers import CrossEncoder, MultiVectorEncoder, SparseEncoder
    from sentence_transformers.base.evaluation import BaseEvaluator
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("sentence_transformers", "torch"):
        raise
    raise type(error)(f"{error}; run: pip install 'sentence-transformers>=6.2'", name=error.name) from None

from eval_kit import __version__
from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.console import with_count
from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.measures.definitions import parse, per_query
from eval_kit.release.pool import pool
from eval_kit.runs.given import GivenRun, take
from eval_kit.search.dense import numbers
from eval_kit.search.encoders import exact_head
from eval_kit.stats.losses import mean_estimate

MEASURE = "RR@10"
ENCODED_AT_ONCE = 4_096
"""Passages whose vectors are in memory at once: half a GB with 30,522 float32 each."""
CANDIDATES = 100
"""Passages per query that a cross-encoder re-ranks."""

type Scores = NDArray[np.float32]


class PoolEvaluator(BaseEvaluator):
    """RR@10 of groups of queries, all of them searched in the same few passages.

    Bi-encoders, sparse and late-interaction models score every passage, by their own ``similarity``; cross-encoders
    each query's candidates, by their raw scores. Equal scores are ranked by passage id, descending, as everywhere in
    the kit; a score that is NaN ranks nowhere.

    Calling it gives ``<group>_RR@10`` with the ends of its 95 % bootstrap interval over queries, ``<group>_RR@10_low``
    and ``<group>_RR@10_high``.
    """

    def __init__(
        self,
        queries: Mapping[str, str],
        passages: Mapping[str, Any],
        qrels: pl.DataFrame,
        groups: Mapping[str, Sequence[str]],
        candidates: Mapping[str, Sequence[str]] | None = None,
        batch_size: int = 32,
    ) -> None:
        """Store the queries and what they search.

        Args:
            queries: texts by id.
            passages: by id, texts or whatever else the model reads.
            qrels: ``query_id``, ``passage_id`` and ``relevance`` of the queries.
            groups: ids of the queries, by name; the last is what trainers choose the best model by.
            candidates: ids of passages by query, for cross-encoders.
            batch_size: texts or pairs that are encoded together.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.primary_metric = f"{list(groups)[-1]}_{MEASURE}"
        self._queries, self._groups, self._candidates, self._batch = queries, groups, candidates, batch_size
        self._passages = dict(sorted(passages.items(), reverse=True))  # equal scores: the first column ranks first
        self._rows = {query: row for row, query in enumerate(queries)}
        self._columns = {passage: column for column, passage in enumerate(self._passages)}
        self._judged = qrels.filter(
            pl.col("query_id").is_in(list(self._rows)), pl.col("passage_id").is_in(list(self._columns))
        )

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """The figures of a model; nothing is written to ``output_path``.

        Raises:
            UserError: a cross-encoder without candidates, or one of several scores a pair; no such model.
        """
        if not isinstance(model, CrossEncoder) and not hasattr(model, "encode_query"):
            raise UserError(
                f"{type(model).__name__} has no encode_query",
                do="Use eval_kit run, which takes any object that encodes",
            )
        with torch.inference_mode():
            scores = self._pairs(model) if isinstance(model, CrossEncoder) else self._all(model)
        with_ranks = self._judged.with_columns(rank=pl.Series(self._ranks(scores), dtype=pl.UInt32))
        metrics: dict[str, float] = {}
        for name, ids in self._groups.items():
            mean = mean_estimate(per_query(parse(MEASURE), with_ranks, pl.Series(ids)).to_numpy())
            columns = mean.columns(f"{name}_{MEASURE}")
            metrics |= {column: value for column, value in columns.items() if value is not None}
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics

    def _all(self, model: Any) -> Scores:
        """The score of every query (row) and passage (column)."""
        how: dict[str, Any] = {"batch_size": self._batch, "show_progress_bar": False}
        if isinstance(model, SparseEncoder):
            how["convert_to_sparse_tensor"] = False  # whole rows are multiplied many times faster than sparse ones
        if not isinstance(model, MultiVectorEncoder):
            how["convert_to_tensor"] = True
        queries = _widened(model.encode_query(list(self._queries.values()), **how))
        blocks = [
            model.similarity(queries, _widened(model.encode_document(list(block), **how))).float().cpu()
            for block in batched(with_count(self._passages.values(), "encoding passages", "passages"), ENCODED_AT_ONCE)
        ]
        return torch.cat(blocks, dim=1).numpy()

    def _pairs(self, model: Any) -> Scores:
        """The same for a cross-encoder: scores of each query's candidates, and -inf elsewhere."""
        if self._candidates is None:
            raise UserError("A cross-encoder re-ranks candidates", do="Give the evaluator a run, such as BM25's")
        checkpoint.check_labels(type(model).__name__, model.num_labels)
        texts, rows, columns = [], [], []
        for query, text in self._queries.items():
            for passage in self._candidates.get(query, ()):
                texts.append((text, self._passages[passage]))
                rows.append(self._rows[query])
                columns.append(self._columns[passage])
        scores = np.full((len(self._rows), len(self._columns)), -np.inf, np.float32)
        with exact_head(model):
            scores[rows, columns] = model.predict(
                texts, batch_size=self._batch, show_progress_bar=False, activation_fn=torch.nn.Identity()
            )
        return scores

    def _ranks(self, scores: Scores) -> list[int | None]:
        """The rank (from 1) of every judged passage, None for one without a score."""
        ranks: list[int | None] = []
        for query, passage in self._judged.select("query_id", "passage_id").iter_rows():
            row, column = scores[self._rows[query]], self._columns[passage]
            before = (row > row[column]).sum() + (row[:column] == row[column]).sum()
            ranks.append(int(before) + 1 if row[column] > -np.inf else None)
        return ranks


class ShiftEvaluator(PoolEvaluator):
    """RR@10 of each test set of a shift, and of all of them, on a release small enough to search while training.

    Model cards show its figures under the release's name and the shift's, such as ``ms-marco-shift-lite-topic``.

    Its figures are of *test* queries: watch them, but choose models by a validation set, and say so if you did not.
    """

    def __init__(
        self, release: ReleaseSource, shift: str, candidates: GivenRun | None = None, batch_size: int = 32
    ) -> None:
        """Read the release.

        Args:
            release: an open one, a folder or Hub id, with embedded passages: ``mini``, or a part of a release that
                ``python -m builder lite`` made; None: the default release. Its digest fixes queries and passages, and
                is in the model card.
            shift: such as ``topic``.
            candidates: a run of the release, such as BM25's; a cross-encoder re-ranks the best 100 of it.
            batch_size: texts or pairs that are encoded together.

        Raises:
            UserError: the release embeds no passages or has no such shift; a run that cannot be used.
        """
        searched_pool = pool(open_release(release), shift)
        groups = {test_set.name: test_set.queries.to_list() for test_set in searched_pool.test_sets}
        super().__init__(
            queries=dict(searched_pool.queries.iter_rows()),
            passages=dict(searched_pool.passages.iter_rows()),
            qrels=searched_pool.qrels,
            groups={**groups, shift: searched_pool.queries["query_id"].to_list()},
            candidates=None if candidates is None else _best(candidates, searched_pool.passages),
            batch_size=batch_size,
        )
        self.name = f"{searched_pool.release.collection}-{shift}"
        self._config = {
            "release": searched_pool.release.digest,
            "version": searched_pool.release.version,
            "eval_kit": __version__,
            "shift": shift,
            "queries": searched_pool.queries.height,
            "passages": searched_pool.passages.height,
        }

    @property
    def description(self) -> str:
        """The task, as the library's own evaluator of retrieval calls it in model cards."""
        return "Information Retrieval"

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card says of the evaluation."""
        return self._config


def _widened(vectors: Any) -> Any:
    """Vectors of 16 bits as 32, so that equal scores are equal and others are not; whole numbers as a search does."""
    if isinstance(vectors, list):  # of late interaction
        return [one.float() if isinstance(one, torch.Tensor) else one for one in vectors]
    batch = torch.as_tensor(vectors)
    return batch.float() if batch.is_floating_point() else torch.from_numpy(numbers(batch.cpu().numpy(), "the model"))


def _best(run: GivenRun, passages: pl.DataFrame) -> dict[str, list[str]]:
    """Each query's best passages in a run, among those that the release embeds."""
    [[taken]] = take(run=run)
    lines = pl.concat(taken.pieces()).join(passages, on="passage_id", how="semi")
    if lines.is_empty():
        raise UserError(
            "The run of candidates contains no passage of this release", do="Check that both are of one release"
        )
    by_score = lines.sort("score", "passage_id", descending=True)
    best = by_score.group_by("query_id", maintain_order=True).agg(pl.col("passage_id").head(CANDIDATES))
    return dict(best.iter_rows())
