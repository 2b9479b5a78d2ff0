"""manifest.json of a release, and what it lists."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from eval_kit.documents.document import (
    END,
    Count,
    Document,
    DottedName,
    GitBlob,
    Labels,
    Name,
    Positive,
    Sha256,
    Text,
    together,
)

VERSION = r"^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}" + END
LANGUAGE = "^[a-z]{2,3}" + END
type Language = Annotated[str, Meta(pattern=LANGUAGE)]
"""The form of a release's version."""

type ColumnType = Literal["string", "int64", "list<string>", "label"]
type Kind = Annotated[
    str,
    Meta(
        pattern="^(published|rebuilt|mini|lite)" + END,
        description="published: the authors' lists; rebuilt: the papers' algorithms run again; mini: the embedded "
        "synthetic collection; lite: one of these with a part of its collection.",
    ),
]

_LABELLED = Meta(
    extra_json_schema={"if": {"properties": {"type": {"const": "label"}}}, "then": {"required": ["labels"]}}
)


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
    path: Annotated[str, Meta(pattern=r"^data/[a-z0-9_]+/[a-z0-9_]+-[0-9]{5}-of-[0-9]{5}\.parquet" + END)]
    rows: Count
    columns: Annotated[list[Annotated[Column, _LABELLED]], Meta(min_length=1)]
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
        str, Meta(pattern=VERSION, description="Semantic version of the data. A published version never changes.")
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
    missing: Annotated[list[Lack], Meta(description="Parts that could not be obtained. Empty in a complete release.")]
    remarks: Annotated[list[str], Meta(description="Oddities of the source data and how they were handled.")]
    variations: Annotated[list[Variation], Meta(description="Other wordings of test sets' queries.")] = []
    language: Annotated[
        Language | None, Meta(description="Of the queries, by ISO 639, where the builder knew or was told.")
    ] = None
    built_from: Annotated[
        Text | None, Meta(description="What the collection of a rebuilt release is called, such as nfcorpus.")
    ] = None
    digest: Annotated[
        Sha256,
        Meta(
            description="sha256 over kind, version, collection, tables (columns, rows, content digests), test sets, "
            "measures, variations and what is missing: the identity of the content."
        ),
    ]
