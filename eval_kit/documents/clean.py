"""What 'eval_kit clean --json' writes and 'score --clean' reads."""

from typing import Annotated, Any

from msgspec import Meta

from eval_kit.documents.document import Document, Sha256, Text


class Twin(Document, frozen=True):
    """The queries of a test set that leak, or those that do not."""

    name: Annotated[str, Meta(pattern=r"\.(leaked|clean)$", description="That of the test set with .leaked or .clean.")]
    of: Text
    queries: Annotated[list[Text], Meta(min_length=1)]


class CleanDocument(Document, frozen=True):
    """What 'eval_kit clean --json' writes: leaked and clean queries of each test set, and how many there are."""

    test_sets: list[Twin]
    digest: Annotated[Sha256, Meta(description="Of the release's digest and the test sets.")]
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    provenance: dict[str, Any] = {}
