"""Checkpoints of each architecture with two layers of random weights, made once a session."""

import functools
import string
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi chi "
    "psi omega"
)
WORDS = GREEK.split()
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES = {"intermediate_size": 64, "num_attention_heads": 2, "max_position_embeddings": 128}
_FOLDER = tempfile.TemporaryDirectory(prefix="tiny-checkpoints-")


def texts(number: int, seed: int, longest: int = 30) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(2, longest))) for _ in range(number)]


def passages(number: int, seed: int = 0) -> list[tuple[str, str]]:
    return [(f"p{place}", text) for place, text in enumerate(texts(number, seed))]


@functools.cache
def tiny(name: str) -> Path:
    """``bert``, ``masked`` and ``classes`` are plain transformers; the others are called as the architectures."""
    from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
    from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, set_seed

    folder = Path(_FOLDER.name) / name
    wrapped = {
        "dense": ("bert", SentenceTransformer),
        "sparse": ("masked", SparseEncoder),
        "multivector": ("bert", MultiVectorEncoder),
        "cross": ("one-class", CrossEncoder),
    }
    if name in wrapped:
        plain, architecture = wrapped[name]
        set_seed(13)
        architecture(str(tiny(plain))).save(str(folder), create_model_card=False)
        return folder
    vocabulary = [*SPECIAL, *WORDS, "[", "]", "d", "q"]
    save_tokenizer(vocabulary, folder)
    set_seed(13)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, **SIZES, "vocab_size": len(vocabulary)}
    config = BertConfig(**sizes, initializer_range=0.3, num_labels=1 if name == "one-class" else 3)
    kinds = {"bert": BertModel, "masked": BertForMaskedLM}
    kinds.get(name, BertForSequenceClassification)(config).save_pretrained(folder)
    return folder


def bag_of_word_pieces(texts: Iterable[str], folder: Path) -> Path:
    """A bi-encoder whose vectors are means of a random vector for each word piece, after one look at its neighbours.

    Its vocabulary is real: every word of the texts, and the letters that all other words fall apart into.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel, set_seed

    words = sorted({word for text in texts for word in text.lower().split()})
    letters = string.ascii_lowercase + string.digits
    pieces = [*letters, *(f"##{letter}" for letter in letters)]
    vocabulary = list(dict.fromkeys([*SPECIAL, *pieces, *words]))
    bare = folder / "bare"
    save_tokenizer(vocabulary, bare)
    set_seed(13)
    model = BertModel(BertConfig(vocab_size=len(vocabulary), hidden_size=256, num_hidden_layers=1, **SIZES))
    with torch.no_grad():
        model.embeddings.position_embeddings.weight.zero_()
        model.embeddings.token_type_embeddings.weight.zero_()
    model.save_pretrained(bare)
    SentenceTransformer(str(bare)).save(str(folder / "dense"))
    return folder / "dense"


def save_tokenizer(vocabulary: list[str], folder: Path) -> None:
    from transformers import BertTokenizerFast

    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
