"""A gate: whether systems lose less than a margin to a baseline, in all queries and in each part."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from eval_kit.protocols import by_part
from eval_kit.protocols.differences_shown import decided, found_in, gain
from eval_kit.sentences import and_more, most_telling
from eval_kit.stats.differences import CANNOT_TELL, NOT_WORSE, UNCHANGED, WORSE, overall
from eval_kit.tables.table import ALPHA

_MOST_NAMED = 3


@dataclass(frozen=True)
class Gate:
    """The gate of a comparison.

    Attributes:
        margin: the loss that it is about, by each test set's first measure.
        parts: the rows of :data:`eval_kit.protocols.by_part.DIFFERENCES` that it tests.
        baseline: the system that may not be lost to.
    """

    margin: float
    parts: pl.DataFrame
    baseline: str

    @property
    def verdict(self) -> str:
        """Worse, not worse, no query changed or cannot tell."""
        return overall(self.parts["verdict"].drop_nulls().to_list())

    @property
    def exit_status(self) -> int:
        """0 not worse or nothing changed, 1 worse, 3 cannot tell."""
        return {WORSE: 1, CANNOT_TELL: 3}.get(self.verdict, 0)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"margin": self.margin, "verdict": self.verdict}

    def __str__(self) -> str:
        """Its word, the parts that it is due to, and what else was found."""
        parts = by_part.shown(self.parts)
        rows = parts.drop_nulls("verdict").to_dicts()
        if not rows:
            return f"Gate at {self.margin:g}: {by_part.NOT_TESTED}."
        due = [row for row in rows if row["verdict"] == self.verdict]
        several, systems = parts.height > 1, self.parts["system"].n_unique() > 1
        worst, rest = most_telling(due, lambda row: -gain(row), _MOST_NAMED)
        named, more = [found_in(row, systems, several) for row in worst], and_more(rest)
        said = f"Gate at {self.margin:g}: {self.verdict}{' in ' if several else ': '}{'; in '.join(named)}{more}"
        words = [*(row["verdict"] for row in rows), *[by_part.NOT_TESTED] * (parts.height - len(rows))]
        others = dict.fromkeys(word for word in (*by_part.ORDER, by_part.NOT_TESTED) if word in words)
        others.pop(self.verdict, None)
        said += "".join(f"; {word} in {words.count(word)} of {parts.height} parts" for word in others)
        if self.verdict == CANNOT_TELL and not any(row["decides"] for row in due):
            if None not in (losses := [row["detectable"] for row in due]):
                said += f". A loss of {max(losses):.4f} would be found in 80 % of cases"
            if needed := max(row["needed"] or 0 for row in due):
                said += f', and "{NOT_WORSE}" needs about {needed:,} queries where nothing is lost'
        if self.verdict == UNCHANGED:
            fewest = min(row["queries"] for row in due)
            said += f". That leaves open that up to {1 - ALPHA ** (1 / fewest):.1%} of such queries lose"
        return f"{said}.{next(filter(None, map(decided, sorted(due, key=gain))), '')}"

    def rules(self) -> str:
        """What its words mean."""
        return (
            f"{NOT_WORSE}: significantly less than {self.margin:g} is lost to {self.baseline} (one-sided; with at "
            f"least the variance of a loss of {self.margin:g} by a few queries that lose all). {WORSE}: a loss is "
            "significant (two-sided). Both are t-tests over queries, p < 0.05 after Holm's correction"
        )
