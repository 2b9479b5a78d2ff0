"""Other people's wordings in the published release, against what their files hold; and what is wrong with bad ones."""

import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from builder import release as releases
from builder import verify
from builder.sources import published, variations
from eval_kit.files.formats import read_queries
from eval_kit.protocols.by_part import scores_by_part
from eval_kit.protocols.scoring import score
from eval_kit.release import Release, open_release
from eval_kit.runs.covered_test_sets import coverage_of

pytestmark = pytest.mark.usefixtures("shared")
EXPANDED = "upstream/Narabzad/Chameleons/expanded Queries"
VALID = {"misspelling": 127, "naturality": 72, "ordering": 43, "paraphrase": 49, "synonym": 43}


@pytest.fixture(scope="module")
def everything(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The canonical release with the families that have no stated licence."""
    folder = tmp_path_factory.mktemp("unlicensed") / "ms-marco-shift"
    releases.write(published.draft(shared / "upstream", allow_partial=True, unlicensed=True), folder)
    return open_release(folder)


def test_what_states_no_licence_is_left_out(published_release: Release):
    variations = list(published_release.variations.values())
    assert Counter(variation.family for variation in variations) == {"typo": 31, "spelling": 4}
    assert {variation.licence for variation in variations} == {"Apache-2.0"}
    assert "dl_typo" in published_release.test_sets and "dlhard" not in published_release.test_sets
    (remark,) = [remark for remark in published_release.manifest.remarks if "--unlicensed" in remark]
    assert all(what in remark for what in ("dlhard", "reformulation", "wording"))


def test_families(everything: Release):
    families = Counter((variation.base, variation.family) for variation in everything.variations.values())
    assert families == {
        ("dev", "typo"): 10,
        ("dl19", "typo"): 10,
        ("dl20", "typo"): 10,
        ("dl_typo", "typo"): 1,
        ("dl_typo", "spelling"): 4,
        ("dev", "reformulation"): 7 + 4 * 6,
        ("chameleons.veiled.50", "reformulation"): 3,
        ("dl19", "wording"): 10,
    }
    assert not [check for check in verify.verify(everything.folder) if check.fault]


def test_typos_differ_as_the_authors_files_do(everything: Release):
    for base, queries in {"dev": 6_980, "dl19": 43, "dl20": 54}.items():
        for replica in range(1, 11):
            wordings = everything.wordings(everything.variations[f"{base}.typo.{replica}"])
            both = everything.queries(base).join(wordings, on="query_id", suffix="_typo")
            assert both.height == wordings.height == queries
            if base == "dev":
                assert both.filter(pl.col("text") != pl.col("text_typo")).height == 6_975


def test_reformulations(everything: Release, shared: Path):
    veiled = everything.test_sets["chameleons.veiled.50"].queries
    unchanged = {}
    for name, variation in everything.variations.items():
        if variation.family != "reformulation" or variation.base != "dev":
            continue
        wordings = everything.wordings(variation)
        assert wordings.height == 6_980
        both = everything.queries("dev").join(wordings, on="query_id", suffix="_other")
        same = pl.col("text").str.strip_chars() == pl.col("text_other").str.strip_chars()
        unchanged[name.removeprefix("dev.reformulation.")] = both.filter(same).height
    assert unchanged["thesaurus"] == 854 and unchanged["sense_disambiguation"] == 1_204
    by_method: dict[str, list[int]] = {}
    for name, count in unchanged.items():
        by_method.setdefault(name.split(".")[0], []).append(count)
    assert {len(by_method[method]) for method in variations.ONCE_A_RANKER} == {6}
    assert (min(by_method["document_clustering"]), max(by_method["document_clustering"])) == (2_158, 2_957)
    assert (min(by_method["term_clustering"]), max(by_method["term_clustering"])) == (740, 829)
    assert set(by_method["rm3"]) == {0}
    for method in ("anmt", "acg", "hred_qs"):  # supervised: they lack queries
        wordings = everything.wordings(everything.variations[f"chameleons.veiled.50.reformulation.{method}"])
        assert wordings.height == 3_087 == 3_119 - 32
    for path in (shared / EXPANDED).rglob("Veiled_50_*topn3"):  # so the files of Veiled 50 % need not be read
        whole = read_queries(path.with_name(path.name.replace("Veiled_50", "All_queries")))
        part = whole.filter(pl.col("query_id").is_in(veiled.implode()))
        assert part.sort("query_id").equals(read_queries(path).sort("query_id"))


def test_wordings_and_their_validity(everything: Release):
    of = [variation for variation in everything.variations.values() if variation.family == "wording"]
    queries = {variation.method: everything.wordings(variation).height for variation in of}
    assert sum(queries.values()) == 429 and {*queries.values()} == {42, 43} and queries["synonym.wordnet"] == 42
    valid = Counter()
    for variation in of:
        assert variation.invalid is not None and variation.method
        valid[variation.method.split(".")[0]] += queries[variation.method] - len(variation.invalid)
    assert valid == VALID and sum(VALID.values()) == 334


def test_dl_typo(everything: Release):
    assert len(everything.test_sets["dl_typo"].queries) == 60
    grades = everything.qrels("dl_typo")["relevance"].value_counts().sort("relevance")
    assert grades["count"].to_list() == [2_265, 690, 580, 276]
    others = pl.concat(everything.test_sets[name].queries for name in ("dev", "dl19", "dl20"))
    assert not everything.test_sets["dl_typo"].queries.is_in(others.implode()).any()
    typed = everything.wordings(everything.variations["dl_typo.typo.real"])
    assert typed.filter(query_id="106158")["text"].to_list() == ["mobile omes for sale"]


def test_dl_hard(everything: Release):
    table = everything.table("dlhard", "test")
    assert table.height == 50 and table["fold"].value_counts()["count"].to_list() == [10] * 5
    assert table["topic"].value_counts().sort("count")["count"][-1] == 20  # health
    assert table["answer_type"].value_counts().filter(answer_type="factoid")["count"].item() == 5
    grades = everything.qrels("dlhard")["relevance"].value_counts().sort("relevance")
    assert grades["count"].to_list() == [2_462, 810, 634, 350]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("bm25.run", {"nDCG@10": 0.3037, "RR(rel=2)": 0.5044, "AP(rel=2)": 0.1731, "R(rel=2)@1000": 0.6690}),
        ("bm25+t5(zs).run", {"nDCG@10": 0.4084, "RR(rel=2)": 0.5910, "AP(rel=2)": 0.2383, "R(rel=2)@1000": 0.6690}),
    ],
)
def test_dl_hards_published_runs(everything: Release, shared: Path, run: str, expected: dict[str, float]):
    path = shared / "upstream/grill-lab/DL-Hard/dataset/baselines/passage" / run
    figures = score([path], everything, test_sets=["dlhard"]).means
    assert {figure.measure: round(figure.value, 4) for figure in figures} == expected


def test_parts_of_dl_hard(everything: Release, shared: Path):
    path = shared / "upstream/grill-lab/DL-Hard/dataset/baselines/passage/bm25.run"
    scores = score([path], everything, test_sets=["dlhard"])
    names = ["intent", "answer_type", "topic", "fold", "intent×answer_type"]
    parts = scores_by_part(scores, names, everything).parts
    for (by,), rows in parts.filter(measure="nDCG@10").group_by("by"):
        assert rows["queries"].sum() == 50
        assert (rows["value"] * rows["queries"]).sum() / 50 == pytest.approx(0.3037, abs=5e-5), by
    assert parts.filter(part="health", measure="nDCG@10")["queries"].item() == 20


def test_a_run_of_trec_dl_is_not_asked_for_the_rest_of_dl_hard(everything: Release, tmp_path: Path):
    topics = everything.table("trec_dl", "dl20")["query_id"]
    coverage = coverage_of(tmp_path / "run", topics, everything.test_sets, "all")
    assert [test_set.name for test_set in coverage.test_sets] == ["dl20"]
    hard = everything.test_sets["dlhard"].queries
    coverage = coverage_of(tmp_path / "run", hard, everything.test_sets, "all")
    assert [test_set.name for test_set in coverage.test_sets] == ["dlhard"]


def test_the_card_names_licences_and_papers(everything: Release, published_release: Release):
    whole, licensed = ((release.folder / "README.md").read_text("utf-8") for release in (everything, published_release))
    row = r"\| dl19 \| typo\.1, .*, typo\.10 \| 43 \| .* \| ielab/CharacterBERT-DR \| Apache-2.0 \|"
    assert re.search(row, licensed)
    assert r"| variations wording | Guzpenha/query\_variation\_generators | none stated |" in whole
    assert "| DL-HARD's annotations and judgements | grill-lab/DL-Hard | none stated: ask the authors" in whole
    for key in ("penha2022variations", "mackie2021dlhard"):
        assert key in whole and key not in licensed
    assert "zhuang2022characterbert" in licensed
