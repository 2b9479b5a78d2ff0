"""A model behind an embeddings endpoint, as vLLM, TEI, Ollama and llama.cpp serve one (``POST /v1/embeddings``).

``eval_kit run http://localhost:8080/v1 --option model=NAME`` searches with it, as with an object of one's own. A server
that wants a key gets the environment's ``EMBEDDINGS_API_KEY``, which is written nowhere.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from eval_kit.errors import UserError
from eval_kit.models.own import Own

_KEY = "EMBEDDINGS_API_KEY"
_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Endpoint:
    """What is asked of a server: a server says neither how its vectors are compared nor what stands before a text."""

    url: str
    model: str
    similarity: str = "cosine"
    query_prompt: str = ""
    passage_prompt: str = ""
    encode_batch: int = 32

    @property
    def similarity_fn_name(self) -> str:
        """As objects of one's own declare it."""
        return self.similarity

    def encode_query(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector of each query."""
        return self._vectors(self.query_prompt, texts)

    def encode_document(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector of each passage."""
        return self._vectors(self.passage_prompt, texts)

    def _vectors(self, prompt: str, texts: Sequence[str]) -> list[list[float]]:
        vectors, key = [], os.environ.get(_KEY, "")
        for batch in batched(texts, self.encode_batch):
            asked = {"model": self.model, "input": [prompt + text for text in batch]}
            request = Request(f"{self.url.rstrip('/')}/embeddings", json.dumps(asked).encode())
            request.add_header("Content-Type", "application/json")
            if key:
                request.add_unredirected_header("Authorization", f"Bearer {key}")  # for nobody but who was named
            try:
                with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
                    rows = json.load(response)["data"]
            except HTTPError as error:
                said = error.read(300).decode("utf-8", "replace")
                raise UserError(f"HTTP {error.code}: {said.replace(key, '…') if key else said}") from None
            vectors += [row["embedding"] for row in sorted(rows, key=lambda row: row["index"])]
        return vectors


def open_endpoint(url: str, **options: Any) -> Own:
    """The model ``model`` of a server as a retriever, by its address up to ``/v1``."""
    if "@" in url:
        raise UserError("An address with a name or password would be on the card", do=f"Set {_KEY} instead")
    if not options.get("model"):
        raise UserError(f"{url} may serve several models", do="Add --option model=NAME")
    endpoint = Endpoint(url, **options)
    retriever = Own(f"{endpoint.model} at {url}", endpoint)
    retriever.identity += f" {endpoint}"
    retriever.about = "an endpoint" + " (similarity not declared)" * ("similarity" not in options)
    return retriever
