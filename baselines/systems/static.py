"""Static bi-encoder: the mean of a text's learnt word vectors, compared by cosine; no paper's system.

It is sentence-transformers' StaticEmbedding. A text costs one look-up a word, so that a processor trains and searches
in minutes what takes a transformer hours.
"""

from functools import partial
from itertools import batched, islice
from typing import Any

from baselines.cell import Cell
from baselines.options import Static
from baselines.training.backbone import loading, transformer
from baselines.training.trainer import Trainee, train_by
from eval_kit.errors import UserError
from eval_kit.models import opening
from eval_kit.search.passages import passages
from eval_kit.search.retriever import Passages

TITLE = "static bi-encoder, means of word vectors compared by cosine"
COUNTED, AT_ONCE = 100_000, 1_000
"""Passages that the rarity of words is counted in, and how many of them are tokenised together.

No experiment chose them: a word that 100,000 passages lack is as rare as weights need to know.
"""


def build(cell: Cell, queries: list[str], mini_batch: int | None) -> Trainee:
    """Learn from in-batch and hard negatives, from the backbone's words and their vectors without its layers."""
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    if mini_batch is not None:  # GradCache cuts batches by rows, and an EmbeddingBag's batch has no row a text
        raise UserError(f"The GPU's memory is too small for a batch of {cell.name.file}", do="Lower batch_size")
    with loading(cell):
        backbone = transformer(cell, queries)
    vectors = backbone.model.get_input_embeddings().weight.detach().clone()
    vectors *= _rarity(backbone.tokenizer, passages(cell.release))[:, None]
    words = StaticEmbedding(backbone.tokenizer, embedding_weights=vectors)
    model = SentenceTransformer(modules=[words], similarity_fn_name="cosine")
    loss = MultipleNegativesRankingLoss(model, scale=cell.options_as(Static).scale)
    return Trainee(SentenceTransformerTrainer, model, loss)


def _rarity(tokenizer: Any, passages: Passages) -> Any:
    """Each token's inverse document frequency among the first passages, 1 on average: (tokens,).

    A word's weight in a mean of vectors is the length of its vector; without this, training starts from "the".
    """
    import torch

    frequency = torch.zeros(len(tokenizer))
    count = 0
    for batch in batched(islice(passages, COUNTED), AT_ONCE):
        for tokens in tokenizer([text for _, text in batch], add_special_tokens=False)["input_ids"]:
            frequency[sorted(set(tokens))] += 1
        count += len(batch)
    rarity = torch.log1p(count / (1 + frequency))
    return rarity / rarity.mean()


retriever = partial(opening.retriever, "dense")
train = partial(train_by, build, retriever)
