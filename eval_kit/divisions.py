"""Divisions of queries: which part each query is in, whatever says so.

A query may be in several parts, or in none. A division comes from a shift or another label of the release, a field of
a BEIR folder's queries, a file, or Python; or it is computed from the texts, or from training queries.
"""

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import plugins
from eval_kit.errors import UserError, choices, did_you_mean, parameter
from eval_kit.files.parts import SCHEMA, field_of_queries, file_and_column, read_parts, scalar_fields
from eval_kit.question_words import ENGLISH, TERMS
from eval_kit.release import Release
from eval_kit.release.beir_folder import QUERIES_FILE
from eval_kit.sentences import counted
from eval_kit.words import SPACELESS

# 10: in parts of so few the signs keep their rates (bench/zoo.py);
# 30 is a mark for readers, on which no figure rests
FEW, FEWEST = 30, 10
"""Queries of a part below which its figures are marked, and below which a screen folds it into :data:`OTHERS`."""
HOLLOW = f"Hollow: fewer than {FEW} queries."
"""What pictures say of parts of few queries."""
OTHERS, WHOLE = "others", "all queries"
WORDS, QUESTION_WORD, DISTANCE, LEAKED = "words", "question-word", "distance", "leaked"
_CROSS = " × "
_WORD_COUNTS = ((3, "1-3"), (5, "4-5"), (8, "6-8"), (12, "9-12"))
_MORE_WORDS = "13+"
_QUESTION_WORDS = {ENGLISH: ("what", "how", "who", "whom", "whose", "when", "where", "which", "why")}
_PIECE = 0.9
"""Share of a part that a part of another division holds, from which it is a piece of that: a query may be astray."""
_NOT_LABELS = ("query_id", "text", "passage_ids")
_DATE = r"^\d{4}-\d\d-\d\d([T ].*)?$"
_CHAMELEONS = re.compile(r"level_(\d+)")

type Parts = Mapping[Any, Any] | Any


@dataclass(frozen=True)
class Division:
    """Which part each query is in.

    Attributes:
        name: as it was asked for, such as ``metadata.article``; of a file, the file's name.
        parts: ``query_id`` and ``part``, both text; parts in the order in which tables show them.
        source: where it comes from, for the record.
        label_of: of a label of the release, the table that has it.
        crosses: its parts are those of two divisions at once, so that they share what they are draws of.
    """

    name: str
    parts: pl.DataFrame
    source: str
    label_of: str = ""
    crosses: bool = False

    def of(self, queries: pl.Series) -> pl.DataFrame:
        """``query_id`` and ``part`` of these queries: a row for each part, in the division's order of parts."""
        return self.parts.join(queries.to_frame("query_id"), on="query_id", how="semi", maintain_order="left")

    def why_no_kinds(self, others: "Sequence[Division]") -> str:
        """Why its parts are no independent draws of kinds, given the other divisions; empty where they may be."""
        if self.parts["query_id"].is_duplicated().any():
            return "queries are in several parts"
        if self.crosses:
            return "its parts combine two groupings"
        for other in others:
            both = self.parts.join(other.parts, on="query_id", suffix="_of_other")
            counts = both.group_by("part", "part_of_other").len().sort("len", descending=True)
            wholes = counts.group_by("part").agg(
                pl.col("part_of_other").first(), pl.col("len").max() / pl.col("len").sum()
            )
            is_coarser = wholes["part_of_other"].n_unique() > 1 and other.parts["part"].n_unique() < len(wholes)
            if is_coarser and (wholes["len"] >= _PIECE).all():
                return f"its parts are pieces of {other.name}"
        return ""


def groupings(by: Any) -> list[str | Parts]:
    """The divisions that a caller gives: one, or several in a list; a path is a file's name."""
    several = by if isinstance(by, list | tuple) else [] if by is None else [by]
    given = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in several]
    for each in given:
        if not ((each and isinstance(each, str | Mapping)) or hasattr(each, "columns")):
            what = f"{parameter('by')} takes the name of a grouping, a file, or ids and groups, not {each!r:.40}"
            raise UserError(what)
    return given


def whole(name: str, queries: pl.Series) -> Division:
    """All queries of a test set as one part."""
    return Division(WHOLE, pl.DataFrame({"query_id": queries, "part": [name] * len(queries)}, SCHEMA), name)


def divide(by: str | Parts, release: Release, queries: pl.DataFrame, training: pl.DataFrame | None = None) -> Division:
    """Divide the queries of a test set.

    Args:
        by: a file of ids and parts, or ``FILE:COLUMN`` (:func:`eval_kit.files.parts.read_parts`); a field of a BEIR
            folder's queries, such as ``metadata.article``; a label of the release (``topic``, ``wh``, ``length``,
            ``bucket``, ``chameleons50``, ``intent`` …); ``words``, ``question-word``; ``distance`` or ``leaked`` from
            training queries; two of these with ``×`` or ``*`` between them; in Python also a dictionary or a table of
            ids and parts. Dates and fractions that few queries share stand for months and quarters.
        release: the one that is scored.
        queries: ``query_id`` and ``text`` of the test set.
        training: ``query_id`` and ``text`` of training queries, for ``distance`` and ``leaked``.
    """
    if isinstance(by, str):
        division = _named(by, release, queries, training)
    else:
        division = _coarser(Division("parts", _of_python(by), "given in Python"), queries["query_id"])
    inside = division.of(queries["query_id"])
    if inside.is_empty():
        ids = queries["query_id"]
        name = next((each.name for each in release.test_sets.values() if each.queries.equals(ids)), "the test set")
        other = f" (its ids are like {division.parts['query_id'][0]!r})" if division.parts.height else ""
        raise UserError(
            f"{division.name} has no part for any of the {queries.height:,} queries of {name}, such as "
            f"{ids[0]!r}{other}",
            do=f"Check the query ids that {parameter('by')} takes",
        )
    order = sorted(inside["part"].unique(), key=_natural)
    ranked = inside.with_columns(rank=pl.col("part").replace_strict(order, range(len(order)), return_dtype=pl.Int64))
    parts = ranked.sort("rank", maintain_order=True).select(*SCHEMA)
    return replace(division, parts=parts)


def _coarser(division: Division, queries: pl.Series) -> Division:
    """Months of dates and quarters of fractions, where there are many that have fewer than :data:`FEWEST` queries.

    Whole numbers stay: they may be names of parts.
    """
    parts, part = division.of(queries), pl.col("part")
    # so many parts of ten queries each; of more, most would be too small to say anything of
    if parts["part"].n_unique() <= max(FEWEST, parts.height / FEWEST):
        return division
    if parts["part"].str.contains(_DATE).all():
        months = parts.with_columns(part.str.slice(0, len("2026-01")))
        return Division(division.name, months, f"{division.source}, by month")
    if not parts["part"].str.contains(".", literal=True).any():
        return division
    numbers = parts.with_columns(number=part.cast(pl.Float64, strict=False))
    if numbers["number"].is_finite().fill_null(False).all():
        quarter = ((pl.col("number").rank("max") - 1) * 4 // pl.len()).cast(pl.Int64)
        ends = (pl.col("number").min().over("quarter"), pl.col("number").max().over("quarter"))
        name = pl.format("quarter {}: {} to {}", pl.col("quarter") + 1, *ends)
        quarters = numbers.with_columns(quarter=quarter).select("query_id", part=name)
        return Division(division.name, quarters, f"{division.source}, by quarter of the queries")
    return division


def _named(by: str, release: Release, queries: pl.DataFrame, training: pl.DataFrame | None) -> Division:
    if of_file := file_and_column(by):
        parts = read_parts(*of_file)
        known = frozenset().union(*(test_set.query_ids for test_set in release.test_sets.values()))
        strange = [query for query in parts["query_id"].unique(maintain_order=True) if query not in known]
        if strange and len(strange) < parts["query_id"].n_unique():  # a file without any is refused by divide
            warnings.warn(
                f"{counted(len(strange), 'id')} in {by} match no test query. The first is {strange[0]}", stacklevel=2
            )
        return _coarser(Division(Path(by).name, parts, by), queries["query_id"])
    first, cross, second = by.replace("×", "*").partition("*")
    if cross:
        sides = [_named(side.strip(), release, queries, training) for side in (first, second)]
        return _crossed(*sides)
    if by in (WORDS, QUESTION_WORD, DISTANCE, LEAKED) and queries["text"].count() == 0:
        raise UserError(f"{parameter('by')} {by} needs the texts of the queries", do=f"Add {parameter('queries')} FILE")
    if by == WORDS:
        return Division(by, _words(queries), "the number of words between blanks")
    if by == QUESTION_WORD:
        return Division(by, _question_words(queries), "the first question word of the text")
    if by in (DISTANCE, LEAKED):
        if training is None:
            raise UserError(
                f"{parameter('by')} {by} needs the training queries", do=f"Add {parameter('trained_on')} FILE"
            )
        parts = _distances(queries, training) if by == DISTANCE else _leaks(queries, training)
        return Division(by, parts, f"{training.height:,} training queries")
    labels = _labels(release)
    ids = queries["query_id"].implode()
    for config, split, column in labels.get(by, []):
        table = release.table(config, split).filter(pl.col("query_id").is_in(ids))
        if table.height:
            tables = [release.table(*place[:2]) for place in labels[by] if place[::2] == (config, column)]
            label = pl.col(column).cast(pl.String).alias("part")
            return Division(
                by,
                pl.concat([each.select("query_id", label) for each in tables]).unique(maintain_order=True).drop_nulls(),
                f"{config}, column {column}",
                config,
            )
    of_queries = release.folder / QUERIES_FILE
    if release.in_beir_format and (parts := field_of_queries(of_queries, by)).height:
        return _coarser(Division(by, parts, f"{QUERIES_FILE}, field {by}"), queries["query_id"])
    if (of_other := plugins.named("divisions", by)) is not None:
        return Division(by, _of_python(of_other(queries)), f"{of_other.__module__}:{of_other.__name__}")
    if Path(by).suffix.partition(":")[0] in (".tsv", ".csv", ".txt") or "/" in by:
        raise UserError(f"{by} does not exist", do=f"Check the file that {parameter('by')} names")
    of_texts = [WORDS, QUESTION_WORD, DISTANCE, LEAKED] if queries["text"].count() else []
    names = [
        *(name for name in names_of(release) if name not in labels or _has_any(release, labels[name], ids)),
        *of_texts,
    ]
    what = f"Cannot group these queries by {by}{did_you_mean(by, names)}"
    why = f"{by} labels none of them" if by in labels else ""
    raise UserError(what, why, f"Use a file, or one of: {choices(names)}")


def _has_any(release: Release, places: Sequence[tuple[str, str, str]], ids: pl.Series) -> bool:
    """Whether a label's tables have any of the queries."""
    return any(release.table(*place[:2])["query_id"].is_in(ids).any() for place in places)


def names_of(release: Release) -> list[str]:
    """The fields of a BEIR folder's queries, or the labels of a release, that its queries can be divided by."""
    return scalar_fields(release.folder / QUERIES_FILE) if release.in_beir_format else list(_labels(release))


def _labels(release: Release) -> dict[str, list[tuple[str, str, str]]]:
    """Names of the release's labels, each with config, split and column of the tables that hold it."""
    places: dict[str, list[tuple[str, str, str]]] = {}
    for table in release.manifest.tables:
        for column in table.columns if "query_id" in {column.name for column in table.columns} else ():
            if column.name in _NOT_LABELS or not (column.labels or column.type == "string"):
                continue
            level = _CHAMELEONS.fullmatch(column.name)
            name = f"{table.config}{level[1]}" if level else column.name
            # topic, wh and length each have a column of that name; people ask for the shift
            name = table.config if name == "cluster" else name
            places.setdefault(name, []).append((table.config, table.split, column.name))
    return places


def _crossed(first: Division, second: Division) -> Division:
    both = first.parts.join(second.parts, on="query_id", suffix="_of_second")
    parts = both.select("query_id", part=pl.concat_str("part", "part_of_second", separator=_CROSS))
    return Division(f"{first.name}×{second.name}", parts, f"{first.source}; {second.source}", crosses=True)


def _words(queries: pl.DataFrame) -> pl.DataFrame:
    count = pl.col("text").str.strip_chars().str.split(" ").list.len()
    part = pl.lit(_MORE_WORDS)
    for most, name in reversed(_WORD_COUNTS):
        part = pl.when(count <= most).then(pl.lit(name)).otherwise(part)
    return queries.drop_nulls("text").select("query_id", part=part)


def _question_words(queries: pl.DataFrame) -> pl.DataFrame:
    """The question word that stands first in each text, in the language whose words most of the texts have."""
    best = None
    for language, terms in TERMS.items():
        known = [*_QUESTION_WORDS.get(language, ()), *(term for group in terms.values() for term in group)]
        patterns = [word if re.search(SPACELESS, word) else rf"\b{re.escape(word)}\b" for word in dict.fromkeys(known)]
        lower = pl.col("text").str.to_lowercase().str.normalize("NFC")
        found = queries.drop_nulls("text").select("query_id", part=lower.str.extract(f"({'|'.join(patterns)})"))
        if best is None or found["part"].count() > best["part"].count():
            best = found
    assert best is not None
    return best.with_columns(pl.col("part").fill_null("(none)"))


def _distances(queries: pl.DataFrame, training: pl.DataFrame) -> pl.DataFrame:
    from eval_kit.stats import distance  # brings numpy

    known = queries.drop_nulls("text")
    measured = distance.to_training(known, training)
    # ties at the median are near: of queries that are all as far, none is said to be far
    is_far = pl.col("distance") > pl.col("distance").median()
    return measured.select("query_id", part=pl.when(is_far).then(pl.lit("far")).otherwise(pl.lit("near")))


def _leaks(queries: pl.DataFrame, training: pl.DataFrame) -> pl.DataFrame:
    from eval_kit.stats import leaks

    test, train = leaks.with_normal(queries.drop_nulls("text")), leaks.with_normal(training)
    flags = leaks.with_near(leaks.with_same(test, train), train, leaks.NEAR, "comparing queries")
    is_leaked = pl.any_horizontal("equal", "normalised", "near")
    return flags.select("query_id", part=pl.when(is_leaked).then(pl.lit("leaked")).otherwise(pl.lit("clean")))


def _of_python(by: Parts) -> pl.DataFrame:
    if isinstance(by, Mapping):
        rows = [(str(query), str(part)) for query, part in by.items() if part is not None]
        return pl.DataFrame(rows, SCHEMA, orient="row")
    frame = by if isinstance(by, pl.DataFrame) else pl.DataFrame(by.to_dict("list") if hasattr(by, "to_dict") else by)
    if len(frame.columns) != 2:
        raise UserError(
            f"{parameter('by')} takes a table of two columns, query id and part, not {', '.join(frame.columns)}"
        )
    return frame.select(pl.all().cast(pl.String)).rename(dict(zip(frame.columns, SCHEMA, strict=True))).drop_nulls()


def _natural(part: str) -> list[tuple[bool, int, str]]:
    """A key that sorts ``b2`` before ``b10`` and ``1-3`` before ``13+``."""
    pieces = re.split(r"(\d+)", part)
    return [(piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in pieces if piece]
