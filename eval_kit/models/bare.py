"""Two published bi-encoders that are plain BERT models, whose vectors need more than pooling.

``tct-colbert`` (castorini/tct_colbert-msmarco): the text after ``[CLS] [Q]`` or ``[CLS] [D]`` and without a closing
``[SEP]``, queries filled up to 36 tokens with ``[MASK]``, and the mean of all tokens after the first four; as in
Pyserini's ``TctColBertQueryEncoder`` and ``TctColBertDocumentEncoder``. ``repbert`` (jingtaozhan/RepBERT-Index,
modeling.py): the mean of all tokens, where those of passages are of token type 1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from eval_kit.files import checkpoint
from eval_kit.search.encoders import longest_first
from eval_kit.search.topk import device_of

if TYPE_CHECKING:
    from torch import Tensor

FORMS = ("tct-colbert", "repbert")
_LENGTHS = {
    ("tct-colbert", "query"): 36,
    ("tct-colbert", "document"): 512,
    ("repbert", "query"): 22,
    ("repbert", "document"): 258,
}
_MARKERS = {"query": "[CLS] [Q] ", "document": "[CLS] [D] "}
_MARKER_TOKENS = 4


class Plain:
    """A plain transformer and its tokenizer, moved and asked for its device like a model of sentence-transformers."""

    def __init__(self, model: str, tokenizer: str, revision: str | None, device: str | None, trust: bool) -> None:
        from transformers import AutoModel, AutoTokenizer

        with checkpoint.loading(model):
            of_model = checkpoint.pinned_commit(model, revision)
            of_tokenizer = of_model if tokenizer == model else checkpoint.pinned_commit(tokenizer)
            self._tokenizer = AutoTokenizer.from_pretrained(tokenizer, **of_tokenizer, trust_remote_code=trust)
            self._model = AutoModel.from_pretrained(model, **of_model, trust_remote_code=trust).eval()
        checkpoint.check_tokenizer(tokenizer, self._tokenizer)
        self.to(device_of(device))

    def to(self, where: Any) -> Self:
        """Move to a device, or convert to a data type."""
        self._model.to(where)
        return self

    @property
    def device(self) -> Any:
        """The device that it computes on."""
        return self._model.device


class Bare(Plain):
    """A BERT model with the input and pooling of one of ``FORMS``."""

    def __init__(self, form: str, *plain: Any) -> None:
        super().__init__(*plain)
        self._form = form

    def encode(self, texts: Sequence[str], role: str, batch_size: int, length: int | None = None) -> "Tensor":
        """Vectors (n, d) in the order of the texts, computed longest first."""
        import torch

        vectors: list[Any] = [None] * len(texts)
        for rows in longest_first(list(map(len, texts)), batch_size):
            inputs = self._inputs([texts[row] for row in rows], role, length or _LENGTHS[self._form, role])
            with torch.inference_mode():
                states = self._model(**inputs).last_hidden_state
            skip = _MARKER_TOKENS if self._form == "tct-colbert" else 0
            mask = inputs["attention_mask"][:, skip:, None].to(states.dtype)
            means = (states[:, skip:] * mask).sum(1) / mask.sum(1).clamp(min=1)
            for row, vector in zip(rows, means, strict=True):
                vectors[row] = vector
        return torch.stack(vectors)

    def _inputs(self, texts: list[str], role: str, length: int) -> Any:
        has_markers = self._form == "tct-colbert"
        if has_markers:
            masks = "[MASK]" * length if role == "query" else ""
            texts = [_MARKERS[role] + text + masks for text in texts]
        inputs = self._tokenizer(
            texts,
            max_length=length,
            truncation=True,
            padding=True,
            add_special_tokens=not has_markers,
            return_tensors="pt",
            return_token_type_ids=True,
        ).to(self.device)
        if self._form == "repbert" and role == "document":
            inputs["token_type_ids"].fill_(1)
        return inputs
