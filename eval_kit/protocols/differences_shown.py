"""Differences as readers see them: the word that a test gives, the sentence, and the picture."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import polars as pl

from eval_kit import plots
from eval_kit.divisions import FEW, HOLLOW
from eval_kit.measures.definitions import parse
from eval_kit.protocols.by_part import label
from eval_kit.protocols.readings import MENDS
from eval_kit.results import Picture
from eval_kit.stats.differences import WORSE
from eval_kit.tables.table import ALPHA, bracketed

BETTER = "better"
FIRST_MEASURE = pl.col("measure") == pl.col("measure").first().over("test_set")
"""Of the rows of each test set, those by its first measure."""


def gain(row: dict[str, Any]) -> float:
    """The difference, greater where the system is better."""
    return float(row["difference"]) * parse(row["measure"]).sign


def word(row: dict[str, Any]) -> str:
    """Whether the test over queries shows the system better or worse; empty if neither."""
    if row["p_holm"] is None or row["p_holm"] >= ALPHA or row.get("decides"):
        return ""
    return BETTER if gain(row) > 0 else WORSE


def decided(row: dict[str, Any]) -> str:
    """What decides a row's word and what to do about it, and its difference on shared queries; after a blank."""
    said = []
    if row["on_shared"] is not None:
        shared = parse(row["measure"]).show(row["on_shared"], with_sign=True).replace("-", "\u2212")
        said.append(f"On the queries that all runs have, the difference is {shared}.")
    if what := row["decides"]:
        said.append(f"{what[0].upper()}{what[1:]} decide. {MENDS[what]}.")
    return "".join(f" {sentence}" for sentence in said)


def counts(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """How often the test over queries shows better, and how often worse."""
    words = list(map(word, rows))
    return words.count(BETTER), words.count(WORSE)


def neither(rows: Sequence[dict[str, Any]]) -> str:
    """How many differences are not significant, after a comma; empty if none."""
    count = list(map(word, rows)).count("")
    return f", {count} not significant" if count else ""


def difference_shown(row: dict[str, Any], short: bool = False) -> str:
    """A difference with its interval and, if it is not short, its measure and n, for a sentence."""
    show = partial(parse(row["measure"]).show, with_sign=True)
    value, _, ends = bracketed(row["difference"], row["low"], row["high"], show).replace("-", "\u2212").partition(" ")
    texts = value, "" if short else row["measure"], ends
    return " ".join(filter(None, texts)) + ("" if short else f", n = {row['queries']:,}")


def found_in(row: dict[str, Any], with_system: bool, with_part: bool) -> str:
    """What was found in a part, after what it is called; without a name, with how many queries it helped and hurt."""
    names = [row["system"]] * with_system + [label(row["by"], row["part"])] * with_part
    n = f"n = {row['queries']:,}" + f" of {row['queries'] + row['unsearched']:,} searched" * bool(row["unsearched"])
    found = f"{difference_shown(row, short=True)}, {n}"
    if names:
        return f"{', '.join(names)}: {found}"
    equal = row["queries"] - row["helped"] - row["hurt"]
    return f"{found} ({row['helped']:,} helped, {row['hurt']:,} hurt, {equal:,} equal)"


def effect(label: str, row: dict[str, Any]) -> plots.Effect:
    """A row's difference, to be drawn."""
    return plots.Effect(label, row["difference"], row["low"], row["high"], row["queries"], row["queries"] < FEW)


def forest(effects: Sequence[plots.Effect], measure: str, title: str, margin: float | None = None) -> Picture:
    """A picture of differences in a measure, and what it shows; with the margin of a gate."""
    caption = f"{title}, with 95 % intervals over queries, which hold together; right of the line it is higher."
    caption += f" {HOLLOW}" * any(effect.is_of_few for effect in effects)
    caption += " The dashed line is the margin." * (margin is not None)
    return Picture(plots.forest(effects, f"difference in {measure}", title, margin=margin), caption)
