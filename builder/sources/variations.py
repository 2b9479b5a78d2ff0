"""Other authors' wordings of the benchmarks' queries, and the test sets that came with them, from their own files.

Each part names the files it needs and reads them into tables; :mod:`builder.sources.published` gets the files, and
leaves out the parts without a stated licence unless told otherwise.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import polars as pl

from builder.collection import NONE_STATED
from builder.release import VARIATIONS, Table
from eval_kit.documents import Rule
from eval_kit.files.formats import by_id, read_queries, read_trec_qrels
from eval_kit.release import Variation

CHARACTERBERT = "ielab/CharacterBERT-DR"
EXPANDED = "Narabzad/Chameleons/expanded Queries"
GENERATORS = "Guzpenha/query_variation_generators"
WORDINGS = f"{GENERATORS}/data/variations_trec2019_labeled.csv"
DL_HARD = "grill-lab/DL-Hard"
DL_HARD_QRELS = f"{DL_HARD}/dataset/dl_hard-passage.qrels"
DL_HARD_ANNOTATIONS = f"{DL_HARD}/annotations/query/annotations.tsv"
DL_HARD_FOLDS = f"{DL_HARD}/dataset/folds.json"
APACHE = "Apache-2.0"

TYPO_FILES = {
    "dev": "marco_dev/queries.dev.small.typo{}.tsv",
    "dl19": "dl2019/queries.dl2019.typo{}.tsv",
    "dl20": "dl2020/queries.dl2020.typo{}.tsv",
}
TYPO_REPLICAS = range(1, 11)
DL_TYPO_FILES = {
    ("typo", "real"): ("query.typo.tsv", "as it was mistyped in the log"),
    ("spelling", "typo_ms"): ("query.typo.ms.tsv", "the mistyped query, corrected by Microsoft's spell-checker"),
    ("spelling", "typo_py"): ("query.typo.py.tsv", "the mistyped query, corrected by pyspellchecker"),
    ("spelling", "ms"): ("query.ms.tsv", "the correct query after Microsoft's spell-checker"),
    ("spelling", "py"): ("query.py.tsv", "the correct query after pyspellchecker"),
}
"""DL-Typo's wordings other than the correct ones: file, and how each was made."""
ONCE = {
    "conceptnet": "ConceptNet/All_queries_conceptnet.topn3",
    "entity_linking": "Entity Linking/All_queries_tagmee.topn3",
    "neural_embeddings": "Neural Embeddings/All_queries_word2vec.topn3",
    "sense_disambiguation": "Sense Disambigution/All_queries_sensedisambiguation",
    "thesaurus": "Thesaurus/All_queries_thesaurus.topn3",
    "wikipedia": "Wikipedia/All_queries_wiki.topn3",
    "wordnet": "WordNet/All_queries_wordnet.topn3",
}
ONCE_A_RANKER = {
    "document_clustering": "Document Clustering/All_queries_docluster.{}.topn10.3",
    "relevance_feedback": "Relevance Feedback/All_queries_relevancefeedback.{}.topn10",
    "rm3": "RM3/All_queries_rm3.{}",
    "term_clustering": "Term Clustering/All_queries_termluster.{}.topn5.3",
}
RANKERS = {
    "bm25": "bm25",
    "deepct": "deepct",
    "doct5query": "DocT5",
    "repbert": "repbert",
    "ance": "ance",
    "tct_colbert": "colbert",
}
"""Each ranker's name in file names (RM3's files have ``doct5`` in lower case)."""
SUPERVISED = {"anmt": "seq2seq", "acg": "acg", "hred_qs": "hredqs"}
GENERATED = {
    "WordSwapNeighboringCharacterSwap": "misspelling.swap_adjacent",
    "WordSwapQWERTY": "misspelling.swap_key",
    "WordSwapRandomCharacterSubstitution": "misspelling.substitute",
    "naturality_by_removing_stop_words": "naturality.no_stop_words",
    "summarization_with_t5-base_from_description_to_title": "naturality.t5_title",
    "WordInnerSwapRandom": "ordering.shuffled",
    "back_translation_pivot_language_de": "paraphrase.back_translation",
    "ramsrigouthamg/t5_paraphraser": "paraphrase.t5",
    "WordSwapWordNet": "synonym.wordnet",
    "WordSwapEmbedding": "synonym.embedding",
}
"""Category and method of each generator, by its name in the file."""
ANNOTATIONS = ("intent", "answer_type", "topic")

type Paths = Mapping[str, Path]
type Wordings = tuple[Variation, Table]
"""Whose queries are those of the base, at most: ``builder verify`` checks it, and the files are pinned."""


@dataclass(frozen=True)
class Part:
    """Variations or a test set from one source."""

    what: str
    licence: str
    files: tuple[str, ...]
    wordings: Callable[[Paths], Iterator[Wordings]] = lambda paths: iter(())
    test_set: Callable[[Paths], Iterator[Table]] = lambda paths: iter(())


def parts() -> list[Part]:
    """Every part, those that are test sets first."""
    dl_typo = [f"{CHARACTERBERT}/data/dl-typo/{name}" for name in ("query.tsv", "qrels.txt")]
    dl_typo += [f"{CHARACTERBERT}/data/dl-typo/{name}" for name, _ in DL_TYPO_FILES.values()]
    files = [file for _, _, file in _reformulations()]
    dl_hard = (DL_HARD_QRELS, DL_HARD_ANNOTATIONS, DL_HARD_FOLDS)
    return [
        Part("the test set dl_typo", APACHE, tuple(dl_typo), _dl_typo_wordings, _dl_typo),
        Part("the test set dlhard", NONE_STATED, dl_hard, test_set=_dl_hard),
        Part("the variations typo", APACHE, tuple(file for *_, file in _typo_files()), _typos),
        Part("the variations reformulation", NONE_STATED, tuple(files), _reformulated),
        Part("the variations wording", NONE_STATED, (WORDINGS,), _generated),
    ]


def _wordings(
    variation: tuple[str, str, str | None, int | None],
    frame: pl.DataFrame,
    rule: Rule,
    repository: str,
    licence: str,
    invalid: list[str] | None = None,
) -> Wordings:
    base, family, method, replica = variation
    split = "_".join(str(word) for word in variation if word is not None).replace(".", "_")
    description = Variation(base, family, method, replica, split, invalid, repository, licence, frame.height)
    return description, Table(VARIATIONS, split, by_id(frame, "query_id"), rule)


def _typo_files() -> Iterator[tuple[str, int, str]]:
    for base, replica in product(TYPO_FILES, TYPO_REPLICAS):
        yield base, replica, f"{CHARACTERBERT}/data/{TYPO_FILES[base].format(replica)}"


def _typos(paths: Paths) -> Iterator[Wordings]:
    text = "one word of each query mistyped: a character deleted, inserted, substituted, swapped, or hit beside"
    for base, replica, file in _typo_files():
        rule = Rule(text, "Zhuang and Zuccon, SIGIR 2022", [file])
        yield _wordings((base, "typo", None, replica), read_queries(paths[file]), rule, CHARACTERBERT, APACHE)


def _dl_typo(paths: Paths) -> Iterator[Table]:
    source = "Zhuang and Zuccon, SIGIR 2022"
    queries, qrels = (f"{CHARACTERBERT}/data/dl-typo/{name}" for name in ("query.tsv", "qrels.txt"))
    rule = Rule("real queries of a log that were mistyped, corrected", source, [queries])
    yield Table("dl_typo", "test", by_id(read_queries(paths[queries]), "query_id"), rule)
    judgements = by_id(read_trec_qrels(paths[qrels]), "query-id", "corpus-id")
    yield Table("qrels", "dl_typo", judgements, Rule("the authors' judgements of DL-Typo", source, [qrels]))


def _dl_typo_wordings(paths: Paths) -> Iterator[Wordings]:
    for (family, method), (name, text) in DL_TYPO_FILES.items():
        file = f"{CHARACTERBERT}/data/dl-typo/{name}"
        rule = Rule(text, "Zhuang and Zuccon, SIGIR 2022", [file])
        yield _wordings(("dl_typo", family, method, None), read_queries(paths[file]), rule, CHARACTERBERT, APACHE)


def _reformulations() -> Iterator[tuple[str, str, str]]:
    """Base, method and file of every reformulation.

    The authors' files of Veiled 50 % hold the same texts as those of all dev queries, except for the supervised
    methods, which exist for Veiled 50 % only.
    """
    for method, file in ONCE.items():
        yield "dev", method, f"{EXPANDED}/{file}"
    for (method, file), (ranker, name) in product(ONCE_A_RANKER.items(), RANKERS.items()):
        yield "dev", f"{method}.{ranker}", f"{EXPANDED}/{file.format(name.lower() if method == 'rm3' else name)}"
    for method, name in SUPERVISED.items():
        file = f"{EXPANDED}/supervised methods/Veiled_50_predicted_queries_deep_{name}.tsv"
        yield "chameleons.veiled.50", method, file


def _reformulated(paths: Paths) -> Iterator[Wordings]:
    for base, method, file in _reformulations():
        text = "a trained model's rewriting" if method in SUPERVISED else "the query expanded with related terms"
        rule = Rule(text, "CIKM 2021 §4.1", [file])
        variation = (base, "reformulation", method, None)
        yield _wordings(variation, read_queries(paths[file]), rule, "Narabzad/Chameleons", NONE_STATED)


def _generated(paths: Paths) -> Iterator[Wordings]:
    rows = pl.read_csv(paths[WORDINGS], infer_schema=False)
    for generator, method in GENERATED.items():
        of_generator = rows.filter(pl.col("method") == generator)
        frame = of_generator.select(query_id="q_id", text="variation")
        invalid = of_generator.filter(pl.col("valid") == "False")["q_id"].unique().sort().to_list()
        rule = Rule(f"{generator}, judged by people", "Penha et al., ECIR 2022", [WORDINGS])
        variation = ("dl19", "wording", method, None)
        yield _wordings(variation, frame, rule, GENERATORS, NONE_STATED, invalid)


def _dl_hard(paths: Paths) -> Iterator[Table]:
    source = "Mackie et al., SIGIR 2021"
    judgements = read_trec_qrels(paths[DL_HARD_QRELS])
    schema = {name: pl.String() for name in ("query_id", "text", *ANNOTATIONS, "source")}
    annotations = pl.read_csv(
        paths[DL_HARD_ANNOTATIONS], separator="\t", has_header=False, quote_char=None, schema=schema
    ).drop("source")
    folds = json.loads(paths[DL_HARD_FOLDS].read_text(encoding="utf-8"))
    fold = pl.DataFrame({"fold": list(folds), "query_id": list(folds.values())}).explode("query_id")
    frame = fold.cast({"query_id": pl.String}).join(annotations, on="query_id", how="left", maintain_order="left")
    labels = frame.select(pl.col(ANNOTATIONS).str.to_lowercase(), "fold")
    frame = frame.select("query_id", "text", *map(_labelled, labels.iter_columns()))
    rule = Rule(
        "TREC DL queries that rankers fail on, annotated with intent, answer type and topic; five folds",
        source,
        [DL_HARD_ANNOTATIONS, DL_HARD_FOLDS],
    )
    yield Table("dlhard", "test", by_id(frame, "query_id"), rule)
    rule = Rule("NIST's judgements, and the authors' own where there were none", source, [DL_HARD_QRELS])
    yield Table("qrels", "dlhard", by_id(judgements, "query-id", "corpus-id"), rule)


def _labelled(column: pl.Series) -> pl.Series:
    return column.cast(pl.Enum(sorted(column.unique())))
