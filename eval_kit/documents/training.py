"""What is declared of a run: how the model that made it was trained."""

from typing import Annotated

from msgspec import Meta

from eval_kit.documents.document import Count, Document, Positive, Sha256, Text


class Compared(Document, frozen=True):
    """Training queries whose texts were compared with the test queries of a release."""

    source: Annotated[Text, Meta(description="The file or folder; one of training_data.")]
    queries: Annotated[Positive, Meta(description="How many training queries of different texts it has.")]
    sha256: Annotated[Sha256, Meta(description="Of these texts, sorted, each on its line.")]
    release: Annotated[Sha256, Meta(description="Digest of the release.")]
    test_sets: Annotated[
        dict[Text, Count],
        Meta(description="Of each test set, how many queries have the text of one, but for case and punctuation."),
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
    compared: Annotated[
        Compared | None, Meta(description="What eval_kit run --trained-on found; it decides on these test sets.")
    ] = None
