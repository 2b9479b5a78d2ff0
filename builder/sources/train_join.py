"""Find the MS MARCO ids of the authors' training queries, which they list by text.

``TRAIN/queries_clustering.tsv`` (MS-Shift) has one row per query: its text and, for each shift, a cluster and
whether to train on it. Some texts are UTF-8 that was once read as Latin-1; they are joined by the repaired
text but kept as the authors wrote them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files.formats import by_id

_PREFIXES = {"topic": "topic", "wh": "whword", "length": "length"}
_MOST_UNKNOWN, _ENOUGH = 0.05, 100
"""The share of a file's texts that may match nothing, from so many texts on."""
HEADER = ["query", *map("_".join, product(_PREFIXES.values(), ("cluster", "train")))]


@dataclass(frozen=True)
class Join:
    """The joined rows, remarks about the join, and a listing of every text that needed a decision."""

    rows: pl.DataFrame
    remarks: list[str]
    report: str

    def members(self, shift: str, clusters: Sequence[str]) -> pl.DataFrame:
        """Training queries of a shift, without those outside every cluster: ``query_id``, ``text``, ``cluster``."""
        prefix = _PREFIXES[shift]
        number = pl.col(f"{prefix}_cluster")
        name = number.replace_strict(dict(enumerate(clusters)), return_dtype=pl.String).cast(pl.Enum(clusters))
        members = self.rows.filter(pl.col(f"{prefix}_train") == 1, number < len(clusters))
        return members.select("query_id", "text", cluster=name)


def join_by_text(path: Path, train: pl.DataFrame) -> Join:
    """Join the clustering file to MS MARCO's training queries.

    Returns one row per matching id. A text that several ids share gives a row for each of them, if all its rows in the
    file agree; otherwise, or if no id has the text, it is left out. All three cases are listed.
    """
    rows_of_file = _read(path)
    rows_of_file = rows_of_file.with_columns(key=_repair(rows_of_file["query"], train["text"]))
    clusters = pl.struct(HEADER[1:]).n_unique()
    disagreeing = rows_of_file.group_by("key").agg(pl.col("query").unique(), n=clusters).filter(pl.col("n") > 1)
    agreeing = rows_of_file.join(disagreeing, on="key", how="anti").unique("key", keep="first", maintain_order=True)
    rows = agreeing.join(train.rename({"text": "key"}), on="key", how="left")
    without_id = rows.filter(pl.col("query_id").is_null())
    with_id = by_id(rows.filter(pl.col("query_id").is_not_null()), "query_id")
    ambiguous = with_id.group_by("query", maintain_order=True).agg("query_id").filter(pl.col("query_id").list.len() > 1)
    mojibake = with_id.filter(pl.col("query").str.strip_chars() != pl.col("key").str.strip_chars()).height
    if without_id.height > _MOST_UNKNOWN * rows_of_file.height and rows_of_file.height >= _ENOUGH:
        raise UserError(
            f"{without_id.height:,} of the {rows_of_file.height:,} texts in {path} are of no training query of MS "
            f"MARCO, such as {without_id['query'][0]!r:.60}",
            "It is another file, or was changed",
        )

    problems = [("no id has this text", text, "") for text in without_id["query"]]
    problems += [("rows disagree on the clusters", text, "") for text in disagreeing["query"].explode()]
    problems += [("several ids have this text", text, " ".join(ids)) for text, ids in ambiguous.iter_rows()]
    report = "\n".join(map("\t".join, [("problem", "text", "query ids"), *sorted(problems)])) + "\n"
    listing = "; listed in reports/train_join.tsv" if problems else ""
    remarks = [
        f"training queries: {rows_of_file.height:,} rows listed by text, {with_id.height:,} ids found; "
        f"{without_id.height:,} texts match no id, {disagreeing.height:,} texts have rows that disagree "
        f"(both left out), {ambiguous.height:,} texts belong to several ids (all kept); "
        f"{mojibake:,} texts are mis-decoded upstream and kept as they are{listing}"
    ]
    return Join(with_id.rename({"query": "text"}).drop("key"), remarks, report if problems else "")


def _repair(texts: pl.Series, known_texts: pl.Series) -> pl.Series:
    """Each text as MS MARCO has it: unchanged or, if unknown there, its Latin-1 bytes read as UTF-8.

    What is still unknown may differ by blanks at an end alone, as those of the file and of MS MARCO's do.
    """
    known = known_texts.implode()
    repaired = texts.zip_with(texts.is_in(known), texts.map_elements(_read_as_utf8, pl.String))
    by_stripped = pl.DataFrame({"stripped": known_texts.str.strip_chars(), "known": known_texts}).unique("stripped")
    beside = pl.DataFrame({"stripped": repaired.str.strip_chars()}).join(
        by_stripped, on="stripped", how="left", maintain_order="left"
    )["known"]
    return repaired.zip_with(repaired.is_in(known) | beside.is_null(), beside)


def _read_as_utf8(text: str) -> str:
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def _read(path: Path) -> pl.DataFrame:
    types = dict.fromkeys(HEADER, pl.Int64()) | {"query": pl.String()}
    try:
        rows = pl.read_csv(path, separator="\t", quote_char=None, schema_overrides=types, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise UserError(f"Could not read {path}: {str(error).splitlines()[0]}") from error
    if rows.columns != HEADER or any(rows[HEADER[1:]].null_count().row(0)):
        raise UserError(f"{path} needs a text and {len(HEADER) - 1} whole numbers in the columns {HEADER}")
    return rows.with_columns(pl.col("query").fill_null(""))
