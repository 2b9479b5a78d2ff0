"""The documents that are exchanged, as typed classes; ``schemas/`` is generated from them.

A document from outside is checked against its JSON Schema (:mod:`eval_kit.files.schemas`), which reports every fault
with its path, and then becomes an object: only this module knows how its keys are spelt.
"""

import inspect
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

NAME: Literal["ms-marco-shift"] = "ms-marco-shift"
MS_MARCO = "msmarco-passage"

type Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
type Name = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_]{0,99}$")]
type DottedName = Annotated[str, Meta(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*$")]
type Text = Annotated[str, Meta(min_length=1)]
type GitBlob = Annotated[str, Meta(pattern="^[0-9a-f]{40}$")]
type Labels = Annotated[list[str], Meta(min_length=1)]
type Count = Annotated[int, Meta(ge=0)]
type Positive = Annotated[int, Meta(ge=1)]
type Amount = Annotated[float, Meta(ge=0)]
type ColumnType = Literal["string", "int64", "list<string>", "label"]
type Kind = Annotated[
    str,
    Meta(
        pattern="^(published|rebuilt|mini|lite)$",
        description="published: the authors' lists; rebuilt: the papers' algorithms run again; mini: the embedded "
        "synthetic collection; lite: one of these with a part of its collection.",
    ),
]


LABELLED = Meta(
    extra_json_schema={
        "if": {"properties": {"type": {"const": "label"}}},
        "then": {"required": ["labels"]},
    }
)


def together(one: str, other: str) -> Meta:
    """Of two fields, a document has both or neither."""
    return Meta(extra_json_schema={"dependentRequired": {one: [other], other: [one]}})


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Any of these: immutable, without fields that it does not declare."""

    def as_json(self) -> dict[str, Any]:
        """The document as it is written: dictionaries, lists, strings, numbers and None."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Column(Document, frozen=True, kw_only=True, omit_defaults=True):
    """A column of a table."""

    name: str
    type: ColumnType
    labels: Annotated[
        Labels | None, Meta(description="Class names of a label column, in the order of their codes.")
    ] = None


class Rule(Document, frozen=True):
    """How a table was made: in words, where that is defined, with which parameters and from which inputs."""

    text: str
    source: Annotated[str, Meta(description="Paper section or upstream file that defines it.")]
    inputs: Annotated[list[str], Meta(description="Ids of the inputs it reads.")] = []
    parameters: dict[str, Any] = {}


class TableEntry(Document, frozen=True):
    """A table of a release."""

    config: Name
    split: Name
    path: Annotated[str, Meta(pattern=r"^data/[a-z0-9_]+/[a-z0-9_]+-[0-9]{5}-of-[0-9]{5}\.parquet$")]
    rows: Count
    columns: Annotated[list[Annotated[Column, LABELLED]], Meta(min_length=1)]
    digest: Annotated[
        Sha256, Meta(description="Content digest: sha256 over the canonical rows, sorted (eval_kit/files/digests.py).")
    ]
    rule: Rule
    sha256: Annotated[
        Sha256, Meta(description="Of the parquet file; differs between library versions where content does not.")
    ]

    @property
    def key(self) -> tuple[str, str]:
        """Config and split: what names a table."""
        return self.config, self.split


class TestSetEntry(Document, frozen=True, kw_only=True, omit_defaults=True):
    """A test set of a release: queries that are scored together."""

    __test__ = False

    name: DottedName
    shift: Annotated[str, Meta(description="The shift, or benchmark, that the test set belongs to.")]
    config: str
    split: str
    qrels: Annotated[str, Meta(description="Split of the config 'qrels'.")]
    measures: Annotated[
        list[str],
        Meta(
            min_length=1,
            description="Official measures, named as in ir_measures, with the lowest grade that counts as relevant "
            "where it is not 1: R(rel=2)@100; ASL@100 is ours.",
        ),
    ]
    column: Annotated[str | None, Meta(description="Only rows whose label in this column is in 'values'.")] = None
    values: list[str] | None = None
    queries: Annotated[Positive, Meta(description="How many distinct queries: the denominator of every mean.")]

    @property
    def table(self) -> tuple[str, str]:
        """Config and split of the table that holds its queries."""
        return self.config, self.split


class Variation(Document, frozen=True):
    """Another wording of a test set's queries."""

    base: Annotated[str, Meta(description="The test set, whose query ids and judgements hold.")]
    family: Annotated[Name, Meta(description="typo, reformulation, wording or spelling.")]
    method: Annotated[DottedName | None, Meta(description="Within the family; null where it has one only.")]
    replica: Annotated[
        Positive | None, Meta(description="Which of several applications of the method; null where there is one.")
    ]
    split: Annotated[Name, Meta(description="Of the config 'variations'.")]
    invalid: Annotated[
        list[str] | None,
        Meta(description="Query ids whose wording people judged to ask something else; null where nobody judged."),
    ]
    source: Annotated[str, Meta(description="Repository or module that the wordings come from.")]
    licence: str
    queries: Annotated[Positive, Meta(description="How many of the base's queries are worded otherwise.")]

    @property
    def group(self) -> str:
        """Family and method: what all replicas share."""
        return f"{self.family}.{self.method}" if self.method else self.family

    @property
    def full_name(self) -> str:
        """Base, family, method and replica, as run files are named: ``dl19.typo.3``."""
        replica = f".{self.replica}" if self.replica else ""
        return f"{self.base}.{self.group}{replica}"


class Input(Document, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a release was built from."""

    id: str
    url: str
    bytes: Count
    sha256: Sha256
    git_blob: GitBlob | None = None
    licence: str


class Lack(Document, frozen=True):
    """A part that could not be obtained."""

    what: str
    because: str


class Manifest(Document, frozen=True, kw_only=True, omit_defaults=True):
    """manifest.json of a release folder: what it holds, how it was made, and the digests that prove it."""

    name: Literal["ms-marco-shift"]
    version: Annotated[
        str,
        Meta(
            pattern=r"^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}$",
            description="Semantic version of the data. A published version never changes.",
        ),
    ]
    schema_version: Literal[1]
    kind: Kind
    collection: Annotated[
        str | None,
        Meta(
            description="The ir_datasets id that holds the passages; null where the release embeds them "
            "(config 'passages')."
        ),
    ]
    code_version: str
    seed: int | None
    tables: Annotated[list[TableEntry], Meta(min_length=1)]
    test_sets: list[Annotated[TestSetEntry, together("column", "values")]]
    inputs: list[Input]
    missing: Annotated[list[Lack], Meta(description="What could not be had. Empty in a complete release.")]
    remarks: Annotated[list[str], Meta(description="Oddities of the source data and how they were handled.")]
    variations: Annotated[list[Variation], Meta(description="Other wordings of test sets' queries.")] = []
    built_from: Annotated[
        Text | None,
        Meta(description="What the collection of a rebuilt release is called, such as nfcorpus."),
    ] = None
    digest: Annotated[
        Sha256,
        Meta(
            description="sha256 over kind, version, collection, tables (columns, rows, content digests), test sets, "
            "measures, variations and what is missing: the identity of the content."
        ),
    ]


class Training(Document, frozen=True, omit_defaults=True):
    """<run>.training.json beside a run: how the model that made it was trained."""

    training_data: Annotated[
        list[Text] | None,
        Meta(
            description="Every source of queries that the model was trained or tuned on, its teachers too; empty for a "
            "system without training, null where nobody knows. ir_datasets ids where there are any: "
            "msmarco-passage/train; msmarco-passage/shift/topic/not-c0 for a training set of a release."
        ),
    ]
    batch_size: Annotated[
        Positive | None,
        Meta(description="Queries of a step, over all processes; runs of different batches are not averaged."),
    ] = None


class ReleaseName(Document, frozen=True):
    """The release that something was made for."""

    version: Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    digest: Sha256


class SubmittedRun(Document, frozen=True, omit_defaults=True):
    """A run of a submission; the shift and the held-out part if its name does not say them."""

    file: Annotated[
        str,
        Meta(
            pattern=r"^(?!/)(?!.*(^|/)\.\.(/|$))[^\\]+$",
            description="Relative to this document; may not leave its folder.",
        ),
    ]
    shift: str | None = None
    held_out: str | None = None
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 0


class Submission(Document, frozen=True, kw_only=True, omit_defaults=True):
    """submission.json: what stands behind a folder of runs."""

    system: Annotated[str, Meta(min_length=1, max_length=80)]
    team: Annotated[str, Meta(min_length=1, max_length=80)]
    architecture: Literal["lexical", "dense", "sparse", "late-interaction", "cross-encoder", "hybrid", "other"]
    training_data: Annotated[
        list[Text],
        Meta(
            description="Every source of queries that the system was trained or tuned on, as in training.schema.json; "
            "msmarco-passage/shift/topic for a grid trained on the release's own training sets, an empty list, or "
            "none, for a system without training."
        ),
    ]
    checkpoints: list[str] = []
    hardware: str = ""
    licence: Text
    links: list[Annotated[str, Meta(pattern="^https?://")]] = []
    contact: str = ""
    notes: str = ""
    release: ReleaseName
    runs: Annotated[list[Annotated[SubmittedRun, together("shift", "held_out")]], Meta(min_length=1)]


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
    file: str
    sha256: Sha256
    lines: Positive
    queries: Positive
    depth: Annotated[Positive, Meta(description="Most passages that it holds for one query.")]
    judged_passages: Annotated[Count, Meta(description="(query, passage) pairs of the run that somebody judged.")]
    unjudged_queries: Annotated[
        Count, Meta(description="Queries of the run that are known but that no test set judges.")
    ]
    rank_contradictions: Annotated[
        Count | UnsetType, Meta(description="Queries whose ranks contradict their scores, which decide.")
    ] = UNSET
    own_passages_left_out: Annotated[
        Count | UnsetType, Meta(description="Queries whose own id was a passage's, left out as in BEIR.")
    ] = UNSET
    training_data: Annotated[
        list[str] | UnsetType | None,
        Meta(description="Declared sources of the model's training queries; null where nobody declared them."),
    ] = UNSET


class Provenance(Document, frozen=True):
    """What scores were computed from."""

    kit_version: str
    release: ScoredRelease
    tie_rule: str
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
    ties_at_cutoff: Annotated[
        Count, Meta(description="Queries in which documents with one score stand on both sides of the cutoff.")
    ]
    worst: Annotated[
        float | UnsetType,
        Meta(description="The mean, were each of those ties resolved worst; present where there are ties."),
    ] = UNSET
    best: Annotated[
        float | UnsetType,
        Meta(description="The mean, were each of those ties resolved best; present where there are ties."),
    ] = UNSET
    trained_on: Annotated[
        Literal["no", "unknown", "yes"],
        Meta(
            description="Whether the model was trained on queries of the test set, by what is declared of its training "
            "data."
        ),
    ]


class ScoresDocument(Document, frozen=True):
    """What 'eval_kit score --json' writes: every figure with its n, and what it was computed from."""

    measures: list[Annotated[ScoredFigure, together("worst", "best")]]
    provenance: Provenance


class CellName(Document, frozen=True, kw_only=True):
    """One training of a grid."""

    system: str
    shift: Annotated[str, Meta(description="A name of eval_kit.shifts.TRAINED_FOR: a shift, or all.")]
    held_out: Annotated[str, Meta(description="The part not trained on; for ReSTrain the set trained on.")]
    seed: Count


class StageSeconds(Document, frozen=True, kw_only=True):
    """Spent in each stage, over all attempts."""

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
        dict[str, Sha256],
        Meta(description="sha256 of the run of each variation that was searched, by its full name."),
    ] = {}
    figures: Annotated[list[Figure], Meta(min_length=1, description="Means over the test sets that the run covers.")]
    device: Annotated[str, Meta(description="The GPU's name, or cpu.")]
    threads: Positive
    libraries: dict[str, str]


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a document of :data:`DOCUMENTS`."""
    return schema_of(DOCUMENTS[name], name.capitalize())


def schema_of(kind: type[Document], title: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a class."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": inspect.getdoc(kind),
        **msgspec.json.schema(kind),
    }


DOCUMENTS: dict[str, type[Document]] = {
    "cell": FinishedCell,
    "release": Manifest,
    "scores": ScoresDocument,
    "submission": Submission,
    "training": Training,
}
"""The classes by the names of their schemas."""
