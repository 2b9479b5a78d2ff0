"""A shift by given parts: any labels of the training queries, such as the articles that their passages are from.

The protocol is that of MS-Shift's clusters (ECIR 2023 §3): each part is held out of training once and tested on once.
There may be hundreds of parts.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from builder.assembly import Build, ShiftResult, lacks_train
from builder.shifts.kmeans import kmeans
from builder.validation import check_share, draw_ids, split_by
from eval_kit.errors import UserError
from eval_kit.files.parts import field_of_queries, file_and_column, read_parts
from eval_kit.release.beir_folder import QUERIES_FILE
from eval_kit.stats.vectors import Vectors

RULE = "the part that the collection or the user gives for the query; a share of each is drawn for testing (seeded)"
LONGEST_NAME = 60
"""Characters of a part's name before any number."""
LIMITS = ("There are no published lists to reproduce.",)


@dataclass(frozen=True)
class GivenParameters:
    """Our share of test queries and seed; parts are merged into so many groups, or stay as they are (0)."""

    test_share: float = 0.2
    groups: int = 0
    seed: int = 13


def assign(queries: pl.DataFrame, parts: pl.DataFrame, parameters: GivenParameters) -> pl.DataFrame:
    """Part and split of the queries that have a part, where ``parts`` holds each query once, with any text.

    Returns ``query_id``, ``part``, ``cluster`` (Enum, the part as a name in a-z, 0-9 and _) and ``split``.
    """
    check_share(parameters.test_share)
    members = queries.select("query_id").join(parts, on="query_id", maintain_order="left")
    names = part_names(members["part"].unique().sort())
    tests = []
    for (part,), rows in members.group_by("part"):
        count = round(parameters.test_share * rows.height)
        tests.append(draw_ids(rows["query_id"], count, parameters.seed, f"given {part}"))
    cluster = pl.col("part").replace_strict(names, return_dtype=pl.String).cast(pl.Enum(sorted(names.values())))
    return members.with_columns(cluster=cluster, split=split_by(pl.concat(tests)))


def read_given(parts: str, collection: Path) -> pl.DataFrame:
    """``query_id`` and ``part`` of the queries that have one.

    ``parts`` are a file, or ``FILE:COLUMN`` (:func:`eval_kit.files.parts.read_parts`), else a field of the folder's
    queries.
    """
    queries = collection / QUERIES_FILE
    if of_file := file_and_column(parts):
        frame = read_parts(*of_file)
    elif queries.is_file():
        frame = field_of_queries(queries, parts)
    else:
        raise UserError(f"--parts {parts} is not a file, and {collection} has no {QUERIES_FILE} with such a field")
    if frame.is_empty():
        raise UserError(f"No query has a text or number in --parts {parts}")
    twice = frame.filter(pl.col("query_id").is_duplicated())
    if twice.height:
        raise UserError(f"Query {twice['query_id'][0]} has two parts in --parts {parts}")
    return frame


def part_names(parts: Iterable[str]) -> dict[str, str]:
    """Each part's name in file names and manifests: lower-case letters without accents, digits and underscores.

    Of parts that would share a name, all but the first get a number: C, C# and C++ are c, c_2 and c_3.
    """
    names: dict[str, str] = {}
    seen_names: set[str] = set()
    for part in parts:
        plain = unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode().lower()
        stem = re.sub(r"[^a-z0-9]+", "_", plain).strip("_") or "u" + "_".join(f"{ord(sign):x}" for sign in part)
        name = stem = stem[:LONGEST_NAME]
        number = 1
        while name in seen_names:
            number += 1
            name = f"{stem}_{number}"
        names[part] = name
        seen_names.add(name)
    return names


def merge(parts: pl.DataFrame, vectors: Vectors, groups: int, seed: int) -> pl.DataFrame:
    """Parts merged into so many groups, by k-means of the mean vectors of their queries.

    If there are no more parts than groups, they stay as they are. Returns ``query_id`` and ``part``: g1, g2, ... with
    the most queries first.
    """
    names = parts["part"].unique().sort()
    if len(names) <= groups:
        return parts
    number = names.search_sorted(parts["part"]).to_numpy()
    sums = np.zeros((len(names), vectors.values.shape[1]))
    np.add.at(sums, number, vectors.of(parts["query_id"]))
    means = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    group = kmeans(means.astype(np.float32), groups, seed).labels[number]
    rank = np.argsort(np.argsort(-np.bincount(group, minlength=groups), kind="stable"))
    return parts.with_columns(part="g" + pl.Series(rank[group] + 1).cast(pl.String))


def without_part(shift: str, parts: pl.DataFrame, queries: pl.DataFrame) -> list[str]:
    """A remark on the queries that have no part, if there are any."""
    if not parts.height:
        raise UserError("No training query has a part", do="Check that the ids are the collection's")
    if left_out := queries.height - parts.height:
        return [f"{shift}: {left_out:,} of {queries.height:,} queries have no part and are left out"]
    return []


def lacking(build: Build) -> str:
    """What the collection lacks for given parts; empty if nothing."""
    return lacks_train(build) if build.collection.parts is not None else "it needs --parts"


def rebuild(build: Build, parameters: GivenParameters) -> ShiftResult:
    """The shift's tables, and a report that names each part in full."""
    assert build.collection.parts is not None
    parts = groups_of = build.collection.parts.join(build.train, on="query_id", how="semi")
    remarks = without_part("given", parts, build.train)
    if parameters.groups < 0:
        raise UserError(f"given.groups must be 0 or more, not {parameters.groups}")
    if parameters.groups:
        groups_of = merge(parts, build.vectors_by_split["train"], parameters.groups, parameters.seed)
    assignment = assign(build.train, groups_of, parameters)
    rule = build.rule(RULE, "the collection's labels", parameters, from_vectors=parameters.groups > 0)
    with_parts = assignment.drop("part").join(parts, on="query_id")
    names = with_parts.group_by("cluster", "part").agg(queries=pl.len()).sort("cluster", "part")
    result = build.held_back("given", assignment, rule, reports={"given.tsv": names.write_csv(separator="\t")})
    return replace(result, remarks=[*remarks, *result.remarks])
