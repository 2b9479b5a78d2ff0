"""The input of a rebuild: a collection's queries and judgements by split, and its passages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from eval_kit.documents import Input
from eval_kit.errors import UserError
from eval_kit.files.formats import QUERIES_SCHEMA, by_id
from eval_kit.sentences import counted
from eval_kit.stats.vectors import check_ids

NONE_STATED, NONE_IN_FOLDER = "none stated", "not stated in the folder"
OWN = "own"
"""What it says of a log of somebody's own, until its owner names a licence."""
UNSTATED = (NONE_STATED, NONE_IN_FOLDER)
"""What a manifest says of the licence of a file whose authors state none."""
LEFT_OUT = "it states no licence; the publisher left it out"
"""Why a part without a stated licence is missing from what is published."""
SPLIT = re.compile(r"[a-z0-9][a-z0-9_]*")
DEV = ("valid", "validation")
"""Other names of dev, since validation in a release means queries drawn from train."""


@dataclass(frozen=True)
class Collection:
    """Queries and judgements: of a split ``train``, if there is one, and of evaluation splits under their own names.

    Queries may be unjudged; a query log (``is_log``) has no judgements, and all of its queries count. Passages are
    those of the ir_datasets id ``irds``, or ``passages``. ``parts`` label queries, to make a shift of their own. The
    ``name`` is for manifests, and never a path.
    """

    name: str
    source: str
    queries: Mapping[str, pl.DataFrame]
    qrels: Mapping[str, pl.DataFrame]
    irds: str | None = None
    passages: pl.DataFrame | None = None
    inputs: Sequence[Input] = ()
    remarks: Sequence[str] = ()
    parts: pl.DataFrame | None = None
    is_log: bool = False

    def __post_init__(self) -> None:
        if not self.qrels and not self.is_log:
            raise UserError(f"{self.name} has no judged queries", "Shifts are built from judged queries")
        for split, queries in self.judged_queries.items():
            if not SPLIT.fullmatch(split):
                raise UserError(f"{self.name} has a split called {split!r}", do="Use a-z, 0-9 and _ in its name")
            check_ids(queries["query_id"])
            empty = queries.filter(pl.col("text").fill_null("").str.strip_chars() == "")
            if not queries.height or empty.height:
                of = f"{split} of {self.name}"
                what = f"Query {empty['query_id'][0]} of {of} has no text" if empty.height else f"{of} is empty"
                raise UserError(what)
            twice = queries.join(self.train, on="query_id", how="semi")
            if split != "train" and twice.height:
                raise UserError(
                    f"{self.name} has {counted(twice.height, 'query')} in both train and {split}, such as "
                    f"{twice['query_id'][0]}",
                    "A test query must not be trained on",
                )

    @property
    def train(self) -> pl.DataFrame:
        """The training queries that have a relevant passage; empty without a split ``train``."""
        return self.judged_queries["train"] if "train" in self.judged_queries else pl.DataFrame(schema=QUERIES_SCHEMA)

    @property
    def evaluation(self) -> dict[str, pl.DataFrame]:
        """The queries of the other splits that have a relevant passage."""
        return {split: queries for split, queries in self.judged_queries.items() if split != "train"}

    @cached_property
    def judged_queries(self) -> dict[str, pl.DataFrame]:
        """Split -> ``query_id``, ``text`` of the queries with a relevant passage (grade 1 or more), by id."""
        if not self.qrels:
            return {split: by_id(queries, "query_id") for split, queries in self.queries.items()}
        splits = {}
        for split, pairs in self.qrels.items():
            relevant = pairs.filter(pl.col("score") > 0)["query-id"].implode()
            splits[split] = by_id(self.queries[split].filter(pl.col("query_id").is_in(relevant)), "query_id")
        return splits


def split_name(name: str) -> str:
    """A source's split name in a release's form: in lower case, ``_`` for hyphens, dev for val, train for training."""
    plain = name.lower().replace("-", "_")
    return {**dict.fromkeys(DEV, "dev"), "training": "train"}.get(plain, plain)
