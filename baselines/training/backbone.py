"""The model that training starts from: a named pretrained transformer, its untrained shape, or a small generated one.

The small one is a BERT for a laptop. Its vocabulary is whole words (those of the passages and of the cell's own
training queries), and its weights are drawn so that words match themselves from the beginning: token vectors are random
and so nearly orthogonal; attention passes them on unchanged, with half of its heads looking for the same word elsewhere
and the other half taking the mean of all; the second text of a pair is marked, so that a word found in both stands out;
the head for masked words starts as the identity, with a bias that lets no other word through.
"""

import contextlib
import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from baselines.cell import Cell
from baselines.options import SmallBackbone, Trained
from eval_kit.files import atomic, checkpoint
from eval_kit.search.encoders import check_length
from eval_kit.search.passages import collection_key, passages

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_POSITIONS = 128
"""Longest text in tokens: mini's passages have 60 words at most, its queries 12."""
SEED = 13
"""Of the weights of all small backbones, so that cells differ by their training alone; any other would do."""


def backbone(cell: Cell, texts: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """The transformer that a cell's training starts from.

    A small backbone's vocabulary includes the words of the ``texts``, those of the training queries. Returns name or
    folder, and the arguments that make the libraries load one commit of it.
    """
    options = cell.options_as(Trained)
    name = options.backbone
    if isinstance(name, SmallBackbone):
        return _with_words(_small(cell, name), texts, _own_folder(cell)), {}
    commit = cell.commit("backbone")
    pin = dict(checkpoint.pinned_commit(name, commit))
    checkpoint.kind(name, commit)  # raises if there is none
    return (_bare(cell, name, pin), {}) if options.random_weights else (name, pin)


def transformer(cell: Cell, texts: Iterable[str], **options: Any) -> Any:
    """The :func:`backbone` as a sentence-transformers module with the cell's lengths, which gets the other options."""
    from sentence_transformers.base.modules import Transformer

    name, pin = backbone(cell, texts)
    training_options = cell.options_as(Trained)
    lengths = {"query_length": training_options.query_length, "document_length": training_options.passage_length}
    module = Transformer(name, model_kwargs=pin, processor_kwargs=pin, config_kwargs=pin, **lengths, **options)
    check_length(module, max(training_options.query_length or 0, training_options.passage_length or 0))
    return module


@contextlib.contextmanager
def loading(cell: Cell) -> Iterator[None]:
    """Load the cell's backbone without warnings about missing heads; a failure becomes one sentence."""
    backbone_name = cell.options_as(Trained).backbone
    with checkpoint.loading(backbone_name if isinstance(backbone_name, str) else "the small backbone", unused=""):
        yield


def _own_folder(cell: Cell) -> Path:
    return cell.folder / "training" / "backbone"


def _bare(cell: Cell, name: str, pin: Mapping[str, Any]) -> str:
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

    folder = _own_folder(cell)
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(name, **pin))  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(name, **pin).save_pretrained(folder)
    return str(folder)


def _small(cell: Cell, sizes: SmallBackbone) -> Path:
    """The small backbone, made once for a release and shared by the cells of a grid."""
    key = hashlib.sha256(json.dumps([collection_key(cell.release), sizes.as_json(), SEED]).encode()).hexdigest()[:16]
    folder = cell.root / "backbones" / key
    with atomic.lock(folder):
        if not folder.exists():
            words = _words(text for _, text in passages(cell.release))
            letters = sorted(set(chain.from_iterable(words)))
            tokens = dict.fromkeys(chain(SPECIAL, letters, map("##{}".format, letters), words))
            tokenizer = _tokenizer({token: number for number, token in enumerate(tokens)})
            model = _random_model(len(tokenizer), sizes)
            with atomic.folder(folder) as staging:
                model.save_pretrained(staging)
                tokenizer.save_pretrained(staging)
    return folder


def _words(texts: Iterable[str]) -> list[str]:
    """The words that BERT's tokenizer reads in the texts, sorted."""
    from transformers import BertTokenizer

    reader = BertTokenizer().backend_tokenizer
    words: set[str] = set()
    for text in texts:
        words.update(word for word, _ in reader.pre_tokenizer.pre_tokenize_str(reader.normalizer.normalize_str(text)))
    return sorted(words)


def _tokenizer(vocabulary: Mapping[str, int]) -> Any:
    """A tokenizer of whole words, which splits other words into letters."""
    from transformers import BertTokenizer

    return BertTokenizer(vocab=dict(vocabulary), model_max_length=_POSITIONS)


def _random_model(vocabulary: int, sizes: SmallBackbone) -> Any:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    width = sizes.width
    spread = 1 / math.sqrt(width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = BertForMaskedLM(
            BertConfig(
                vocab_size=vocabulary,
                hidden_size=width,
                num_hidden_layers=sizes.layers,
                num_attention_heads=sizes.heads,
                intermediate_size=2 * width,
                max_position_embeddings=_POSITIONS,
                initializer_range=spread / 2,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )
        with torch.no_grad():
            _as_matcher(model, spread)
    return model


def _as_matcher(model: Any, spread: float) -> None:
    """Overwrite the weights that decide whether words match themselves.

    What the numbers must reach is in ``tests/baselines/training/test_backbone.py``: a word comes through as itself, and
    is near to itself in another text.
    """
    from torch.nn.init import eye_, normal_, orthogonal_

    embeddings = model.bert.embeddings
    normal_(embeddings.word_embeddings.weight, 0, spread)
    normal_(embeddings.position_embeddings.weight, 0, spread / 10)
    embeddings.token_type_embeddings.weight[0] = 0
    normal_(embeddings.token_type_embeddings.weight[1], 0, spread)
    for layer in model.bert.encoder.layer:
        attention = layer.attention.self
        orthogonal_(attention.query.weight)
        attention.query.weight.mul_(1.5)
        attention.query.weight[: len(attention.query.weight) // 2] *= 0.05
        attention.key.weight.copy_(attention.query.weight)
        eye_(attention.value.weight)
        eye_(layer.attention.output.dense.weight)
        layer.attention.output.dense.weight.mul_(0.3)
    head = model.cls.predictions
    eye_(head.transform.dense.weight)
    head.transform.dense.bias.fill_(4)  # where GELU is linear; the norm that follows removes it again
    head.bias.fill_(-4)


def _with_words(base: Path, texts: Iterable[str], folder: Path) -> str:
    """The backbone with its vocabulary extended by the texts' words, each with its own vector."""
    import torch
    from transformers import AutoTokenizer, BertForMaskedLM

    model: Any = BertForMaskedLM.from_pretrained(base)
    vocabulary = AutoTokenizer.from_pretrained(base).get_vocab()
    for word in _words(texts):
        vocabulary.setdefault(word, len(vocabulary))
    before = model.config.vocab_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model.resize_token_embeddings(len(vocabulary), mean_resizing=False)
        with torch.no_grad():
            model.get_input_embeddings().weight[before:].normal_(0, 1 / math.sqrt(model.config.hidden_size))
            model.cls.predictions.bias[before:] = -4
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    _tokenizer(vocabulary).save_pretrained(folder)
    return str(folder)
