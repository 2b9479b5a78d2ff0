"""The options of each system as typed classes: every default stands here alone."""

from typing import Annotated, Any, ClassVar, Literal

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


def about(option: str) -> Meta:
    """What the schema says about an option."""
    return Meta(description=option)


def _never(why: str, *groups: list[str]) -> tuple[tuple[list[str], str], ...]:
    """That a system has none of these groups of options whole; ``why`` is what the user reads."""
    return tuple((group, why) for group in groups)


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
    """What every system has.

    Attributes:
        AGAINST: options that do not go together, and what the user reads of it.
    """

    AGAINST: ClassVar[tuple[tuple[list[str], str], ...]] = ()

    depth: Annotated[Depth, about("Passages in the run for a query.")]

    def __post_init__(self) -> None:
        given = self.as_json()
        for options, why in self.AGAINST:
            if given.keys() >= {*options}:
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
    tune: Annotated[bool, about("Choose k1 and b by RR@10 on the validation queries.")] = False
    rm3: Annotated[
        bool, about("Expand queries by RM3 with Anserini's defaults: 10 terms of 10 passages, weight 0.5.")
    ] = False


_NEEDS = {
    "evaluate_every": "patience",
    "patience": "evaluate_every",
    "distillation": "teacher",
    "teacher": "distillation",
    "mine_depth": "mine_every",
    "static_negatives": "mine_every",
}


class Trained(Options, frozen=True, kw_only=True):
    """What the trained systems share."""

    backbone: Annotated[
        Text | SmallBackbone,
        about(
            "Any pretrained transformer by Hub id or folder, or the sizes of a small one that is made from "
            "the release's passages."
        ),
    ]
    strict: Annotated[
        bool, about("Leave out the test queries of all other shifts too, and every text of a test or validation query.")
    ] = False
    random_weights: Annotated[bool, about("Use the backbone's shape and vocabulary, not its weights.")] = False
    steps: Annotated[Count | None, about("Updates of the weights.")] = None
    epochs: Annotated[Positive | None, about("Passes over the judged pairs, instead of steps.")] = None
    batch_size: Annotated[Depth, about("Queries in a step.")]
    learning_rate: Positive
    warmup: Annotated[Share, about("Share of the steps during which the learning rate rises.")]
    schedule: Annotated[Literal["linear", "constant"], about("After the warm-up: linear decay to 0, or constant.")] = (
        "linear"
    )
    weight_decay: Weight = 0.0
    scale: Annotated[Positive, about("What similarities are multiplied by before the softmax.")] = 1.0
    precision: Annotated[Precision, about("Training precision on a GPU.")] = "float32"
    loader_processes: Annotated[
        int, Meta(ge=0, le=1024, description="Processes that make the batches; with 0 the training process does it.")
    ] = 0
    negatives: Annotated[Number, about("Negatives of each query, besides the other passages of the batch.")]
    negatives_from: Annotated[
        Literal["bm25", "random"], about("The release's negatives (bm25), or all passages (random).")
    ] = "bm25"
    mine_every: Annotated[
        Count | None,
        about(
            "Steps after which the model's own best-ranked passages that are not judged become the "
            "negatives, again and again."
        ),
    ] = None
    static_negatives: Annotated[
        Count | None,
        about(
            "How many of a query's negatives are mined, once, after mine_every steps, and stay (STAR); the others "
            "stay as they were."
        ),
    ] = None
    mine_depth: Annotated[Depth, about("Passages that are ranked for each query to mine negatives.")] = 200
    teacher: Annotated[
        str | None, about("Hub id or folder: a cross-encoder for margin_mse, a late-interaction model for kl.")
    ] = None
    distillation: Annotated[
        Literal["margin_mse", "kl"] | None,
        about(
            "Learn the teacher's margins, or its distribution over the passages of the batch, instead of "
            "the judgements."
        ),
    ] = None
    evaluate_every: Annotated[
        Count | None, about("Steps between evaluations on the validation queries; the best model is kept.")
    ] = None
    patience: Annotated[Count | None, about("Evaluations without a gain after which training ends.")] = None
    checkpoint_every: Annotated[Count, about("Steps that a killed training may lose.")]
    query_length: Annotated[Tokens | None, about("Longest query, in tokens; the rest is cut off.")] = None
    passage_length: Annotated[Tokens | None, about("Longest passage, in tokens; the rest is cut off.")] = None
    encode_batch: Depth | None = None
    encode_precision: Annotated[
        Precision | None, about("Precision of encoding and re-ranking. Default: float16 on a GPU, float32 on a CPU.")
    ] = None

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

    AGAINST = _never("static takes no teacher and no lengths", ["distillation"], ["query_length"], ["passage_length"])

    scale: Annotated[Positive, about("What cosines are multiplied by before the softmax.")] = 20.0


class Biencoder(Trained, frozen=True, kw_only=True):
    """A dense bi-encoder."""

    AGAINST = _never(
        "a system with starts_from takes no random_weights, teacher, mine_every or evaluate_every",
        *(["starts_from", other] for other in ("random_weights", "teacher", "mine_every", "evaluate_every")),
    )

    starts_from: Annotated[
        Text | None,
        about(
            "Another bi-encoder of the config, whose passage encoder and vectors stand still while the query "
            "encoder learns from what it finds (ADORE)."
        ),
    ] = None
    store: Store | None = None


class Splade(Trained, frozen=True, kw_only=True):
    """SPLADE, or with sum pooling that of SIGIR 2021."""

    AGAINST = _never("share has no effect with distillation, so remove one of them", ["distillation", "share"])

    pooling: Annotated[Literal["max", "sum"], about("How a term's weights are pooled over the tokens of a text.")] = (
        "max"
    )
    share: Annotated[
        Count | None,
        about(
            "Train with the loss of naver/splade: queries whose positives compete with each other, as "
            "those of one GPU of the authors'; if left out, all passages of the batch do."
        ),
    ] = None
    passage_flops: Annotated[Weight, about("Greatest weight of the FLOPS regulariser for passages.")]
    query_flops: Annotated[Weight, about("Greatest FLOPS weight for queries.")]
    flops_warmup: Annotated[
        float, Meta(gt=0, le=1, description="Share of the steps during which these weights rise, quadratically.")
    ] = 1 / 3


class Colbert(Trained, frozen=True, kw_only=True):
    """ColBERT, a vector of each token."""

    AGAINST = _never(
        "in_batch_negatives and similarity have no effect with distillation, so remove them",
        ["distillation", "in_batch_negatives"],
        ["distillation", "similarity"],
    )

    distillation: Literal["margin_mse"] | None = None
    in_batch_negatives: Annotated[bool, about("Whether the passages of other queries of the batch are negatives.")] = (
        True
    )
    similarity: Annotated[
        Literal["cosine", "l2"],
        about("Similarity of two tokens: cosine, or l2, the negative squared distance, of ColBERT v0.2."),
    ] = "cosine"
    engine: Annotated[
        Literal["exact", "plaid"] | None, about("If left out, plaid from a million passages on, else exact.")
    ] = None
    dimensions: Annotated[Tokens, about("Dimensions of the vector of a token.")]
    query_length: Annotated[Tokens, about("Longest query, in tokens.")]
    passage_length: Annotated[Tokens, about("Longest passage, in tokens.")]
    expand_queries: Annotated[bool, about("Fill queries up to query_length with [MASK] tokens that match too.")] = False
    markers: Markers | None = None
    skip_punctuation: Annotated[bool, about("Leave the vectors of punctuation out of passages.")] = False
    store: Store | None = None


class Monobert(Trained, frozen=True, kw_only=True):
    """monoBERT; the BM25 whose passages it reads is the config's system bm25 if k1, b and tune are left out."""

    AGAINST = _never("monobert takes no distillation and no mine_every", ["distillation"], ["mine_every"])

    candidates: Annotated[Depth, about("Passages of BM25 that are re-ranked.")]
    k1: Annotated[Positive, about("k1 of the BM25 that finds the candidates.")] = K1
    b: Annotated[Share, about("b of the BM25 that finds the candidates.")] = B
    tune: Annotated[bool, about("Choose k1 and b of that BM25 by RR@10 on the validation queries.")] = False
    pair_length: Annotated[
        Tokens, about("Longest query and passage together, in tokens; the end of the longer text is cut first.")
    ]
    in_batch_negatives: Annotated[
        Number, about("Passages of other queries of the batch that each query is paired with.")
    ] = 1


SYSTEMS: dict[str, type[Options]] = {
    "bm25": Bm25,
    "biencoder": Biencoder,
    "splade": Splade,
    "colbert": Colbert,
    "monobert": Monobert,
    "static": Static,
}
"""The classes by the names of the systems."""
