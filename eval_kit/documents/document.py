"""What all documents share: the class, the kinds of fields, and the schema of a class."""

import inspect
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

NAME: Literal["ms-marco-shift"] = "ms-marco-shift"
MS_MARCO = "msmarco-passage"

END = r"$(?!\n)"
"""The end of a pattern, for Python too, whose ``$`` also stands before a last line break."""

type Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}" + END)]
type Name = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_]{0,99}" + END)]
type DottedName = Annotated[str, Meta(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*" + END)]
type Text = Annotated[str, Meta(min_length=1)]
type GitBlob = Annotated[str, Meta(pattern="^[0-9a-f]{40}" + END)]
type Labels = Annotated[list[str], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]
type Count = Annotated[int, Meta(ge=0)]
type Positive = Annotated[int, Meta(ge=1)]
type Amount = Annotated[float, Meta(ge=0)]


def together(one: str, other: str) -> Meta:
    """Of two fields, a document has both or neither."""
    return Meta(extra_json_schema={"dependentRequired": {one: [other], other: [one]}})


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Any of these: immutable, without fields that it does not declare."""

    def as_json(self) -> dict[str, Any]:
        """The document as it is written: dictionaries, lists, strings, numbers and None."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def schema_of(kind: type[Document], title: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a class."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": inspect.getdoc(kind),
        **msgspec.json.schema(kind),
    }
