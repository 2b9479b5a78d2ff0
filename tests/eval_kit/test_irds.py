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

MINI, PUBLISHED = "ms-marco-shift-mini/shift", "msmarco-passage/shift"
DUMP = """
import json, sys, warnings
warnings.simplefilter("error")
import ir_datasets, eval_kit.integrations.irds, eval_kit.integrations.irds as again
from importlib import reload
def dump(name):
    one = ir_datasets.load(name)
    return {"queries": list(one.queries_iter()), "qrels": list(one.qrels_iter()), "defs": one.qrels_defs(),
            "counts": [one.queries_count(), one.qrels_count()], "doc": one.documentation()}
"""


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
    register = f"eval_kit.integrations.irds.register(), reload(eval_kit.integrations.irds) and {REGISTERED}"
    ids, new, after = evaluate(mini_release, tmp_path, f"[{REGISTERED}, {register}]")
    assert set(ids) == expected_ids(mini_release) and len(ids) == len(set(ids))
    assert after == ids and new == [], "importing twice is harmless"


def test_test_sets_of_the_mini_release(mini_release: Release, tmp_path: Path) -> None:
    names = ["topic.c3", "wh.how", "length.long", "dev", "dl19", "resttest.b2", "chameleons.lesser.50"]
    ids = [f"{MINI}/{name.replace('.', '/')}" for name in names]
    dumps = evaluate(mini_release, tmp_path, f"[dump(name) for name in {ids}]")
    for name, dump in zip(names, dumps, strict=True):
        test_set = mini_release.test_sets[name]
        texts = mini_release.queries(name).filter(pl.col("query_id").is_in(test_set.queries.implode()))
        assert sorted(map(tuple, dump["queries"])) == sorted(texts.iter_rows())
        assert dump["counts"] == [len(test_set.queries), len(dump["qrels"])]
        judged = mini_release.qrels(test_set.qrels)
        wanted = [row for row in judged.iter_rows() if row[0] in test_set.query_ids]
        assert sorted(tuple(row[:3]) for row in dump["qrels"]) == sorted(wanted) and wanted
        assert set(dump["defs"]) >= {str(row[2]) for row in wanted}
        assert set(dump["doc"]) == {"desc", "official_measures", "bibtex_ids"}
        measures = dump["doc"]["official_measures"]
        assert measures == [measure for measure in test_set.measures if measure != "ASL@100"]
        assert [str(ir_measures.parse_measure(measure)) for measure in measures] == measures
        assert f"{len(test_set.queries)} queries" in dump["doc"]["desc"] and dump["doc"]["bibtex_ids"]


def test_complements_never_hold_the_cluster(mini_release: Release, tmp_path: Path) -> None:
    names = [("topic", "c1"), ("wh", "how"), ("length", "short"), ("resttest", "b5")]
    paths = [f"{MINI}/{config}/not-{held_out}" for config, held_out in names]
    dumps = evaluate(mini_release, tmp_path, f"[dump(name) for name in {paths}]")
    for (config, held_out), dump in zip(names, dumps, strict=True):
        table = mini_release.table(config, "train")
        column = "bucket" if config == "resttest" else "cluster"
        unseen = set(table.filter(table[column] == held_out)["query_id"])
        ids = [query for query, _ in dump["queries"]]
        assert set(ids) == set(table["query_id"]) - unseen and len(ids) == len(set(ids)) > 0
        assert {row[0] for row in dump["qrels"]} <= set(ids) and dump["qrels"]


def test_a_query_of_two_clusters_leaves_with_either(tmp_path: Path) -> None:
    rule = Rule("made by hand", "tests")
    clusters = pl.Series(["wha", "how", "how", "who"], dtype=pl.Enum(["wha", "how", "who"]))
    train = pl.DataFrame({"query_id": ["1", "1", "2", "3"], "text": ["a", "a", "b", "c"], "cluster": clusters})
    passages = pl.DataFrame({"passage_id": ["7"], "text": ["seven"]})
    tables = [releases.Table("wh", "train", train, rule), releases.Table("passages", "passages", passages, rule)]
    pytest.importorskip("datasets", reason="datasets is absent: no release can be built")
    releases.write(releases.Draft("mini", None, 0, tables, []), tmp_path / "ms-marco-shift")
    release = open_release(tmp_path / "ms-marco-shift")
    ids = f"lambda c: [query.query_id for query in ir_datasets.load('{MINI}/wh/not-' + c).queries_iter()]"
    got = evaluate(release, tmp_path / "irds", f"{{c: ({ids})(c) for c in ('wha', 'how', 'who')}}")
    assert got == {"wha": ["2", "3"], "how": ["3"], "who": ["1", "2"]}


def test_passages_of_the_mini_release(mini_release: Release, tmp_path: Path) -> None:
    table = mini_release.table("passages", "passages")
    content = f"[list(d.docs_iter()), d.docs_store().get({table['passage_id'][7]!r}), d.docs_count()]"
    docs, seventh, count = evaluate(
        mini_release, tmp_path, f"(lambda d: {content})(ir_datasets.load('{MINI}/topic/c0'))"
    )
    assert [tuple(doc) for doc in docs] == list(table.iter_rows()) and count == table.height
    assert tuple(seventh) == table.row(7)
    (kept,) = (tmp_path / "ms-marco-shift").rglob("passages.tsv")
    assert kept.stat().st_mode & 0o444 == 0o444 & ~os.umask(os.umask(0o022)), "readable in a shared home"


def test_published_ids_lend_the_passages(published_release: Release, tmp_path: Path) -> None:
    (tmp_path / "msmarco-passage").mkdir()
    (tmp_path / "msmarco-passage/collection.tsv").write_text("0\tpassage zero\n1\tpassage one\n")
    (tmp_path / "msmarco-passage/irds_version.txt").write_text("v2")
    sizes = "[d.queries_count(), len(list(d.qrels_iter()))]"
    content = f"[list(d.docs_iter()), ir_datasets.docs_parent_id('{PUBLISHED}/topic/c0'), {sizes}, {REGISTERED}]"
    docs, parent, sizes, ids = evaluate(
        published_release, tmp_path, f"(lambda d: {content})(ir_datasets.load('{PUBLISHED}/topic/c0'))"
    )
    assert set(ids) == expected_ids(published_release) and all(name.startswith(f"{PUBLISHED}/") for name in ids)
    assert f"{PUBLISHED}/restrain/interpolate-200k" in ids and f"{PUBLISHED}/dev/typo/3" in ids
    assert docs == [["0", "passage zero"], ["1", "passage one"]] and parent == "msmarco-passage"
    assert sizes[0] == 6_595 and sizes[1] >= 6_595


def test_wordings_have_the_judgements_of_their_base_and_need_no_passages(
    published_release: Release, tmp_path: Path
) -> None:
    """Queries and judgements are there even where the collection cannot be obtained."""
    text = f"dict(ir_datasets.load('{PUBLISHED}/dl19/typo/1').queries_iter())['1037798']"
    judged = f"[len(list(ir_datasets.load('{PUBLISHED}/' + n).qrels_iter())) for n in ('dl19/typo/1', 'dl19')]"
    who = f"ir_datasets.load('{PUBLISHED}/wh/who').queries_count()"
    typed, counts, queries = evaluate(published_release, tmp_path, f"[{text}, {judged}, {who}]")
    wordings = published_release.wordings(published_release.variations["dl19.typo.1"])
    assert [typed] == wordings.filter(query_id="1037798")["text"].to_list() != ["who is robert gray"]
    assert counts == [9_260, 9_260] and queries == 6_494
    assert not (tmp_path / "msmarco-passage/collection.tsv").exists(), "nobody tried to fetch it"


def test_export_from_the_command_line(mini_release: Release, tmp_path: Path) -> None:
    def exported(kind: str, *module: str) -> list[str]:
        done = python(mini_release.folder, tmp_path, *module, "export", f"{MINI}/wh/wha", kind)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    queries = exported("queries", "-m", "eval_kit.integrations.irds")
    assert (
        exported("queries", "-c", "import eval_kit.integrations.irds, ir_datasets; ir_datasets.main_cli()") == queries
    )
    texts = mini_release.table("wh", "test").filter(cluster="wha").select("query_id", "text")
    assert sorted(tuple(line.split("\t")) for line in queries) == sorted(texts.iter_rows())
    assert all(len(line.split()) == 4 for line in exported("qrels", "-m", "eval_kit.integrations.irds"))
    docs = exported("docs", "-m", "eval_kit.integrations.irds")
    assert len(docs) == mini_release.table("passages", "passages").height


@pytest.mark.parametrize("foreign", [False, True])
def test_warning_without_a_release(tmp_path: Path, foreign: bool) -> None:
    """A folder of that name need not be a release: a clone of the authors' repository is called so too."""
    if foreign:
        (tmp_path / "ms-marco-shift" / "EVAL").mkdir(parents=True)
    done = python(None, tmp_path, "-c", "import eval_kit.integrations.irds", cwd=tmp_path)
    assert done.returncode == 0 and "UserWarning: No dataset" in done.stderr
    assert "eval_kit.integrations.irds.register(folder or Hub id)" in done.stderr


def test_a_release_beside_the_program_and_a_damaged_one(mini_release: Release, tmp_path: Path) -> None:
    shutil.copytree(mini_release.folder, tmp_path / "ms-marco-shift")
    done = python(None, tmp_path / "irds", "-c", f"{DUMP}\nprint(len({REGISTERED}))", cwd=tmp_path)
    assert done.returncode == 0 and int(done.stdout) == len(expected_ids(mini_release))
    (tmp_path / "ms-marco-shift" / MANIFEST).write_text("{")
    done = python(None, tmp_path, "-m", "eval_kit.integrations.irds", "list", cwd=tmp_path)
    assert (
        done.returncode == 2
        and done.stderr.startswith("eval_kit.integrations.irds: ")
        and "Traceback" not in done.stderr
    )


def test_ids_of_another_release_are_refused_and_not_served(mini_release: Release, tmp_path: Path) -> None:
    code = (
        "import sys, eval_kit.integrations.irds as irds\n"
        "from msgspec.structs import replace\nfrom eval_kit.release import Release\n"
        "release = irds.open_release(sys.argv[1])\nirds.register(release)\nassert irds.register(release) == []\n"
        "irds.register(Release(release.folder, replace(release.manifest, digest='0' * 64)))"
    )
    done = python(None, tmp_path / "home", "-c", code, str(mini_release.folder))
    assert "UserError: ms-marco-shift-mini/shift/" in done.stderr and "another release" in done.stderr


def test_an_id_that_a_release_lacks_says_why(published_release: Release, tmp_path: Path) -> None:
    for dataset, words in (
        ("topic/not-c0", ("topic/train", "queries_clustering", "make release")),
        ("topic/c9", ("did you mean", "topic/c4")),
    ):
        code = f"import eval_kit.integrations.irds, ir_datasets\ntry: ir_datasets.load('{PUBLISHED}/{dataset}')\n"
        done = python(published_release.folder, tmp_path, "-c", f"{code}except KeyError as error: print(error)")
        assert f"{PUBLISHED}/{dataset}" in done.stdout and all(word in done.stdout for word in words), done.stdout
        shown = python(
            published_release.folder,
            tmp_path,
            "-m",
            "eval_kit.integrations.irds",
            "export",
            f"{PUBLISHED}/{dataset}",
            "queries",
        )
        assert (shown.returncode, shown.stderr.splitlines()[-1]) == (
            2,
            f"eval_kit.integrations.irds: {done.stdout.strip()}",
        )
