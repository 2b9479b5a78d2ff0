"""What ``eval_kit score --json`` writes and others read."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from eval_kit.documents.document import Count, Document, Positive, Sha256, together


class ReleaseIdentity(Document, frozen=True, kw_only=True):
    """The release that figures are of."""

    version: str
    kind: str
    digest: Sha256


class ScoredRelease(ReleaseIdentity, frozen=True, kw_only=True):
    """The release that runs were scored on."""

    missing: Annotated[list[str], Meta(description="What a partial release lacks.")]
    cautions: Annotated[list[str] | UnsetType, Meta(description="Why figures on it are not to be trusted.")] = UNSET


class ScoredRun(Document, frozen=True, kw_only=True):
    """A run that was scored."""

    run: str
    system: Annotated[str | UnsetType, Meta(description="Of a run of a grid.")] = UNSET
    file: str
    sha256: Sha256
    lines: Positive
    queries: Positive
    of_several: Annotated[Count, Meta(description="Queries for which it holds several passages.")]
    depth: Annotated[Positive, Meta(description="Most passages that it holds for one query.")]
    cutoff: Annotated[Count, Meta(description="The deepest of the measures; 0 if none has one.")]
    scored: Annotated[
        dict[str, dict[str, int | str]],
        Meta(description="By test set: its queries, how many the run lacks, and whether it was trained on any."),
    ]
    ties: Annotated[
        list[dict[str, float | str]] | UnsetType,
        Meta(description="Means that depend on the order of passages with one score, from worst to best."),
    ] = UNSET
    at_chance: Annotated[
        list[dict[str, float | str]] | UnsetType,
        Meta(description="First means that are not shown to exceed a random order of the run's own passages."),
    ] = UNSET
    judged_passages: Annotated[Count, Meta(description="(query, passage) pairs of the run that somebody judged.")]
    judged: Annotated[
        dict[str, float] | UnsetType,
        Meta(
            description="Of test sets that were judged from pools: the share of the first ten passages that is judged."
        ),
    ] = UNSET
    unjudged_queries: Annotated[
        Count, Meta(description="Queries of the run that are known but that no test set judges.")
    ]
    rank_contradictions: Annotated[
        Count | UnsetType,
        Meta(description="Queries whose ranks contradict the scores, which decide, or the lines of three columns."),
    ] = UNSET
    one_score: Annotated[
        Count | UnsetType, Meta(description="Queries of several passages, of which all have one score.")
    ] = UNSET
    own_passages_left_out: Annotated[
        Count | UnsetType, Meta(description="Queries whose own id was a passage's, left out as in BEIR.")
    ] = UNSET
    tags: Annotated[
        list[str] | UnsetType, Meta(description="Of a run whose lines have several tags: the first few.")
    ] = UNSET
    training_data: Annotated[
        list[str] | UnsetType | None,
        Meta(description="Declared sources of the model's training queries; null where nobody declared them."),
    ] = UNSET


class Provenance(Document, frozen=True, kw_only=True):
    """What scores were computed from."""

    kit_version: str
    release: ScoredRelease
    tie_rule: str
    not_in_corpus: Annotated[
        dict[str, dict[str, float]] | UnsetType,
        Meta(description="By test set: relevant passages that the corpus lacks, of all, and the most that R can be."),
    ] = UNSET
    runs: list[ScoredRun]


class Figure(Document, frozen=True, kw_only=True):
    """A mean over the queries of a test set."""

    test_set: str
    measure: str
    value: Annotated[float, Meta(description="A query that the run lacks counts as no result.")]
    queries: Annotated[Positive, Meta(description="n, the test set's own number of queries.")]


class ScoredFigure(Figure, frozen=True, kw_only=True):
    """A mean, and what readers must know about it."""

    run: str
    missing: Annotated[Count, Meta(description="Queries of the test set that the run does not hold.")]
    tied: Annotated[Count, Meta(description="Queries whose value depends on the order of passages with one score.")]
    worst: Annotated[
        float | UnsetType,
        Meta(description="The mean, were all tied passages in the worst order; present where their order matters."),
    ] = UNSET
    best: Annotated[
        float | UnsetType,
        Meta(description="The mean, were all tied passages in the best order; present where their order matters."),
    ] = UNSET
    low: Annotated[float | UnsetType, Meta(description="With --intervals: the ends of the 95 % interval.")] = UNSET
    high: float | UnsetType = UNSET
    trained_on: Annotated[
        Literal["no", "unknown", "yes"],
        Meta(
            description="Whether the model was trained on queries of the test set, by what is declared of its training "
            "data."
        ),
    ]


class ScoresDocument(Document, frozen=True, kw_only=True):
    """What 'eval_kit score --json' writes: every figure with its n, and what it was computed from."""

    said: Annotated[list[str], Meta(description="The answer, and what may make it another one before it.")]
    measures: list[Annotated[ScoredFigure, together("worst", "best")]]
    panel: Annotated[
        list[dict[str, Any]] | UnsetType, Meta(description="With --panel: each run's places among known systems.")
    ] = UNSET
    notes: Annotated[list[str], Meta(description="What else a reader must know, and how it was computed.")]
    provenance: Provenance
