"""The ir_datasets ids of a release, each from a fresh process, as a user's program would import them."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import clients
import ir_measures
import polars as pl
import pytest

from eval_kit.documents import Rule
from eval_kit.release import MANIFEST, Release, open_release

releases = pytest.importorskip("builder.release", exc_type=ImportError)
test_sets = pytest.importorskip("builder.test_sets", exc_type=ImportError)

DUMP = """
import json, sys, warnings
warnings.simplefilter("error")
import ir_datasets, eval_kit.irds, eval_kit.irds as again
from importlib import reload
def dump(name):
    one = ir_datasets.load(name)
    return {"queries": list(one.queries_iter()), "qrels": list(one.qrels_iter()), "defs": one.qrels_defs(),
            "counts": [one.queries_count(), one.qrels_count()], "doc": one.documentation()}
"""


def home_with_collection(home: Path) -> Path:
    """An ``IR_DATASETS_HOME`` that holds a tiny msmarco-passage, so that nothing is downloaded."""
    (home / "msmarco-passage").mkdir(parents=True)
    (home / "msmarco-passage/collection.tsv").write_text("0\tpassage zero\n1\tpassage one\n")
    (home / "msmarco-passage/irds_version.txt").write_text("v2")
    return home


def python(
    release: Path | None, home: Path, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MS_MARCO_SHIFT_RELEASE"}
    if release:
        environment["MS_MARCO_SHIFT_RELEASE"] = str(release)
    return clients.run(arguments, environment | {"IR_DATASETS_HOME": str(home)}, cwd)


def evaluate(release: Release, home: Path, expression: str) -> object:
    done = python(release.folder, home, "-c", f"{DUMP}\nprint(json.dumps({expression}))")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def expected_ids(release: Release) -> set[str]:
    prefix = f"{release.manifest.collection or 'ms-marco-shift-mini'}/shift"
    named = [*release.test_sets, *release.variations]
    ids = {f"{prefix}/{name.replace('.', '/')}" for name in named}
    ids |= {f"{prefix}/restrain/{split.replace('_', '-')}" for split in release.configs["restrain"]}
    labels = {"topic": "cluster", "wh": "cluster", "length": "cluster", "resttest": "bucket"}
    for config, column in labels.items():
        if "train" in release.configs[config]:
            ids |= {f"{prefix}/{config}/not-{one}" for one in release.table(config, "train")[column].unique()}
    return ids


REGISTERED = "[name for name in ir_datasets.registry if '/shift/' in name]"


def test_ids_of_the_mini_release(mini_release: Release, tmp_path: Path) -> None:
    ids = evaluate(mini_release, tmp_path, REGISTERED)
    assert set(ids) == expected_ids(mini_release) and len(ids) == len(set(ids))
    assert len([name for name in ids if "/not-" in name]) == 5 + 3 + 2 + 5
    for name in ("veiled", "pygmy", "lesser"):
        assert all(f"ms-marco-shift-mini/shift/chameleons/{name}/{level}" in ids for level in test_sets.LEVELS)


def test_test_sets_of_the_mini_release(mini_release: Release, tmp_path: Path) -> None:
    names = ["topic.c3", "wh.how", "length.long", "dev", "dl19", "resttest.b2", "chameleons.lesser.50"]
    got = evaluate(
        mini_release, tmp_path, f"[dump('ms-marco-shift-mini/shift/' + n.replace('.', '/')) for n in {names}]"
    )
    texts = {
        query: text
        for config, split in [("topic", "test"), ("wh", "test"), ("resttest", "dev"), ("resttest", "dl19")]
        for query, text in mini_release.table(config, split).select("query_id", "text").iter_rows()
    }
    for name, one in zip(names, got, strict=True):
        test_set = mini_release.test_sets[name]
        assert sorted(map(tuple, one["queries"])) == sorted((query, texts[query]) for query in test_set.queries)
        assert one["counts"] == [len(test_set.queries), len(one["qrels"])]
        judged = mini_release.qrels(test_set.qrels)
        wanted = [row for row in judged.iter_rows() if row[0] in set(test_set.queries)]
        assert sorted(tuple(row[:3]) for row in one["qrels"]) == sorted(wanted) and wanted
        assert set(one["defs"]) >= {str(row[2]) for row in wanted}
        assert set(one["doc"]) == {"desc", "official_measures", "bibtex_ids"}
        measures = one["doc"]["official_measures"]
        assert measures == [measure for measure in test_set.measures if measure != "ASL@100"]
        assert [str(ir_measures.parse_measure(measure)) for measure in measures] == measures
        assert f"{len(test_set.queries)} queries" in one["doc"]["desc"] and one["doc"]["bibtex_ids"]


def test_complements_never_hold_the_cluster(mini_release: Release, tmp_path: Path) -> None:
    names = [("topic", "c1"), ("wh", "how"), ("length", "short"), ("resttest", "b5")]
    paths = [f"ms-marco-shift-mini/shift/{config}/not-{held_out}" for config, held_out in names]
    got = evaluate(mini_release, tmp_path, f"[dump(name) for name in {paths}]")
    for (config, held_out), one in zip(names, got, strict=True):
        table = mini_release.table(config, "train")
        column = "bucket" if config == "resttest" else "cluster"
        unseen = set(table.filter(table[column] == held_out)["query_id"])
        ids = [query for query, _ in one["queries"]]
        assert set(ids) == set(table["query_id"]) - unseen and len(ids) == len(set(ids)) > 0
        assert {row[0] for row in one["qrels"]} <= set(ids) and one["qrels"]


def test_a_query_of_two_clusters_leaves_with_either(tmp_path: Path) -> None:
    rule = Rule("made by hand", "tests")
    clusters = pl.Series(["wha", "how", "how", "who"], dtype=pl.Enum(["wha", "how", "who"]))
    train = pl.DataFrame({"query_id": ["1", "1", "2", "3"], "text": ["a", "a", "b", "c"], "cluster": clusters})
    passages = pl.DataFrame({"passage_id": ["7"], "text": ["seven"]})
    tables = [releases.Table("wh", "train", train, rule), releases.Table("passages", "passages", passages, rule)]
    pytest.importorskip("datasets", reason="datasets is absent: no release can be built")
    releases.write(releases.Draft("mini", None, 0, tables, []), tmp_path / "ms-marco-shift")
    got = evaluate(
        open_release(tmp_path / "ms-marco-shift"),
        tmp_path / "irds",
        "{c: [q.query_id for q in ir_datasets.load('ms-marco-shift-mini/shift/wh/not-' + c).queries_iter()] "
        "for c in ('wha', 'how', 'who')}",
    )
    assert got == {"wha": ["2", "3"], "how": ["3"], "who": ["1", "2"]}


def test_passages_of_the_mini_release(mini_release: Release, tmp_path: Path) -> None:
    table = mini_release.table("passages", "passages")
    name = "ms-marco-shift-mini/shift/topic/c0"
    got = evaluate(
        mini_release,
        tmp_path,
        f"(lambda d: [list(d.docs_iter()), d.docs_store().get({table['passage_id'][7]!r}), d.docs_count()])"
        f"(ir_datasets.load({name!r}))",
    )
    docs, one, count = got
    assert [tuple(doc) for doc in docs] == list(table.iter_rows()) and count == table.height
    assert tuple(one) == table.row(7)
    (kept,) = (tmp_path / "ms-marco-shift").rglob("passages.tsv")
    assert kept.stat().st_mode & 0o444 == 0o444 & ~os.umask(os.umask(0o022)), "readable in a shared home"


def test_published_ids_lend_the_passages(published_release: Release, tmp_path: Path) -> None:
    home = home_with_collection(tmp_path / "irds")
    ids = evaluate(published_release, home, REGISTERED)
    assert set(ids) == expected_ids(published_release) and all(
        name.startswith("msmarco-passage/shift/") for name in ids
    )
    assert "msmarco-passage/shift/restrain/interpolate-200k" in ids and "msmarco-passage/shift/dev/typo/3" in ids
    docs, same, sizes = evaluate(
        published_release,
        home,
        "(lambda d: [list(d.docs_iter()), ir_datasets.docs_parent_id('msmarco-passage/shift/topic/c0'), "
        "[d.queries_count(), len(list(d.qrels_iter()))]])(ir_datasets.load('msmarco-passage/shift/topic/c0'))",
    )
    assert docs == [["0", "passage zero"], ["1", "passage one"]] and same == "msmarco-passage"
    assert sizes[0] == 6_595 and sizes[1] >= 6_595


def test_wordings_have_the_judgements_of_their_base(published_release: Release, tmp_path: Path) -> None:
    typed, judged, base = evaluate(
        published_release,
        tmp_path,
        "[dict(ir_datasets.load('msmarco-passage/shift/dl19/typo/1').queries_iter())['1037798'], "
        "*(len(list(ir_datasets.load('msmarco-passage/shift/' + name).qrels_iter())) "
        "for name in ('dl19/typo/1', 'dl19'))]",
    )
    wordings = published_release.wordings(published_release.variations["dl19.typo.1"])
    assert [typed] == wordings.filter(query_id="1037798")["text"].to_list() != ["who is robert gray"]
    assert judged == base == 9_260


def test_registering_needs_no_passages(published_release: Release, tmp_path: Path) -> None:
    """Queries and judgements are there even where the collection cannot be obtained."""
    got = evaluate(published_release, tmp_path, "dump('msmarco-passage/shift/wh/who')['counts'][0]")
    assert got == 6_494
    assert not (tmp_path / "msmarco-passage/collection.tsv").exists(), "nobody tried to fetch it"


def test_importing_twice_is_harmless(mini_release: Release, tmp_path: Path) -> None:
    before, new, after = evaluate(
        mini_release,
        tmp_path,
        f"[len({REGISTERED}), eval_kit.irds.register(), reload(eval_kit.irds) and len({REGISTERED})]",
    )
    assert before == after > 0 and new == []


def test_export_from_the_command_line(mini_release: Release, tmp_path: Path) -> None:
    name = "ms-marco-shift-mini/shift/wh/wha"
    module = python(mini_release.folder, tmp_path, "-m", "eval_kit.irds", "export", name, "queries")
    program = "import sys, eval_kit.irds, ir_datasets; sys.argv[1:] = {}; ir_datasets.main_cli()"
    inline = python(mini_release.folder, tmp_path, "-c", program.format(["export", name, "queries"]))
    assert module.returncode == inline.returncode == 0, module.stderr + inline.stderr
    assert module.stdout == inline.stdout
    rows = [tuple(line.split("\t")) for line in module.stdout.splitlines()]
    table = mini_release.table("wh", "test")
    assert sorted(rows) == sorted(table.filter(table["cluster"] == "wha").select("query_id", "text").iter_rows())

    qrels = python(mini_release.folder, tmp_path, "-m", "eval_kit.irds", "export", name, "qrels")
    assert qrels.returncode == 0 and all(len(line.split()) == 4 for line in qrels.stdout.splitlines())
    docs = python(mini_release.folder, tmp_path, "-m", "eval_kit.irds", "export", name, "docs")
    assert len(docs.stdout.splitlines()) == mini_release.table("passages", "passages").height


def test_release_beside_the_program(mini_release: Release, tmp_path: Path) -> None:
    shutil.copytree(mini_release.folder, tmp_path / "ms-marco-shift")
    done = python(None, tmp_path / "irds", "-c", f"{DUMP}\nprint(len({REGISTERED}))", cwd=tmp_path)
    assert done.returncode == 0 and int(done.stdout) == len(expected_ids(mini_release))


@pytest.mark.parametrize("foreign", [False, True])
def test_warning_without_a_release(tmp_path: Path, foreign: bool) -> None:
    """A folder of that name need not be a release: a clone of the authors' repository is called so too."""
    if foreign:
        (tmp_path / "ms-marco-shift" / "EVAL").mkdir(parents=True)
    done = python(None, tmp_path, "-c", "import eval_kit.irds", cwd=tmp_path)
    assert done.returncode == 0 and "no dataset was registered" in done.stderr
    assert "eval_kit.irds.register(folder or Hub id)" in done.stderr


def test_damaged_release_is_one_sentence(mini_release: Release, tmp_path: Path) -> None:
    shutil.copytree(mini_release.folder, tmp_path / "ms-marco-shift")
    (tmp_path / "ms-marco-shift" / MANIFEST).write_text("{")
    done = python(None, tmp_path, "-m", "eval_kit.irds", "list", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("eval_kit.irds: ") and "Traceback" not in done.stderr
