"""The authors' training queries, which they list by text, and a whole published release from a made-up world."""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from builder import cli, validation
from builder import mini as planted
from builder import release as releases
from builder.sources import irds, published
from builder.sources.train_join import HEADER, join_by_text
from builder.verify import verify
from eval_kit.authors import fetch, lists, sources
from eval_kit.authors.test_sets import BUCKETS, TOPICS
from eval_kit.errors import UserError
from eval_kit.files.formats import QRELS_SCHEMA, QUERIES_SCHEMA
from eval_kit.release import Release, open_release
from eval_kit.shifts import SHIFTS

MOJIBAKE = "what is a café".encode().decode("latin-1")
CURLY = "what’s up".encode().decode("cp1252")  # read as Windows-1252: not repaired
TRAIN = [
    ("10", "how to cook"),
    ("9", 'who  sang "it"'),
    ("30", "what is a café"),
    ("31", "shared text"),
    ("4", "shared text"),
    ("50", "which one"),
    ("60", "naïve already"),
]


def clustering(path: Path, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["\t".join(HEADER), *rows]) + "\n", encoding="utf-8")
    return path


def train_queries(rows: list[tuple[str, str]]) -> pl.DataFrame:
    return pl.DataFrame(rows, QUERIES_SCHEMA, orient="row")


def row(text: str, topic: int = 0, wh: int = 0, length: int = 0, train: str = "111") -> str:
    return "\t".join(map(str, (text, topic, train[0], wh, train[1], length, train[2])))


def test_join(tmp_path: Path) -> None:
    path = clustering(
        tmp_path / "clustering.tsv",
        row("how to cook", topic=1, wh=1),
        row('who  sang "it"', topic=5, wh=2, length=1),  # in no topic
        row(MOJIBAKE, topic=2, train="101"),
        row("shared text", topic=3, wh=3),
        row("nobody asked this", topic=0),
        row("which one", topic=0),
        row("which one", topic=4),
        row(CURLY),
        row("naïve already", topic=4, wh=3, train="000"),
    )
    join = join_by_text(path, train_queries(TRAIN))
    assert join.members("topic", TOPICS).rows() == [
        ("4", "shared text", "c3"),
        ("10", "how to cook", "c1"),
        ("30", MOJIBAKE, "c2"),
        ("31", "shared text", "c3"),
    ]
    assert join.members("wh", ("wha", "how", "who")).rows() == [
        ("9", 'who  sang "it"', "who"),
        ("10", "how to cook", "how"),
    ]
    assert dict(join.members("length", ("short", "long")).select("query_id", "cluster").iter_rows())["9"] == "long"
    assert join.report.splitlines() == [
        "problem\ttext\tquery ids",
        "no id has this text\tnobody asked this\t",
        f"no id has this text\t{CURLY}\t",
        "rows disagree on the clusters\twhich one\t",
        "several ids have this text\tshared text\t4 31",
    ]
    (remark,) = join.remarks
    for said in ("9 rows", "6 ids found", "2 texts match no id", "1 texts have rows that disagree", "1 texts belong"):
        assert said in remark
    assert "1 texts are mis-decoded upstream" in remark and "reports/train_join.tsv" in remark


def test_two_spellings_of_one_text(tmp_path: Path) -> None:
    """Mis-decoded and proper rows are the same query: once if they agree, not at all if they do not."""
    rows = row("what is a café", topic=1), row(MOJIBAKE, topic=1)
    join = join_by_text(clustering(tmp_path / "agree.tsv", *rows), train_queries(TRAIN))
    assert join.members("topic", TOPICS).rows() == [("30", "what is a café", "c1")]
    assert join.report == "" and "reports/" not in join.remarks[0]
    rows = row("what is a café", topic=1), row(MOJIBAKE, topic=2)
    join = join_by_text(clustering(tmp_path / "disagree.tsv", *rows), train_queries(TRAIN))
    assert join.members("topic", TOPICS).is_empty()
    assert join.report.count("rows disagree on the clusters") == 2


# --- a world in which nothing is missing

WH_TEXTS = {"wha": "what is number {}", "how": "how big is {}", "who": "where is number {}"}
TRAIN_TEXTS = ["what is {}", "how is {} in so many words, and who", "who is {}", "plain {} in so many words"]
UNLISTED = {str(6_000 + i): f"in no list but ReSTTest's {i}" for i in range(30)}
UNJUDGED = {"7000": "a training query without judgements"}
TRAINING = {str(100 + i): TRAIN_TEXTS[i % 4].format(i) for i in range(40)}
DEV = {str(1_000 + i): f"dev {'very ' * (i % 7)}query {i}" for i in range(20)}
DL = {
    "dl19": {str(2_000 + i): f"topic {i}" for i in range(6)},
    "dl20": {str(3_000 + i): f"topic {i}" for i in range(7)},
}
DL_TYPO = {str(8_000 + i): f"mistyped {i}" for i in range(3)}


def queries_of(texts: dict[str, str]) -> str:
    return "".join(f"{query}\t{text}\n" for query, text in texts.items())


def qrels(ids: list[str] | dict[str, str], separator: str = " ") -> str:
    return "".join(separator.join([query, "0", f"{int(query) * 7}", "1"]) + "\n" for query in ids)


def world(complements: bool) -> dict[str, str]:
    """The content of every declared file, small."""
    contents = {}
    dev = list(DEV)
    for path in sources.declared_files():
        name = path.rsplit("/", 1)[1]
        if path == published.CLUSTERING:
            rows = [row(text, i % 6, i % 4, i % 2, f"1{i % 2}1") for i, text in enumerate(TRAINING.values())]
            contents[path] = "\n".join(["\t".join(HEADER), *rows]) + "\n"
        elif path.startswith(f"{lists.SHIFT_TEST}/"):
            cluster = name.split("_")[1].split(".")[0]
            if cluster in ("short", "long"):
                members = {q: t for q, t in DEV.items() if (len(t.split(" ")) <= 5) == (cluster == "short")}
            elif cluster in WH_TEXTS:
                start = 5_000 + 10 * list(WH_TEXTS).index(cluster)
                members = {str(start + i): WH_TEXTS[cluster].format(i) for i in range(4)}
            else:
                members = {str(4_000 + 10 * int(cluster) + i): f"topic {cluster} query {i}" for i in range(3)}
            grades = {query: {str(int(query) * 7): 1} for query in members}
            contents[path] = json.dumps(grades) if name.endswith(".json") else queries_of(members)
        elif "/restrain_files/" in path:
            ids = list(TRAINING)[::2] if name.startswith("interpolate") else list(TRAINING)[1::2]
            contents[path] = qrels(ids, "\t")
        elif "/resttest_files/" in path:
            bucket = int(path.split("bucket-")[1][0]) - 1
            if name == "train-qrel.txt":
                everything = [*TRAINING, *UNLISTED]
                own = everything[bucket::5]
                contents[path] = qrels([query for query in everything if (query in own) != complements])
            else:
                queries = list({"dev": DEV, "trec19": DL["dl19"], "trec20": DL["dl20"]}[name.split(".")[1][:-5]])
                contents[path] = qrels(queries[bucket::5])
        elif path.startswith(lists.CHAMELEONS):
            level, size = int(name[-1]), {"Veiled": 3, "Pygmy": 2, "Lesser": 1}[name.split("_")[0]]
            contents[path] = queries_of({query: DEV[query] for query in dev[: level * size]})
        elif name.startswith("topics"):
            queries = DEV if "dev" in name else DL[name.split(".")[1].split("-")[0]]
            contents[path] = queries_of(queries).replace("\n", "\r\n")
        elif name.startswith("qrels.") and path.startswith(lists.ANSERINI):
            contents[path] = qrels(DEV if "dev" in name else DL[name.split(".")[1].split("-")[0]])
        elif "/dl-typo/" in path:
            contents[path] = qrels(DL_TYPO) if name == "qrels.txt" else queries_of(DL_TYPO)
        elif path.startswith("ielab/"):
            contents[path] = queries_of({"dev": DEV, "dl2019": DL["dl19"], "dl2020": DL["dl20"]}[name.split(".")[1]])
        else:
            contents[path] = "read by nobody\n"
    return contents


@pytest.mark.parametrize("complements", [False, True])
def test_complete_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, complements: bool) -> None:
    files = {}
    for path, content in world(complements).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content.encode())
        files[path] = replace(sources.declared_files()[path], git_blob=fetch.checksum(tmp_path / path, "git blob"))
    judged = [(query, f"{int(query) * 7}", 1) for query in [*TRAINING, *UNLISTED]]
    training = {**TRAINING, **UNLISTED, **UNJUDGED}
    monkeypatch.setattr(published, "declared_files", lambda: dict(files))
    monkeypatch.setattr(validation, "COUNT", 25)
    monkeypatch.setattr(irds, "queries", lambda name: train_queries(list(training.items())))
    monkeypatch.setattr(irds, "qrels", lambda name: pl.DataFrame(judged, QRELS_SCHEMA, orient="row"))

    draft = published.draft(tmp_path)  # nothing has to be allowed
    assert draft.missing == []
    releases.write(draft, tmp_path / "ms-marco-shift")
    assert [one for one in verify(tmp_path / "ms-marco-shift") if one.fault] == []
    release = open_release(tmp_path / "ms-marco-shift")
    assert release.missing == []

    listed = list(enumerate(TRAINING.items()))
    expected = {
        "topic": [(q, t, f"c{i % 6}") for i, (q, t) in listed if i % 6 < 5],
        "wh": [(q, t, ("wha", "how", "who")[i % 4]) for i, (q, t) in listed if i % 4 < 3 and i % 2],
        "length": [(q, t, ("short", "long")[i % 2]) for i, (q, t) in listed],
        "resttest": [(q, t, BUCKETS[i % 5]) for i, (q, t) in enumerate([*TRAINING.items(), *UNLISTED.items()])],
    }
    for config, rows in expected.items():
        assert Counter(release.table(config, "train").rows()) == Counter(rows), config
    labelled_how = {query for query, _, cluster in expected["wh"] if cluster == "how"}
    assert labelled_how == set(SHIFTS["wh"].training(release, "who").queries["query_id"]), "one label a query"
    assert release.table("restrain", "interpolate_45k")["text"].to_list() == list(TRAINING.values())[::2]
    assert release.qrels("train").height == len(TRAINING) + len(UNLISTED)
    assert "reports" not in {path.name for path in release.folder.iterdir()}, "every text was found once"
    outside = release.table("validation", "validation")
    assert outside.height == 25 and set(outside.rows()) < set(UNLISTED.items())
    assert set(release.qrels("validation")["query_id"]) == set(outside["query_id"])
    remarks = [one for one in release.manifest.remarks if one.startswith("validation: ")]
    assert "25 training queries in none of the topic, wh, length and ReSTrain lists" in remarks[0]
    assert "25 of its queries are in resttest/train" in remarks[1]
    used = {one.id for one in release.manifest.inputs}
    assert {published.CLUSTERING, *(path for path in files if path.endswith("train-qrel.txt"))} <= used

    (tmp_path / published.CLUSTERING).unlink()
    line = ("builder", "build", "published", "--upstream", tmp_path, "--out", tmp_path / "partial")
    monkeypatch.setattr(sys, "argv", list(map(str, line)))
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1, "a partial release needs permission"
    assert "--allow-partial" in output.err
    assert not (tmp_path / "partial").exists()


def test_verify_finds_a_validation_query_in_a_list(mini_release: Release, tmp_path: Path) -> None:
    draft = planted.draft(queries=1_500)
    intruder = mini_release.table("wh", "train").select("query_id", "text")[:1]
    [index] = [number for number, table in enumerate(draft.tables) if table.config == "validation"]
    tables = list(draft.tables)
    tables[index] = replace(tables[index], frame=pl.concat([tables[index].frame, intruder]))
    releases.write(replace(draft, tables=tables), tmp_path / "release")
    [fault] = [check for check in verify(tmp_path / "release") if check.fault]
    assert fault.what == "the validation queries are outside every shift"
    assert fault.fault.startswith("1 are in ")


def test_blanks_at_an_end_do_not_part_a_text_from_its_query(tmp_path: Path) -> None:
    texts = [" what is a fen", "how to boil eggs", "who made lego "]
    known = train_queries([("1", "what is a fen"), ("2", "how to boil eggs "), ("3", "who made lego")])
    join = join_by_text(clustering(tmp_path / "blanks.tsv", *map(row, texts)), known)
    assert join.rows["query_id"].to_list() == ["1", "2", "3"] and "0 texts are mis-decoded" in join.remarks[0]


def test_a_file_whose_texts_are_unknown_is_refused(tmp_path: Path) -> None:
    known = train_queries([(str(number), f"query {number}") for number in range(200)])
    for unknown, is_refused in ((10, False), (11, True)):
        rows = [row(f"query {number}" if number >= unknown else f"no query {number}") for number in range(200)]
        path = clustering(tmp_path / f"{unknown}.tsv", *rows)
        if not is_refused:
            assert join_by_text(path, known).rows.height == 190
            continue
        with pytest.raises(UserError, match="11 of the 200"):
            join_by_text(path, known)
