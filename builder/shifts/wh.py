"""The wh-word shift: what, how and who queries (ECIR 2023 §3.1, "WH-Words Queries").

The published test sets follow, without exception, a rule on *substrings* of the lower-cased text, so a query
may be in several clusters ("tv show times" is in how).

The *token* rule is our variant: the same terms as whole words ("what's" and "how-to" count, as words end where letters,
digits and underscores do; "show" and "whatever" do not). Its clusters are subsets of the published rule's; the queries
that they lose are those that a reader would call mistakes of the substring rule.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Literal

import polars as pl

from builder.assembly import Build, ShiftResult
from builder.validation import check_share, draw_ids, split_by
from eval_kit import question_words
from eval_kit.authors.lists import WH_RULE as RULE
from eval_kit.authors.lists import WH_SOURCE as SOURCE
from eval_kit.errors import UserError
from eval_kit.sentences import counted, joined
from eval_kit.shifts import WH_TERMS

CLUSTERS = tuple(WH_TERMS)

type WhRule = Literal["substring", "token"]
type WhLanguage = Literal["en", "de", "fr", "es", "zh"]

_TOKEN_RULE = "in a cluster if the lower-cased text contains one of its terms as a whole word; may be in several"
RULES: dict[WhRule, str] = {"substring": RULE, "token": _TOKEN_RULE}
DRAWN = "; of a cluster larger than the size a random part (seeded), split into train and test by query at random"
LIMITS = (
    "Membership is a rule without exception on the released test sets, and is the same for every query. Which "
    "queries of a cluster were kept (48,500 train and 6,500 test, arXiv 2205.02870 §3.1), and which of them test, "
    "was drawn without a stated seed.",
    "The token rule is this project's variant; it cannot give the published sets, which are by substring.",
)
"""What no rebuild can reproduce of the published lists, and why."""


@dataclass(frozen=True)
class WhParameters:
    """The published rule; the sizes of arXiv 2205.02870 §3.1 (48,500 train and 6,500 test queries); our seed.

    ``rule`` is how English terms match; those of other languages, and ``terms`` of one's own
    (``wha:was|welche,how:wie``), are whole words. ``size`` is at most that of a cluster, ``test_share`` that of all
    clusters' queries.
    """

    rule: WhRule = "substring"
    language: WhLanguage = "en"
    terms: str = ""
    size: int = 55_000
    test_share: float = 0.118
    seed: int = 13


def terms_of(parameters: WhParameters) -> question_words.Terms:
    """Cluster -> terms."""
    try:
        terms = question_words.parse(parameters.terms) if parameters.terms else None
    except ValueError:
        raise UserError(
            f"wh.terms={parameters.terms} is not of the form cluster:term|term,cluster:term",
            do="Name clusters in a-z, 0-9 and _",
        ) from None
    if terms is not None and len(terms) < 2:
        raise UserError(f"wh.terms={parameters.terms} has fewer than two clusters")
    return terms or question_words.TERMS[parameters.language]


def member(
    texts: pl.Series, cluster: str, rule: WhRule = "substring", terms: question_words.Terms = WH_TERMS
) -> pl.Series:
    """Whether each query text is in ``cluster`` (boolean)."""
    contains = question_words.contains(pl.col("text"), terms[cluster], rule == "token")
    return texts.alias("text").to_frame().select(contains).to_series()


def assign(queries: pl.DataFrame, parameters: WhParameters = WhParameters()) -> pl.DataFrame:
    """Clusters and split of the queries that are in a cluster.

    A test query is a test query in each of its clusters, so that no model is trained on it. Returns ``query_id``,
    ``cluster`` (Enum wha, how, who) and ``split`` (Enum train, test), a row for each membership.
    """
    check_share(parameters.test_share)
    if parameters.size < 2:
        raise UserError(f"A wh cluster must have at least 2 queries, not {parameters.size}")
    parts = []
    clusters = terms_of(parameters)
    rule = rule_of(parameters)
    for cluster in clusters:
        members = queries["query_id"].filter(member(queries["text"], cluster, rule, clusters))
        sample = draw_ids(members, parameters.size, parameters.seed, f"wh {cluster}")
        parts.append(pl.DataFrame({"query_id": sample, "cluster": pl.repeat(cluster, len(sample), eager=True)}))
    memberships = pl.concat(parts)
    if memberships.is_empty():
        terms = ", ".join(chain.from_iterable(clusters.values()))
        raise UserError(
            f"No training query has a question word ({terms})",
            do="Name the question words of its language with --set wh.terms",
        )
    distinct = memberships["query_id"].unique()
    test = draw_ids(distinct, round(parameters.test_share * len(distinct)), parameters.seed, "wh test")
    return memberships.with_columns(pl.col("cluster").cast(pl.Enum(list(clusters))), split=split_by(test))


def rule_of(parameters: WhParameters) -> WhRule:
    """How terms match: by the chosen rule in English, as whole words else."""
    return parameters.rule if parameters.language == "en" and not parameters.terms else "token"


def differences(texts: pl.Series, terms: question_words.Terms = WH_TERMS) -> dict[str, tuple[int, int]]:
    """Cluster -> how many texts the token rule gains and loses compared with the substring rule."""
    changes = {}
    for cluster in terms:
        substring, token = (member(texts, cluster, rule, terms) for rule in RULES)
        changes[cluster] = (int((token & ~substring).sum()), int((substring & ~token).sum()))
    return changes


def rebuild(build: Build, parameters: WhParameters) -> ShiftResult:
    """The shift's tables, and how far the two rules differ on the training queries."""
    rule_name = rule_of(parameters)
    other = parameters.terms or (parameters.language if parameters.language != "en" else "")
    wording = f"{RULES[rule_name]}; the terms are those of {other}" if other else RULES[rule_name]
    rule = build.rule(wording + DRAWN, SOURCE, parameters)
    result = build.held_back("wh", assign(build.train, parameters), rule)
    changes_of = differences(build.train["text"], terms_of(parameters))
    told, other_rule = (
        ("anywhere in a word", "whole words") if rule_name == "substring" else ("as whole words", "parts")
    )
    counts = [f"{counted(gain + loss, 'query')} of {cluster}" for cluster, (gain, loss) in changes_of.items()]
    remark = (
        f"wh: question words count {told}; by {other_rule} of words {joined(counts)}, of all {build.train.height:,} "
        "training queries, would be in or out instead"
    )
    return ShiftResult(result.tables, [*result.remarks, remark])
