"""The measures, each computed from nothing but the ranks and grades of a query's judged passages.

Names follow ir_measures: ``RR@10``, ``nDCG@10``, ``R@1000``, ``AP``; ``(rel=2)`` sets the lowest grade that counts
as relevant (1 without it). ``RBP(p=0.5)`` sets the persistence (0.8 without it), ``nDCG(dcg='exp-log2')@10`` the gain
to ``2^grade - 1``. ``ASL@100`` is the bounded Atomized Search Length of the MS-Shift papers; ``R_cap@100`` and
``hole@10`` are BEIR's capped recall and share of passages that annotators never saw.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl

from eval_kit import plugins
from eval_kit.errors import UserError, parameter

_NAME = re.compile(
    r"(?P<kind>[A-Za-z][A-Za-z0-9]*(?:_cap)?)(?:\((?P<parameters>[^()]+)\))?(?:@(?P<cutoff>[1-9][0-9]{0,6}))?"
)
_PARAMETERS = {"rel": r"[1-9][0-9]{0,2}", "p": r"0?\.[0-9]{1,6}", "dcg": "'exp-log2'"}
_ALIAS = re.compile(r"([a-z]+?)(?:cut|at)?(?:[_@.]([1-9][0-9]*))?")
_ALIASES = {
    "map": "AP", "ap": "AP", "mrr": "RR", "rr": "RR", "reciprank": "RR", "ndcg": "nDCG", "recall": "R", "r": "R",
    "precision": "P", "p": "P", "success": "Success", "judged": "Judged", "rcap": "R_cap", "asl": "ASL",
    "hitrate": "Success", "hit": "Success", "accuracy": "Success", "holes": "hole", "rprec": "Rprec", "bpref": "Bpref",
    "err": "ERR", "rbp": "RBP", "ndcgburges": "nDCG(dcg='exp-log2')",
}  # fmt: skip
"""Names of trec_eval, BEIR, ranx, sentence-transformers and MTEB, in small letters and without ``_``."""
_FOREIGN = {
    r"hits([@._].*)?": "a count in ranx. P@10 is the count divided by 10, and Success@10 says whether there is any",
    r"rbp\.[0-9]+": "RBP with that persistence in ranx. Write RBP(p=0.95), for example",
    r"MAP@.*": "divided by at most the cutoff in sentence-transformers. AP@10 divides by all relevant passages",
}
"""Names that mean something here which no measure of the kit is, and what to ask for instead."""
ROUNDING = 1e-9
"""By how much a sum of shares may exceed 1."""


@dataclass(frozen=True)
class Unit:
    """What values count, and the digits after the point in the kit's own tables."""

    name: str
    digits: int


_FRACTION = Unit("fraction", 4)
PASSAGES = Unit("passages", 2)


@dataclass(frozen=True)
class Kind:
    """All that the kit knows of a kind of measure.

    Attributes:
        name: as ir_measures writes it.
        value: a query's, from the ``relevance`` and ``rank`` of its passages with a grade that counts; null for an
            empty result.
        lowest_grade: the lowest grade that counts, 0 for all of them; ``(rel=2)`` raises it.
        parameters: what a name may say in brackets; nDCG and Judged take every grade.
        takes_cutoff: whether the measure exists with one.
        reads_irrelevant: it is computed from the passages of all grades from 0 on.
        highest_grade: the greatest grade that it is defined for.
        needs_retrieved: its values depend on how many passages the run has for a query.
        for_any_query: its passages are those of the run that are judged for any query, each with relevance 1; a query
            of the run without one has a row without a rank.
        unit: of the values.
        lower_is_better: a negative relative loss is harm then.
        needs_cutoff: the measure does not exist without one.
        bounded_by_cutoff: the cutoff is the worst value, which an empty result gets; otherwise it is a rank, so ties
            across it leave a best and a worst value, and an empty result gets 0.
        ranks_from_value: 1 / value is a rank.
        unknown_elsewhere: ir_measures, which other tools score with, has no such measure.
    """

    name: str
    value: Callable[["Measure"], pl.Expr]
    unit: Unit = _FRACTION
    lowest_grade: int = 1
    parameters: tuple[str, ...] = ("rel",)
    takes_cutoff: bool = True
    reads_irrelevant: bool = False
    highest_grade: int | None = None
    needs_retrieved: bool = False
    for_any_query: bool = False
    lower_is_better: bool = False
    needs_cutoff: bool = False
    bounded_by_cutoff: bool = False
    ranks_from_value: bool = False
    unknown_elsewhere: bool = False

    @property
    def takes_grade(self) -> bool:
        """Whether a name may say ``(rel=2)``."""
        return "rel" in self.parameters

    @property
    def is_graded(self) -> bool:
        """Whether values without that depend on every grade."""
        return self.value is _rank_biased_precision


@dataclass(frozen=True)
class Measure:
    """One measure: its kind, the lowest relevant grade, the cutoff (None: the whole run), and the persistence."""

    name: str
    kind: Kind
    grade: int
    cutoff: int | None
    persistence: float = 0.8

    @property
    def value_of_empty_result(self) -> float:
        """The value of a query without any passage."""
        return float(self.cutoff or 0) if self.kind.bounded_by_cutoff else 0.0

    def of_grade(self, grade: int) -> str:
        """The name of the same measure that counts this grade and up as relevant."""
        parameters = [f"rel={grade}", *([f"p={self.persistence:g}"] if "p" in self.kind.parameters else [])]
        cutoff = f"@{self.cutoff}" if self.cutoff else ""
        return f"{self.kind.name}({','.join(reversed(parameters))}){cutoff}"

    @property
    def sign(self) -> int:
        """1 where higher is better, -1 where lower is: a difference times it is a gain."""
        return -1 if self.kind.lower_is_better else 1

    def best(self, values: Iterable[float]) -> float:
        """The best of some values."""
        return (min if self.kind.lower_is_better else max)(values)

    def most(self, values: Any) -> float:
        """What a query can lose at most, given an array of values: 1 of fractions, the cutoff of a search length."""
        return max(1.0, self.value_of_empty_result, float(abs(values).max()))

    def show(self, value: float, with_sign: bool = False) -> str:
        """A value, or with ``with_sign`` a difference, with the digits of the kit's own tables."""
        return f"{value:{'+' if with_sign else ''}.{self.kind.unit.digits}f}"

    def show_as_ecir_2023(self, value: float) -> str:
        """A mean as in ECIR 2023's tables, whose reciprocal ranks are times 100, as are all fractions beside them."""
        return f"{100 * value if self.kind.unit is _FRACTION else value:.1f}"


@cache
def parse(name: str) -> Measure:
    """The measure of that name."""
    match = _NAME.fullmatch(name)
    parameters = _parameters(match["parameters"]) if match and match["parameters"] else {}
    kind = (KINDS.get(match["kind"]) or plugins.named("measures", match["kind"])) if match else None
    if not match or kind is None or parameters is None:
        cutoff_typed = name[len(name.rstrip("0123456789")) :]
        kind_typed = name.removesuffix(cutoff_typed).rstrip("@_.")
        alias = _ALIASES.get(kind_typed.lower().replace("_", ""))
        near = [alias] if alias else difflib.get_close_matches(kind_typed, [*KINDS, *_ALIASES], 1)
        at = f"@{cutoff_typed}" if cutoff_typed else ""
        suggestion = f"{_ALIASES.get(near[0], near[0])}{at}" if near else name
        has_suggestion = suggestion != name and len(at) < 9 and not at.startswith("@0")
        hint = f" (did you mean {suggestion}?)" if has_suggestion else ""
        raise UserError(
            f"Unknown measure {name[:40]!r}{hint}",
            f"The kit has {', '.join(KINDS)}",
            "Write measures like RR@10 or R(rel=2)@100, with grades up to 999 and cutoffs from 1 to 9,999,999",
        )
    if strange := [parameter for parameter in parameters if parameter not in kind.parameters]:
        why = f", as {kind.name} uses every grade" if strange == ["rel"] else ""
        raise UserError(f"The measure {name!r} does not take ({strange[0]}=){why}")
    kind = _EXPONENTIAL if "dcg" in parameters else kind
    cutoff = int(match["cutoff"]) if match["cutoff"] else None
    if cutoff and not kind.takes_cutoff:
        raise UserError(f"{kind.name} takes no cutoff", do=f"Write {kind.name}, not {name}")
    if cutoff is None and kind.needs_cutoff:
        raise UserError(f"The measure {name!r} needs a cutoff", do=f"Write {name}@100, for example")
    grade, persistence = int(parameters.get("rel", kind.lowest_grade)), float(parameters.get("p", 0.8))
    return Measure(name, kind, grade, cutoff, persistence)


def _parameters(text: str) -> dict[str, str] | None:
    """What stands in brackets, by name; None where it is not ``name=value``, each once and known."""
    pairs = [part.split("=", 1) for part in text.split(",")]
    found = {pair[0]: pair[-1] for pair in pairs}
    known = all(name in _PARAMETERS and re.fullmatch(_PARAMETERS[name], value) for name, value in found.items())
    return found if known and len(found) == len(pairs) else None


def measure_named(name: object) -> Measure:
    """The measure that a user names: as :func:`parse`, as other tools do (:data:`_ALIASES`), or ir_measures' object."""
    text = str(name) if isinstance(name, str) or hasattr(name, "NAME") else ""
    if not text:
        raise UserError(f"{parameter('measures')} takes names such as 'P@5', not {name!r:.40}")
    for pattern, meaning in _FOREIGN.items():
        if re.fullmatch(pattern, text):
            raise UserError(f"{text[:40]!r} is {meaning}")
    alias = _ALIAS.fullmatch(re.sub("_(?=[a-z])", "", text.lower()))
    if text.partition("@")[0] in KINDS or not alias or alias[1] not in _ALIASES:
        return parse(text)
    return parse(_ALIASES[alias[1]] + (f"@{alias[2]}" if alias[2] else ""))


def known_elsewhere(names: Iterable[str]) -> list[str]:
    """The measures among ``names`` that ir_measures has too."""
    return [name for name in names if not parse(name).kind.unknown_elsewhere]


def per_query(measure: Measure, judgements: pl.DataFrame, queries: pl.Series) -> pl.Series:
    """The measure's value for each query.

    Args:
        measure: from :func:`parse`.
        judgements: ``query_id``, ``relevance`` and ``rank`` (null where the run lacks the passage), one row per judged
            passage; all judged passages of the queries, whether the run has them or not. For a measure that
            ``needs_retrieved``, also ``retrieved``: how many passages the run has for the query.
        queries: the query ids wanted; one without a row in ``judgements`` gets the value of an empty result.

    Returns:
        float64, in the order of ``queries``.
    """
    return with_values(queries.to_frame("query_id").lazy(), measure, judgements, "value").collect()["value"]


def with_values(queries: pl.LazyFrame, measure: Measure, judgements: pl.DataFrame, name: str) -> pl.LazyFrame:
    """``queries`` with the measure's values (:func:`per_query`) in the column ``name``."""
    # signed: ranks come without a sign, and a difference of such would wrap round below 0
    passages = judgements.lazy().with_columns(pl.col("rank").cast(pl.Int64), highest=pl.col("relevance").max())
    if measure.grade:  # Judged counts every grade, a negative one too
        passages = passages.filter(pl.col("relevance") >= (0 if measure.kind.reads_irrelevant else measure.grade))
    values = passages.group_by("query_id").agg(measure.kind.value(measure).cast(pl.Float64).alias(name))
    # null is a query that has no row, as none of its passages counts, and one for which nothing was found
    return queries.join(values, on="query_id", how="left", maintain_order="left").with_columns(
        pl.col(name).fill_null(measure.value_of_empty_result)
    )


def with_ties_resolved(judgements: pl.DataFrame, best: bool) -> pl.DataFrame:
    """The ranks if all tied passages stood in the best order, higher grades first, or in the worst.

    No other order of them gives any of the measures a better, or worse, value: in each, a passage of a higher grade
    that changes places with a lower one before it gains at least what the other loses.

    Args:
        judgements: as for :func:`per_query`, with ``tied_from`` and ``tied_to`` too.
        best: the higher grades first, or last, with those that nobody judged before all of them.
    """
    order = pl.col("relevance").rank("ordinal", descending=True).over("query_id", "tied_from")
    return judgements.with_columns(rank=pl.col("tied_from") + order - 1 if best else pl.col("tied_to") - order + 1)


def check_values(measure: Measure, values: pl.Series) -> None:
    """Refuse values that the measure cannot have."""
    most = measure.value_of_empty_result if measure.kind.bounded_by_cutoff else 1.0
    highest = float(values.max() or 0.0)  # type: ignore[arg-type]
    if highest > most * (1 + ROUNDING) or values.is_nan().any():
        raise UserError(
            f"{measure.name} of a query is {highest:.4g}, but at most {most:g} is possible",
            f"A passage is judged twice, or polars {pl.__version__} computes wrongly",
        )


@cache
def check_library() -> None:
    """Compute two figures with known values, as one version of polars gave others without a word."""
    query, rank = pl.col("query_id"), pl.col("rank")
    queries = pl.DataFrame({"query_id": range(KNOWN_QUERIES)})
    ranks = pl.DataFrame({"rank": [3, 1, 4, 2]}).join(queries, how="cross")
    judgements = ranks.select(
        query.cast(pl.String), relevance=rank % 4, rank=pl.when(rank < 4).then(rank + query % 2).cast(pl.UInt32)
    )
    for name, known_value in KNOWN_VALUES.items():
        value = float(per_query(parse(name), judgements, queries["query_id"].cast(pl.String)).sum())
        if abs(value - known_value) > ROUNDING * known_value:
            raise UserError(
                f"polars {pl.__version__} computes {name} wrongly: {value:.4f}, not {known_value:.4f}",
                do="Install another version, 1.35 or newer",
            )


def _within(measure: Measure) -> pl.Expr:
    return (pl.col("rank") <= measure.cutoff).fill_null(False)


def _reciprocal_rank(measure: Measure) -> pl.Expr:
    """``1 / rank`` of the first relevant passage; 0 where none is within the cutoff (trec_eval's recip_rank)."""
    rank = pl.col("rank")
    return 1 / (rank if measure.cutoff is None else rank.filter(rank <= measure.cutoff)).min()


def _recall(measure: Measure) -> pl.Expr:
    """``|relevant, rank ≤ k| / |relevant|``: the share of relevant passages within the cutoff (trec_eval's recall)."""
    return _within(measure).mean()


def _precision(measure: Measure) -> pl.Expr:
    """``|relevant, rank ≤ k| / k``: the relevant passages within the cutoff, divided by it (trec_eval's P)."""
    return _within(measure).sum() / measure.cutoff


def _success(measure: Measure) -> pl.Expr:
    """1 where a relevant passage is within the cutoff, else 0 (trec_eval's success)."""
    return _within(measure).any()


def _share_judged(measure: Measure) -> pl.Expr:
    """``|judged, rank ≤ k| / min(k, |retrieved|)``: the share that was judged, at any grade (ir_measures' Judged)."""
    return _within(measure).sum() / pl.col("retrieved").first().clip(upper_bound=measure.cutoff)


def _hole(measure: Measure) -> pl.Expr:
    """``|never judged, rank ≤ k| / k``: first passages that no query's annotators saw (BEIR §6, Table 4, and its code).

    ``1 - Judged@k`` asks instead whether they are judged for this query. Not a measure of quality: it says how far the
    others can be trusted. A query without any passages has no holes.
    """
    judged_count = _within(measure).sum().cast(pl.Int64)
    count = pl.col("retrieved").first().cast(pl.Int64).clip(upper_bound=measure.cutoff)
    return (count - judged_count) / measure.cutoff


def _capped_recall(measure: Measure) -> pl.Expr:
    """``|relevant, rank ≤ k| / min(k, |relevant|)``: recall relative to what could be there (BEIR, App. G)."""
    return _within(measure).sum() / pl.min_horizontal(pl.len(), pl.lit(measure.cutoff))


def _average_precision(measure: Measure) -> pl.Expr:
    """``Σ P@rank / |relevant|``, the sum over the relevant passages within the cutoff (trec_eval's map and map_cut)."""
    rank = pl.col("rank").sort(nulls_last=True)
    precision = pl.int_range(1, pl.len() + 1) / rank
    within = precision if measure.cutoff is None else precision.filter(rank <= measure.cutoff)
    return within.sum() / pl.len()


def _ndcg(measure: Measure) -> pl.Expr:
    """``Σ grade / log2(rank + 1)`` within the cutoff, divided by the same sum in the ideal order (trec_eval's ndcg)."""
    return _discounted(pl.col("relevance"), measure)


def _exponential_ndcg(measure: Measure) -> pl.Expr:
    """As nDCG, with the gain ``2^grade - 1`` in place of the grade (Burges et al. 2005; TREC's gdeval, LETOR)."""
    return _discounted(2.0 ** pl.col("relevance") - 1, measure)


def _discounted(gains: pl.Expr, measure: Measure) -> pl.Expr:
    ideal = gains.sort(descending=True) / (pl.int_range(2, pl.len() + 2)).log(2)
    gain = gains / (pl.col("rank") + 1).log(2)
    if measure.cutoff is not None:
        ideal, gain = ideal.head(measure.cutoff), gain.filter(pl.col("rank") <= measure.cutoff)
    return gain.sum() / ideal.sum()


def _r_precision(measure: Measure) -> pl.Expr:
    """``|relevant, rank ≤ R| / R``, where R passages are relevant: there it equals recall (trec_eval's Rprec)."""
    return (pl.col("rank") <= pl.len()).fill_null(False).mean()


def _bpref(measure: Measure) -> pl.Expr:
    """``Σ (1 - min(R, |judged irrelevant above|) / min(R, N)) / R``, the sum over the relevant passages that are found.

    R passages are judged relevant, N irrelevant (grade 0 or more); unjudged ones change nothing (trec_eval's bpref).
    """
    is_relevant = (pl.col("relevance") >= measure.grade).sort_by("rank", nulls_last=True)
    is_found = pl.col("rank").sort(nulls_last=True).is_not_null()
    relevant, irrelevant = is_relevant.sum(), (~is_relevant).sum()
    above = pl.min_horizontal((~is_relevant).cum_sum(), relevant)
    # 0 / 0 where nothing is judged irrelevant: then nothing can stand above
    share = (above / pl.min_horizontal(relevant, irrelevant)).fill_nan(0)
    return ((1 - share).filter(is_relevant & is_found).sum() / relevant).fill_nan(0)


def _expected_reciprocal_rank(measure: Measure) -> pl.Expr:
    """``Σ p(rank) Π (1 - p(above)) / rank``, with ``p = (2^grade - 1) / 16``: where one is satisfied.

    Chapelle et al. 2009, with the grades up to 4 of TREC's gdeval.
    """
    rank = pl.col("rank")
    within = rank.is_not_null() if measure.cutoff is None else _within(measure)
    # not filtered: older polars sort no group of which nothing is left
    stops = pl.when(within).then((2.0 ** pl.col("relevance") - 1) / 16).otherwise(0.0).sort_by(rank, nulls_last=True)
    return (stops * (1 - stops).cum_prod().shift(1, fill_value=1.0) / rank.sort(nulls_last=True)).sum()


def _rank_biased_precision(measure: Measure) -> pl.Expr:
    """``(1 - p) Σ gain p^(rank - 1)``: who reads one reads the next with persistence p.

    The gain is the grade divided by the highest in the judgements, as NIST has it; with ``rel=``, 1 from that grade on.
    Moffat and Zobel 2008; the sum is what is known: with unjudged passages relevant it would be more.
    """
    is_within = pl.lit(True) if measure.cutoff is None else _within(measure)
    gain = pl.lit(1.0) if "rel=" in measure.name else pl.col("relevance") / pl.col("highest")
    return (1 - measure.persistence) * (gain * measure.persistence ** (pl.col("rank") - 1)).filter(is_within).sum()


def _search_length(measure: Measure) -> pl.Expr:
    """``Σ min(k, |non-relevant above|) / |relevant|``, the sum over all relevant passages: how much one reads in vain.

    A relevant passage that the run lacks counts as the cutoff (Alex, Hall and Metzler 2022; "a 100 bounded ASL",
    ECIR 2023 §4, footnote 5). Lower is better.
    """
    above = pl.col("rank").sort(nulls_last=True) - pl.int_range(1, pl.len() + 1)
    return above.clip(upper_bound=measure.cutoff).fill_null(measure.cutoff).mean()


_EXPONENTIAL = Kind("nDCG(dcg='exp-log2')", _exponential_ndcg, parameters=("dcg",), highest_grade=999)
KINDS = {
    kind.name: kind
    for kind in (
        Kind("RR", _reciprocal_rank, ranks_from_value=True),
        Kind("R", _recall, needs_cutoff=True),
        Kind("R_cap", _capped_recall, needs_cutoff=True, unknown_elsewhere=True),
        Kind("P", _precision, needs_cutoff=True),
        Kind("Success", _success, needs_cutoff=True),
        Kind("AP", _average_precision),
        Kind("nDCG", _ndcg, parameters=("dcg",)),
        _EXPONENTIAL,
        Kind("Rprec", _r_precision, takes_cutoff=False),
        Kind("Bpref", _bpref, takes_cutoff=False, reads_irrelevant=True),
        Kind("ERR", _expected_reciprocal_rank, parameters=(), highest_grade=4),
        Kind("RBP", _rank_biased_precision, parameters=("rel", "p")),
        Kind("Judged", _share_judged, lowest_grade=0, parameters=(), needs_retrieved=True, needs_cutoff=True),
        Kind(
            "hole",
            _hole,
            parameters=(),
            needs_retrieved=True,
            for_any_query=True,
            lower_is_better=True,
            needs_cutoff=True,
            unknown_elsewhere=True,
        ),
        Kind(
            "ASL",
            _search_length,
            PASSAGES,
            lower_is_better=True,
            needs_cutoff=True,
            bounded_by_cutoff=True,
            unknown_elsewhere=True,
        ),
    )
}
"""Every kind of measure, by name."""
KNOWN_QUERIES = 40
KNOWN_VALUES = {"nDCG@10": 28.076506351802912, "AP": 32.77777777777778}
"""The sums over :data:`KNOWN_QUERIES` that :func:`check_library` expects."""
