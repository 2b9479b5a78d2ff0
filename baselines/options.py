"""The options of each system as typed classes: every default stands here alone."""

from typing import Annotated, Any, Literal

from msgspec import Meta, structs

from eval_kit.documents import Document, Text
from eval_kit.search.bm25 import K1, B

type Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
type Number = Annotated[int, Meta(ge=0)]
type Depth = Annotated[int, Meta(ge=1, le=1_000_000)]
type Tokens = Annotated[int, Meta(ge=1, le=32_768)]
type Share = Annotated[float, Meta(ge=0, le=1)]
type Positive = Annotated[float, Meta(gt=0, le=1_000_000_000)]
type Weight = Annotated[float, Meta(ge=0, le=1_000_000_000)]
type Precision = Literal["float32", "bfloat16", "float16"]
type Store = Literal["float32", "float16"]


class SmallBackbone(Document, frozen=True, kw_only=True):
    """A BERT drawn at random whose vocabulary is the words of the passages and of the training queries."""

    layers: Tokens
    width: Tokens
    heads: Tokens


class Markers(Document, frozen=True, kw_only=True):
    """Tokens that queries and passages begin with; one that the vocabulary lacks is added to it."""

    query: Text
    passage: Text


class Options(Document, frozen=True, kw_only=True):
    """What every system has."""

    depth: Depth
    """Passages in the run for a query."""

    def __post_init__(self) -> None:
        given = self.as_json()
        for why, groups in _AGAINST.get(type(self), {}).items():
            if any(given.keys() >= group for group in groups):
                raise ValueError(why)

    def as_json(self) -> dict[str, Any]:
        """The options that are not the defaults, as a config has them."""
        defaults = {field.name: field.default for field in structs.fields(self)}
        # msgspec's own omit_defaults asks for the same object, which a pickled copy does not have
        return {name: value for name, value in super().as_json().items() if value != defaults[name]}


class Bm25(Options, frozen=True, kw_only=True):
    """BM25 has no training."""

    k1: Positive = K1
    b: Share = B
    tune: bool = False
    """Choose k1 and b by RR@10 on the validation queries."""


_NEEDS = {
    "evaluate_every": "patience", "patience": "evaluate_every", "distillation": "teacher", "teacher": "distillation",
    "mine_depth": "mine_every", "static_negatives": "mine_every",
}  # fmt: skip


class Trained(Options, frozen=True, kw_only=True):
    """What the trained systems share."""

    backbone: Text | SmallBackbone
    """Any pretrained transformer by Hub id or folder, or the sizes of a small one that is made from the release's
    passages."""
    strict: bool = False
    """Leave out the test queries of all other shifts too, and every text of a test or validation query."""
    random_weights: bool = False
    """Use the backbone's shape and vocabulary, not its weights."""
    steps: Count | None = None
    """Updates of the weights."""
    epochs: Positive | None = None
    """Passes over the judged pairs, instead of steps."""
    batch_size: Depth
    """Queries in a step."""
    learning_rate: Positive
    warmup: Share
    """Share of the steps during which the learning rate rises."""
    schedule: Literal["linear", "constant"] = "linear"
    """After the warm-up: linear decay to 0, or constant."""
    weight_decay: Weight = 0.0
    scale: Positive = 1.0
    """What similarities are multiplied by before the softmax."""
    precision: Precision = "float32"
    """Training precision on a GPU."""
    loader_processes: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Processes that make the batches; with 0 the training process does it."""
    negatives: Number
    """Negatives of each query, besides the other passages of the batch."""
    negatives_from: Literal["bm25", "random"] = "bm25"
    """The release's negatives (bm25), or all passages (random)."""
    mine_every: Count | None = None
    """Steps after which the model's own best passages that are not judged become the negatives, again and again."""
    static_negatives: Count | None = None
    """How many of a query's negatives are mined, once, after mine_every steps, and stay (STAR); the others stay as they
    were."""
    mine_depth: Depth = 200
    """Passages that are ranked for each query to mine negatives."""
    teacher: str | None = None
    """Hub id or folder: a cross-encoder for margin_mse, a late-interaction model for kl."""
    distillation: Literal["margin_mse", "kl"] | None = None
    """Learn the teacher's margins, or its distribution over the passages of the batch, instead of the judgements."""
    evaluate_every: Count | None = None
    """Steps between evaluations on the validation queries; the best model is kept."""
    patience: Count | None = None
    """Evaluations without a gain after which training ends."""
    checkpoint_every: Count
    """Steps that a killed training may lose."""
    query_length: Tokens | None = None
    """Longest query, in tokens; the rest is cut off."""
    passage_length: Tokens | None = None
    """Longest passage, in tokens; the rest is cut off."""
    encode_batch: Depth | None = None
    encode_precision: Precision | None = None
    """Precision of encoding and re-ranking. Default: float16 on a GPU, float32 on a CPU."""

    @property
    def reads_negatives(self) -> bool:
        """Whether the release's negatives are trained on."""
        return self.negatives > 0 and self.negatives_from == "bm25"

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.as_json()
        if ("steps" in given) == ("epochs" in given):
            raise ValueError("a system needs either steps or epochs")
        if not self.negatives and {"distillation", "mine_every"} & given.keys():
            raise ValueError("a system with a teacher or mined negatives needs at least 1 negative")
        if not (self.negatives or getattr(self, "in_batch_negatives", True)):
            raise ValueError("a softmax over the relevant passage alone learns nothing, so set negatives")
        for option, needed in _NEEDS.items():
            if option in given and needed not in given:
                raise ValueError(f"{option} needs {needed}")


class Static(Trained, frozen=True, kw_only=True):
    """Word vectors: the backbone's, or drawn at random where its sizes are given."""

    scale: Positive = 20.0
    """What cosines are multiplied by before the softmax."""


class Biencoder(Trained, frozen=True, kw_only=True):
    """A dense bi-encoder."""

    starts_from: Text | None = None
    """Another bi-encoder of the config, whose passage encoder and vectors stand still while the query encoder learns
    from what it finds (ADORE)."""
    store: Store | None = None


class Splade(Trained, frozen=True, kw_only=True):
    """SPLADE, or with sum pooling that of SIGIR 2021."""

    pooling: Literal["max", "sum"] = "max"
    """How a term's weights are pooled over the tokens of a text."""
    share: Count | None = None
    """Train with the loss of naver/splade: queries whose positives compete with each other, as those of one GPU of the
    authors'; if left out, all passages of the batch do."""
    passage_flops: Weight
    """Greatest weights of the FLOPS regulariser: of passages, and of queries."""
    query_flops: Weight
    flops_warmup: Annotated[float, Meta(gt=0, le=1)] = 1 / 3
    """Share of the steps during which these weights rise, quadratically."""


class Colbert(Trained, frozen=True, kw_only=True):
    """ColBERT, a vector of each token."""

    distillation: Literal["margin_mse"] | None = None
    in_batch_negatives: bool = True
    """Whether the passages of other queries of the batch are negatives."""
    similarity: Literal["cosine", "l2"] = "cosine"
    """Similarity of two tokens: cosine, or l2, the negative squared distance, of ColBERT v0.2."""
    engine: Literal["exact", "plaid"] | None = None
    """If left out, plaid from a million passages on, else exact."""
    dimensions: Tokens
    query_length: Tokens
    passage_length: Tokens
    expand_queries: bool = False
    """Fill queries up to query_length with [MASK] tokens that match too."""
    markers: Markers | None = None
    skip_punctuation: bool = False
    """Leave the vectors of punctuation out of passages."""
    store: Store | None = None


class Monobert(Trained, frozen=True, kw_only=True):
    """monoBERT; the BM25 whose passages it reads is the config's system bm25 if k1, b and tune are left out."""

    candidates: Depth
    """Passages of BM25 that are re-ranked."""
    k1: Positive = K1
    b: Share = B
    tune: bool = False
    """Choose k1 and b of that BM25 by RR@10 on the validation queries."""
    pair_length: Tokens
    """Longest query and passage together, in tokens; the end of the longer text is cut first."""
    in_batch_negatives: Number = 1
    """Passages of other queries of the batch that each query is paired with."""


_AGAINST: dict[type, dict[str, list[set[str]]]] = {
    Static: {"static takes no teacher and no lengths": [{"distillation"}, {"query_length"}, {"passage_length"}]},
    Biencoder: {
        "a system with starts_from takes no random_weights, teacher, mine_every or evaluate_every": [
            {"starts_from", other} for other in ("random_weights", "teacher", "mine_every", "evaluate_every")
        ]
    },
    Splade: {"share has no effect with distillation, so remove one of them": [{"distillation", "share"}]},
    Colbert: {
        "in_batch_negatives and similarity have no effect with distillation, so remove them": [
            {"distillation", other} for other in ("in_batch_negatives", "similarity")
        ]
    },
    Monobert: {"monobert takes no distillation and no mine_every": [{"distillation"}, {"mine_every"}]},
}
"""What a user reads of options that do not go together, and groups of them."""
SYSTEMS: dict[str, type[Options]] = {
    kind.__name__.lower(): kind for kind in (Bm25, Biencoder, Splade, Colbert, Monobert, Static)
}
"""The classes by the names of the systems."""
