"""Identify a checkpoint before it is loaded: its architecture, and the digest of its weights.

sentence-transformers silently turns a model of one architecture into another and draws missing weights at random; here
that is refused.
"""

import functools
import hashlib
import logging
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError, first_line
from eval_kit.files import hub, strict_json
from eval_kit.files.digests import file_sha256

_SAVED_AS = {
    "SentenceTransformer": "dense",
    "SparseEncoder": "sparse",
    "MultiVectorEncoder": "multivector",
    "ColBERT": "multivector",
    "CrossEncoder": "cross",
}
_WORDS = {
    "dense": "a dense encoder (SentenceTransformer)",
    "sparse": "a sparse encoder (SparseEncoder or masked language model)",
    "multivector": "a late-interaction encoder (MultiVectorEncoder or ColBERT)",
    "cross": "a cross-encoder (sequence classification)",
    "masked": "a masked language model",
    "transformer": "a bare transformer",
    "causal": "a generative language model",
    "seq2seq": "a generative model of text to text, as monoT5 is",
}
_GENERATIVE = {"ForCausalLM": "causal", "ForConditionalGeneration": "seq2seq"}
BARE = {"masked", "transformer", *_GENERATIVE.values()}
"""Kinds that make no vectors until their pooling is known."""
_ADAPTER = "adapter_config.json"
_OF_ADAPTERS = {"FEATURE_EXTRACTION": "transformer", "SEQ_CLS": "cross", "CAUSAL_LM": "causal"}
"""Kinds that PEFT's task types show; of another one, an adapter is what its base is."""
_TASKS: dict[str, Any] = {"CrossEncoder": "sequence-classification", "SparseEncoder": "fill-mask"}
"""What transformers calls the task of an adapter's model, by the class of sentence-transformers."""
_FIRST_TOKEN = ":cls"
"""Ends a name whose vectors are the first token's last hidden state, as ECIR 2023 and arXiv 2205.02870 §3.1 take it."""
_MODULES = {
    "pylate.": "multivector",
    ".multi_vector_encoder.": "multivector",
    ".sparse_encoder.": "sparse",
    ".cross_encoder.": "cross",
}
"""Parts of the names of modules, and the architecture that they show."""
# transformers has no way to refuse missing weights; what it logs of them is all there is
_MISSING = re.compile(r"^(\S.*?)\s*\|\s*(?:\x1b\[[\d;]*m)*MISSING", re.M)


def name_and_pooling(name: str) -> tuple[str, str | None]:
    """A model's Hub id or folder, and the pooling that its user asks for: ``cls`` of ``NAME:cls``, else None."""
    bare = name.removesuffix(_FIRST_TOKEN)
    return bare, "cls" if bare != name else None


def check(model: str, architecture: str, revision: str | None = None, bare: bool = False) -> None:
    """Refuse a checkpoint of another architecture.

    ``architecture`` is ``dense``, ``sparse``, ``multivector`` or ``cross``; ``bare``: a plain transformer will do,
    because the caller knows its pooling.
    """
    kinds = {architecture: BARE} if bare else {"sparse": {"masked"}, "cross": {"causal"}}
    actual = kind(model, revision)
    if actual == architecture or actual in kinds.get(architecture, set()):
        return
    named = modules(model, revision) if (actual, architecture) == ("dense", "multivector") else ""
    is_said = bool(_json(model, "config_sentence_transformers.json", revision).get("model_type"))
    if "Dense" in named and "Pooling" not in named and not is_said:  # a head for tokens, as PyLate's first
        return
    could_be_pooled = architecture == "dense" and actual in BARE
    hint = ". Name its pooling to use it as one" if could_be_pooled else ""
    raise UserError(f"{model} is {_WORDS[actual]}, but this needs {_WORDS[architecture]}{hint}")


def kind(model: str, revision: str | None = None) -> str:
    """What a checkpoint is, from its files.

    Returns the architecture that sentence-transformers saved it as, or that its head shows: ``dense``, ``sparse``,
    ``multivector``, ``cross``; failing these, ``masked`` (a masked language model, as some SPLADE checkpoints are),
    ``causal`` or ``seq2seq`` (generative ones) or ``transformer``.
    """
    settings = _json(model, "config_sentence_transformers.json", revision)
    saved_as, named = _SAVED_AS.get(str(settings.get("model_type"))), modules(model, revision)
    if not named and saved_as != "cross" and (saved_as or "__version__" in settings):
        raise UserError(f"Could not load {model}", "sentence-transformers saved it, but its modules.json is missing")
    if saved_as or named:
        return saved_as or next((kind for part, kind in _MODULES.items() if part in named), "dense")
    config, adapter = (_json(model, name, revision) for name in ("config.json", _ADAPTER))
    if adapter and not config:
        task, base = str(adapter.get("task_type")), str(adapter.get("base_model_name_or_path"))
        if Path(base).resolve() == Path(model).resolve():
            raise UserError(f"{model} is an adapter that names itself as its base")
        return _OF_ADAPTERS.get(task) or kind(base, adapter.get("revision"))
    if _is_model2vec(model, config, revision):
        return "dense"
    if not config:
        raise _absent(model)
    name = _class_name(config)
    if name == "HF_ColBERT":
        return "multivector"
    if name.endswith("ForSequenceClassification"):
        return "cross"
    generative = next((kind for end, kind in _GENERATIVE.items() if name.endswith(end)), "transformer")
    return "masked" if name.endswith("ForMaskedLM") else generative


def modules(model: str, revision: str | None) -> str:
    """The text of the file that names the modules of a model of sentence-transformers; empty where there is none."""
    file = _file(model, "modules.json", revision)
    return file.read_text(encoding="utf-8", errors="replace") if file else ""


def _is_model2vec(model: str, config: Mapping[str, Any], revision: str | None) -> bool:
    """Whether the files are word vectors of model2vec, which until January 2025 saved no ``modules.json``."""
    if name := _class_name(config):
        return name == "StaticModel"
    weights = _file(model, "model.safetensors", revision)
    if weights is None or "model_type" in config:
        return config.get("model_type") == "model2vec"
    return "embeddings" in _tensors(weights)


def _tensors(file: Path) -> list[str]:
    """The names of the tensors in a file; none in a damaged one, which loading will say."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "numpy") as tensors:
            return list(tensors.keys())
    except SafetensorError:
        return []


def labels(model: str, revision: str | None = None) -> int:
    """The scores that a cross-encoder gives each pair, from its config."""
    config = _json(model, "config.json", revision)
    if not _class_name(config).endswith("ForSequenceClassification"):
        return 1
    return len(config.get("id2label") or ()) or int(config.get("num_labels", 2))  # which transformers leaves out


def check_labels(model: str, scores: int, label: int | None = None) -> None:
    """Refuse a cross-encoder that gives a pair more than one score, but for one of whose labels one is chosen."""
    if scores != 1 if label is None else not 0 <= label < scores:
        how = "A re-ranker gives one. In eval_kit run, --option label=1 takes the log-probability of the second"
        raise UserError(f"{model} gives {scores} scores for a pair", how)


def _class_name(config: Mapping[str, Any]) -> str:
    architectures = config.get("architectures")
    return str(architectures[0]) if isinstance(architectures, list) and architectures else ""


def kind_of_object(model: Any) -> str | None:
    """The architecture of a model of sentence-transformers in memory; None for any other object.

    Also for a dense model in a class of the user's own, which may encode otherwise.
    """
    for one in type(model).__mro__:
        if one.__module__.startswith("sentence_transformers.") and (kind := _SAVED_AS.get(one.__name__)):
            return None if kind == "dense" and one is not type(model) else kind
    return None


def check_start(model: str) -> None:
    """Refuse what no training can start from: what is not there, or is no transformer, such as word vectors alone."""
    if kind(model) and not _json(model, "config.json", None):
        raise UserError(f"{model} is not a transformer", "A training starts from a transformer")


def digest(model: str, revision: str | None = None) -> str:
    """Identifies the weights: the commit of a model on the Hub, or the sha256 of a folder's files except its card.

    Folders that are linked count too, and so does the model that an adapter is for.
    """
    folder = Path(model)
    if not folder.is_dir():
        names = ("config.json", "modules.json", _ADAPTER)
        path = next(filter(None, (_file(model, name, revision) for name in names)), None)
        if path is None:
            raise _absent(model)
        adapters = [file for file in [_file(model, _ADAPTER, revision)] if file]
        parts = [path.parent.name]
    else:
        files = sorted(file for file in _files(folder) if file.suffix != ".md")
        adapters = [file for file in files if file.name == _ADAPTER]
        parts = [f"{file.relative_to(folder).as_posix()} {file_sha256(file)}" for file in files]
    for file in adapters:
        base = strict_json.read(file)
        if isinstance(base, dict) and (name := str(base.get("base_model_name_or_path") or "")) not in ("", model):
            with suppress(UserError):  # loading will say it, if it is needed
                parts.append(digest(name, base.get("revision")))
    return (
        parts[0] if len(parts) == 1 and not folder.is_dir() else hashlib.sha256("\n".join(parts).encode()).hexdigest()
    )


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder, in linked folders too; one that links to a folder above it is left out."""
    for file in folder.iterdir():
        if file.is_file():
            yield file
        elif file.is_dir() and not folder.resolve().is_relative_to(file.resolve()):
            yield from _files(file)


def card(model: str) -> Path | None:
    """The file of the model's card; None where it has none, or the Hub does not answer."""
    try:
        return _file(model, "README.md", None)
    except UserError:
        return None


@functools.cache
def pinned_commit(model: str, revision: str | None = None) -> Mapping[str, Any]:
    """The arguments that make the libraries load one commit of a model, the Hub's current one.

    If the Hub does not answer, the model is taken from the local cache, if it is there.

    Warns:
        UserWarning: why the Hub's commit is unknown, unless ``HF_HUB_OFFLINE`` is set.
    """
    if Path(model).is_dir() or _is_path(model):
        return {}
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled

    try:
        return {"revision": HfApi().model_info(model, revision=revision).sha}
    except (HFValidationError, OfflineModeIsEnabled):
        pass
    except Exception as error:  # an unreachable Hub raises errors of every kind
        if (why := hub.reason(error)) is None:
            raise
        if revision is None:  # a cached copy may be of an older commit
            warnings.warn(f"The kit takes {model} from the local cache, if it is there. {why}", stacklevel=2)
    return {"revision": revision, "local_files_only": True}


@contextmanager
def loading(model: str, unused: str | None = None) -> Iterator[list[str]]:
    """Silence the libraries, and turn whatever they raise on a damaged checkpoint into one sentence.

    ``unused`` is how the names of weights begin that the model may lack. Others would be drawn at random, and are
    refused; a start of a training may lack any. Yields what sentence-transformers warned of, once the model is loaded.
    """
    from transformers.utils import logging as transformers_logging

    bar, level = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    library = logging.getLogger("sentence_transformers")
    before, said = library.propagate, BufferingHandler(sys.maxsize)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers_logging.set_verbosity_warning()  # type: ignore[no-untyped-call]
    transformers_logging.disable_default_handler()
    transformers_logging.add_handler(said)
    library.propagate = False
    library.addHandler(said)
    try:
        yield (warned := list[str]())
    except Exception as error:  # transformers, safetensors and tokenizers each have their own errors
        why = first_line(error)
        if "trust_remote_code" in str(error):
            why = "It runs its own code. To allow that in eval_kit run, add --option trust_remote_code=true"
        raise UserError(f"Could not load {model}", why) from error
    finally:
        library.removeHandler(said)
        library.propagate = before
        transformers_logging.remove_handler(said)
        transformers_logging.enable_default_handler()
        transformers_logging.set_verbosity(level)
        if bar:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
    heard = (each for each in said.buffer if each.name.startswith(library.name) and each.levelno >= logging.WARNING)
    warned.extend(each.getMessage().partition("\n")[0] for each in heard)
    missing = [name for record in said.buffer for name in _MISSING.findall(record.getMessage())]
    missing = [name for name in missing if unused is None or not name.startswith(unused)]
    if missing and (adapter := _file(model, "adapter_model.safetensors", None)):  # may hold the head of a bare base
        missing = [name for name in missing if not any(key.endswith(f".{name}") for key in _tensors(adapter))]
    if missing:
        raise UserError(f"Could not load {model}", f"Its files lack weights, such as {min(missing)}")


def open_model(
    model: str,
    library_class: str,
    revision: str | None = None,
    pooling: str | None = None,
    dtype: str | None = None,
    **options: Any,
) -> Any:
    """A model of a class of sentence-transformers; its files have to be whole.

    ``pooling`` says how token vectors become one (``cls``, ``mean``): of a bare transformer, or in place of a model's
    own. ``dtype`` is of the weights, but for those that transformers keeps in 32 bits; None for the files' own.
    """
    import sentence_transformers
    import torch

    made = getattr(sentence_transformers, library_class)
    is_pooled = library_class == "CrossEncoder" or "pooler_output" in str(
        _json(model, "sentence_bert_config.json", revision)
    )
    with loading(model, unused=None if is_pooled else "pooler.") as said:
        pin = {**pinned_commit(model, revision), **options}
        of_weights = {"dtype": getattr(torch, dtype)} if dtype else {}
        if (modules := _unsaved_modules(model, revision, library_class, pooling, pin, of_weights)) is not None:
            opened = made(modules=modules, similarity_fn_name="dot") if pooling else made(modules=modules)
        else:
            opened = made(model, model_kwargs=of_weights, **pin)
            _refuse_drawn(model, opened, revision)
            if pooling:
                _pool_by(pooling, opened)
        _pad(model, opened)
        _try(opened)
    check_tokenizer(model, getattr(opened, "tokenizer", None))
    opened.said = said
    return opened


def _refuse_drawn(model: str, opened: Any, revision: str | None) -> None:
    """Refuse modules with weights that no file names: the library makes them, and draws the weights at random."""
    from sentence_transformers.base.modules import Router, Transformer

    is_of_colbert = _class_name(_json(model, "config.json", revision)) == "HF_ColBERT"
    named = "Dense" if is_of_colbert else modules(model, revision)
    for module in opened:
        name, is_known = type(module).__name__, isinstance(module, Router | Transformer)
        if not is_known and name not in named and next(module.parameters(), None) is not None:
            raise ValueError(f"Its files lack the module {name}, whose weights would be drawn at random")


def _pad(model: str, opened: Any) -> None:
    """Give a tokenizer without a padding token one that stands at no text's end; it reaches no vector."""
    tokenizer: Any = getattr(opened, "tokenizer", None)
    if hasattr(tokenizer, "pad_token") and tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.bos_token or tokenizer.unk_token or tokenizer.eos_token
        if config := getattr(opened[0], "config", None):
            config.pad_token_id = tokenizer.pad_token_id
        warnings.warn(f"{model} names no padding token, so the kit pads with {tokenizer.pad_token}", stacklevel=4)


def _try(model: Any) -> None:
    """Encode a text: lengths, prompts and templates of a checkpoint's settings are not used before."""
    length = getattr(model, "max_seq_length", None)
    if length is not None and length < 1:
        raise ValueError(f"Its max_seq_length is {length}")
    roles = [getattr(model, name) for name in ("encode_query", "encode_document") if hasattr(model, name)]
    dense = {"convert_to_sparse_tensor": False} if type(model).__name__ == "SparseEncoder" else {}
    for encode in roles:
        encode(["a"], show_progress_bar=False, **dense)
    if not roles:
        model.predict([("a", "a")], show_progress_bar=False)


def _unsaved_modules(
    model: str,
    revision: str | None,
    library_class: str,
    pooling: str | None,
    how: Mapping[str, Any],
    of_weights: Mapping[str, Any],
) -> list[Any] | None:
    """The modules of a checkpoint that sentence-transformers did not save; None where it knows them by itself."""
    if modules(model, revision):
        return None
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    config = _json(model, "config.json", revision)
    if _is_model2vec(model, config, revision) and not pooling:
        words = StaticEmbedding.load(model, **how)
        return [words, Normalize()] if config.get("normalize") else [words]
    is_adapter = not config
    if is_adapter and _json(model, _ADAPTER, revision).get("task_type") == "CAUSAL_LM" and not pooling:
        library_class = ""  # what transformers calls generative scores no pair
    if not pooling and not is_adapter:
        return None
    if not pooling and library_class not in _TASKS:
        raise ValueError("It is an adapter alone. Merge it into its base (PEFT's merge_and_unload) and save that")
    kwargs = {"model_kwargs": {**how, **of_weights}, "processor_kwargs": dict(how), "config_kwargs": dict(how)}
    task = "feature-extraction" if pooling else _TASKS[library_class]
    transformer = Transformer(model, transformer_task=task, **kwargs)
    if pooling:
        return [transformer, Pooling(transformer.get_embedding_dimension(), pooling)]
    return [transformer, SpladePooling("max")] if library_class == "SparseEncoder" else [transformer]


def _pool_by(pooling: str, model: Any) -> None:
    """Change how a model pools its tokens' vectors, and nothing else."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    places = [name for name, module in model.named_modules() if isinstance(module, Pooling)]
    if not places:
        raise ValueError(f"It has no pooling that could be {pooling}. Leave pooling out")
    for name in places:
        own = model.get_submodule(name)
        if own.pooling_mode != pooling:
            warnings.warn(
                f"Its files say {own.pooling_mode} pooling, but the kit uses {pooling}, as asked", stacklevel=4
            )
        model.set_submodule(name, Pooling(own.embedding_dimension, pooling, own.include_prompt))


def check_tokenizer(model: str, tokenizer: Any) -> None:
    """Refuse a tokenizer that knows no word: transformers makes one where a checkpoint's files are missing."""
    if not hasattr(tokenizer, "all_special_tokens"):  # none, or the plain one of word vectors
        return
    words = set(tokenizer.get_vocab()).difference(tokenizer.all_special_tokens, tokenizer.get_added_vocab(), {"▁"})
    if not words:
        raise UserError(f"Could not load {model}", "The files of its tokenizer are missing")


def _absent(model: str) -> UserError:
    if Path(model).is_dir():
        return UserError(f"The folder {model} contains no model")
    hub = "" if _is_path(model) else ", and the Hub is unreachable or lacks it"
    return UserError(f"Could not find {model}", f"It is not a folder{hub}")


def _is_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or model.count("/") > 1


def _json(model: str, name: str, revision: str | None) -> dict[str, Any]:
    path = _file(model, name, revision)
    if path is None:
        return {}
    document = strict_json.read(path)
    return document if isinstance(document, dict) else {}


def _file(model: str, name: str, revision: str | None) -> Path | None:
    if Path(model).is_dir() or _is_path(model):
        path = Path(model) / name
        return path if path.is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(model, name, **pinned_commit(model, revision)))
    except (EntryNotFoundError, LocalEntryNotFoundError, HFValidationError):
        return None
    except Exception as error:
        why = hub.reason(error) or hub.UNREADABLE
        raise UserError(f"Could not download {model} from the Hub", why) from error
