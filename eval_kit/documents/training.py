"""What is declared of a run: how the model that made it was trained."""

from typing import Annotated

from msgspec import Meta

from eval_kit.documents.document import Document, Positive, Text


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
    models: Annotated[
        list[Text],
        Meta(
            description="Names of the models that made the run: rankers, and language models that rewrote its queries "
            "or re-ranked its passages. Where one of them judges the run too, compare marks it as its own judge."
        ),
    ] = []
