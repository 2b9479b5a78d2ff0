"""Which wording a run searched, from its file name; and from there to `eval_kit variations`, on planted typos."""

import json
from pathlib import Path

import pytest

from eval_kit.errors import UserError
from eval_kit.protocols.variations import variations
from eval_kit.release import Release
from eval_kit.runs.given import Run, take
from eval_kit.runs.wordings import original_of, wordings_of
from tests.eval_kit.plain_runs import ranked_run

KINDS = ("delete", "insert", "substitute", "swap_adjacent", "swap_key")


def runs(*names: str) -> list[Run]:
    [taken] = take(runs=[f"{name}.trec" for name in names])
    return taken


def test_names(mini_release: Release):
    named = wordings_of(
        runs("bm25", "bm25.dl19.typo.delete.1", "a.b", "a.b.dl19", "a.b.dl19.typo.swap_key.1"), mini_release
    )
    assert [(run.system, run.variation and run.variation.full_name) for run in named] == [
        ("bm25", None),
        ("bm25", "dl19.typo.delete.1"),
        ("a.b", None),
        ("a.b", None),
        ("a.b", "dl19.typo.swap_key.1"),
    ]
    assert original_of(named[1], named) is named[0]
    assert original_of(named[4], named) is named[3], "the run of the base alone comes first"


def test_names_that_could_mean_two_things(mini_release: Release):
    unknown = "does not say which query variation"
    for names, message in (
        (["bm25", "x", "bm25.dl19.typo.delete.1"], rf"x.trec {unknown}.* x\.dl19\.typo\.delete\.1\.trec"),
        (["bm25", "bm25.dl19.typo.delete.2"], f"bm25.trec {unknown}"),
        (["bm25", "bm25.dl19.typo.delete.1", "sub/bm25"], "a second run of bm25"),
        (
            ["a.dl19", "a.dl19.typo.delete.1", "a.dl19.dl19.typo.insert.1"],
            "a.dl19.trec could be of the original queries of a or of a.dl19",
        ),
    ):
        with pytest.raises(UserError, match=message):
            wordings_of(runs(*names), mini_release)


def test_a_cell_of_a_grid_is_the_original_of_its_variations(mini_release: Release):
    cell, varied = wordings_of(runs("s.topic.c0", "s.topic.c0.dl19.typo.delete.1"), mini_release)
    assert cell.system == varied.system == "s.topic.c0"
    assert original_of(varied, [cell, varied]) is cell
    (alone,) = wordings_of(runs("bm25.dl19.typo.delete.1"), mini_release)
    with pytest.raises(UserError, match=r"bm25\.dl19\.trec or bm25\.trec"):
        original_of(alone, [alone])


@pytest.fixture(scope="module")
def planted(mini_release: Release, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of ``steady``, which ignores the wording, and ``exact``, which knows a query by its very text."""
    folder = tmp_path_factory.mktemp("runs")
    relevant = mini_release.qrels("dl19").filter(relevance=3).unique("query_id", keep="first", maintain_order=True)
    passages = dict(relevant.select("query_id", "passage_id").iter_rows())
    texts = dict(mini_release.queries("dl19").iter_rows())
    wordings = {"dl19": texts}
    for name, variation in mini_release.variations.items():
        wordings[name] = dict(mini_release.wordings(variation).iter_rows())
    paths = {}
    for wording, by_query in wordings.items():
        for system in ("steady", "exact"):
            found = [
                (query, passages.get(query, "none"), 1 if system == "steady" or text == texts[query] else 2)
                for query, text in by_query.items()
            ]
            paths[f"{system}.{wording}"] = ranked_run(folder / f"{system}.{wording}.trec", found, 1)
    return paths


def test_a_run_that_ignores_the_wording_loses_nothing(planted: dict[str, Path], mini_release: Release):
    result = variations(list(planted.values()), mini_release)
    document = json.loads(json.dumps(result.as_json()))
    assert document.keys() == {"said", "variations", "published", "notes", "provenance"} and document["published"] == []
    assert document["provenance"].keys() == {"kit_version", "release", "tie_rule", "runs", "seed"}
    rows = [row for row in document["variations"] if row["measure"] == "nDCG@10"]
    assert {row["method"] for row in rows} == {f"typo.{kind}" for kind in KINDS}
    for row in rows:
        assert row["clean"] > 0 and row["queries"] == 43
        if row["system"] == "steady":
            assert (row["change"], row["rel_loss"], row["hurt"]) == (0, 0, 0)
        else:
            assert row["rel_loss"] > 0.9 and row["hurt"] > 0.9
    for text in (result.to_markdown(), result.to_latex(), result.to_csv()):
        assert "typo.delete" in text.replace("\\", "") and "steady" in text


def test_runs_in_memory(planted: dict[str, Path], mini_release: Release):
    by_name, names = {}, ("exact.dl19", "exact.dl19.typo.delete.1")
    for name in names:
        lines = map(str.split, planted[name].read_text().splitlines())
        by_name[name] = {query: {passage: float(score)} for query, _, passage, _, score, _ in lines}
    of_files = variations([planted[name] for name in names], mini_release)
    assert variations(by_name, mini_release).results.equals(of_files.results)


def test_a_run_of_another_wording_or_test_set(planted: dict[str, Path], mini_release: Release, tmp_path: Path):
    foreign = tmp_path / "steady.dl19.typo.delete.1.trec"
    foreign.write_text("".join(f"x{i} Q0 p 1 1.0 t\n" for i in range(43)))
    with pytest.raises(UserError, match="no results for dl19"):
        variations([planted["steady.dl19"], foreign], mini_release)
    with pytest.raises(UserError, match="test_set dl20 is not a part of dl19"):
        variations([planted["steady.dl19"], planted["steady.dl19.typo.delete.1"]], mini_release, test_set="dl20")


def test_the_command(planted: dict[str, Path], mini_release: Release, command):
    chosen = [path for name, path in planted.items() if name.endswith(("dl19", "delete.1"))]
    done = command("eval_kit", "variations", *chosen, "--release", mini_release.folder, status=0)
    assert "typo.delete" in done.stdout and "steady" in done.stdout
