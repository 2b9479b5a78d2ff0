"""Collections from BEIR folders, ir_datasets and releases: what is read, what is refused, and releases made of it."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import clients
import layouts
import polars as pl
import pytest

from builder import rebuilt
from builder import release as releases
from builder.collection import Collection, split_name
from builder.encoders import Lsa
from builder.parameters import ShiftParameters
from builder.shifts.restrain import RestrainParameters
from builder.shifts.topic import TopicParameters
from builder.sources import beir, irds, mini, released
from builder.verify import verify
from eval_kit.errors import UserError
from eval_kit.files.digests import file_sha256
from eval_kit.files.formats import QRELS_SCHEMA, QUERIES_SCHEMA
from eval_kit.release import Release, open_release

type Run = Callable[..., subprocess.CompletedProcess[str]]

SETTINGS = ShiftParameters(topic=TopicParameters(k=60, size=150), restrain=RestrainParameters({"a": 340, "b": 500}))
SET = ("--set", "topic.k=60", "--set", "topic.size=150", "--set", "restrain.sizes=a:340,b:500", "--encoder", "lsa")


@pytest.fixture(scope="session")
def small() -> Collection:
    return mini.collection(mini.MiniParameters(queries=1_500))


@pytest.fixture(scope="session")
def folder(small: Collection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return layouts.beir(small, tmp_path_factory.mktemp("beir") / "toy")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A BEIR folder of a few lines, to be spoilt."""
    (tmp_path / "tiny" / "qrels").mkdir(parents=True)
    folder = tmp_path / "tiny"
    passages = [("p1", "A title", "a text"), ("p2", "", "only text"), ("p3", "", "")]
    lines = [json.dumps({"_id": one, "title": title, "text": text}) for one, title, text in passages]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"_id": f"q{i}", "text": f"query {i}", "metadata": {}}) for i in range(4)]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "train.tsv").write_text(f"{header}q0\tp1\t1\nq1\tp2\t2\nq1\tp1\t0\nq2\tp1\t0\n")
    (folder / "qrels" / "Validation.tsv").write_text(f"{header}q3\tp1\t1\n")
    return folder


def content(collection: Collection, **options: object) -> dict[str, str]:
    """The digests of what is rebuilt from it."""
    parts = {"encoder": Lsa(dimensions=8), "parameters": SETTINGS, **options}
    tables = releases.describe(rebuilt.draft(collection, **parts)).tables  # type: ignore[arg-type]
    return {f"{table.config}/{table.split}": table.digest for table in tables}


def test_one_collection_gives_one_release_whatever_its_layout(
    small: Collection, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = content(small)
    assert content(beir.collection(folder)) == first
    home = layouts.irds_ms_marco(small, tmp_path)
    program = (
        "import json, sys\nsys.path.append('..')\nfrom test_beir_source import content\n"
        "from builder.sources import irds\n"
        "found = irds.collection('msmarco-passage')\nprint(json.dumps([found.irds, content(found)]))\n"
    )
    monkeypatch.setenv("IR_DATASETS_HOME", str(home))  # is read when ir_datasets is imported
    done = clients.run(["-c", program], os.environ, Path(__file__).parent)
    del first["passages/passages"]  # ir_datasets has them
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["msmarco-passage", first]


def test_folder_to_release_by_the_command_line(folder: Path, command: Run, tmp_path: Path) -> None:
    out = tmp_path / "ms-marco-shift"
    done = command("builder", "build", "rebuilt", "--collection", folder, *SET, "--out", out)
    assert done.returncode == 0, done.stderr
    assert not [one for one in verify(out) if one.fault]
    release = open_release(out)
    assert release.manifest.collection is None and "passages" in release.configs
    assert str(folder.parent) not in (out / "manifest.json").read_text() + (out / "README.md").read_text()
    inputs = {one.id: one.sha256 for one in release.manifest.inputs}
    assert inputs["toy/corpus.jsonl"] == file_sha256(folder / "corpus.jsonl")
    assert set(inputs) == {
        *("toy/corpus.jsonl", "toy/queries.jsonl"),
        *(f"toy/qrels/{split}.tsv" for split in ("train", "dev", "dl19", "dl20")),
    }
    assert all(table.rule.inputs == list(inputs) for table in release.manifest.tables)


def test_ms_marco_and_any_other_id_by_the_command_line(small: Collection, command: Run, tmp_path: Path) -> None:
    layouts.irds_ms_marco(small, tmp_path / "home")
    layouts.irds_scifact(small, tmp_path / "home")
    for name, expected in (("msmarco", {"dev", "dl19", "dl20"}), ("beir/scifact", {"test"})):
        out = tmp_path / name / "ms-marco-shift"
        given = ("rebuilt", "--collection", name, *SET, "--out", out)
        done = command("builder", "build", *given, IR_DATASETS_HOME=str(tmp_path / "home"))
        assert done.returncode == 0, done.stderr
        assert not [one for one in verify(out) if one.fault]
        release = open_release(out)
        assert release.manifest.collection == {"msmarco": "msmarco-passage"}.get(name, name)
        assert {split for split in release.configs["resttest"] if split != "train"} == expected
        assert expected <= set(release.test_sets) and "passages" not in release.configs


def test_subsets_of_ir_datasets_are_splits() -> None:
    assert irds._splits("beir/scifact") == {"train": "beir/scifact/train", "test": "beir/scifact/test"}
    assert irds._splits("antique/train") == {"train": "antique/train"}
    assert irds._splits("vaswani") == {"train": "vaswani"}
    assert set(irds._splits("beir/fiqa")) == {"train", "dev", "test"}
    with pytest.raises(UserError, match="there is no collection 'no/such': neither mini, msmarco, a folder"):
        irds._splits("no/such")


def test_what_a_folder_holds(tiny: Path) -> None:
    found = beir.collection(tiny)
    assert found.name == "tiny" and found.irds is None
    assert found.train["query_id"].to_list() == ["q0", "q1"], "q2 has no relevant passage"
    assert {split: queries["query_id"].to_list() for split, queries in found.evaluation.items()} == {"dev": ["q3"]}
    assert found.passages is not None
    assert found.passages.rows() == [("p1", "A title a text"), ("p2", "only text"), ("p3", "")]
    assert list(found.remarks) == ["1 passages of corpus.jsonl have neither title nor text; kept"]
    assert found.qrels["train"].rows() == [("q0", "p1", 1), ("q1", "p2", 2), ("q1", "p1", 0), ("q2", "p1", 0)]
    assert [split_name(one) for one in ("Validation", "trec-dl-2019", "test")] == ["dev", "trec_dl_2019", "test"]


@pytest.mark.parametrize(
    ("file", "line", "fault"),
    [
        ("queries.jsonl", "{not json", 'queries.jsonl:5: expected a JSON object with "_id"'),
        ("queries.jsonl", '{"text": "no id"}', "queries.jsonl:5: expected a JSON object with"),
        ("queries.jsonl", '{"_id": "q1", "text": "again"}', "queries.jsonl:5: query q1 appears twice"),
        ("queries.jsonl", '{"_id": "q9", "text": " "}', "queries.jsonl:5: the text is empty"),
        ("corpus.jsonl", "{not json", 'corpus.jsonl:4: expected a JSON object with "_id"'),
        ("corpus.jsonl", '{"_id": 7, "text": "x"}', 'corpus.jsonl:4: expected a JSON object with "_id"'),
        ("corpus.jsonl", '{"_id": "p9", "text": ["x"]}', 'corpus.jsonl:4: "title" and "text" must be strings'),
        ("corpus.jsonl", '{"_id": "p2", "text": "again"}', "corpus.jsonl:4: passage p2 appears twice"),
        ("corpus.jsonl", '{"_id": "p 9"}', "corpus.jsonl:4: passage id 'p 9' holds a blank, which separates"),
        ("queries.jsonl", '{"_id": "q\\t9", "text": "x"}', "queries.jsonl:5: query id 'q\\t9' holds a blank"),
        ("queries.jsonl", '{"_id": "q9", "text": NaN}', '"text", both strings; it holds NaN, not a finite number'),
        ("qrels/train.tsv", "q7\tp1\t1", "train.tsv:6: query q7 is not in queries.jsonl"),
        ("qrels/train.tsv", "q1\tp1\tone", "train.tsv:6: the grade 'one' is not a whole number"),
        ("qrels/train.tsv", "q1 p1 1", "train.tsv:6: expected a query id, a passage id and a grade"),
    ],
)
def test_lines_that_are_refused(tiny: Path, file: str, line: str, fault: str) -> None:
    with (tiny / file).open("a") as open_file:
        open_file.write(line + "\n")
    with pytest.raises(UserError) as error:
        beir.collection(tiny)
    assert fault in str(error.value) and "\n" not in str(error.value)


def test_folders_that_lack_something(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such folder"):
        beir.collection(tmp_path / "nowhere")
    (tiny / "corpus.jsonl").unlink()
    with pytest.raises(UserError, match=r"corpus\.jsonl: cannot be read: No such file"):
        beir.collection(tiny)
    (tiny / "queries.jsonl").unlink()
    with pytest.raises(UserError, match=r"queries\.jsonl: cannot be read: .*; a BEIR dataset has this file"):
        beir.collection(tiny)
    (tiny / "qrels" / "Validation.tsv").unlink()
    (tiny / "qrels" / "train.tsv").unlink()
    with pytest.raises(UserError, match=r"tiny: has no qrels/\*\.tsv"):
        beir.collection(tiny)


def test_queries_that_are_passages_too_are_counted(tiny: Path) -> None:
    with (tiny / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "q3", "text": "query 3"}\n')
    assert list(beir.collection(tiny).remarks)[1].startswith("1 queries have the id of a passage, as ArguAna's have")


def test_files_in_qrels_that_are_no_split_or_the_same_split(tiny: Path) -> None:
    (tiny / "qrels" / "._train.tsv").write_bytes(b"\0\5\26\7")  # as a Mac leaves it
    assert set(beir.collection(tiny).qrels) == {"train", "dev"}
    (tiny / "qrels" / "dev.tsv").write_bytes((tiny / "qrels" / "Validation.tsv").read_bytes())
    with pytest.raises(UserError, match=r"dev\.tsv: Validation\.tsv is the split dev too; leave one of them"):
        beir.collection(tiny)


def test_bad_folders_by_the_command_line_leave_nothing(tiny: Path, command: Run, tmp_path: Path) -> None:
    (tiny / "queries.jsonl").write_text('{"_id": "q0", "text": "a"}\n{"_id": "q0", "text": "b"}\n')
    out = tmp_path / "out" / "release"
    done = command("builder", "build", "rebuilt", "--collection", tiny, "--out", out)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "queries.jsonl:2: query q0 appears" in done.stderr
    assert not out.parent.exists()


def test_judgements_that_come_twice_count_once(small: Collection) -> None:
    pairs = small.qrels["dev"]
    lower = pairs.with_columns(score=pl.col("score") - 1)
    assert content(replace(small, qrels={**small.qrels, "dev": pl.concat([lower, pairs])})) == content(small)


def test_an_unreadable_dataset(no_ir_datasets: Path) -> None:
    with pytest.raises(irds.UnavailableError, match="ir_datasets msmarco-passage/train cannot be read"):
        irds.collection("msmarco-passage")


def test_queries_of_a_release(mini_release: Release) -> None:
    found = released.collection(mini_release.folder)
    topics = pl.concat(mini_release.table("topic", split)["query_id"] for split in ("train", "test"))
    assert set(found.train["query_id"]) == set(topics)
    assert set(found.evaluation) == {"dev", "dl19", "dl20"} and found.passages is not None
    assert found.queries["dev"].schema == pl.Schema(QUERIES_SCHEMA)
    assert found.qrels["train"].schema == pl.Schema(QRELS_SCHEMA)
    assert content(found, shifts=["wh"])
