"""done.json of a finished cell of a grid."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from eval_kit.documents.document import Amount, Count, Document, Positive, Sha256


class ReleaseIdentity(Document, frozen=True, kw_only=True):
    """The release that figures are of."""

    version: str
    kind: str
    digest: Sha256


class Figure(Document, frozen=True, kw_only=True):
    """A mean over the queries of a test set."""

    test_set: str
    measure: str
    value: Annotated[float, Meta(description="A query that the run lacks counts as no result.")]
    queries: Annotated[Positive, Meta(description="n, the test set's own number of queries.")]


class CellName(Document, frozen=True, kw_only=True):
    """One training of a grid."""

    system: str
    shift: Annotated[str, Meta(description="A name of eval_kit.shifts.TRAINED_FOR: a shift, or all.")]
    held_out: Annotated[str, Meta(description="The part not trained on; for ReSTrain the set trained on.")]
    seed: Count


class StageSeconds(Document, frozen=True, kw_only=True):
    """Spent in each stage, over all attempts but those that were killed."""

    training: Amount | UnsetType = UNSET
    indexing: Amount | UnsetType = UNSET
    searching: Amount | UnsetType = UNSET
    scoring: Amount | UnsetType = UNSET


class CellRun(Document, frozen=True, kw_only=True):
    """The run of a cell."""

    file: str
    sha256: Sha256
    lines: Positive
    queries: Positive


class Sparsity(Document, frozen=True, kw_only=True):
    """Mean number of weights that are not zero."""

    query: Amount
    passage: Amount


class FinishedCell(Document, frozen=True, kw_only=True):
    """A cell's done.json: what was trained, indexed, searched and scored, with what, and how long it took."""

    digest: Annotated[Sha256, Meta(description="sha256 over all that decides the run.")]
    cell: CellName
    release: ReleaseIdentity
    options: Annotated[dict[str, Any], Meta(description="Of the system, as in the config.")]
    code_version: str
    backbone_commit: Annotated[
        str | None, Meta(description="On the Hub; null for a folder, and where there is no pretrained backbone.")
    ]
    teacher_commit: Annotated[
        str | None, Meta(description="On the Hub; null for a folder, and where there is no teacher.")
    ] = None
    training: Annotated[
        dict[str, Any],
        Meta(description="What training reports: steps, losses, queries; empty for a system that is not trained."),
    ]
    excluded: Annotated[
        dict[str, Count],
        Meta(description="Queries of the shift's training table that the cell may not train on, by reason."),
    ] = {}
    seconds: StageSeconds
    index_bytes: Annotated[Count, Meta(description="Of what a search reads.")]
    run: CellRun
    sparsity: Annotated[Sparsity | None, Meta(description="Null where there are no sparse vectors.")] = None
    variations: Annotated[
        dict[str, Sha256], Meta(description="sha256 of the run of each variation that was searched, by its full name.")
    ] = {}
    figures: Annotated[list[Figure], Meta(min_length=1, description="Means over the test sets that the run covers.")]
    device: Annotated[str, Meta(description="The GPU's name, or cpu.")]
    threads: Positive
    libraries: dict[str, str]
