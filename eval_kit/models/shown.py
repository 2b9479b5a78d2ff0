"""A model as it will run: what it is, what its texts become, how it computes. Half of all wrong figures show there."""

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import polars as pl
from rich.console import Console

from eval_kit.files import checkpoint
from eval_kit.models.bm25 import Bm25
from eval_kit.models.cross import Cross
from eval_kit.models.encoder import PROMPTS, Encoder, PretrainedModel
from eval_kit.models.opening import KINDS
from eval_kit.results import Result
from eval_kit.search.encoders import ENDLESS, length_of, transformer_of
from eval_kit.tables import terminal
from eval_kit.tables.table import Table, laid_out, text_columns

_FIRST, _LAST = 8, 4
"""Tokens of a text that are shown, from either end."""


@dataclass(frozen=True, repr=False)
class Shown(Result):
    """What runs: lines by what each is about, ``model``, ``texts``, ``precision``, ``query`` or ``passage``."""

    title = "A model, before it runs"

    lines: Mapping[str, str]
    name: str
    provenance: dict[str, Any]

    @property
    def heading(self) -> str:
        """The model's name."""
        return self.name

    def to_polars(self) -> pl.DataFrame:
        """``about`` and ``shown``."""
        return pl.DataFrame({"about": list(self.lines), "shown": list(self.lines.values())})

    def tables(self) -> list[Table]:
        """The lines."""
        return [laid_out(self.to_polars(), text_columns("about", "shown"))]

    def sentences(self) -> list[str]:
        """The lines, each with what it is about."""
        return [f"{about.capitalize()}: {line}" for about, line in self.lines.items()]

    def show(self, console: Console) -> int:
        """Print the lines."""
        terminal.show_notes([self.name, *self.sentences()], console)
        return 0


def lines_of(retriever: Any, *examples: str, remark: str) -> dict[str, str]:
    """What runs: the lines of :class:`Shown`, with a query and a passage as the model reads them.

    Warns:
        UserWarning: a model whose vector is that of the last token, where that is no end token.
    """
    if isinstance(retriever, Bm25):
        return {"model": f"BM25 by Lucene, k1 {retriever.k1}, b {retriever.b}"}
    if not isinstance(retriever, PretrainedModel):
        return {"model": str(retriever)}
    roles = list(PROMPTS) if isinstance(retriever, Encoder) else ["query"]
    chains = list(dict.fromkeys(_chain(retriever.of_role(role), _source(retriever, role)) for role in roles[::-1]))
    kind = next(name for name, architecture in KINDS.items() if architecture == retriever.architecture)
    declared = "" if getattr(retriever, "similarity", None) else getattr(retriever, "declared", ("", ""))[1]
    compared_by = f"{retriever.compared_by}{f' ({declared})' * bool(declared)}"
    lines = {"model": f"{kind}: {'; for queries '.join(chains)}; {compared_by}"}
    is_bare = not any(map(retriever.prompt, PROMPTS))
    lines["texts"] = "; ".join([*(_wording(retriever, role) for role in PROMPTS), *["no prompts"] * is_bare])
    if "LogitScore" in chains[0] and not getattr(retriever.of_role("query").tokenizer, "chat_template", None):
        lines["texts"] += ", no template"
    lines["precision"] = "; ".join(filter(None, (retriever.precision, remark)))
    for role, text in zip(roles, examples, strict=False):
        about = "pair" if isinstance(retriever, Cross) else role.replace("document", "passage")
        if line := _tokens(retriever, role, text, examples[-1]):
            lines[about] = line
    if said := dict.fromkeys(chain.from_iterable(getattr(retriever.of_role(role), "said", ()) for role in roles)):
        lines["sentence-transformers"] = "; ".join(said)
    return lines


def _source(retriever: Any, role: str) -> str:
    """Where the pooling of a model comes from."""
    name = (getattr(retriever, "query_model", None) if role == "query" else None) or retriever.model
    is_saved = retriever.loaded is not None or checkpoint.modules(name, retriever.revision_of(name))
    return "as asked" if getattr(retriever, "pooling", None) else "its own" if is_saved else "made by the library"


def _chain(modules: Iterable[Any], source: str) -> str:
    """What a text goes through."""
    return " → ".join(_said(module, source) for module in modules)


def _said(module: Any, source: str) -> str:
    if routes := getattr(module, "sub_modules", None):  # of a Router
        return "; ".join(f"{role}: {_chain(routes[role], source)}" for role in routes)
    name = type(module).__name__
    if name in ("SpladePooling", "LogitScore"):
        return f"{name} ({', '.join([*filter(None, [getattr(module, 'pooling_strategy', '')]), source])})"
    if name == "Pooling":
        return f"{module.pooling_mode} pooling ({source}){' without the prompt' * (not module.include_prompt)}"
    inner: Any = getattr(module, "model", None)
    if hasattr(inner, "config"):
        is_packed = any("quant" in type(one).__module__ for one in inner.modules())
        adapted = " with an adapter" * bool(getattr(inner, "_hf_peft_config_loaded", False))
        return f"{type(inner).__name__}{adapted}{', quantised' * is_packed}"
    return f"{name} to {module.out_features}" if hasattr(module, "out_features") else name


def _wording(retriever: PretrainedModel, role: str) -> str:
    """What stands before and after a text, and after how many tokens it is cut."""
    prompt, suffix = retriever.prompt(role), getattr(retriever, PROMPTS[role][1])
    word = role.replace("document", "passage")
    parts = [json.dumps(prompt, ensure_ascii=False) if prompt else "", word]
    parts.append(json.dumps(suffix, ensure_ascii=False) if suffix else "")
    length = length_of(retriever.of_role(role), role) or math.inf
    return " + ".join(filter(None, parts)) + (f", at most {length:,} tokens" if length < ENDLESS else ", whole")


def _tokens(retriever: Any, role: str, text: str, passage: str) -> str:
    """The tokens that a text, or a pair of texts, becomes; empty for a model that tells none."""
    model, seen = retriever.of_role(role), list[Any]()
    hook = model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].get("input_ids")))
    try:
        if isinstance(retriever, Cross):
            retriever.scores([(text, passage)])
        else:
            (retriever.encode_queries if role == "query" else retriever.encode_passages)([text])
    finally:
        hook.remove()
    tokenizer: Any = getattr(transformer_of(model, role), "tokenizer", None)
    if not seen or not hasattr(seen[0], "tolist") or not hasattr(tokenizer, "get_vocab"):
        return ""
    ids = seen[0].flatten().tolist()
    if hasattr(tokenizer, "id_to_token"):
        tokens = list(map(tokenizer.id_to_token, ids))
    else:
        tokens = tokenizer.convert_ids_to_tokens(ids)
        is_last = any("lasttoken" in str(getattr(module, "pooling_mode", "")) for module in model.modules())
        if is_last and ids[-1] not in tokenizer.all_special_ids and not getattr(retriever, PROMPTS[role][1]):
            hint = f"no end token, unless --option {PROMPTS[role][1]}={tokenizer.eos_token or 'TOKEN'} adds one"
            warnings.warn(f"{retriever.model} takes the vector of {tokens[-1]!r}, {hint}", stacklevel=3)
    shown = tokens if len(tokens) <= _FIRST + _LAST else [*tokens[:_FIRST], "…", *tokens[-_LAST:]]
    return f"{' '.join(shown)} ({len(tokens):,} tokens)"
