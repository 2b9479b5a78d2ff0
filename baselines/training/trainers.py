"""sentence-transformers' trainers without its model card, which reads examples and is written at every checkpoint."""

from typing import Any

from sentence_transformers import (
    CrossEncoderTrainer,
    MultiVectorEncoderTrainer,
    SentenceTransformerTrainer,
    SparseEncoderTrainer,
)


class WithoutCard:
    """What the trainers below do otherwise than the library's."""

    model: Any
    args: Any

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add none."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        self.model.save_pretrained(output_dir or self.args.output_dir, create_model_card=False)


class DenseTrainer(WithoutCard, SentenceTransformerTrainer):
    """Of bi-encoders."""


class SparseTrainer(WithoutCard, SparseEncoderTrainer):
    """Of SPLADE."""


class MultiVectorTrainer(WithoutCard, MultiVectorEncoderTrainer):
    """Of ColBERT."""


class CrossTrainer(WithoutCard, CrossEncoderTrainer):
    """Of monoBERT."""
