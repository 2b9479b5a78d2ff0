"""Things that are broken in one place: each ends in one sentence that names the place, and nothing is written."""

import json
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import layouts
import numpy as np
import polars as pl
import pytest
from drafts import written

from builder import negatives, rebuilt
from builder.collection import Collection
from builder.encoders import Compute, Lsa
from builder.export import export
from builder.lite import of_passages
from builder.parameters import ShiftParameters
from builder.shifts import wh
from builder.shifts.given import read_given
from builder.shifts.restrain import RestrainParameters
from builder.shifts.topic import TopicParameters
from builder.sources import beir, irds, log, published
from builder.sources.mini import MiniParameters
from builder.sources.train_join import HEADER, join_by_text
from builder.verify import verify
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.formats import QUERIES_SCHEMA, tab_separated
from eval_kit.release import Release, ReleaseError, open_release
from tests.conftest import Run
from tests.manifests import release_digest

SETTINGS = ShiftParameters(topic=TopicParameters(k=30, size=150), restrain=RestrainParameters({"a": 340, "b": 500}))
FOUR_MODELS = SETTINGS.with_settings(["crossed.models=4"])
SIXTEEN_MODELS = ShiftParameters().with_settings(["crossed.models=16"])
ONE_TEXT = pl.DataFrame({"query_id": ["1", "2"], "text": ["a", "b"]})


@dataclass
class Things:
    """What there is to be broken, and how.

    Attributes:
        folder: empty at first.
        small: mini's collection.
        toy: a BEIR folder with training and test queries.
    """

    folder: Path
    small: Collection
    toy: Path

    def file(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder / name

    def release(self, **changes: Any) -> Release:
        return written(self.folder / "release", **changes)

    def draft(self, *shifts: str, encoder: Any = None, **options: Any) -> object:
        return rebuilt.draft(self.small, shifts or None, encoder or Lsa(8), **{"parameters": SETTINGS, **options})

    def set(self, *settings: str) -> object:
        return self.draft(parameters=SETTINGS.with_settings(settings))

    def queries(self, split: str, queries: pl.DataFrame, qrels: pl.DataFrame | None = None) -> Collection:
        """The collection with other queries in a split."""
        pairs = self.small.qrels | ({split: qrels} if qrels is not None else {})
        return replace(self.small, queries={**self.small.queries, split: queries}, qrels=pairs)

    def parts(self, name: str | None, shift: str, **options: Any) -> object:
        """A rebuild with one query in each part, or parts of other queries alone."""
        ids = self.small.train["query_id"] if name else pl.Series(["x"])
        parts = pl.DataFrame({"query_id": ids, "part": pl.Series(name or "a", range(len(ids))).cast(pl.String)})
        return rebuilt.draft(replace(self.small, parts=parts), [shift], Lsa(8), **options)


@dataclass
class Vectors:
    """An encoder by a function of the texts' checksums."""

    of: Callable[[np.ndarray], np.ndarray]
    name, revision = "odd", "1"

    def load(self, texts: Sequence[str]) -> Compute:
        return lambda part: self.of(np.array([zlib.crc32(text.encode()) for text in part])).astype(np.float32)


BROKEN = Vectors(lambda numbers: np.full((len(numbers), 4), np.nan))
EQUAL = Vectors(lambda numbers: np.ones((len(numbers), 4)))
ALIKE = Vectors(lambda numbers: np.eye(32)[np.where(numbers % 10 < 7, 0, numbers % 31 + 1)])


def joined(things: Things, *lines: str) -> object:
    path = things.file("clustering.tsv", "".join(f"{line}\n" for line in lines))
    return join_by_text(path, pl.DataFrame(schema=QUERIES_SCHEMA))


def blocked(things: Things) -> object:
    (things.folder / "out/length.short").mkdir(parents=True)
    (things.folder / "out/length.short/qrels").write_text("a file where a folder should be")
    return export(things.release(), things.folder / "out", "beir")


REFUSED: list[tuple[Callable[[Things], object], str]] = [
    # settings
    *(
        (lambda things, setting=setting: ShiftParameters().with_settings([setting]), f"--set {setting} ")
        for setting in (
            *("topic.kk=3", "topic.seed=3", "topic.k", "topic.k=many", "topic.test_share=half", "wh.rule=word"),
            *("restrain.sizes=100", "restrain.sizes=a:1,a:2", "restrain.sizes=A b:1", "chameleons.levels=ten"),
            "crossed.cells=no",
        )
    ),
    (lambda things: things.set("topic.k=5000"), "k = 5,000"),
    (lambda things: things.set("topic.topics=1"), "2 to k = 30"),
    (lambda things: things.set("topic.test_share=1"), "share of test queries"),
    (lambda things: things.draft("topic", encoder=EQUAL), "distinct clusters"),
    (lambda things: things.set("topic.size=900"), "about 900 queries"),
    *((lambda things, size=size: things.set(f"restrain.sizes=a:{size}"), "ReSTrain size a") for size in (0, 3, 900)),
    (lambda things: things.set("resttest.iterations=-1"), "iteration, not -1"),
    (lambda things: things.set("wh.size=1"), "wh cluster"),
    (lambda things: things.set("length.test_share=1"), "share of test queries"),
    (lambda things: things.set("wh.terms=how:jak,who:kdo"), r"\(jak, kdo\)"),
    (lambda things: wh.assign(ONE_TEXT, wh.WhParameters(terms="how:jak")), r"^wh\.terms="),
    (lambda things: wh.assign(ONE_TEXT, wh.WhParameters(terms="a:b:c,d:e")), r"^wh\.terms="),
    (lambda things: MiniParameters(strength=1.1), "strength"),
    (lambda things: MiniParameters(strength=float("nan")), "strength"),
    (lambda things: MiniParameters(queries=499), "500"),
    (lambda things: negatives.add(things.folder, negatives.NegativeParameters(depth=10, sample=20)), "20 .* 10"),
    # shifts
    (lambda things: things.draft("topics"), "topic, wh"),
    (lambda things: things.draft("chameleons"), "runs over dev"),
    (lambda things: things.draft("topic", runs={"a": Path("a")}), "--run is for the shift chameleons"),
    (lambda things: things.draft(encoder=BROKEN), "gives NaN"),
    (lambda things: things.draft("crossed", encoder=ALIKE, parameters=FOUR_MODELS), r"--encoder, or"),
    (lambda things: things.draft("crossed", parameters=SIXTEEN_MODELS), "3,200"),
    (lambda things: things.parts("numbers", "given"), "has enough"),
    (lambda things: things.parts(None, "crossed", parameters=FOUR_MODELS), "training query has a part"),
    (lambda things: things.parts(None, "given"), "training query has a part"),
    (lambda things: read_given("meta", things.toy), "query has a text or number"),
    (lambda things: read_given("metadata.article", things.folder), r"queries\.jsonl"),
    (lambda things: read_given(str(things.file("parts.tsv", "")), things.toy), r"parts\.tsv:1: the file is empty"),
    # collections
    (lambda things: things.queries("train", pl.concat([things.small.queries["train"]] * 2)), r"'\d+' appears more"),
    (lambda things: things.queries("dev", things.small.queries["dev"].with_columns(text=pl.lit(" "))), "of dev"),
    (lambda things: things.queries("dev", things.small.queries["train"], things.small.qrels["train"]), "both train"),
    (lambda things: things.queries("dev.2", things.small.queries["dev"], things.small.qrels["dev"]), r"'dev\.2'"),
    (lambda things: replace(things.small, qrels={}), "no judged queries"),
    (lambda things: beir.collection(things.folder / "nowhere"), "nowhere"),
    (lambda things: irds.collection("msmarco-passage"), "ir_datasets msmarco-passage/train"),
    (lambda things: log.collection(things.file("log.csv", "a,b,c\n")), r"log\.csv:1:"),
    (lambda things: log.collection(things.file("LOG.CSV", "id,query\n\na,dog\nb\n")), r"LOG\.CSV:4:"),
    (
        lambda things: rebuilt.draft(log.collection(things.file("log.tsv", "a dog\n")), disjoint_passages=True),
        "disjoint",
    ),
    # the authors' training lists
    *(
        (lambda things, line=line: joined(things, "\t".join(HEADER), line), r"clustering\.tsv")
        for line in ("text\t1\t1", "text\t0\tone" + "\t1" * 4, "text" + "\t1" * 7)
    ),
    (lambda things: joined(things, "query\tcluster"), r"clustering\.tsv"),
    (
        lambda things: published._own_bucket(pl.DataFrame({"query_id": list("112"), "bucket": ["b1", "b2", "b1"]})),
        "neither buckets nor complements",
    ),
    # exports and parts of releases
    (lambda things: export(things.release(), things.folder / "out", "csv"), "'csv'"),
    (lambda things: export(things.release(), things.folder / "out", "beir", ["topic.c9"]), "topic.c9"),
    (
        lambda things: export(things.release(), things.folder / "out", "beir", training_sets=["length.not-long"]),
        "not-long",
    ),
    (lambda things: export(things.release(), things.file("file", "x"), "beir"), "Could not write"),
    (blocked, r"length\.short/qrels"),
    *(
        (lambda things, id=id: list(tab_separated(ONE_TEXT.with_columns(query_id=pl.lit(id)))), "Could not write")
        for id in ("a b", "a\tb", "a\n9", "", " 1", "\0", "\u2028")
    ),
    (lambda things: list(tab_separated(ONE_TEXT.with_columns(text=pl.Series(["a", None])))), "1 of 2 texts"),
    (lambda things: of_passages(things.release(), things.toy, things.folder / "out", ["topics"]), "topics"),
    (
        lambda things: of_passages(things.release(), things.file("twice.tsv", "7\ta\n7\tb\n"), things.folder / "out"),
        r"twice\.tsv:2|passage 7",
    ),
    # the folder that one is in
    (lambda things: atomic.lock(Path()), "its parent"),
    (lambda things: atomic.lock(Path("..")), "its parent"),
]


@pytest.mark.parametrize(("use", "place"), REFUSED, ids=[place for _, place in REFUSED])
def test_one_sentence_names_the_place(
    use: Callable[[Things], object], place: str, tmp_path: Path, small: Collection, toy: Path
) -> None:
    with pytest.raises(UserError, match=place) as error:
        use(Things(tmp_path, small, toy))
    assert "\n" not in str(error.value)
    assert not {path.name for path in tmp_path.glob("out/*")} - {"length.short"}


@pytest.mark.parametrize(
    ("file", "line", "place"),
    [
        ("queries.jsonl", "{not json", "queries.jsonl:5: expected a JSON object"),
        ("queries.jsonl", '{"text": "no id"}', "queries.jsonl:5:"),
        ("queries.jsonl", '{"_id": "q1", "text": "again"}', "queries.jsonl:5: query q1 "),
        ("queries.jsonl", '{"_id": "q9", "text": " "}', "queries.jsonl:5:"),
        ("queries.jsonl", '{"_id": "q\\t9", "text": "x"}', "queries.jsonl:5:"),
        ("queries.jsonl", '{"_id": "q9", "text": NaN}', "queries.jsonl:5:"),
        ("corpus.jsonl", "{not json", "corpus.jsonl:4:"),
        ("corpus.jsonl", '{"_id": 7, "text": "x"}', "corpus.jsonl:4:"),
        ("corpus.jsonl", '{"_id": "p9", "text": ["x"]}', "corpus.jsonl:4:"),
        ("corpus.jsonl", '{"_id": "p2", "text": "again"}', "corpus.jsonl:4: passage p2 "),
        ("corpus.jsonl", '{"_id": "p9 "}', "corpus.jsonl:4:"),
        ("corpus.jsonl", None, "corpus.jsonl: No such file"),
        ("queries.jsonl", None, "queries.jsonl: No such file"),
        ("qrels/train.tsv", "q7\tp1\t1", "train.tsv:6: query q7 "),
        ("qrels/train.tsv", "q1\tp1\tone", "train.tsv:6:"),
        ("qrels/train.tsv", "q1 p1 1", "train.tsv:6:"),
        ("qrels/dev.tsv", "query-id\tcorpus-id\tscore", "dev.tsv and Validation.tsv are both the split dev"),
        ("qrels", None, "has no qrels/*.tsv"),
    ],
)
def test_a_beir_folder_with_one_line_too_many_or_a_file_too_few(
    tiny: Path, file: str, line: str | None, place: str
) -> None:
    if line is None:
        (tiny / file).rename(tiny / "elsewhere")
    else:
        with (tiny / file).open("a") as open_file:
            open_file.write(line + "\n")
    with pytest.raises(UserError) as error:
        beir.collection(tiny)
    assert place in str(error.value) and "\n" not in str(error.value)


def test_a_table_that_is_a_pipe_and_many_measures_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "release").folder
    table = next((folder / "data").rglob("*.parquet"))
    table.unlink()
    os.mkfifo(table)
    assert [check for check in verify(folder) if check.fault]
    with pytest.raises(ReleaseError):
        open_release(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["test_sets"][0]["measures"] = [f"P@{k}" for k in range(1, 3_001)]
    (folder / "manifest.json").write_text(json.dumps(manifest | {"digest": release_digest(manifest)}))
    with pytest.raises(ReleaseError, match=r"3,\d\d\d different measures"):
        open_release(folder)


@pytest.fixture(scope="session")
def places(mini_release: Release, trainable_release: Release, small: Collection, toy: Path, tmp_path_factory) -> Any:
    """What commands are given, by name."""
    folder = tmp_path_factory.mktemp("places")
    ids = small.evaluation["dev"]["query_id"]
    for name, count in (("a", len(ids)), ("b", len(ids)), ("short", 100)):
        lines = [f"{query} Q0 x 1 1.0 {name}\n" for query in ids.head(count)]
        (folder / f"{name}.trec").write_text("".join(lines))
    runs = {name: folder / f"{name}.trec" for name in ("a", "b", "short")}
    releases = {"mini": mini_release.folder, "trainable": trainable_release.folder}
    return {**runs, **releases, "toy": toy, "beir": layouts.beir(small, folder / "beir")}


REBUILT = "build rebuilt --queries 1500 --shift chameleons"
TRAINER = "export {trainable} --format sentence-transformers"


@pytest.mark.parametrize(
    ("command_line", "place"),
    [
        (f"{REBUILT} --run {{short}}", "short.trec lacks"),
        (f"{REBUILT} --run {{a}} --run {{b}}", "three rankers, not 2"),
        (f"{REBUILT} --run {{a}} --run {{b}} --run {{b}}", "the same name"),
        ("build rebuilt --collection {beir} --queries 600", "--queries belongs to the collection mini"),
        ("build rebuilt --collection beir/nothing", "'beir/nothing'"),
        *(
            (f"build rebuilt --collection {{toy}} --shift length --version {version}", f"--version {version} ")
            for version in ("2", "1.1.١", "1234567890.0.0")
        ),
        *(
            (f"lite {{mini}} --collection {{toy}} {option}", f"{option.split()[0]} is for passages that are drawn")
            for option in ("--queries 3", "--dense none", "--depth 5")
        ),
        ("export {toy} --format tevatron-train --passages none.tsv", "--passages"),
        (f"{TRAINER} --training-set topics.not-c0", "topics.not-c0"),
        (f"{TRAINER} --training-set topic.not-c9", "topic.not-c9"),
        (f"{TRAINER} --test-set topic.c0", "--training-set"),
        (TRAINER, "--training-set"),
        ("export {mini} --format sentence-transformers --training-set topic.not-c0", "python -m builder negatives"),
    ],
)
def test_one_sentence_status_2_and_nothing_written(
    command_line: str, place: str, places: dict[str, Path], command: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out" / "release"
    done = command("builder", *command_line.format(**places).split(), "--out", out)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert place in done.stderr and not out.exists()
