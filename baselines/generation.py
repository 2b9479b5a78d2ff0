"""Queries that a T5 writes for the passages of a dataset: for GenQ and docT5query (Thakur et al. 2021, §4).

Each query is drawn by top-k and nucleus sampling, as by BEIR's own generator. Every shard of passages has its own seed
and is kept on disk, so that a generation that was stopped resumes and gives the same queries.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import batched, chain, compress, islice
from pathlib import Path
from typing import Any

import numpy as np

from baselines.options import Recipe
from eval_kit.console import with_count
from eval_kit.errors import UserError
from eval_kit.files import atomic, checkpoint, strict_json
from eval_kit.files.beir import HEADER, read_documents
from eval_kit.files.digests import file_sha256

SHARD = 256
"""Passages whose queries are written to disk before the next ones are generated."""
BATCH = 32
LONGEST_QUERY, LONGEST_PASSAGE = 64, 512
"""Tokens, as in BEIR's generator."""
HELD_OUT = 0.01
"""Share of the passages whose queries form the split ``dev`` instead of ``train``."""

type Document = tuple[str, str, str]


def generate(source: Path, out: Path, recipe: Recipe, seed: int = 0) -> int:
    """Write a folder in BEIR's format: the passages, drawn at random if there are too many, with their queries.

    ``train`` has the queries with their passages, ``dev`` those of a hundredth of the passages. With ``expand`` queries
    are instead a field of their passages, as in BEIR's code, and the dataset's own queries and judgements are kept.

    Args:
        source: a dataset in BEIR's format.
        out: appears whole or not at all.
        recipe: the model, and how queries are drawn from it.
        seed: for drawing passages and queries.

    Returns:
        How many queries were generated; equal queries of a passage count once.

    Raises:
        UserError: ``out`` exists already; a folder not in BEIR's format; a model that cannot be loaded.
    """
    generator = Generator(recipe)
    decides = [recipe.as_json(), checkpoint.digest(recipe.model), seed, file_sha256(source / "corpus.jsonl")]
    work = out.with_name(f".{out.name}.{sha256(json.dumps(decides).encode()).hexdigest()[:16]}.generating")
    with atomic.lock(out):
        if out.exists():
            raise UserError(f"{out}: already exists; remove it to generate again")
        work.mkdir(exist_ok=True)
        documents = with_count(
            _sample(source / "corpus.jsonl", recipe.passages, seed), "generating queries", "passages"
        )
        shards = [
            _shard(work / f"{number:06d}.json", shard, generator, [seed, number])
            for number, shard in enumerate(batched(documents, SHARD))
        ]
        queries = chain.from_iterable(map(strict_json.read, shards))
        pairs = zip(_sample(source / "corpus.jsonl", recipe.passages, seed), queries, strict=True)
        with atomic.folder(out) as staging:
            (staging / "qrels").mkdir()
            count = _write_expanded(pairs, staging, source) if recipe.expand else _write_training(pairs, staging, seed)
        shutil.rmtree(work)
    return count


@dataclass
class Generator:
    """A sequence-to-sequence model by Hub id or folder, which is loaded when it first writes queries."""

    recipe: Recipe

    def queries(self, texts: list[str], seed: list[int]) -> list[list[str]]:
        """The distinct queries drawn for each text; texts of similar length share a batch."""
        import torch

        torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
        queries: list[list[str]] = [[] for _ in texts]
        for rows in batched(order, BATCH):
            samples = iter(self._draw([texts[row] for row in rows]))
            for row in rows:
                of_text = (query.strip() for query in islice(samples, self.recipe.queries))
                queries[row] = list(dict.fromkeys(filter(None, of_text)))
        return queries

    def _draw(self, texts: list[str]) -> list[str]:
        import torch

        tokenizer, model = self._tokenizer_and_model
        cut = {"truncation": True, "max_length": LONGEST_PASSAGE}
        inputs = tokenizer(texts, padding=True, return_tensors="pt", **cut).to(model.device)
        with torch.inference_mode():
            tokens = model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                do_sample=True,
                max_length=LONGEST_QUERY,
                top_k=self.recipe.top_k,
                top_p=self.recipe.top_p,
                num_return_sequences=self.recipe.queries,
            )
        texts_of: list[str] = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return texts_of

    @cached_property
    def _tokenizer_and_model(self) -> tuple[Any, Any]:
        import torch
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        name = self.recipe.model
        with checkpoint.loading(name):
            pin = checkpoint.pinned_commit(name)
            model = AutoModelForSeq2SeqLM.from_pretrained(name, **pin).eval()
            tokenizer = AutoTokenizer.from_pretrained(name, **pin)
        return tokenizer, model.to("cuda" if torch.cuda.is_available() else "cpu")


def _shard(path: Path, documents: Iterable[Document], generator: Generator, seed: list[int]) -> Path:
    """The file with the queries of each document, generated unless it exists."""
    if not path.is_file():
        texts = [f"{title} {text}".strip() for _, title, text in documents]
        atomic.write_text(path, json.dumps(generator.queries(texts, seed)))
    return path


def _sample(corpus: Path, most: int | None, seed: int) -> Iterator[Document]:
    """The documents of a corpus, in its order: all, or ``most`` of them."""
    if most is None:
        return read_documents(corpus)
    count = sum(1 for _ in read_documents(corpus))
    rows = np.random.default_rng(seed).permutation(count)[:most]
    return compress(read_documents(corpus), np.isin(np.arange(count), rows))


def _write_training(pairs: Iterable[tuple[Document, list[str]]], folder: Path, seed: int) -> int:
    held_out = np.random.default_rng([seed, 1])
    count = 0
    with ExitStack() as stack:
        names = ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/dev.tsv")
        files = {name: stack.enter_context((folder / name).open("w", encoding="utf-8")) for name in names}
        for split in ("train", "dev"):
            files[f"qrels/{split}.tsv"].write(f"{HEADER}\n")
        for number, ((passage, title, text), queries) in enumerate(pairs):
            files["corpus.jsonl"].write(_line(_id=passage, title=title, text=text))
            # the first is in dev, which may not be empty
            split = "dev" if number == 0 or held_out.random() < HELD_OUT else "train"
            for query in queries:
                count += 1
                files["queries.jsonl"].write(_line(_id=f"genq{count}", text=query))
                files[f"qrels/{split}.tsv"].write(f"genq{count}\t{passage}\t1\n")
    return count


def _write_expanded(pairs: Iterable[tuple[Document, list[str]]], folder: Path, source: Path) -> int:
    count = 0
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for (passage, title, text), queries in pairs:
            file.write(_line(_id=passage, title=title, text=text, queries=" ".join(queries)))
            count += len(queries)
    shutil.copy(source / "queries.jsonl", folder)
    for judgements in (source / "qrels").glob("*.tsv"):
        shutil.copy(judgements, folder / "qrels")
    return count


def _line(**fields: str) -> str:
    return json.dumps(fields, ensure_ascii=False) + "\n"
