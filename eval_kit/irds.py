"""ir_datasets ids for every test set and training set of a release.

Importing this module registers the default release (``$MS_MARCO_SHIFT_RELEASE`` or ``./ms-marco-shift``), if there
is one; :func:`register` takes any other. Test sets are ``msmarco-passage/shift/<name>`` (``topic/c0``,
``chameleons/lesser/50``); the training queries of a model that never sees a cluster are its complement,
``…/topic/not-c0``. Ids of a release that brings its own passages start with ``ms-marco-shift-mini`` (the synthetic
collection) or ``ms-marco-shift-rebuilt`` instead of
``msmarco-passage``.

``python -m eval_kit.irds export <id> queries`` is ir_datasets' own command line with these ids registered.
"""

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import ir_datasets
import polars as pl
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import BaseQrels, BaseQueries, GenericQuery, TrecQrel, TsvDocs
from ir_datasets.util import LocalDownload

from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.release import DEFAULT, ENVIRONMENT_VARIABLE, MANIFEST, Release, open_release

CITATIONS = {
    "topic": ["Lupart2023MsShift"],
    "wh": ["Lupart2023MsShift"],
    "length": ["Lupart2023MsShift"],
    "resttest": ["Zhan2022Interpolation"],
    "restrain": ["Zhan2022Interpolation"],
    "chameleons": ["Arabzadeh2021Chameleons"],
    "dev": ["Bajaj2016Msmarco"],
    "dl19": ["Craswell2019TrecDl"],
    "dl20": ["Craswell2020TrecDl"],
}
GRADES = {0: "not relevant", 1: "relevant", 2: "highly relevant", 3: "perfectly relevant"}


class QueryList(NamedTuple):
    """Some queries of one table: all of them, or those with one of ``values`` in ``column``, or all but those."""

    config: str
    split: str
    qrels: str | None
    column: str | None = None
    values: tuple[str, ...] = ()
    excluded: bool = False


class ShiftQueries(BaseQueries):  # type: ignore[misc]
    """Queries of a release as ir_datasets wants them."""

    def __init__(self, release: Release, which: QueryList) -> None:
        self._release = release
        self._which = which

    @cached_property
    def frame(self) -> pl.DataFrame:
        """``query_id`` and ``text``, each query once."""
        rows = self._release.table(self._which.config, self._which.split)
        if self._which.column is not None:
            chosen = rows.filter(pl.col(self._which.column).is_in(self._which.values))
            if self._which.excluded:  # whole queries: one that is in two clusters goes with either
                rows = rows.join(chosen, on="query_id", how="anti", maintain_order="left")
            else:
                rows = chosen
        return rows.select("query_id", "text").unique("query_id", maintain_order=True)

    def queries_iter(self) -> Iterator[GenericQuery]:
        """Each query; its text is empty where a partial release lacks it."""
        for query_id, text in self.frame.iter_rows():
            yield GenericQuery(query_id, text or "")

    def queries_count(self) -> int:
        """How many queries there are."""
        return self.frame.height

    def queries_namespace(self) -> str:
        """The collection that the query ids belong to."""
        return _collection(self._release)

    def queries_lang(self) -> str | None:
        """English for MS MARCO; unknown for other collections."""
        return "en" if self._release.manifest["collection"] == "msmarco-passage" else None


class ShiftQrels(BaseQrels):  # type: ignore[misc]
    """The judgements of a query list."""

    def __init__(self, release: Release, which: QueryList, queries: ShiftQueries) -> None:
        self._release = release
        self._which = which
        self._queries = queries

    def qrels_iter(self) -> Iterator[TrecQrel]:
        """Each judgement of a query of the list."""
        assert self._which.qrels is not None
        wanted = self._queries.frame["query_id"].implode()
        judged = self._release.qrels(self._which.qrels).filter(pl.col("query_id").is_in(wanted))
        for query_id, passage_id, relevance in judged.iter_rows():
            yield TrecQrel(query_id, passage_id, relevance, "0")

    def qrels_cls(self) -> type[TrecQrel]:
        """TREC's four columns."""
        return TrecQrel  # type: ignore[no-any-return]

    def qrels_defs(self) -> dict[int, str]:
        """What the grades mean."""
        return GRADES


class Documentation:
    """What ir_datasets shows about a dataset."""

    def __init__(self, description: str, measures: Iterable[str], citations: Iterable[str]) -> None:
        self._content = {
            "desc": description,
            "official_measures": list(measures),
            "bibtex_ids": list(citations),
        }

    def documentation(self) -> dict[str, Any]:
        """Description, official measures and citations."""
        return dict(self._content)


def register(source: str | os.PathLike[str] | None = None, revision: str | None = None) -> list[str]:
    """Register the datasets of a release; an id that is registered already is left as it is.

    Args:
        source: release folder or Hub id, as for :func:`eval_kit.release.open_release`.
        revision: of a release on the Hub.

    Returns:
        The ids that were registered now.
    """
    release = open_release(source, revision)
    prefix = f"{_collection(release)}/shift"
    docs = _docs(release)
    new = []
    for name, which, documentation in [*_test_sets(release), *_training_sets(release)]:
        dataset_id = f"{prefix}/{name}"
        if dataset_id in list(ir_datasets.registry):
            continue
        queries = ShiftQueries(release, which)
        qrels = ShiftQrels(release, which, queries) if which.qrels else None
        ir_datasets.registry.register(dataset_id, Dataset(docs, queries, qrels, documentation))
        new.append(dataset_id)
    return new


def _test_sets(release: Release) -> Iterator[tuple[str, QueryList, Documentation]]:
    rules = {(table["config"], table["split"]): table["rule"] for table in release.manifest["tables"]}
    for one in release.manifest["test_sets"]:
        which = QueryList(one["config"], one["split"], one["qrels"], one.get("column"), tuple(one.get("values", [])))
        rule = rules[one["config"], one["split"]]
        description = f"Test set {one['name']}, {one['queries']} queries: {rule['text']} ({rule['source']})."
        documentation = Documentation(description, one["measures"], CITATIONS.get(one["shift"], []))
        yield one["name"].replace(".", "/"), which, documentation


def _training_sets(release: Release) -> Iterator[tuple[str, QueryList, Documentation]]:
    for table in release.manifest["tables"]:
        config, split, rule = table["config"], table["split"], table["rule"]
        citations = CITATIONS.get(config, [])
        if config == "restrain":
            qrels = f"restrain_{split}"
            description = f"Training queries {split}: {rule['text']} ({rule['source']})."
            name = f"restrain/{split.replace('_', '-')}"
            yield name, QueryList(config, split, qrels), Documentation(description, [], citations)
        elif split == "train" and config != "qrels":
            labels: Mapping[str, Any] = next((column for column in table["columns"] if column["type"] == "label"), {})
            qrels_split = "train" if "train" in release.configs.get("qrels", []) else None
            for held_out in labels.get("labels", []):
                which = QueryList(config, split, qrels_split, labels["name"], (held_out,), excluded=True)
                made = f"{rule['text']} ({rule['source']})"
                description = f"Training queries of every {config} cluster but {held_out}: {made}."
                yield f"{config}/not-{held_out}", which, Documentation(description, [], citations)


def _docs(release: Release) -> Any:
    if release.manifest["collection"] is not None:
        return ir_datasets.load(release.manifest["collection"]).docs_handler()
    path = Path(ir_datasets.util.home_path()) / "ms-marco-shift" / release.digest[:16] / "passages.tsv"
    if not path.exists():
        passages = release.table("passages", "passages")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{path.parent}: cannot be written: {error.strerror}") from error
        atomic.write_text(path, passages.write_csv(separator="\t", include_header=False, quote_style="never"))
    rows = next(table["rows"] for table in release.manifest["tables"] if table["config"] == "passages")
    return TsvDocs(LocalDownload(path), namespace=_collection(release), count_hint=rows)


def _collection(release: Release) -> str:
    """The ir_datasets id of the passages' collection, or the name of those that the release brings."""
    return str(release.manifest["collection"] or f"ms-marco-shift-{release.manifest['kind']}")


def _register_default() -> None:
    if os.environ.get(ENVIRONMENT_VARIABLE) or Path(DEFAULT, MANIFEST).is_file():
        register()
    else:
        warnings.warn(
            f"no release at ./{DEFAULT} and ${ENVIRONMENT_VARIABLE} is not set: no dataset was registered; "
            "call eval_kit.irds.register(folder or Hub id)",
            stacklevel=3,
        )


if __name__ == "__main__":
    from eval_kit.errors import reported

    with reported("eval_kit.irds"):
        register()
        try:
            ir_datasets.main_cli()
        except KeyError as error:
            have = ", ".join(one for one in ir_datasets.registry if "/shift/" in one)
            raise UserError(f"there is no dataset {error}; of this release there are {have}") from None
else:
    _register_default()
