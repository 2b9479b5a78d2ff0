"""A release made by the papers' algorithms, from any collection's queries.

The validation queries are drawn first and stand outside everything else. Each shift then has its own split: topic and
wh test queries are training queries held back from that shift's training, length is tested on dev, as published.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import polars as pl

from builder.assembly import TESTED, Build, ShiftResult
from builder.collection import Collection
from builder.encoders import MOST_FREQUENT, Encoder, Lsa, of_queries
from builder.parameters import MS_MARCO_TRAINING, REBUILDABLE, ShiftParameters, for_collection
from builder.release import in_order
from builder.shifts.length import even_cut
from builder.shifts.wh import WhLanguage
from eval_kit import languages
from eval_kit.authors.draft import Draft, Table
from eval_kit.authors.test_sets import test_sets
from eval_kit.errors import UserError
from eval_kit.question_words import ENGLISH, TERMS
from eval_kit.shifts import TREC_DL, nearness_splits

_SIZED = ("topic", "wh", "length", "restrain")
"""Shifts whose parameters have sizes in queries."""


def draft(
    collection: Collection,
    shifts: Sequence[str] | None = None,
    encoder: Encoder | None = None,
    parameters: ShiftParameters | None = None,
    seed: int = 13,
    runs: Mapping[str, Path] | None = None,
    cache: Path | None = None,
    disjoint_passages: bool = False,
) -> Draft:
    """Build the shifts of a collection.

    By default these are all shifts that the collection and the ``runs`` (by ranker, over the dev, else test queries,
    for the Chameleons) suffice for, the rest left out with a remark, but for those that are built on request only. The
    ``encoder`` is by default LSA learnt from the passages, else from the queries; ``parameters`` are the papers',
    scaled to the collection, and their seeds are replaced. ``disjoint_passages``: test queries of topic, wh and given
    parts are drawn so that no training query of the shift shares a relevant passage with them; length, whose test
    queries are given, leaves such training queries out.
    """
    if disjoint_passages and not collection.qrels:
        raise UserError(f"--disjoint-passages needs judgements, and {collection.name} has none")
    by_default = defaults(collection).with_seed(seed)
    final = parameters.with_seed(seed) if parameters else by_default
    set_by_user = {shift for shift in REBUILDABLE if getattr(final, shift) != getattr(by_default, shift)}
    asked_for = frozenset({*(shifts or ()), *set_by_user, *(["chameleons"] if runs else [])})
    if encoder is None:
        passages = collection.passages
        texts = None if passages is None else passages["text"].to_list()
        encoder = of_queries(collection.train.height) if texts is None else Lsa(most=MOST_FREQUENT, corpus=texts)
    build = Build(collection, encoder, seed, runs or {}, cache, frozenset(set_by_user), asked_for, disjoint_passages)
    names, left_out = _choose(shifts, build)
    results: dict[str, ShiftResult] = {}
    for shift in sorted(names, key=lambda shift: REBUILDABLE[shift].encodes):  # quick ones first: fail early
        if REBUILDABLE[shift].encodes:
            build.vectors_by_split  # noqa: B018 - a fault of the encoder is not one of the shift
        try:
            results[shift] = REBUILDABLE[shift].rebuild(build, getattr(final, shift))
        except UserError as error:
            if shift in asked_for:
                raise
            left_out.append(f"no {shift}: {error}")
    if not results:
        raise UserError(f"No shift of {collection.name} can be built", "; ".join(left_out))
    remarks = [
        *collection.remarks,
        f"queries from {collection.source}"
        if collection.is_log
        else f"queries and judgements from {collection.source}; training queries are those with a relevant passage",
        *_size_remarks(collection, [shift for shift in _SIZED if shift in results.keys() - set_by_user]),
    ]
    tables, reports = list[Table](), dict[str, str]()
    for result in results.values():
        tables.extend(result.tables)
        remarks.extend(result.remarks)
        reports.update(result.reports)
    tables = in_order([*tables, *build.shared_tables()])
    near_dl = set(TREC_DL) & set(nearness_splits(collection.evaluation))
    if "restrain" in results and "resttest" not in results and not near_dl:
        remarks.append("ReSTrain's test queries are in no table; build resttest too for a test set of them")
    return Draft(
        kind="rebuilt",
        collection=collection.irds,
        built_from=collection.name,
        language=final.wh.language if "wh" in results and not final.wh.terms else None,
        seed=seed,
        tables=tables,
        test_sets=test_sets(tables),
        inputs=collection.inputs,
        remarks=[*remarks, *left_out],
        reports=reports,
    )


def defaults(collection: Collection) -> ShiftParameters:
    """The papers' parameters, with sizes and the cut of length scaled to a collection."""
    texts = pl.concat([rows["text"] for rows in (collection.train, *collection.evaluation.values())])
    language = languages.likely(texts)
    wh_language = cast(WhLanguage, language if language in TERMS else ENGLISH)
    return for_collection(collection.train.height, even_cut(texts), wh_language)


def _choose(shifts: Sequence[str] | None, build: Build) -> tuple[list[str], list[str]]:
    """The shifts to build, and remarks about those left out."""
    for name in shifts or ():
        if name not in REBUILDABLE:
            raise UserError(f"Unknown shift {name!r}", do=f"Choose from: {', '.join(REBUILDABLE)}")
    names, left_out = [], []
    for name, shift in REBUILDABLE.items():
        by_default = not shift.on_request or name in build.required
        if not (by_default if shifts is None else name in shifts):
            continue
        lacking = shift.lacking(build)
        if not lacking:
            names.append(name)
        elif shifts is None:
            left_out.append(f"no {name}: {lacking}")
        else:
            raise UserError(f"{name} cannot be built", lacking)
    if shifts is not None and "chameleons" not in shifts and build.runs:
        raise UserError("--run is for the shift chameleons, which --shift leaves out")
    return names, left_out


def _size_remarks(collection: Collection, shifts: Sequence[str]) -> list[str]:
    """Remarks on where set sizes come from, for the shifts whose sizes were not chosen."""
    if not shifts or not collection.train.height:
        return []
    return [
        f"the sizes of {', '.join(shifts)} are the papers' shares of MS MARCO's {MS_MARCO_TRAINING:,} training "
        f"queries, applied to the {collection.train.height:,} of {collection.name}, "
        f"or larger for {TESTED} test queries a part"
    ]
