"""A small synthetic MS MARCO with planted query shifts.

Every passage is about one (entity, aspect) pair and every query asks for one. A passage names the aspect by
one word; a query uses that word, or a synonym that no passage contains. Some synonyms are reserved for one
topic, one wh-form or one length: the share of a cluster's queries that use its reserved synonyms is the
cluster's planted strength, what a model can't know that never trained on the cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from builder.encoders import Lsa
from builder.shifts import length, wh
from builder.sources.collection import Collection
from eval_kit.errors import UserError

type Ints = NDArray[np.int64]
type Floats = NDArray[np.float64]

CLUSTERS = {"topic": ("c0", "c1", "c2", "c3", "c4"), "wh": wh.CLUSTERS, "length": length.CLUSTERS}
STRENGTHS = {"topic": (0.40, 0.32, 0.24, 0.16, 0.08), "wh": (0.3, 0.2, 0.1), "length": (0.2, 0.1)}

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
SYLLABLES = np.array(["".join(letters) for letters in product(CONSONANTS, "aeiou")])
FUNCTION_WORDS = ("the", "of", "is", "and", "in", "to", "a", "for")
THE, OF, IS = 1, 2, 3
FILLER_WORDS = 2_000
TOPIC_WORDS = 300
TOPIC_WORD_RATE = 0.3
MENTION_RATE = 0.2  # of the passages that also name another entity
PASSAGE_WORDS = (33, 60)  # including up to three places for second names that may stay empty
CONTEXT_COLUMNS = slice(26, 30)  # passage columns that hold nothing but filler; long queries quote them
CHUNK = 100_000
ORACLE_DEPTH = 100

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
class MiniParameters:
    """What a mini is made from: equal parameters give equal frames.

    `queries` (at least 500) counts all populations together. `strength` (0..1) scales every planted strength:
    it changes the words that queries use for aspects, the hardness that follows from them, and nothing else.
    """

    seed: int = 13
    queries: int = 10_000
    strength: float = 1.0

    def __post_init__(self) -> None:
        """Raise a UserError when a value is out of range."""
        if self.queries < MIN_QUERIES:
            raise UserError(f"queries must be at least {MIN_QUERIES}, not {self.queries}")
        if not 0 <= self.strength <= 1:
            raise UserError(f"strength must be in 0..1, not {self.strength}")


DEFAULT = MiniParameters()


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

    parameters: MiniParameters
    passages: pl.DataFrame
    queries: pl.DataFrame
    qrels: pl.DataFrame
    strengths: dict[str, dict[str, float]]
    _words: pl.DataFrame = field(repr=False)  # by query row: head, tail (word numbers), aspect, word, literal
    _about: pl.DataFrame = field(repr=False)  # by passage row: passage_id, aspect, prior
    _named: pl.DataFrame = field(repr=False)  # name (word number), passage_id, weight

    def oracle(self, shift: str, held_out: str | None, query_ids: Iterable[str]) -> pl.DataFrame:
        """Rank passages knowing exactly the synonyms of the training queries outside one cluster.

        The training queries are those of population train, not test, in a cluster of `shift` other than
        `held_out`; `held_out=None` knows every synonym. Returns query_id, passage_id, score with 100 rows
        for each query, best first, queries in the order of `queries`.

        Raises ValueError for an unknown shift, cluster or query id.
        """
        if shift not in CLUSTERS:
            raise ValueError(f"unknown shift {shift!r}: expected one of {', '.join(CLUSTERS)}")
        if held_out not in (None, *(clusters := CLUSTERS[shift])):
            raise ValueError(f"unknown {shift} cluster {held_out!r}: expected one of {', '.join(clusters)}")
        if held_out is None:
            return self.oracle_taught(self.queries["query_id"], query_ids)
        training = self.queries.filter(~pl.col("test"), pl.col(shift) != held_out, population="train")
        return self.oracle_taught(training["query_id"], query_ids)

    def oracle_taught(self, training: pl.Series, query_ids: Iterable[str]) -> pl.DataFrame:
        """As :meth:`oracle`, knowing the synonyms of the queries whose ids are in `training`."""
        ids = pl.Series("query_id", list(query_ids), pl.String).unique(maintain_order=True)
        if unknown := ids.filter(~ids.is_in(self.queries["query_id"].implode())).to_list():
            raise ValueError(f"unknown query id {unknown[0]!r} (and {len(unknown) - 1} more)")

        everything = self.queries.hstack(self._words).with_row_index("row")
        taught = everything.filter(pl.col("query_id").is_in(training.implode()))
        known = pl.col("literal") | pl.col("word").is_in(taught["word"].unique().implode())
        asked_for = everything.filter(pl.col("query_id").is_in(ids.implode())).select(
            "row", "head", "tail", wants=pl.when(known).then("aspect")
        )

        names = pl.concat(
            asked_for.select("row", "wants", name=name, importance=pl.lit(importance))
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
        passage = (pl.col("row").cast(pl.Int64) * 7_919 + pl.col("rank") * 104_729) % len(self._about)
        arbitrary = asked_for.join(pl.select(rank=pl.int_range(ORACLE_DEPTH)), how="cross").select(
            "row", passage_id=passage.cast(pl.String), score=-1.0 - pl.col("rank")
        )
        return (
            pl.concat([named, arbitrary])
            .group_by("row", "passage_id")
            .agg(pl.col("score").max())
            .sort("row", "score", "passage_id", descending=[False, True, True])
            .group_by("row", maintain_order=True)
            .head(ORACLE_DEPTH)
            .join(everything.select("row", "query_id"), on="row", maintain_order="left")
            .select("query_id", "passage_id", "score")
        )


def collection(parameters: MiniParameters = DEFAULT) -> Collection:
    """Mini as a collection without planted shifts; its validation queries are training queries like others."""
    mini = generate(parameters)
    splits = {"train": ["train", "validation"], "dev": ["dev"], **{split: [split] for split in DL_SIZES}}
    queries = {split: mini.queries.filter(pl.col("population").is_in(names)) for split, names in splits.items()}
    pairs = mini.qrels.select(
        pl.col("query_id").alias("query-id"), pl.col("passage_id").alias("corpus-id"), pl.col("score").cast(pl.Int64)
    )
    return Collection(
        name="mini",
        source="builder/sources/mini.py",
        queries={split: rows.select("query_id", "text") for split, rows in queries.items()},
        qrels={
            split: pairs.filter(pl.col("query-id").is_in(rows["query_id"].implode())) for split, rows in queries.items()
        },
        passages=mini.passages,
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


@dataclass(frozen=True)
class _Entities:
    """What passages and queries are about: topic t has those from ``starts[t]`` to ``ends[t] - 1``.

    head and tail are the word numbers of each entity's name; tail is 0 where the name has one word.
    """

    starts: Ints
    ends: Ints
    head: Ints
    tail: Ints

    def draw(self, rng: np.random.Generator, topic: Ints, popularity: float = 1.0) -> Ints:
        """Draw an entity for each topic of (n,); the first are drawn more often where popularity is above 1."""
        sizes = self.ends - self.starts
        return self.starts[topic] + (sizes[topic] * rng.random(len(topic)) ** popularity).astype(np.int64)

    def names(self, entity: Ints) -> Ints:
        """Give the two name word numbers of each entity as (n, 2); 0 for no second word and for entity -1."""
        return np.where(entity[:, None] < 0, 0, np.stack([self.head[entity], self.tail[entity]], axis=1))


@dataclass(frozen=True)
class _Intents:
    """What each query asks for, before it is written: (n,) each; topic, wh and length are numbers of labels.

    word is the number of the word for the aspect; literal says that passages use it too.
    """

    population: NDArray[np.str_]
    test: NDArray[np.bool_]
    topic: Ints
    wh: Ints
    length: Ints
    entity: Ints
    aspect: Ints
    word: Ints
    literal: NDArray[np.bool_]
    typo: NDArray[np.bool_]

    @property
    def graded(self) -> NDArray[np.bool_]:
        """Which are TREC DL queries."""
        return np.isin(self.population, list(DL_SIZES))

    @property
    def pair(self) -> Ints:
        """Entity and aspect as one number."""
        return self.entity * ASPECTS + self.aspect


@dataclass(frozen=True)
class _Passages:
    """The passages (m,): the pair each is about, its topic, the second entity it names (-1 for none).

    answer (n,) is the row of the passage that each query is for; context (m, 4) are quotable word numbers.
    """

    pair: Ints
    topic: Ints
    mentioned: Ints
    answer: Ints
    ids: pl.Series
    texts: pl.Series
    context: Ints

    @property
    def entity(self) -> Ints:
        """The entity each is about."""
        return self.pair // ASPECTS

    @property
    def aspect(self) -> Ints:
        """The aspect each is about."""
        return self.pair % ASPECTS


def generate(parameters: MiniParameters = DEFAULT) -> Mini:
    """Make the collection that `parameters` determine."""
    rng = np.random.Generator(np.random.PCG64(parameters.seed))
    strengths = {
        shift: dict(zip(clusters, (np.array(STRENGTHS[shift]) * parameters.strength).tolist(), strict=True))
        for shift, clusters in CLUSTERS.items()
    }
    lexicon, entities = _name_entities(rng, parameters.queries)
    intents = _intents(rng, parameters.queries, lexicon, entities, strengths)
    passages = _passages(rng, lexicon, entities, intents)
    queries = _queries(rng, lexicon, entities, intents, passages)
    qrels = _qrels(rng, queries["query_id"], intents, passages)
    head = np.where(intents.typo, 0, entities.head[intents.entity])
    words = {"head": head, "tail": entities.tail[intents.entity], "aspect": intents.aspect, "word": intents.word}
    prior = rng.random(len(passages.ids))
    return Mini(
        parameters=parameters,
        passages=pl.DataFrame({"passage_id": passages.ids, "text": passages.texts}),
        queries=queries,
        qrels=qrels,
        strengths=strengths,
        _words=pl.DataFrame({**words, "literal": intents.literal}),
        _about=pl.DataFrame({"passage_id": passages.ids, "aspect": passages.aspect, "prior": prior}),
        _named=_named(entities, passages),
    )


def _name_entities(rng: np.random.Generator, queries: int) -> tuple[_Lexicon, _Entities]:
    """Draw all words, and name as many entities as so many queries need."""
    shares = np.array(TOPIC_SHARES)
    blocks = np.maximum(2, np.round(queries * shares / QUERIES_PER_ENTITY / ENTITIES_PER_TAIL)).astype(np.int64)
    ends = np.cumsum(blocks * ENTITIES_PER_TAIL)
    count = int(ends[-1])
    lexicon = _lexicon(rng, count)
    head = lexicon.head + np.arange(count)
    tail = np.where(rng.random(count) < 0.5, lexicon.tail + np.arange(count) // ENTITIES_PER_TAIL, 0)
    return lexicon, _Entities(ends - blocks * ENTITIES_PER_TAIL, ends, head, tail)


def _intents(
    rng: np.random.Generator,
    count: int,
    lexicon: _Lexicon,
    entities: _Entities,
    strengths: dict[str, dict[str, float]],
) -> _Intents:
    """Draw what the queries ask for."""
    population = _populations(rng, count)
    shares = (TOPIC_SHARES, WH_SHARES, LENGTH_SHARES)
    topic, wh_form, length_class = (rng.choice(len(share), count, p=share) for share in shares)
    train = population == "train"
    test = train & (_spread(rng, train, topic, wh_form) < TEST_SHARE)
    entity = entities.draw(rng, topic, POPULARITY)
    aspect = rng.integers(ASPECTS, size=count)
    misspells = rng.random(count) < TYPO_RATE
    kind = np.unique(population, return_inverse=True)[1]
    u = _spread(rng, kind, test, topic, wh_form, length_class)
    word = _aspect_words(rng, lexicon, aspect, (topic, wh_form, length_class), strengths, u)
    return _Intents(
        population=population,
        test=test,
        topic=topic,
        wh=wh_form,
        length=length_class,
        entity=entity,
        aspect=aspect,
        word=word,
        literal=word == lexicon.aspect + aspect,
        typo=misspells & (entities.tail[entity] != 0),  # the second word stays right: every query matches something
    )


def _passages(rng: np.random.Generator, lexicon: _Lexicon, entities: _Entities, intents: _Intents) -> _Passages:
    """Write a passage for each pair that is asked for, two more for TREC DL's, and others; in random order."""
    pairs, pair_of = np.unique(intents.pair, return_inverse=True)
    repeated = np.repeat(pairs[pair_of[intents.graded]], 2)
    extra_count = len(intents.pair) * PASSAGES_PER_QUERY - len(pairs) - len(repeated)
    extra = rng.integers(len(entities.head) * ASPECTS, size=extra_count)
    in_order = np.concatenate([pairs, repeated, extra])
    row_of = rng.permutation(len(in_order))
    pair = np.empty(len(in_order), np.int64)
    pair[row_of] = in_order
    entity, aspect = pair // ASPECTS, pair % ASPECTS
    topic = np.searchsorted(entities.ends, entity, side="right")
    companion = entities.draw(rng, topic)
    mentioned = np.where(rng.random(len(pair)) < MENTION_RATE, companion, -1)
    texts, context = _passage_texts(rng, lexicon, topic, aspect, entities.names(entity), entities.names(mentioned))
    ids = pl.Series("passage_id", np.arange(len(pair))).cast(pl.String)
    return _Passages(pair, topic, mentioned, row_of[pair_of], ids, texts, context)


def _queries(
    rng: np.random.Generator, lexicon: _Lexicon, entities: _Entities, intents: _Intents, passages: _Passages
) -> pl.DataFrame:
    """Write the queries; the columns are those of :class:`Mini`."""
    count = len(intents.entity)
    nearness = _nearness(intents) + rng.random(count) / 2
    identifiers = np.sort(rng.choice(count * 10, count, replace=False))
    quotes = rng.random((count, 4)) < QUOTE_RATE
    context = np.where(quotes, passages.context[passages.answer], _prose(rng, lexicon, intents.topic, 4))
    text = _query_texts(rng, lexicon, entities, intents, context)
    return pl.DataFrame(
        {
            "query_id": pl.Series(identifiers).cast(pl.String),
            "text": text,
            "population": intents.population,
            "topic": pl.Series([*CLUSTERS["topic"], None]).gather(intents.topic),
            **_published_rules(text),
            "test": intents.test,
            "hardness": _hardness(intents, passages),
            "nearness": pl.Series(nearness).zip_with(
                pl.Series(intents.population == "train"), pl.Series([None], dtype=pl.Float64)
            ),
        }
    )


def _hardness(intents: _Intents, passages: _Passages) -> Floats:
    """0..1: a synonym, a typo and many passages about the entity make a query hard."""
    crowd = np.bincount(passages.entity, minlength=int(intents.entity.max()) + 1)[intents.entity]
    return np.asarray(
        HARDNESS["synonym"] * ~intents.literal
        + HARDNESS["typo"] * intents.typo
        + HARDNESS["crowd"] * crowd / (crowd + 10)
    )


def _nearness(intents: _Intents) -> Floats:
    """2 for a query that shares its entity with a TREC DL query, 1 for its topic and aspect, else 0."""
    graded = intents.graded
    topic_and_aspect = intents.topic * ASPECTS + intents.aspect
    same_field = np.isin(topic_and_aspect, topic_and_aspect[graded])
    return np.where(np.isin(intents.entity, intents.entity[graded]), 2.0, same_field * 1.0)


def _qrels(rng: np.random.Generator, query_ids: pl.Series, intents: _Intents, passages: _Passages) -> pl.DataFrame:
    """Judge one passage for each query, and many for each TREC DL query."""
    graded = intents.graded
    sparse = np.flatnonzero(~graded)
    judged = [(sparse, passages.answer[sparse], np.ones(len(sparse), np.int64))]
    for row in np.flatnonzero(graded):
        rows, scores = _judge(rng, passages.answer[row], passages.pair, passages.topic)
        judged.append((np.full(len(rows), row), rows, scores))
    query_rows, passage_rows, scores = (np.concatenate(column) for column in zip(*judged, strict=True))
    return pl.DataFrame(
        {"query_id": query_ids.gather(query_rows), "passage_id": passages.ids.gather(passage_rows), "score": scores}
    )


def _named(entities: _Entities, passages: _Passages) -> pl.DataFrame:
    """Which names each passage holds: its entity's, and with less weight those of the entity it mentions."""
    parts = []
    for entity, weight in ((passages.entity, 1.0), (passages.mentioned, 0.8)):
        for names in entities.names(entity).T:
            part = pl.DataFrame({"name": names, "passage_id": passages.ids})
            parts.append(part.with_columns(weight=pl.lit(weight)))
    return pl.concat(parts).filter(pl.col("name") != 0)


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


def _spread(rng: np.random.Generator, *labels: NDArray[Any]) -> Floats:
    """Draw (n,) uniform numbers in 0..1, evenly spread within equal labels, so that shares come out exact."""
    cell = np.unique(np.stack(labels, axis=1), axis=0, return_inverse=True)[1]
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


def _passage_texts(
    rng: np.random.Generator, lexicon: _Lexicon, topic: Ints, aspect: Ints, name: Ints, mentioned: Ints
) -> tuple[pl.Series, Ints]:
    """Write the passages; `name` and `mentioned` are (n, 2). Returns texts and quotable word numbers (n, 4)."""
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
        mentions = np.flatnonzero(mentioned[part, 0])
        words[mentions[:, None], [18, 19]] = mentioned[part][mentions]
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
    rng: np.random.Generator, lexicon: _Lexicon, entities: _Entities, intents: _Intents, context: Ints
) -> pl.Series:
    """Write the queries, with some of the `context` words (n, 4); a typo drops a letter of the entity's first word."""
    count = len(context)
    templates = pl.Series(" | ".join(TEMPLATES).split(" | "))
    form = intents.wh * len(LENGTH_SHARES) + intents.length
    number = form * TEMPLATES_PER_FORM + rng.integers(TEMPLATES_PER_FORM, size=count)
    kept = np.where(np.arange(4) < rng.integers(1, 5, size=count)[:, None], context, 0)
    dropped = pl.Series(rng.integers(1, 7, size=count))
    head = lexicon.words.gather(entities.head[intents.entity])
    misspelt = head.str.slice(0, dropped) + head.str.slice(dropped + 1)
    parts = pl.DataFrame(
        {
            "text": templates.gather(number),
            "{x}": lexicon.words.gather(intents.word),
            "{c}": _join(lexicon, kept),
            "head": misspelt.zip_with(pl.Series(intents.typo), head),
            "tail": lexicon.words.gather(entities.tail[intents.entity]),
        }
    ).with_columns(pl.concat_str("head", "tail", separator=" ", ignore_nulls=True).alias("{e}"))
    text = pl.col("text")
    for slot in ("{x}", "{e}", "{c}"):
        text = text.str.replace(slot, pl.col(slot), literal=True)
    return parts.select(text)["text"]


def _published_rules(text: pl.Series) -> dict[str, pl.Series]:
    """Tell the wh-form (null = none) and the length class of each text by the published rules."""
    forms = [pl.when(wh.member(text, cluster)).then(pl.lit(cluster)) for cluster in wh.CLUSTERS]
    return {"wh": pl.select(pl.coalesce(forms)).to_series(), "length": length.cluster(text).cast(pl.String)}


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
