"""ir_datasets ids for every test set and training set of a release.

Importing this module registers the default release (``$MS_MARCO_SHIFT_RELEASE`` or ``./ms-marco-shift``), if there
is one; :func:`register` takes any other. Test sets are ``msmarco-passage/shift/<name>`` (``topic/c0``,
``chameleons/lesser/50``), other wordings of their queries ``…/dev/typo/3``; the training queries of a model that never
sees a cluster are its complement, ``…/topic/not-c0``. Ids of a release that brings its own passages start with
``ms-marco-shift-mini`` (the synthetic collection) or ``ms-marco-shift-rebuilt`` instead of ``msmarco-passage``.

``python -m eval_kit.integrations.irds export <id> queries`` is ir_datasets' own command line with these ids registered.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import polars as pl

try:
    import ir_datasets
except ModuleNotFoundError as error:
    if error.name != "ir_datasets":
        raise
    raise ModuleNotFoundError(f"{error}; run: pip install ir-datasets==0.6.3", name=error.name) from None
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import BaseQrels, BaseQueries, GenericQuery, TrecQrel, TsvDocs
from ir_datasets.util import LocalDownload

from eval_kit.errors import UserError, choices, did_you_mean, disk_errors
from eval_kit.files import atomic
from eval_kit.files.formats import tab_separated
from eval_kit.measures.definitions import known_elsewhere
from eval_kit.release import DEFAULT, ENVIRONMENT_VARIABLE, Release, has_default, open_release
from eval_kit.release.manifest import language
from eval_kit.shifts import SHIFTS, Shift

CITATIONS = {shift.name: [shift.bibtex] for shift in SHIFTS.values()} | {
    "chameleons": ["Arabzadeh2021Chameleons"],
    "dev": ["Bajaj2016Msmarco"],
    "dl19": ["Craswell2019TrecDl"],
    "dl20": ["Craswell2020TrecDl"],
    "dl_typo": ["Zhuang2022CharacterBert"],
    "dlhard": ["Mackie2021DlHard"],
    "ielab/CharacterBERT-DR": ["Zhuang2022CharacterBert"],
    "Narabzad/Chameleons": ["Arabzadeh2021Chameleons"],
    "Guzpenha/query_variation_generators": ["Penha2022Variations"],
}
type Queries = Callable[[], pl.DataFrame]
_DIGESTS: dict[str, str] = {}
"""The release that each registered id is of."""
GRADES = {0: "not relevant", 1: "relevant", 2: "highly relevant", 3: "perfectly relevant"}


class NoDatasetError(UserError, KeyError):
    """A release has no dataset of an id, for the reason that it says."""

    def __str__(self) -> str:
        """The sentence, which ``KeyError`` would quote."""
        return str(self.args[0])


class ShiftQueries(BaseQueries):  # type: ignore[misc]
    """Queries of a release as ir_datasets wants them."""

    def __init__(self, release: Release, read: Queries) -> None:
        self._release = release
        self._read = read

    @cached_property
    def frame(self) -> pl.DataFrame:
        """``query_id`` and ``text``, each query once."""
        return self._read().select("query_id", "text").unique("query_id", maintain_order=True)

    def queries_iter(self) -> Iterator[GenericQuery]:
        """Each query; its text is empty where a partial release lacks it."""
        for query_id, text in self.frame.iter_rows():
            yield GenericQuery(query_id, text or "")

    def queries_count(self) -> int:
        """How many queries there are."""
        return self.frame.height

    def queries_namespace(self) -> str:
        """The collection that the query ids belong to."""
        return self._release.collection

    def queries_lang(self) -> str | None:
        """``en`` for MS MARCO, ``zxx`` (none) for mini; unknown for other collections."""
        return language(self._release.manifest)


class ShiftQrels(BaseQrels):  # type: ignore[misc]
    """The judgements of a query list."""

    def __init__(self, release: Release, split: str, queries: ShiftQueries) -> None:
        self._release = release
        self._split = split
        self._queries = queries

    def qrels_iter(self) -> Iterator[TrecQrel]:
        """Each judgement of a query of the list."""
        for query_id, passage_id, relevance in self._judgements().iter_rows():
            yield TrecQrel(query_id, passage_id, relevance, "0")

    def qrels_count(self) -> int:
        """How many judgements there are."""
        return self._judgements().height

    def _judgements(self) -> pl.DataFrame:
        queries = self._queries.frame["query_id"].implode()
        return self._release.qrels(self._split).filter(pl.col("query_id").is_in(queries))

    def qrels_cls(self) -> type[TrecQrel]:
        """TREC's four columns."""
        return TrecQrel  # type: ignore[no-any-return]

    def qrels_defs(self) -> dict[int, str]:
        """What the grades mean."""
        return GRADES


def register(source: str | os.PathLike[str] | Release | None = None) -> list[str]:
    """Register the datasets of a release; ids that are already registered stay as they are.

    Args:
        source: an open release; or a folder or Hub id, as for :func:`eval_kit.release.open_release`.

    Returns:
        The ids that were registered now.

    Raises:
        UserError: one is of another release, as two rebuilt ones or two versions have the same ids.
    """
    release = open_release(source)
    ids = {f"{release.collection}/shift/{name}": dataset for name, dataset in datasets_of(release).items()}
    registry = set(ir_datasets.registry)
    for dataset_id in ids.keys() & _DIGESTS.keys():
        if _DIGESTS[dataset_id] != release.digest:
            raise UserError(
                f"{dataset_id} is already registered for another release",
                do=f"Register {release.folder} in a new Python process",
            )
    _DIGESTS.update(dict.fromkeys(ids, release.digest))
    new = [dataset_id for dataset_id in ids if dataset_id not in registry]
    for dataset_id in new:
        ir_datasets.registry.register(dataset_id, ids[dataset_id])
    if new:
        ir_datasets.registry.register_pattern(rf"{re.escape(release.collection)}/shift/", partial(_refuse, release))
    return new


def _refuse(release: Release, dataset_id: str, _: Sequence[str]) -> NoReturn:
    """Say why a release has no dataset of an id: its training queries are missing, or no id is like it."""
    shift = dataset_id.removeprefix(f"{release.collection}/shift/").partition("/")[0]
    lacking = [lack for lack in release.manifest.missing if f"{shift}/train" in lack.what]
    if "/not-" in dataset_id and lacking:
        why = f"It lacks {lacking[0].what}, as {lacking[0].because}"
        raise NoDatasetError(f"{release.folder} has no {dataset_id}", why, "Build the whole release with: make release")
    of_release = [name for name, digest in _DIGESTS.items() if digest == release.digest]
    near = [name for name in of_release if name.startswith(f"{release.collection}/shift/{shift}/")] or of_release
    what = f"{release.folder} has no {dataset_id}{did_you_mean(dataset_id, near)}"
    raise NoDatasetError(what, do=f"Choose one of {choices(near)}")


def datasets_of(release: Release) -> dict[str, Dataset]:
    """The datasets of a release by the end of their ids, such as ``topic/c0``; their rows are read on demand."""
    docs, datasets = _docs(release), {}
    rules = {table.key: f"{table.rule.text} ({table.rule.source})" for table in release.manifest.tables}

    def add(
        name: str, read: Queries, qrels: str | None, text: str, measures: Sequence[str], citations: Sequence[str]
    ) -> None:
        queries = ShiftQueries(release, read)
        of_queries = ShiftQrels(release, qrels, queries) if qrels else None
        content = {"desc": text, "official_measures": known_elsewhere(measures), "bibtex_ids": list(citations)}
        documentation = SimpleNamespace(documentation=content.copy)
        datasets[name.replace(".", "/")] = Dataset(docs, queries, of_queries, documentation)

    for entry in release.manifest.test_sets:
        description = f"Test set {entry.name}, {entry.queries} queries: {rules[entry.table]}."
        queries = partial(release.queries, entry.name)
        add(entry.name, queries, entry.qrels, description, entry.measures, CITATIONS.get(entry.shift, []))
    for name, variation in release.variations.items():
        base = release.test_sets[variation.base]
        description = f"Test set {base.name}, its queries worded otherwise: {rules['variations', variation.split]}."
        citations = [*CITATIONS.get(base.shift, []), *CITATIONS.get(variation.source, [])]
        add(name, partial(release.wordings, variation), base.qrels, description, base.measures, citations)
    for shift in SHIFTS.values():
        for part, table in shift.training_tables(release).items():
            qrels = shift.training_qrels(part)
            add(
                f"{shift.name}/{shift.training_name(part)}",
                partial(_training_queries, release, shift, part),
                qrels if qrels in release.configs.get("qrels", []) else None,
                f"{shift.training_title.format(shift=shift.name, part=part)}: {rules[table]}.",
                [],
                CITATIONS[shift.name],
            )
    return datasets


def _training_queries(release: Release, shift: Shift, part: str) -> pl.DataFrame:
    return shift.training(release, part).queries


def _docs(release: Release) -> Any:
    if release.manifest.collection is not None:
        return ir_datasets.load(release.manifest.collection).docs_handler()
    path = Path(ir_datasets.util.home_path()) / "ms-marco-shift" / release.digest[:16] / "passages.tsv"
    if not path.exists():
        passages = release.table("passages", "passages")
        with disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, "".join(f"{line}\n" for line in tab_separated(passages)))
    rows = next(table.rows for table in release.manifest.tables if table.config == "passages")
    return TsvDocs(LocalDownload(path), namespace=release.collection, count_hint=rows)


if __name__ == "__main__":
    from eval_kit.errors import reporting

    with reporting("eval_kit.integrations.irds"):
        register()
        try:
            ir_datasets.main_cli()
        except NoDatasetError:
            raise
        except KeyError as error:
            raise UserError(f"Unknown dataset {error}") from None
elif has_default():
    register()
else:
    warnings.warn(
        f"No dataset was registered: there is no release at ./{DEFAULT}, and ${ENVIRONMENT_VARIABLE} is not set. "
        "Call eval_kit.integrations.irds.register(folder or Hub id)",
        stacklevel=2,
    )
