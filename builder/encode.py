"""Turn queries into vectors: by name, cached on disk, resumable, in constant memory.

``lsa`` is TF-IDF and a truncated SVD: no weights, one seed. Any other name is a sentence-transformers model (Hub id or
folder); with ``:cls`` behind it, the bare transformer's [CLS] of the last hidden state, as ECIR 2023 §3.1 takes it
from DistilBERT (``distilbert-base-uncased:cls``).
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import polars as pl
from filelock import FileLock
from numpy.typing import NDArray

from eval_kit import atomic
from eval_kit.errors import UserError

type Vectors = NDArray[np.float32]
type Compute = Callable[[Sequence[str]], Vectors]

PAPER = "distilbert-base-uncased:cls"
"""The encoder of ECIR 2023 §3.1 (footnote 4: pre-trained, not fine-tuned)."""
SHARD = 16_384
"""Texts in a shard: what an interrupted encoding may lose."""
CHECK_ROWS = 65_536
PATIENCE = 2.0
"""Seconds before a progress bar appears."""


@dataclass(frozen=True)
class Embedded:
    """Queries with their vectors, fit for use: the boundary that every shift trusts.

    Attributes:
        query_ids: n distinct ids.
        vectors: float32 of shape (n, d), all finite; a memory map will do.

    Raises:
        UserError: ids and vectors that differ in number, an id that comes twice, a vector that is not finite.
    """

    query_ids: pl.Series
    vectors: Vectors

    def __post_init__(self) -> None:
        check_ids(self.query_ids)
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.query_ids):
            raise UserError(f"{len(self.query_ids):,} queries cannot have vectors of shape {self.vectors.shape}")
        for start in range(0, len(self.vectors), CHECK_ROWS):
            finite = np.isfinite(self.vectors[start : start + CHECK_ROWS]).all(axis=1)
            if not finite.all():
                row = start + int(finite.argmin())
                raise UserError(f"the vector of query {self.query_ids[row]!r} holds NaN or infinity")

    def __len__(self) -> int:
        return len(self.query_ids)


class Encoder(Protocol):
    """Anything that makes vectors of texts."""

    @property
    def name(self) -> str:
        """What it is called, in manifests and cache keys."""

    @property
    def revision(self) -> str:
        """What else its vectors depend on: weights, parameters."""

    def load(self, texts: Sequence[str]) -> Compute:
        """Make ready to encode ``texts``, or any part of them: a function from texts to (n, d) float32."""


def embed(queries: pl.DataFrame, encoder: str | Encoder, cache: Path | None = None) -> Embedded:
    """Encode a table of ``query_id`` and ``text``.

    Raises:
        UserError: ids that come twice, and whatever :func:`encode` refuses.
    """
    check_ids(queries["query_id"])
    return Embedded(queries["query_id"], encode(queries["text"], encoder, cache))


def encode(texts: Sequence[str] | pl.Series, encoder: str | Encoder, cache: Path | None = None) -> Vectors:
    """The vectors of ``texts``, in their order.

    Texts are encoded longest first, shard by shard. With a ``cache`` folder each finished shard is on the disk before
    the next begins, so that an interrupted run goes on where it stopped, and memory does not grow with the number of
    texts; the result is a read-only memory map. The cache is keyed by the encoder's name and revision and the sha256
    of the texts. Two processes that want the same vectors wait for each other.

    Args:
        texts: n texts, none empty.
        encoder: a name (see the module), or an encoder.
        cache: where vectors are kept; created if need be. None keeps nothing.

    Returns:
        float32 of shape (n, d).

    Raises:
        UserError: no texts, an empty one, an encoder that cannot be loaded or gives NaN, a cache that cannot be
            written.
    """
    checked = _checked(texts)
    chosen = by_name(encoder) if isinstance(encoder, str) else encoder
    job = _Job(checked, chosen)
    if cache is None:
        return job.in_memory()
    try:
        return job.on_disk(cache / job.key)
    except OSError as error:
        raise UserError(f"{cache}: cannot keep vectors there: {error.strerror or error}") from error


def by_name(name: str) -> Encoder:
    """The encoder called ``name``: ``lsa``, a sentence-transformers model, or a transformer with ``:cls``."""
    return Lsa() if name == "lsa" else Model(name)


def public_name(encoder: Encoder) -> str:
    """An encoder's name as others may read it: of a model in a folder without the way to the folder."""
    if isinstance(encoder, Model) and Path(encoder.place).is_dir():
        return Path(encoder.place).resolve().name + encoder.name.removeprefix(encoder.place)
    return encoder.name


@dataclass(frozen=True)
class Lsa:
    """TF-IDF (sublinear) and truncated SVD, with rows of unit length; zero for a text without a known word.

    Attributes:
        dimensions: of the vectors, at most the number of distinct words less one.
        most: drop the words that are in more than this share of the texts (1.0 drops none).
        seed: of the randomised SVD.
        corpus: texts to learn from (passages, say); None learns from the texts that are encoded.
    """

    dimensions: int = 128
    most: float = 1.0
    seed: int = 13
    corpus: Sequence[str] | None = field(default=None, repr=False)

    name = "lsa"

    @property
    def revision(self) -> str:
        """The parameters, scikit-learn's version and the digest of the corpus."""
        import sklearn

        learnt = "own" if self.corpus is None else _digest(self.corpus)
        return f"{self.dimensions}-{self.most}-{self.seed}-{sklearn.__version__}-{learnt}"

    def load(self, texts: Sequence[str]) -> Compute:
        """Learn the words and dimensions; on one thread, so that the numbers don't depend on how many there are."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.preprocessing import normalize
        from threadpoolctl import threadpool_limits

        words = TfidfVectorizer(sublinear_tf=True, max_df=self.most)
        try:
            weights = words.fit_transform(texts if self.corpus is None else self.corpus)
        except ValueError as error:
            raise UserError(f"lsa cannot learn from these texts: {error}") from error
        dimensions = min(self.dimensions, weights.shape[1] - 1)
        if dimensions < 1:
            raise UserError("lsa cannot learn from these texts: they hold a single word")
        with threadpool_limits(1):
            svd = TruncatedSVD(dimensions, random_state=self.seed).fit(weights)

        def compute(part: Sequence[str]) -> Vectors:
            with threadpool_limits(1):
                return np.asarray(normalize(svd.transform(words.transform(part))), np.float32)

        return compute


@dataclass(frozen=True)
class Model:
    """A frozen sentence-transformers model, or with ``:cls`` the first token's last hidden state of a transformer.

    Attributes:
        name: Hub id or folder, with or without ``:cls``.
        wanted: revision on the Hub (branch, tag or commit); None for its default.
        device: as torch names it; None takes the accelerator there is.
        budget: tokens in a batch, padding included; None for 2,048 on a CPU and 65,536 elsewhere.
    """

    name: str
    wanted: str | None = None
    device: str | None = None
    budget: int | None = None

    @property
    def place(self) -> str:
        """Hub id or folder."""
        return self.name.removesuffix(":cls")

    @cached_property
    def revision(self) -> str:
        """The commit on the Hub, or the digest of a folder's files."""
        folder = Path(self.place)
        if folder.is_dir():
            return _folder_digest(folder)
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError

        with self._faults():
            try:
                found = hf_hub_download(self.place, "modules.json", revision=self.wanted)
            except EntryNotFoundError:
                found = hf_hub_download(self.place, "config.json", revision=self.wanted)
        return Path(found).parent.name

    def load(self, texts: Sequence[str]) -> Compute:
        """Load the weights; each part is then batched by tokens."""
        model = self.model()
        budget = self.budget or (2_048 if model.device.type == "cpu" else 65_536)

        def compute(part: Sequence[str]) -> Vectors:
            lengths = _token_counts(model, part)
            order = np.argsort(-lengths, kind="stable")
            vectors: Vectors | None = None
            for rows in _batches(lengths[order], budget):
                here = order[rows]
                batch = [part[i] for i in here]
                made = np.asarray(model.encode(batch, batch_size=len(batch), show_progress_bar=False), np.float32)
                vectors = np.empty((len(part), made.shape[1]), np.float32) if vectors is None else vectors
                vectors[here] = made
            assert vectors is not None
            return vectors

        return compute

    def model(self) -> Any:
        """The ``SentenceTransformer``, ready to encode."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
        from transformers.utils import logging

        commit = None if Path(self.place).is_dir() else self.revision
        bar = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            with self._faults():
                if not self.name.endswith(":cls"):
                    return SentenceTransformer(self.place, revision=commit, device=self.device)
                pinned = {"revision": commit} if commit else {}
                transformer = Transformer(
                    self.place, model_kwargs=pinned, processor_kwargs=pinned, config_kwargs=pinned
                )
                pooling = Pooling(transformer.get_embedding_dimension(), "cls")
                return SentenceTransformer(modules=[transformer, pooling], device=self.device)
        finally:
            if bar:
                logging.enable_progress_bar()  # type: ignore[no-untyped-call]

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            why = str(error).strip().split("\n")[0]
            raise UserError(f"encoder {self.name!r} cannot be loaded: {why}") from error


class _Job:
    """One list of texts for one encoder."""

    def __init__(self, texts: list[str], encoder: Encoder) -> None:
        self.texts = texts
        self.encoder = encoder
        self.order = np.argsort([-len(text) for text in texts], kind="stable")
        self._compute: Compute | None = None

    @cached_property
    def key(self) -> str:
        """The cache key: name, revision, texts."""
        parts = [self.encoder.name, self.encoder.revision, _digest(self.texts)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def starts(self) -> range:
        return range(0, len(self.texts), SHARD)

    def in_memory(self) -> Vectors:
        vectors: Vectors | None = None
        with progress(f"encoding ({self.encoder.name})", len(self.texts)) as advance:
            for start in self.starts:
                made = self.shard(start)
                vectors = np.empty((len(self.texts), made.shape[1]), np.float32) if vectors is None else vectors
                vectors[self.order[start : start + SHARD]] = made
                advance(len(made))
        assert vectors is not None
        return vectors

    def on_disk(self, folder: Path) -> Vectors:
        done = folder / "vectors.npy"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not done.exists():
                self._fill(folder / "shards")
                self._join(folder / "shards", done)
            shutil.rmtree(folder / "shards", ignore_errors=True)
        return np.load(done, mmap_mode="r")  # type: ignore[no-any-return]

    def shard(self, start: int) -> Vectors:
        """The vectors of one shard, longest text first."""
        if self._compute is None:
            self._compute = self.encoder.load(self.texts)
        rows = self.order[start : start + SHARD]
        made = self._compute([self.texts[i] for i in rows])
        finite = np.isfinite(made).all(axis=1)
        if not finite.all():
            text = self.texts[rows[int(finite.argmin())]]
            raise UserError(f"encoder {self.encoder.name!r} gives NaN or infinity for the text {text!r}")
        return made

    def _fill(self, shards: Path) -> None:
        shards.mkdir(exist_ok=True)
        with progress(f"encoding ({self.encoder.name})", len(self.texts)) as advance:
            for start in self.starts:
                path = shards / f"{start:09d}.npy"
                if not path.exists():
                    with atomic.whole(path) as part:
                        write_array(part, self.shard(start))
                advance(min(SHARD, len(self.texts) - start))

    def _join(self, shards: Path, done: Path) -> None:
        """Put the shards into the order of the texts."""
        with atomic.whole(done) as part:
            width = np.load(shards / f"{0:09d}.npy", mmap_mode="r").shape[1]
            out = np.lib.format.open_memmap(part, "w+", np.float32, (len(self.texts), width))
            for start in self.starts:
                out[self.order[start : start + SHARD]] = np.load(shards / f"{start:09d}.npy")
            out.flush()


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error for what takes more than two seconds; yields the function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
    task = bar.add_task(what, total=total)
    began = time.monotonic()
    shown = False

    def advance(steps: int) -> None:
        nonlocal shown
        bar.advance(task, steps)
        if not shown and bar.console.is_terminal and time.monotonic() - began > PATIENCE:
            bar.start()
            shown = True

    try:
        yield advance
    finally:
        if shown:
            bar.stop()


def check_ids(query_ids: pl.Series) -> None:
    """Refuse ids that come twice.

    Raises:
        UserError: naming the first of them.
    """
    twice = query_ids.is_duplicated()
    if twice.any():
        more = query_ids.filter(twice).n_unique() - 1
        and_more = f" (and {more:,} more)" if more else ""
        raise UserError(f"query id {query_ids.filter(twice)[0]!r} comes more than once{and_more}")


def _checked(texts: Sequence[str] | pl.Series) -> list[str]:
    series = pl.Series("text", texts, pl.String)
    if not len(series):
        raise UserError("there are no texts to encode")
    empty = (series.str.strip_chars().str.len_bytes() == 0).fill_null(True)
    if empty.any():
        raise UserError(f"text {(empty.arg_max() or 0) + 1:,} is empty (of {int(empty.sum()):,} that are)")
    return series.to_list()


def _token_counts(model: Any, texts: Sequence[str]) -> NDArray[np.int64]:
    """Tokens of each text as the model will see them; characters where it has no such tokenizer."""
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        return np.array([len(text) for text in texts])
    found = tokenizer(list(texts), truncation=True, max_length=model.max_seq_length, return_attention_mask=False)
    return np.array([len(ids) for ids in found["input_ids"]])


def _batches(lengths: NDArray[np.int64], budget: int) -> Iterator[slice]:
    """Cut lengths (descending) so that in each part, number x greatest length is at most the budget (one at least)."""
    start = 0
    while start < len(lengths):
        stop = min(len(lengths), start + max(1, budget // max(1, int(lengths[start]))))
        yield slice(start, stop)
        start = stop


def write_array(path: Path, array: NDArray[Any]) -> None:
    """``numpy.save``, which given a real file does not see that the disk is full when it writes the last bytes."""
    with path.open("wb") as file:
        np.lib.format.write_array(SimpleNamespace(write=file.write), array)


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def _folder_digest(folder: Path) -> str:
    from eval_kit.digests import file_sha256

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return _digest(f"{path.relative_to(folder).as_posix()} {file_sha256(path)}" for path in files)
