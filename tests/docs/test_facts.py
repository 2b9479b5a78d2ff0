"""What the pages say beyond the papers, recomputed from the authors' files by numpy, scipy and plain Python.

Each test has the figures of one section: docs/variations.md (Chameleons, rewritings), docs/protocol.md (Figure 3),
docs/audit.md (TREC DL) and docs/beir.md (in-domain and out). What the kit computes itself is compared with them.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Iterator
from math import fsum
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.feature_extraction.text import TfidfVectorizer

from eval_kit.protocols.in_domain import in_domain

PUBLISHED = Path(__file__).parents[2] / "eval_kit" / "release" / "published"
CLUSTERS = {"topic": ["0", "1", "2", "3", "4"], "wh": ["wha", "how", "who"], "length": ["short", "long"]}
REWRITINGS = {
    "conceptnet": "ConceptNet/Veiled_50_conceptnet.topn3",
    "document-clustering": "Document Clustering/Veiled_50_docluster.{}.topn10.3",
    "entity-linking": "Entity Linking/Veiled_50_tagmee.topn3",
    "neural-embeddings": "Neural Embeddings/Veiled_50_word2vec.topn3",
    "rm3": "RM3/Veiled_50_rm3.{}",
    "relevance-feedback": "Relevance Feedback/Veiled_50_relevancefeedback.{}.topn10",
    "sense-disambiguation": "Sense Disambigution/Veiled_50_sensedisambiguation",
    "term-clustering": "Term Clustering/Veiled_50_termluster.{}.topn5.3",
    "thesaurus": "Thesaurus/Veiled_50_thesaurus.topn3",
    "wikipedia": "Wikipedia/Veiled_50_wiki.topn3",
    "wordnet": "WordNet/Veiled_50_wordnet.topn3",
}


def texts(path: Path) -> dict[str, str]:
    return dict(line.split("\t", 1) for line in path.read_text(encoding="utf-8").splitlines() if "\t" in line)


def shift_queries(shared: Path, part: str) -> dict[str, str]:
    return texts(shared / "upstream" / "naver" / "ms-marco-shift" / "EVAL" / "queries" / f"queries_{part}.tsv")


def table(paper: str, name: str) -> list[dict]:
    tables = json.loads((PUBLISHED / f"{paper}.json").read_text(encoding="utf-8"))["tables"]
    return next(table["cells"] for table in tables if table["id"] == name)


def dev_and_veiled(shared: Path) -> tuple[dict[str, str], set[str]]:
    dev = shift_queries(shared, "short") | shift_queries(shared, "long")
    lists = shared / "upstream" / "Narabzad" / "Chameleons" / "datasets"
    return dev, set(texts(lists / "Veiled(common4)" / "Veiled_common4_0.5"))


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def training_queries(shared: Path) -> dict[str, str]:
    training: dict[str, str] = {}
    for part in (*CLUSTERS["topic"], *CLUSTERS["wh"]):
        training |= shift_queries(shared, part)
    return training


def edits(word: str) -> Iterator[str]:
    """What one mistake makes of a word: a letter less, more or changed, or two that changed places."""
    for i in range(len(word) + 1):
        left, right = word[:i], word[i:]
        yield from (left + right[1:], left + right[1:2] + right[:1] + right[2:])
        for letter in string.ascii_lowercase:
            yield from (left + letter + right, left + letter + right[1:])


def test_chameleons_have_fewer_unseen_words_than_other_dev_queries(shared: Path):
    dev, veiled = dev_and_veiled(shared)
    training = training_queries(shared)
    seen = Counter(word for text in training.values() for word in words(text))
    for path in (shared / "queries" / "web-100k.tsv", shared / "real-slice" / "collection.tsv"):
        with path.open(encoding="utf-8") as file:
            for line in file:
                seen.update(words(line.partition("\t")[2]))
    unseen = {query: [word for word in words(text) if word not in seen] for query, text in dev.items()}
    misspelled = {
        query: any(len(word) > 4 and word.isalpha() and max(seen[edit] for edit in edits(word)) >= 20 for word in rare)
        for query, rare in unseen.items()
    }
    assert len(training) == 49_410
    for of_query, shares, p in ((unseen, (9.0, 23.1), 1e-50), (misspelled, (1.4, 2.8), 1e-4)):
        inside, outside = (
            [bool(of_query[query]) for query in dev if (query in veiled) is own] for own in (True, False)
        )
        assert (len(inside), len(outside)) == (3_119, 3_861)
        assert (round(100 * np.mean(inside), 1), round(100 * np.mean(outside), 1)) == shares
        counts = [[sum(part), len(part) - sum(part)] for part in (inside, outside)]
        assert stats.fisher_exact(counts).pvalue < p


@pytest.mark.slow
def test_chameleons_lie_nearer_to_training(shared: Path):
    dev, veiled = dev_and_veiled(shared)
    trigrams = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), sublinear_tf=True, dtype=np.float32)
    training = trigrams.fit_transform(training_queries(shared).values())
    queries = trigrams.transform(dev.values())
    parts = [queries[start : start + 200] @ training.T for start in range(0, len(dev), 200)]
    nearest = np.concatenate([part.max(axis=1).toarray().ravel() for part in parts])
    is_veiled = np.array([query in veiled for query in dev])
    inside, outside = nearest[is_veiled], nearest[~is_veiled]
    assert (round(inside.mean(), 3), round(outside.mean(), 3)) == (0.580, 0.542)
    assert stats.ttest_ind(inside, outside).pvalue < 1e-30


def test_chameleons_gather_in_two_buckets(shared: Path):
    dev, veiled = dev_and_veiled(shared)
    folder = shared / "upstream" / "jingtaozhan" / "extrapolate-eval" / "resttest_files" / "msmarco-passage"
    shares = []
    for bucket in range(1, 6):
        lines = (folder / f"bucket-{bucket}" / "extrapolate.dev-qrel.txt").read_text().splitlines()
        queries = {line.split()[0] for line in lines}
        shares.append([100 * np.mean([query in queries for query in part]) for part in (veiled, dev.keys() - veiled)])
    assert np.round(shares, 1).tolist() == [[17.0, 11.7], [29.8, 33.0], [18.4, 32.4], [27.5, 16.4], [7.2, 6.6]]


def similarity(cluster: list[str], others: list[str]) -> float:
    """Jaccard's, of how often each word comes."""
    first, second = (Counter(" ".join(queries).lower().split()) for queries in (cluster, others))
    words_of_both = first.keys() | second.keys()
    shares = np.array([[counts[word] / counts.total() for word in words_of_both] for counts in (first, second)])
    return fsum(shares.min(axis=0)) / fsum(shares.max(axis=0))  # equal for two parts of a shift, in any order of words


def test_published_losses_follow_similarity(shared: Path):
    """Over the eight clusters of topics and question words, over topics, and over all ten."""
    similarities: dict[str, float] = {}
    for shift, parts in CLUSTERS.items():
        queries = {part: list(shift_queries(shared, part).values()) for part in parts}
        for part in parts:
            others = [text for other in parts if other != part for text in queries[other]]
            similarities[f"{shift}.{'c' * (shift == 'topic')}{part}"] = similarity(queries[part], others)
    cells = table("ecir2023", "ecir2023-table2") + table("ecir2023", "ecir2023-table3")
    losses: dict[str, dict[str, float]] = {}
    for cell in cells:
        if (cell["measure"], cell["figure"]) == ("RR@10", "loss"):
            losses.setdefault(cell["system"], {})[cell["test_set"]] = cell["value"]
    for system, expected in {
        "biencoder": (-0.85, -0.40, -0.77),
        "splade": (-0.88, -0.90, -0.85),
        "colbert": (-0.90, -0.70, -0.85),
        "monobert": (-0.81, -0.30, -0.32),
    }.items():
        for shifts, correlation in zip((("topic", "wh"), "topic", tuple(CLUSTERS)), expected, strict=True):
            chosen = [name for name in similarities if name.startswith(shifts)]
            result = stats.spearmanr(*([of[name] for name in chosen] for of in (similarities, losses[system])))
            assert result.statistic == pytest.approx(correlation, abs=0.006)
            assert len(chosen) != 8 or result.pvalue < 0.02


def test_bm25_is_weak_where_passages_were_trained_on(shared: Path):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    qrels: dict[str, dict[str, int]] = {}
    trained: set[str] = set()
    for path in shared.glob("upstream/castorini/anserini-tools/**/qrels.dl*-passage.txt"):
        for line in path.read_text().splitlines():
            query, _, passage, grade = line.split()
            qrels.setdefault(query, {})[passage] = int(grade)
    for path in shared.glob("upstream/jingtaozhan/extrapolate-eval/restrain_files/msmarco-passage/*/*.train-qrel.txt"):
        trained.update(line.split()[2] for line in path.read_text().splitlines())
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut_10"})
    figures: dict[str, dict[str, float]] = {}
    for system in ("bm25", "tas-b", "splade-pp-ed"):
        run: dict[str, dict[str, float]] = {}
        for year in ("dl19", "dl20"):
            for line in (shared / "real-slice" / "runs" / f"{system}.{year}.trec").read_text().splitlines():
                query, _, passage, _, score, _ = line.split()
                run.setdefault(query, {})[passage] = float(score)
        figures[system] = {query: value["ndcg_cut_10"] for query, value in evaluator.evaluate(run).items()}
    counts = {
        query: sum(grade >= 2 and passage in trained for passage, grade in qrels[query].items())
        for query in figures["bm25"]
    }
    parts = [[query for query in counts if (counts[query] >= 2) is many] for many in (True, False)]
    assert list(map(len, parts)) == [51, 46]
    means = {
        system: [round(np.mean([values[query] for query in part]), 3) for part in parts]
        for system, values in figures.items()
    }
    assert means == {"bm25": [0.440, 0.548], "tas-b": [0.713, 0.688], "splade-pp-ed": [0.720, 0.729]}
    gains = [[figures["tas-b"][query] - figures["bm25"][query] for query in part] for part in parts]
    assert [round(np.mean(gain), 3) for gain in gains] == [0.273, 0.140]
    assert stats.ttest_ind(*gains).pvalue == pytest.approx(0.014, abs=0.001)


def test_long_rewritings_hurt_dense_rankers(shared: Path):
    printed = {cell["system"]: cell["value"] for cell in table("cikm2021", "cikm2021-table7")}
    folder = shared / "upstream" / "Narabzad" / "Chameleons" / "expanded Queries"
    for ranker, name, expected in (
        ("bm25", "bm25", -0.35),
        ("deepct", "deepct", -0.18),
        ("doct5query", "DocT5", -0.23),
        ("repbert", "repbert", -0.72),
        ("ance", "ance", -0.88),
        ("tct-colbert", "colbert", -0.72),
    ):
        lengths, changes = [], []
        for method, file in REWRITINGS.items():
            rewritten = texts(folder / file.format(name.lower() if method == "rm3" else name))
            lengths.append(np.mean([len(text.split()) for text in rewritten.values()]))
            changes.append(printed[f"{ranker}+{method}"] - printed[ranker])
        result = stats.spearmanr(lengths, changes)
        assert result.statistic == pytest.approx(expected, abs=0.005)
        assert (result.pvalue < 0.05) == (ranker in ("repbert", "ance", "tct-colbert"))


@pytest.mark.parametrize(
    ("left_out", "expected", "p"), [((), 0.523, 0.1210), (("bm25",), 0.695, 0.0379), (("bm25", "dpr"), 0.563, 0.1463)]
)
def test_in_domain_figures_order_systems_only_roughly(left_out: tuple[str, ...], expected: float, p: float):
    cells: dict[str, dict[str, float]] = {}
    for cell in table("beir2021", "beir2021-table2"):
        if cell["test_set"] != "beir" and cell["system"] not in left_out:
            cells.setdefault(cell["system"], {})[cell["test_set"]] = cell["value"]
    outside = [np.mean([value for name, value in row.items() if name != "beir.ms-marco"]) for row in cells.values()]
    result = stats.spearmanr([row["beir.ms-marco"] for row in cells.values()], outside)
    assert len(cells) == 10 - len(left_out)
    assert (result.statistic, result.pvalue) == pytest.approx((expected, p), abs=0.0005)
    row = in_domain().to_polars().filter(n=len(cells)).row(0, named=True)
    assert (row["spearman"], row["p"]) == pytest.approx((result.statistic, result.pvalue), abs=1e-12)
