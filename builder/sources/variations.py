"""Other authors' wordings of the benchmarks' queries, and the test sets that came with them, from their own files.

Each part names the files it needs and reads them into tables; :mod:`builder.sources.published` gets the files, and
leaves out the parts without a stated licence unless told otherwise.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import polars as pl

from builder.collection import NONE_STATED
from builder.release import VARIATIONS
from eval_kit.authors.draft import Table
from eval_kit.documents import Rule
from eval_kit.files.formats import read_qrels, read_queries
from eval_kit.release import Variation

_CHARACTERBERT = "ielab/CharacterBERT-DR"
EXPANDED = "Narabzad/Chameleons/expanded Queries"
_GENERATORS = "Guzpenha/query_variation_generators"
_WORDINGS = f"{_GENERATORS}/data/variations_trec2019_labeled.csv"
DL_TYPO = f"{_CHARACTERBERT}/data/dl-typo"
DL_TYPO_QUERIES, DL_TYPO_QRELS = f"{DL_TYPO}/query.tsv", f"{DL_TYPO}/qrels.txt"
_DL_HARD = "grill-lab/DL-Hard"
_DL_HARD_QRELS = f"{_DL_HARD}/dataset/dl_hard-passage.qrels"
_DL_HARD_ANNOTATIONS = f"{_DL_HARD}/annotations/query/annotations.tsv"
_DL_HARD_FOLDS = f"{_DL_HARD}/dataset/folds.json"
_APACHE = "Apache-2.0"
OF_TYPOS, OF_DL_HARD = "Zhuang and Zuccon, SIGIR 2022", "Mackie et al., SIGIR 2021"
"""The papers."""

_TYPO_FILES = {
    "dev": "marco_dev/queries.dev.small.typo{}.tsv",
    "dl19": "dl2019/queries.dl2019.typo{}.tsv",
    "dl20": "dl2020/queries.dl2020.typo{}.tsv",
}
_TYPO_REPLICAS = range(1, 11)
_DL_TYPO_FILES = {
    ("typo", "real"): ("query.typo.tsv", "as it was mistyped in the log"),
    ("spelling", "typo_ms"): ("query.typo.ms.tsv", "the mistyped query, corrected by Microsoft's spell-checker"),
    ("spelling", "typo_py"): ("query.typo.py.tsv", "the mistyped query, corrected by pyspellchecker"),
    ("spelling", "ms"): ("query.ms.tsv", "the correct query after Microsoft's spell-checker"),
    ("spelling", "py"): ("query.py.tsv", "the correct query after pyspellchecker"),
}
"""DL-Typo's wordings other than the correct ones: file, and how each was made."""
_ONCE = {
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
_SUPERVISED = {"anmt": "seq2seq", "acg": "acg", "hred_qs": "hredqs"}
_GENERATED = {
    "misspelling.swap_adjacent": "WordSwapNeighboringCharacterSwap",
    "misspelling.swap_key": "WordSwapQWERTY",
    "misspelling.substitute": "WordSwapRandomCharacterSubstitution",
    "naturality.no_stop_words": "naturality_by_removing_stop_words",
    "naturality.t5_title": "summarization_with_t5-base_from_description_to_title",
    "ordering.shuffled": "WordInnerSwapRandom",
    "paraphrase.back_translation": "back_translation_pivot_language_de",
    "paraphrase.t5": "ramsrigouthamg/t5_paraphraser",
    "synonym.wordnet": "WordSwapWordNet",
    "synonym.embedding": "WordSwapEmbedding",
}
"""The generator, by its name in the file, of each category and method."""
_ANNOTATIONS = ("intent", "answer_type", "topic")

type Paths = Mapping[str, Path]
type Wording = tuple[str, str, str | None, int | None, str, str]
"""Base, family, method and replica of a variation, the file that holds its texts, and how they were made."""


@dataclass(frozen=True)
class Part:
    """Variations or a test set from one source; the paper is the one that describes the variations."""

    what: str
    repository: str
    licence: str
    paper: str
    wordings: Sequence[Wording] = ()
    test_set_files: Sequence[str] = ()
    test_set: Callable[[Paths], Iterator[Table]] = lambda paths: iter(())

    @property
    def files(self) -> list[str]:
        """All that are needed, each once."""
        return list(dict.fromkeys([*self.test_set_files, *(file for *_, file, _ in self.wordings)]))

    def variations(self, paths: Paths) -> Iterator[tuple[Variation, Table]]:
        """Whose queries are those of the base, at most: ``builder verify`` checks it, and the files are pinned."""
        for base, family, method, replica, file, text in self.wordings:
            if method in _GENERATED:
                frame, invalid = _of_generator(paths[file], _GENERATED[method])
            else:
                frame, invalid = read_queries(paths[file]), None
            split = "_".join(filter(None, (base, family, method, str(replica or "")))).replace(".", "_")
            variation = Variation(
                base, family, method, replica, split, invalid, self.repository, self.licence, frame.height
            )
            yield variation, Table(VARIATIONS, split, frame, Rule(text, self.paper, [file]))


def parts() -> list[Part]:
    """Every part, those that are test sets first."""
    dl_typo = (DL_TYPO_QUERIES, DL_TYPO_QRELS)
    dl_hard = (_DL_HARD_QRELS, _DL_HARD_ANNOTATIONS, _DL_HARD_FOLDS)
    reformulations, generations = list(_reformulations()), list(_wordings())
    return [
        Part("the test set dl_typo", _CHARACTERBERT, _APACHE, OF_TYPOS, list(_dl_typos()), dl_typo, _dl_typo),
        Part("the test set dlhard", _DL_HARD, NONE_STATED, OF_DL_HARD, [], dl_hard, _dl_hard),
        Part("the variations typo", _CHARACTERBERT, _APACHE, OF_TYPOS, list(_typos())),
        Part("the variations reformulation", "Narabzad/Chameleons", NONE_STATED, "CIKM 2021 §4.1", reformulations),
        Part("the variations wording", _GENERATORS, NONE_STATED, "Penha et al., ECIR 2022", generations),
    ]


def _typos() -> Iterator[Wording]:
    text = "one word of each query mistyped: a character deleted, inserted, substituted, swapped, or hit beside"
    for base, replica in product(_TYPO_FILES, _TYPO_REPLICAS):
        yield base, "typo", None, replica, f"{_CHARACTERBERT}/data/{_TYPO_FILES[base].format(replica)}", text


def _dl_typos() -> Iterator[Wording]:
    for (family, method), (name, text) in _DL_TYPO_FILES.items():
        yield "dl_typo", family, method, None, f"{DL_TYPO}/{name}", text


def _reformulations() -> Iterator[Wording]:
    """The expanded and rewritten queries.

    The authors' files of Veiled 50 % hold the same texts as those of all dev queries, except for the supervised
    methods, which exist for Veiled 50 % only.
    """
    family, text = "reformulation", "the query expanded with related terms"
    for method, file in _ONCE.items():
        yield "dev", family, method, None, f"{EXPANDED}/{file}", text
    for (method, file), (ranker, name) in product(ONCE_A_RANKER.items(), RANKERS.items()):
        path = f"{EXPANDED}/{file.format(name.lower() if method == 'rm3' else name)}"
        yield "dev", family, f"{method}.{ranker}", None, path, text
    for method, name in _SUPERVISED.items():
        path = f"{EXPANDED}/supervised methods/Veiled_50_predicted_queries_deep_{name}.tsv"
        yield "chameleons.veiled.50", family, method, None, path, "a trained model's rewriting"


def _wordings() -> Iterator[Wording]:
    for method, generator in _GENERATED.items():
        yield "dl19", "wording", method, None, _WORDINGS, f"{generator}, judged by people"


def _of_generator(path: Path, generator: str) -> tuple[pl.DataFrame, list[str]]:
    """One generator's texts, and the ids of the queries that people judged to ask something else."""
    rows = pl.read_csv(path, infer_schema=False).filter(pl.col("method") == generator)
    invalid = rows.filter(pl.col("valid") == "False")["q_id"].unique().sort().to_list()
    return rows.select(query_id="q_id", text="variation"), invalid


def _dl_typo(paths: Paths) -> Iterator[Table]:
    rule = Rule("real queries of a log that were mistyped, corrected", OF_TYPOS, [DL_TYPO_QUERIES])
    yield Table("dl_typo", "test", read_queries(paths[DL_TYPO_QUERIES]), rule)
    rule = Rule("the authors' judgements of DL-Typo", OF_TYPOS, [DL_TYPO_QRELS])
    yield Table("qrels", "dl_typo", read_qrels(paths[DL_TYPO_QRELS]), rule)


def _dl_hard(paths: Paths) -> Iterator[Table]:
    schema = dict.fromkeys(("query_id", "text", *_ANNOTATIONS, "source"), pl.String())
    annotations = pl.read_csv(
        paths[_DL_HARD_ANNOTATIONS], separator="\t", has_header=False, quote_char=None, schema=schema
    ).drop("source")
    folds = json.loads(paths[_DL_HARD_FOLDS].read_text(encoding="utf-8"))
    fold = pl.DataFrame({"fold": list(folds), "query_id": list(folds.values())}).explode("query_id")
    frame = fold.cast({"query_id": pl.String}).join(annotations, on="query_id", how="left", maintain_order="left")
    labels = frame.select(pl.col(_ANNOTATIONS).str.to_lowercase(), "fold")
    frame = frame.select("query_id", "text", *map(_labels, labels.iter_columns()))
    rule = Rule(
        "TREC DL queries that rankers fail on, annotated with intent, answer type and topic; five folds",
        OF_DL_HARD,
        [_DL_HARD_ANNOTATIONS, _DL_HARD_FOLDS],
    )
    yield Table("dlhard", "test", frame, rule)
    rule = Rule("NIST's judgements, and the authors' own where there were none", OF_DL_HARD, [_DL_HARD_QRELS])
    yield Table("qrels", "dlhard", read_qrels(paths[_DL_HARD_QRELS]), rule)


def _labels(column: pl.Series) -> pl.Series:
    return column.cast(pl.Enum(sorted(column.unique())))
