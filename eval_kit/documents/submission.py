"""What is declared of runs: how their models were trained, and what stands behind a folder of them."""

from typing import Annotated, Literal

from msgspec import Meta

from eval_kit.documents.document import Document, Positive, Sha256, Text, together


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
