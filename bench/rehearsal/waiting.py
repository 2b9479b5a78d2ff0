"""How long a GPU would wait for token ids: what it takes, as assumed in :mod:`bench.cost`, and what it is fed."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench import feeding
from bench.cost import ASSUMED

SECONDS = 10.0
QUERY = "what is the best of all"
LOADERS = 2
"""Processes that feed a training; encoding and re-ranking make a batch while the GPU has the one before."""
TAKES = {
    "train biencoder": ("passages", LOADERS, 2 * ASSUMED["train biencoder"]["samples_per_second"]),
    "train splade": ("passages", LOADERS, 2 * ASSUMED["train splade"]["samples_per_second"]),
    "train colbert": ("passages", LOADERS, 2 * ASSUMED["train colbert"]["samples_per_second"]),
    "train monobert": ("pairs", 1, 3 * ASSUMED["train monobert"]["samples_per_second"]),
    "encode biencoder": ("passages", 1, ASSUMED["encode biencoder"]["passages_per_second"]),
    "encode colbert": ("passages", 1, ASSUMED["encode colbert"]["passages_per_second"]),
    "re-ranking": ("pairs", 1, ASSUMED["re-rank"]["pairs_per_second"]),
}
"""Of each stage: in what it is fed, by how many processes, and how many a second the GPU takes."""


def measured(texts: Any, backbone: str) -> dict[str, float]:
    """Passages and pairs a second that processes without a model make batches of, drawn from all passages."""
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from baselines.architectures import token_ids

    encoder, cross = SentenceTransformer(backbone, device="cpu"), CrossEncoder(backbone, num_labels=1, device="cpu")
    encoder[0].document_length = feeding.LENGTH
    stored = token_ids.stored(encoder, texts)
    token_ids.stored(cross, texts)
    ids = np.random.default_rng(13).integers(len(texts), size=1_000_000).astype(str).tolist()

    def pairs(chosen: list[str]) -> Any:
        return cross.preprocess([(QUERY, passage) for passage in stored.of(chosen)])

    def passages(chosen: list[str]) -> Any:
        return encoder.preprocess(stored.of(chosen), task="document")

    feeds = {"passages": passages, "pairs": pairs}
    return {
        f"{what} from {processes}": round(feeding.rate(feeds[what], ids, SECONDS, processes), 1)
        for what, processes in sorted({(what, processes) for what, processes, _ in TAKES.values()})
    }


def markdown(fed: Mapping[str, float]) -> str:
    """One line a stage: what an H100 is assumed to take a second, what it is fed, and the share of time it waits."""
    lines = ["| stage | taken a second (assumed) | fed a second (measured) | waits |", "|---|---:|---:|---:|"]
    for name, (what, processes, takes) in TAKES.items():
        feeds = fed[f"{what} from {processes}"]
        lines.append(f"| {name} | {takes:,.0f} {what} | {feeds:,.0f} | {max(0.0, 1 - feeds / takes):.0%} |")
    return "\n".join(lines)
