"""A small synthetic MS MARCO with planted query shifts.

Every passage is about one (entity, aspect) pair and every query asks for one. A passage names the aspect by
one word; a query uses that word, or a synonym that no passage contains. Some synonyms are reserved for one
topic, one wh-form or one length: the share of a cluster's queries that use its reserved synonyms is the
cluster's planted strength, what a model can't know that never trained on the cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from builder.encoders import Lsa
from builder.sources.collection import Collection

type Ints = NDArray[np.int64]
type Floats = NDArray[np.float64]

CLUSTERS = {"topic": ("c0", "c1", "c2", "c3", "c4"), "wh": ("wha", "how", "who"), "length": ("short", "long")}
STRENGTHS = {"topic": (0.40, 0.32, 0.24, 0.16, 0.08), "wh": (0.3, 0.2, 0.1), "length": (0.2, 0.1)}
WH_TERMS = {"wha": ["what", "definition"], "how": ["how"], "who": ["who", "when", "where", "which"]}
SHORT_WORDS = 5

TOPIC_SHARES = (0.18, 0.18, 0.18, 0.18, 0.18, 0.10)  # the last is "others"
WH_SHARES = (0.30, 0.25, 0.20, 0.25)  # the last is "no wh word"
LENGTH_SHARES = (0.5, 0.5)

DL_SIZES = {"dl19": 43, "dl20": 54}
DEV_SHARE = 0.10
VALIDATION_SHARE = 0.02
TEST_SHARE = 0.20
MIN_QUERIES = 500
PASSAGES_PER_QUERY = 2
JUDGED = (20, 60)

ASPECTS = 20
COMMON_SYNONYMS = 2
SYNONYM_RATE = 0.25  # of the queries that use no reserved synonym
TYPO_RATE = 0.12  # of the queries for entities of two words
QUOTE_RATE = 0.3  # of the context words of long queries
QUERIES_PER_ENTITY = 4
ENTITIES_PER_TAIL = 8  # entities that may share the second word of their names
POPULARITY = 1.2  # 1 = every entity is asked for equally often
HARDNESS = {"synonym": 0.35, "typo": 0.45, "crowd": 0.20}

CONSONANTS = "bcdfgjklmnprstvz"  # neither h nor w: no word can contain a wh term
SYLLABLES = np.array([c + v for c in CONSONANTS for v in "aeiou"])
FUNCTION_WORDS = ("the", "of", "is", "and", "in", "to", "a", "for")
THE, OF, IS = 1, 2, 3
FILLER_WORDS = 2_000
TOPIC_WORDS = 300
TOPIC_WORD_RATE = 0.3
MENTION_RATE = 0.2  # of the passages that also name another entity
PASSAGE_WORDS = (33, 60)  # including up to three places for second names that may stay empty
CONTEXT_COLUMNS = slice(26, 30)  # passage columns that hold nothing but filler; long queries quote them
CHUNK = 100_000

TEMPLATES = (  # by wh-form (the last without), short then long; {x} the aspect, {e} the entity, {c} context
    "what is {e} {x} | what {x} {e} | {e} {x} definition",
    "what is the {x} of {e} in {c} | what are {x} {e} types for {c} | definition of the {x} of {e} in {c}",
    "how to {x} {e} | how {e} {x} | show {x} {e}",
    "how do you {x} the {e} with {c} | how many {x} are in {e} for {c} | how is the {x} of {e} in {c}",
    "who {x} {e} | when did {e} {x} | which {e} {x}",
    "who was the {x} of {e} in {c} | where is the {x} of {e} near {c} | when did the {e} {x} start in {c}",
    "{x} {e} | {e} {x} | is {e} {x}",
    "the {x} of {e} for {c} | is there a {x} on {e} with {c} | can you {x} the {e} in {c}",
)
TEMPLATES_PER_FORM = 3


@dataclass(frozen=True)
class Parameters:
    """What a mini is made from: equal parameters give equal frames.

    `queries` (at least 500) counts all populations together. `strength` (0..1) scales every planted strength:
    it changes the words that queries use for aspects, the hardness that follows from them, and nothing else.
    """

    seed: int = 13
    queries: int = 10_000
    strength: float = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError when a value is out of range."""
        if self.queries < MIN_QUERIES:
            raise ValueError(f"queries must be at least {MIN_QUERIES}, not {self.queries}")
        if not 0 <= self.strength <= 1:
            raise ValueError(f"strength must be in 0..1, not {self.strength}")


DEFAULT = Parameters()


@dataclass(frozen=True)
class Mini:
    """A generated collection and the truth planted in it.

    passages: passage_id, text.
    queries: query_id, text, population (train, dev, dl19, dl20, validation), topic (null = others), wh
    (null = no wh word), length, test (train queries held back as topic and wh test sets), hardness (0..1),
    nearness (train only, else null; from 2: shares its entity with a dl query, from 1: its topic and aspect).
    qrels: query_id, passage_id, score (1; for dl19 and dl20 graded 0..3).
    strengths: shift -> cluster -> share of the cluster's queries that use its reserved synonyms.
    """

    parameters: Parameters
    passages: pl.DataFrame
    queries: pl.DataFrame
    qrels: pl.DataFrame
    strengths: dict[str, dict[str, float]]
    _asked: pl.DataFrame = field(repr=False)  # by query row: head, tail (word numbers), aspect, word, literal
    _about: pl.DataFrame = field(repr=False)  # by passage row: passage_id, aspect, prior
    _named: pl.DataFrame = field(repr=False)  # name (word number), passage_id, weight

    def oracle(self, shift: str, held_out: str | None, query_ids: Iterable[str], depth: int = 100) -> pl.DataFrame:
        """Rank passages knowing exactly the synonyms of the training queries outside one cluster.

        The training queries are those of population train, not test, in a cluster of `shift` other than
        `held_out`; `held_out=None` knows every synonym. Returns query_id, passage_id, score with `depth` rows
        for each query, best first, queries in the order of `queries`.

        Raises ValueError for an unknown shift, cluster or query id.
        """
        if shift not in CLUSTERS:
            raise ValueError(f"unknown shift {shift!r}: expected one of {', '.join(CLUSTERS)}")
        if held_out not in (None, *(clusters := CLUSTERS[shift])):
            raise ValueError(f"unknown {shift} cluster {held_out!r}: expected one of {', '.join(clusters)}")
        if held_out is None:
            return self.oracle_taught(self.queries["query_id"], query_ids, depth)
        training = self.queries.filter(~pl.col("test"), pl.col(shift) != held_out, population="train")
        return self.oracle_taught(training["query_id"], query_ids, depth)

    def oracle_taught(self, training: pl.Series, query_ids: Iterable[str], depth: int = 100) -> pl.DataFrame:
        """As :meth:`oracle`, knowing the synonyms of the queries whose ids are in `training`."""
        wanted = pl.Series("query_id", list(query_ids), pl.String).unique(maintain_order=True)
        if unknown := wanted.filter(~wanted.is_in(self.queries["query_id"].implode())).to_list():
            raise ValueError(f"unknown query id {unknown[0]!r} (and {len(unknown) - 1} more)")

        everything = self.queries.hstack(self._asked).with_row_index("row")
        taught = everything.filter(pl.col("query_id").is_in(training.implode()))
        known = pl.col("literal") | pl.col("word").is_in(taught["word"].unique().implode())
        asked = everything.filter(pl.col("query_id").is_in(wanted.implode())).select(
            "row", "head", "tail", wants=pl.when(known).then("aspect")
        )

        names = pl.concat(
            asked.select("row", "wants", name=name, importance=pl.lit(importance))
            for name, importance in (("head", 8.0), ("tail", 2.0))
        )
        on_aspect = pl.col("aspect").eq(pl.col("wants")).fill_null(False)
        named = (
            names.join(self._named, on="name")
            .group_by("row", "wants", "passage_id")
            .agg(match=(pl.col("importance") * pl.col("weight")).max())
            .join(self._about, on="passage_id")
            .select("row", "passage_id", score=pl.col("match") + 4.0 * on_aspect + pl.col("prior"))
        )
        place = (pl.col("row").cast(pl.Int64) * 7_919 + pl.col("rank") * 104_729) % len(self._about)
        arbitrary = asked.join(pl.select(rank=pl.int_range(depth)), how="cross").select(
            "row", passage_id=place.cast(pl.String), score=-1.0 - pl.col("rank")
        )
        return (
            pl.concat([named, arbitrary])
            .group_by("row", "passage_id")
            .agg(pl.col("score").max())
            .sort("row", "score", "passage_id", descending=[False, True, True])
            .group_by("row", maintain_order=True)
            .head(depth)
            .join(everything.select("row", "query_id"), on="row", maintain_order="left")
            .select("query_id", "passage_id", "score")
        )


def collection(parameters: Parameters = DEFAULT) -> Collection:
    """Mini as a collection without planted shifts; its validation queries are training queries like others."""
    made = generate(parameters)
    populations = {"train": ["train", "validation"], **{split: [split] for split in ("dev", *DL_SIZES)}}
    queries = {split: made.queries.filter(pl.col("population").is_in(held)) for split, held in populations.items()}
    pairs = made.qrels.select(
        pl.col("query_id").alias("query-id"), pl.col("passage_id").alias("corpus-id"), pl.col("score").cast(pl.Int64)
    )
    return Collection(
        name="mini",
        source="builder/sources/mini.py",
        queries={split: held.select("query_id", "text") for split, held in queries.items()},
        qrels={
            split: pairs.filter(pl.col("query-id").is_in(held["query_id"].implode())) for split, held in queries.items()
        },
        passages=made.passages,
    )


def encoder(mini: Collection) -> Lsa:
    """LSA learnt from mini's passages, as from the queries alone no encoder can know its topics.

    It has six vocabularies (five topics and the rest), and its common words are in more than 2 % of the passages.
    """
    assert mini.passages is not None
    return Lsa(dimensions=len(TOPIC_SHARES), most=0.02, corpus=mini.passages["text"].to_list())


@dataclass(frozen=True)
class _Lexicon:
    """All words (number 0 is null) and the number of the first word of each block."""

    words: pl.Series
    filler: int
    topical: int
    aspect: int
    common: int
    reserved: int
    tail: int
    head: int


def generate(parameters: Parameters = DEFAULT) -> Mini:
    """Make the collection that `parameters` determine."""
    rng = np.random.Generator(np.random.PCG64(parameters.seed))
    n = parameters.queries
    strengths = {
        shift: {c: s * parameters.strength for c, s in zip(CLUSTERS[shift], STRENGTHS[shift], strict=True)}
        for shift in CLUSTERS
    }

    blocks = np.array([max(2, round(n * s / QUERIES_PER_ENTITY / ENTITIES_PER_TAIL)) for s in TOPIC_SHARES])
    ends = np.cumsum(blocks * ENTITIES_PER_TAIL)
    starts = ends - blocks * ENTITIES_PER_TAIL
    entities = int(ends[-1])
    lexicon = _lexicon(rng, entities)
    head = lexicon.head + np.arange(entities)
    tail = np.where(rng.random(entities) < 0.5, lexicon.tail + np.arange(entities) // ENTITIES_PER_TAIL, 0)

    population = _populations(rng, n)
    topic, wh, length = (rng.choice(len(shares), n, p=shares) for shares in (TOPIC_SHARES, WH_SHARES, LENGTH_SHARES))
    train = population == "train"
    test = train & (_spread(rng, (train * 6 + topic) * 4 + wh) < TEST_SHARE)
    kind = np.unique(population, return_inverse=True)[1] * 2 + test
    entity = starts[topic] + ((ends - starts)[topic] * rng.random(n) ** POPULARITY).astype(np.int64)
    aspect = rng.integers(ASPECTS, size=n)
    misspells = rng.random(n) < TYPO_RATE
    u = _spread(rng, ((kind * 6 + topic) * 4 + wh) * 2 + length)
    word = _aspect_words(rng, lexicon, aspect, (topic, wh, length), strengths, u)
    literal = word == lexicon.aspect + aspect

    graded = np.isin(population, list(DL_SIZES))
    pairs, pair_of = np.unique(entity * ASPECTS + aspect, return_inverse=True)
    again = np.repeat(pairs[pair_of[graded]], 2)
    extra = rng.integers(entities * ASPECTS, size=n * PASSAGES_PER_QUERY - len(pairs) - len(again))
    place = rng.permutation(len(pairs) + len(again) + len(extra))
    about = np.empty(len(place), np.int64)
    about[place] = np.concatenate([pairs, again, extra])
    answer = place[pair_of]
    about_entity, about_aspect = about // ASPECTS, about % ASPECTS
    about_topic = np.searchsorted(ends, about_entity, side="right")
    span = (ends - starts)[about_topic]
    other = starts[about_topic] + (span * rng.random(len(about))).astype(np.int64)
    other = np.where(rng.random(len(about)) < MENTION_RATE, other, -1)
    passage_id = pl.Series("passage_id", np.arange(len(about))).cast(pl.String)
    passage_text, context = _passage_texts(
        rng, lexicon, about_topic, about_aspect, _names(head, tail, about_entity), _names(head, tail, other)
    )

    typo = misspells & (tail[entity] != 0)  # the second word stays right, so that every query matches something
    crowd = np.bincount(about_entity, minlength=entities)[entity]
    hardness = HARDNESS["synonym"] * ~literal + HARDNESS["typo"] * typo + HARDNESS["crowd"] * crowd / (crowd + 10)
    same_place = np.isin(topic * ASPECTS + aspect, (topic * ASPECTS + aspect)[graded])
    near = np.where(np.isin(entity, entity[graded]), 2.0, same_place * 1.0) + rng.random(n) / 2

    identifiers = np.sort(rng.choice(n * 10, n, replace=False))
    quoted = np.where(rng.random((n, 4)) < QUOTE_RATE, context[answer], _prose(rng, lexicon, topic, 4))
    text = _query_texts(rng, lexicon, wh * 2 + length, head[entity], tail[entity], word, typo, quoted)
    queries = pl.DataFrame(
        {
            "query_id": pl.Series(identifiers).cast(pl.String),
            "text": text,
            "population": population,
            "topic": pl.Series([*CLUSTERS["topic"], None]).gather(topic),
            **_published_rules(text),
            "test": test,
            "hardness": hardness,
            "nearness": pl.Series(near).zip_with(pl.Series(train), pl.Series([None], dtype=pl.Float64)),
        }
    )

    sparse = np.flatnonzero(~graded)
    judged = [(sparse, answer[sparse], np.ones(len(sparse), np.int64))]
    for row in np.flatnonzero(graded):
        found, score = _judge(rng, answer[row], about, about_topic)
        judged.append((np.full(len(found), row), found, score))
    query_row, passage_row, scores = (np.concatenate(column) for column in zip(*judged, strict=True))
    qrels = pl.DataFrame(
        {
            "query_id": queries["query_id"].gather(query_row),
            "passage_id": passage_id.gather(passage_row),
            "score": scores,
        }
    )
    asked = {"head": np.where(typo, 0, head[entity]), "tail": tail[entity], "aspect": aspect, "word": word}
    return Mini(
        parameters=parameters,
        passages=pl.DataFrame({"passage_id": passage_id, "text": passage_text}),
        queries=queries,
        qrels=qrels,
        strengths=strengths,
        _asked=pl.DataFrame({**asked, "literal": literal}),
        _about=pl.DataFrame({"passage_id": passage_id, "aspect": about_aspect, "prior": rng.random(len(about))}),
        _named=pl.concat(
            pl.DataFrame({"name": names, "passage_id": passage_id}).with_columns(weight=pl.lit(weight))
            for pair, weight in ((about_entity, 1.0), (other, 0.8))
            for names in _names(head, tail, pair).T
        ).filter(pl.col("name") != 0),
    )


def _lexicon(rng: np.random.Generator, entities: int) -> _Lexicon:
    """Draw all words; words of different blocks differ."""
    reserved = sum(map(len, CLUSTERS.values()))
    sizes = {
        "topical": len(TOPIC_SHARES) * TOPIC_WORDS,
        "aspect": ASPECTS,
        "common": ASPECTS * COMMON_SYNONYMS,
        "reserved": ASPECTS * reserved,
        "tail": entities // ENTITIES_PER_TAIL,
    }
    filler = _words(rng, FILLER_WORDS - len(FUNCTION_WORDS), 2)
    middle = _words(rng, sum(sizes.values()), 3)
    words = [None, *FUNCTION_WORDS, *filler, *middle, *_words(rng, entities, 4)]
    first = np.cumsum([1 + FILLER_WORDS, *sizes.values()]).tolist()
    return _Lexicon(pl.Series(words, dtype=pl.String), 1, *first)


def _words(rng: np.random.Generator, count: int, syllables: int) -> list[str]:
    """Draw `count` different pseudo-words of so many syllables."""
    codes = rng.choice(len(SYLLABLES) ** syllables, count, replace=False)
    words = SYLLABLES[codes % len(SYLLABLES)]
    for _ in range(syllables - 1):
        codes = codes // len(SYLLABLES)
        words = np.strings.add(words, SYLLABLES[codes % len(SYLLABLES)])
    return [str(word) for word in words]


def _populations(rng: np.random.Generator, n: int) -> NDArray[np.str_]:
    """Name the population of each of `n` queries, in random order."""
    sizes = {**DL_SIZES, "dev": round(n * DEV_SHARE), "validation": round(n * VALIDATION_SHARE)}
    sizes["train"] = n - sum(sizes.values())
    return rng.permutation(np.repeat(list(sizes), list(sizes.values())))


def _spread(rng: np.random.Generator, cell: Ints) -> Floats:
    """Draw uniform numbers in 0..1 that are evenly spread within each cell, so that shares come out exact."""
    order = np.lexsort((rng.random(len(cell)), cell))
    sizes = np.bincount(cell)
    rank = np.empty(len(cell))
    rank[order] = np.arange(len(cell)) - (np.cumsum(sizes) - sizes)[cell[order]]
    return np.asarray((rank + rng.random(len(cell))) / sizes[cell])


def _aspect_words(
    rng: np.random.Generator,
    lexicon: _Lexicon,
    aspect: Ints,
    clusters: tuple[Ints, ...],
    strengths: dict[str, dict[str, float]],
    u: Floats,
) -> Ints:
    """Choose the word number by which each query asks for its aspect; `u` decides which shift reserves it."""
    synonym = lexicon.common + aspect * COMMON_SYNONYMS + rng.integers(COMMON_SYNONYMS, size=len(aspect))
    word = np.where(rng.random(len(aspect)) < SYNONYM_RATE, synonym, lexicon.aspect + aspect)
    low = np.zeros(len(aspect))
    first = lexicon.reserved
    for cluster, planted in zip(clusters, strengths.values(), strict=True):
        high = low + np.array([*planted.values(), 0.0])[cluster]
        word = np.where((low <= u) & (u < high), first + cluster * ASPECTS + aspect, word)
        first += len(planted) * ASPECTS
        low = high
    return word


def _names(head: Ints, tail: Ints, entity: Ints) -> Ints:
    """Give the two name word numbers of each entity as (n, 2); 0 for no second word and for entity -1."""
    return np.where(entity[:, None] < 0, 0, np.stack([head[entity], tail[entity]], axis=1))


def _passage_texts(
    rng: np.random.Generator, lexicon: _Lexicon, topic: Ints, aspect: Ints, name: Ints, other: Ints
) -> tuple[pl.Series, Ints]:
    """Write the passages; `name` and `other` are (n, 2). Returns texts and quotable word numbers (n, 4)."""
    texts, context = [], []
    low, high = PASSAGE_WORDS
    for start in range(0, len(topic), CHUNK):
        part = slice(start, start + CHUNK)
        size = len(topic[part])
        row = np.arange(size)
        words = _prose(rng, lexicon, topic[part], high)
        words[np.arange(high) >= rng.integers(low, high + 1, size=size)[:, None]] = 0
        called = lexicon.aspect + aspect[part]
        words[:, [0, 2, 5]] = THE, OF, IS
        words[:, 1] = called
        words[:, 3:5] = name[part]
        again = np.flatnonzero(rng.random(size) < 0.5)
        column = rng.integers(8, 12, size=size)
        words[again[:, None], column[again, None] + [0, 1]] = name[part][again]
        words[row, 14 + rng.integers(3, size=size)] = lexicon.aspect + np.where(
            rng.random(size) < 0.5, called - lexicon.aspect, rng.integers(ASPECTS, size=size)
        )
        mentions = np.flatnonzero(other[part, 0])
        words[mentions[:, None], [18, 19]] = other[part][mentions]
        texts.append(_join(lexicon, words))
        context.append(words[:, CONTEXT_COLUMNS])
    return pl.concat(texts), np.concatenate(context)


def _prose(rng: np.random.Generator, lexicon: _Lexicon, topic: Ints, width: int) -> Ints:
    """Draw (n, width) word numbers, Zipf-distributed, some general and some of the row's topic."""
    shape = (len(topic), width)
    u = rng.random(shape)
    general = lexicon.filler + (FILLER_WORDS**u).astype(np.int64) - 1
    topical = lexicon.topical + topic[:, None] * TOPIC_WORDS + (TOPIC_WORDS**u).astype(np.int64) - 1
    return np.where(rng.random(shape) < TOPIC_WORD_RATE, topical, general)


def _join(lexicon: _Lexicon, words: Ints) -> pl.Series:
    """Write each row of word numbers as one text."""
    return lexicon.words.gather(words.ravel()).reshape(words.shape).arr.join(" ", ignore_nulls=True)


def _query_texts(
    rng: np.random.Generator,
    lexicon: _Lexicon,
    form: Ints,
    head: Ints,
    tail: Ints,
    word: Ints,
    typo: NDArray[np.bool_],
    context: Ints,
) -> pl.Series:
    """Write the queries; `form` is wh * 2 + length, `context` (n, 4); a typo drops a letter of the head."""
    templates = pl.Series([template for line in TEMPLATES for template in line.split(" | ")])
    number = form * TEMPLATES_PER_FORM + rng.integers(TEMPLATES_PER_FORM, size=len(form))
    kept = np.where(np.arange(4) < rng.integers(1, 5, size=len(form))[:, None], context, 0)
    dropped = pl.Series(rng.integers(1, 7, size=len(form)))
    h = lexicon.words.gather(head)
    misspelt = h.str.slice(0, dropped) + h.str.slice(dropped + 1)
    parts = pl.DataFrame(
        {
            "text": templates.gather(number),
            "{x}": lexicon.words.gather(word),
            "{c}": _join(lexicon, kept),
            "h": misspelt.zip_with(pl.Series(typo), h),
            "t": lexicon.words.gather(tail),
        }
    ).with_columns(pl.concat_str("h", "t", separator=" ", ignore_nulls=True).alias("{e}"))
    text = pl.col("text")
    for slot in ("{x}", "{e}", "{c}"):
        text = text.str.replace(slot, pl.col(slot), literal=True)
    return parts.select(text)["text"]


def _published_rules(text: pl.Series) -> dict[str, pl.Series]:
    """Tell the wh-form (null = none) and the length class of each text by the published rules."""
    wh = pl.coalesce(
        pl.when(pl.col("text").str.to_lowercase().str.contains_any(terms)).then(pl.lit(cluster))
        for cluster, terms in WH_TERMS.items()
    )
    short = pl.col("text").str.split(" ").list.len() <= SHORT_WORDS
    length = pl.when(short).then(pl.lit("short")).otherwise(pl.lit("long"))
    return pl.DataFrame({"text": text}).select(wh=wh, length=length).to_dict()


def _judge(rng: np.random.Generator, answer: int, about: Ints, topic: Ints) -> tuple[Ints, Ints]:
    """Judge 20 to 60 passages for the dl query that row `answer` is for: passage rows and grades 0..3."""
    low, high = JUDGED
    same_entity = about // ASPECTS == about[answer] // ASPECTS
    own = np.flatnonzero(same_entity)
    score = np.where(about[own] == about[answer], 2, 1)
    score[own == answer] = 3
    best = np.argsort(-score, kind="stable")[: high - 5]
    own, score = own[best], score[best]
    missing = int(rng.integers(max(low, len(own) + 5), high + 1)) - len(own)
    strangers = rng.choice(np.flatnonzero((topic == topic[answer]) & ~same_entity), missing, replace=False)
    return np.concatenate([own, strangers]), np.concatenate([score, np.zeros(missing, np.int64)])
