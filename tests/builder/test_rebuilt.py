"""Releases made by the papers' algorithms: planted truth, determinism, and what is refused."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from drafts import faults
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from builder import rebuilt
from builder import release as releases
from builder.collection import Collection
from builder.encoders import Lsa, Model, public_name
from builder.parameters import MS_MARCO_TRAINING, ShiftParameters, for_collection, for_mini, settings
from builder.shifts import wh
from builder.shifts.restrain import RestrainParameters
from builder.shifts.topic import TopicParameters
from builder.sources import mini
from builder.verify import verify
from eval_kit.divisions import divide
from eval_kit.documents import Manifest
from eval_kit.errors import UserError
from eval_kit.release import Release, open_release
from eval_kit.shifts import TRAINED_FOR
from tests.conftest import Run

RANKERS = 6
LEVEL = 20
LSA = Lsa(dimensions=8)
SETTINGS = ShiftParameters(topic=TopicParameters(k=30, size=150), restrain=RestrainParameters({"a": 340, "b": 500}))


@pytest.fixture(scope="session")
def truth() -> mini.Mini:
    return mini.generate()


@pytest.fixture(scope="session")
def hard(truth: mini.Mini) -> set[str]:
    """The dev queries that six rankers are made to do badly on: an eighth of them."""
    return set(truth.queries.filter(pl.col("population") == "dev")["query_id"].sort().gather_every(8))


@pytest.fixture(scope="session")
def runs(truth: mini.Mini, hard: set[str], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Rankers that find each dev query's passage first, but those of the hard ones and of some own ones late."""
    folder = tmp_path_factory.mktemp("runs")
    relevant = dict(truth.qrels.select("query_id", "passage_id").iter_rows())
    dev = truth.queries.filter(pl.col("population") == "dev")["query_id"].sort().to_list()
    easy = [query for query in dev if query not in hard]
    for ranker in range(RANKERS):
        own = set(easy[ranker::RANKERS][: round(LEVEL / 100 * len(dev)) - len(hard)])
        lines = []
        for query in dev:
            place = 5 if query in hard else 3 if query in own else 1
            ranking = [f"x{i}" for i in range(1, place)] + [relevant[query]]
            lines += [f"{query} Q0 {passage} {i} {9 - i} r{ranker}\n" for i, passage in enumerate(ranking, 1)]
        (folder / f"ranker{ranker}.trec").write_text("".join(lines))
    return sorted(folder.iterdir())


@pytest.fixture(scope="session")
def release(runs: list[Path], command: Run, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """All shifts of mini, by the command line."""
    folder = tmp_path_factory.mktemp("rebuilt") / "ms-marco-shift"
    given = [part for run in runs for part in ("--run", run)]
    done = command("builder", "build", "rebuilt", "--collection", "mini", "--json", "-", "--out", folder, *given)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["digest"] == open_release(folder).digest
    return open_release(folder)


def built(collection: Collection, **options: Any) -> Manifest:
    """The manifest of a small release."""
    return releases.describe(rebuilt.draft(collection, encoder=LSA, **{"parameters": SETTINGS, **options}))


def written(folder: Path, *arguments: Any, **options: Any) -> Release:
    """A release of LSA's topics, written."""
    releases.write(rebuilt.draft(*arguments, encoder=LSA, **options), folder)
    return open_release(folder)


def of_splits(collection: Collection, splits: dict[str, str], **changes: Any) -> Collection:
    """The collection with these splits alone, each under the name in front of it."""
    queries = {split: collection.queries[source] for split, source in splits.items()}
    qrels = {split: collection.qrels[source] for split, source in splits.items()}
    return replace(collection, queries=queries, qrels=qrels, **changes)


def digests(manifest: Manifest) -> dict[str, str]:
    return {f"{table.config}/{table.split}": table.digest for table in manifest.tables}


def test_it_is_sound_and_has_the_tables_and_test_sets_of_the_planted_release(
    release: Release, mini_release: Release
) -> None:
    assert not faults(release.folder)
    assert release.manifest.kind == "rebuilt" and release.manifest.seed == 13 and not release.missing
    rebuilt = {name: sorted(splits) for name, splits in release.configs.items()}
    planted = {name: sorted(splits) for name, splits in mini_release.configs.items() if name != "variations"}
    assert rebuilt == planted and list(rebuilt) == list(planted)
    lacking = set(mini_release.test_sets) - set(release.test_sets)
    assert all(name.startswith("chameleons") for name in lacking)
    for name, test_set in release.test_sets.items():
        assert test_set.measures == mini_release.test_sets[name].measures
    assert {name for name in release.test_sets if "." not in name} == {"dev", "dl19", "dl20"}


def test_planted_topics_are_found(release: Release, truth: mini.Mini) -> None:
    found = pl.concat(release.table("topic", split) for split in ("train", "test"))
    planted = found.join(truth.queries, on="query_id")
    assert adjusted_rand_score(planted["topic"].fill_null("none").to_list(), planted["cluster"].to_list()) >= 0.9
    report = pl.read_csv(release.folder / "reports" / "topics.tsv", separator="\t")
    assert report["queries"].sum() == found.height and report["cluster"].to_list() == sorted(set(found["cluster"]))


def test_interpolation_is_nearer_than_extrapolation_at_every_size(release: Release, truth: mini.Mini) -> None:
    nearness = truth.queries.select("query_id", "nearness")
    for size in ("small", "medium", "large"):
        near, far = (
            release.table("restrain", f"{regime}_{size}").join(nearness, on="query_id")["nearness"]
            for regime in ("interpolate", "extrapolate")
        )
        assert len(near) == len(far) > 0 and near.mean() > far.mean()


def test_planted_hard_queries_are_the_lesser_chameleons(release: Release, hard: set[str]) -> None:
    assert set(release.test_sets[f"chameleons.lesser.{LEVEL}"].queries) == hard
    rule = next(table.rule for table in release.manifest.tables if table.config == "chameleons")
    assert rule.parameters["rankers"] == [f"ranker{i}" for i in range(RANKERS)]


def test_validation_is_a_twentieth_of_the_training_queries_and_shifts_are_of_the_others(release: Release) -> None:
    """That the parts share no query is what verify checks, which finds no fault."""
    validation, train = (set(release.qrels(split)["query_id"]) for split in ("validation", "train"))
    assert len(validation) == round(0.05 * (len(train) + len(validation))) and not validation & train
    assert set(release.table("validation", "validation")["query_id"]) == validation
    for shift in ("topic", "wh"):
        for split in ("train", "test"):
            assert set(release.table(shift, split)["query_id"]) <= train


def test_rules_say_how_each_table_was_made(release: Release, tmp_path: Path) -> None:
    rules = {table.key: table.rule for table in release.manifest.tables}
    for config, split in (("topic", "test"), ("resttest", "dev"), ("restrain", "interpolate_small")):
        parameters = rules[config, split].parameters
        assert parameters["encoder"]["name"] == "lsa" and parameters["encoder"]["revision"] and parameters["seed"] == 13
    assert rules["topic", "test"].parameters["k"] == 20
    assert rules["restrain", "interpolate_small"].parameters["top_i"] >= 1
    assert rules["restrain", "interpolate_small"].parameters["tests"] == ["dl19", "dl20"]
    (tmp_path / "tiny").mkdir()
    assert public_name(Model(f"{tmp_path}/tiny:cls")) == "tiny:cls", "a folder's name stands for it"
    assert public_name(Model("org/model:cls")) == "org/model:cls" and public_name(LSA) == "lsa"


def test_rebuilds_differ_by_their_seed_and_not_by_threads_or_the_order_of_queries(small: Collection) -> None:
    with threadpool_limits(1):
        first = built(small)
    other_order = replace(
        small,
        queries={split: rows.sample(fraction=1, shuffle=True, seed=3) for split, rows in small.queries.items()},
        qrels={split: rows.sample(fraction=1, shuffle=True, seed=4) for split, rows in small.qrels.items()},
    )
    for again in (built(small), built(other_order)):
        assert digests(again) == digests(first) and again.digest == first.digest
    other = digests(built(small, seed=14))
    assert other.keys() == digests(first).keys()
    same = {name for name, digest in digests(first).items() if other[name] == digest}
    evaluation = {f"{config}/{split}" for config in ("qrels", "trec_dl") for split in ("dl19", "dl20")}
    assert same == {*evaluation, "qrels/dev", "length/test", "passages/passages"}


def test_only_the_shifts_asked_for(small: Collection) -> None:
    """For length, a fifth of train is held back where there is neither dev nor test."""
    draft = rebuilt.draft(small, ["restrain", "length"], LSA, SETTINGS)
    configs = {"length", "restrain", "trec_dl", "validation", "qrels", "passages"}
    assert {table.config for table in draft.tables} == configs
    assert [test_set.name for test_set in draft.test_sets] == ["length.short", "length.long", "dl19", "dl20"]
    assert draft.test_sets[2].config == "trec_dl"
    draft = rebuilt.draft(of_splits(small, {"train": "train", "dl19": "dl19"}), ["length"], LSA, SETTINGS)
    tables = {(table.config, table.split): table.frame for table in draft.tables}
    train, test = (tables["length", split]["query_id"] for split in ("train", "test"))
    assert len(test) == round(0.2 * (len(train) + len(test)))
    assert set(tables["qrels", "length_test"]["query-id"]) == set(test)


def test_a_collection_with_test_alone_is_as_good_as_one_with_dev(small: Collection, tmp_path: Path) -> None:
    collection = of_splits(small, {"train": "train", "test": "dev"})
    release = written(tmp_path / "release", collection, parameters=SETTINGS)
    assert not faults(release.folder)
    train, test = (release.table("length", split)["query_id"] for split in ("train", "test"))
    assert set(test) == set(small.evaluation["dev"]["query_id"]) and not set(train) & set(test)
    assert release.test_sets["length.short"].qrels == "test"
    assert divide("length×bucket", release, release.queries("test")).parts.height == len(test)
    for shift, size in (("resttest", 5), ("restrain", 4), ("all", 1)):
        trained_for = TRAINED_FOR[shift]
        assert trained_for.test_sets(release) == ["test"] and len(trained_for.parts(release)) == size
        assert trained_for.test_queries(release, trained_for.parts(release)[0]).height == len(test)
        models = pl.DataFrame({"held_out": trained_for.parts(release), "test_set": "test"})
        scored = models.join(release.table("resttest", "test").select("query_id"), how="cross")
        roles = trained_for.roles(scored, release)
        assert roles["is_out"].sum() == {"resttest": len(test), "restrain": 2 * len(test), "all": 0}[shift]
    assert release.test_sets["test"].measures[0] == "nDCG@10" and "resttest.b1" in release.test_sets


def test_the_token_rule_loses_show_and_is_checked(small: Collection, tmp_path: Path) -> None:
    release = written(tmp_path / "release", small, ["wh"], parameters=SETTINGS.with_settings(["wh.rule=token"]))
    checks = {check.what: check.fault for check in verify(release.folder)}
    assert "clusters follow the wh-word rule for whole words (wh/test)" in checks and not any(checks.values())
    members = pl.concat(release.table("wh", split) for split in ("train", "test"))
    train = small.train.join(release.table("validation", "validation"), on="query_id", how="anti")
    assert members.height == sum(wh.member(train["text"], cluster, "token").sum() for cluster in wh.CLUSTERS)
    (remark,) = [one for one in release.manifest.remarks if one.startswith("wh: question words")]
    lost = sum(wh.member(train["text"], "how") & ~wh.member(train["text"], "how", "token"))
    assert lost > 0 and re.search(rf"\b{lost} quer(y|ies) of how", remark)


def test_wh_members_by_rule() -> None:
    texts = pl.Series(["TV show", "what's new", "whatever", "define how-to", "somehow", "nowhere", "Definitions"])
    marks: dict[str, list[str]] = {}
    for rule in wh.RULES:
        members = [wh.member(texts, cluster, rule).to_list() for cluster in wh.CLUSTERS]
        marks[rule] = ["".join("x" if member else "." for member in row) for row in members]
    assert marks["substring"] == [".xx...x", "x..xx..", ".....x."]
    assert marks["token"] == [".x.....", "...x...", "......."]
    assert wh.differences(texts) == {"wha": (0, 2), "how": (0, 2), "who": (0, 1)}


def test_wh_clusters_are_cut_to_size_and_a_test_query_is_one_in_each_cluster() -> None:
    ids = [str(i) for i in range(600)]
    texts = ["what and how" if i % 3 == 0 else "how" for i in range(600)]
    queries = pl.DataFrame({"query_id": ids, "text": texts})
    found = wh.assign(queries, wh.WhParameters(size=150, test_share=0.2))
    assert dict(found.group_by("cluster").len().iter_rows()) == {"wha": 150, "how": 150}
    assert found.group_by("query_id").agg(pl.col("split").n_unique())["split"].max() == 1
    assert found.filter(pl.col("split") == "test")["query_id"].n_unique() == round(0.2 * found["query_id"].n_unique())
    other_order = wh.assign(queries[::-1], wh.WhParameters(size=150, test_share=0.2))
    assert found.sort("query_id", "cluster").equals(other_order.sort("query_id", "cluster"))


def test_parameters_by_name() -> None:
    given = ["topic.k=20", "topic.test_share=0.3", "restrain.sizes=a:100,b:300", "chameleons.levels=50,10"]
    changed = ShiftParameters().with_settings([*given, "wh.rule=token"]).with_seed(5)
    assert (changed.topic.k, changed.topic.test_share, changed.topic.seed) == (20, 0.3, 5)
    assert changed.restrain.sizes == {"a": 100, "b": 300} and changed.restrain.seed == 5
    assert changed.chameleons.levels == (10, 50) and changed.wh.rule == "token"
    assert for_mini(10_000).topic.size == 1_800
    assert ShiftParameters().with_settings(settings()) == ShiftParameters()
    cells = [ShiftParameters().with_settings([f"crossed.cells={text}"]).crossed.cells for text in ("true", "false")]
    assert cells == [True, False]
    assert {"topic.k=100", "restrain.sizes=14k:14000,45k:45000,200k:200000", "wh.rule=substring"} <= set(settings())


def test_sizes_are_the_papers_at_ms_marcos_size_and_the_same_shares_elsewhere() -> None:
    papers = for_collection(MS_MARCO_TRAINING)
    assert papers == ShiftParameters() and papers.topic.size == 31_250
    assert dict(papers.restrain.sizes) == {"14k": 14_000, "45k": 45_000, "200k": 200_000}
    nfcorpus = for_collection(2_590)
    assert (nfcorpus.topic.size, nfcorpus.wh.size, nfcorpus.length.size) == (414, 847, 515)
    for training in (300, 809, 2_590, 20_000):  # 100 test queries a topic, or up to half of all
        topic = for_collection(training).topic
        if training <= 2_590:
            assert round(topic.size * topic.test_share) == pytest.approx(min(100, 0.08 * training), abs=1)
        assert topic.size * topic.topics <= 0.8 * training + 5 and topic.k <= training / 10
    assert dict(nfcorpus.restrain.sizes) == {"72": 72, "232": 232, "1k": 1_030}


def test_without_train_there_are_the_shifts_that_need_none(small: Collection, tmp_path: Path) -> None:
    collection = of_splits(small, {"test": "dev"}, name="toy")
    release = written(tmp_path / "release", collection)
    assert not faults(release.folder)
    assert release.configs.keys() == {"length", "resttest", "qrels", "passages"}
    assert set(release.table("length", "test")["query_id"]) == set(collection.evaluation["test"]["query_id"])
    assert release.test_sets["length.short"].qrels == "test" and "length_test" not in release.configs["qrels"]
    for shift in ("topic", "wh", "restrain"):
        assert f"no {shift}: toy has no split train with judgements" in release.manifest.remarks
        with pytest.raises(UserError, match=f"{shift} .* toy has no split train"):
            rebuilt.draft(collection, [shift], LSA)


def test_a_shift_that_the_queries_do_not_suffice_for_is_left_out_unless_it_is_named(small: Collection) -> None:
    few = small.queries["train"].head(80)
    pairs = small.qrels["train"].filter(pl.col("query-id").is_in(few["query_id"].implode()))
    collection = replace(small, queries={**small.queries, "train": few}, qrels={**small.qrels, "train": pairs})
    draft = rebuilt.draft(collection, encoder=LSA)
    assert any(
        remark.startswith("no topic: ") and "fewer than 30 test queries: c0 (" in remark for remark in draft.remarks
    )
    assert "topic" not in {table.config for table in draft.tables}
    built_anyway = rebuilt.draft(collection, ["topic"], LSA)
    assert {table.config for table in built_anyway.tables} >= {"topic"}


@pytest.fixture(scope="session")
def nfcorpus(shared: Path, command: Run, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """NFCorpus, rebuilt by the command line with the defaults alone."""
    out = tmp_path_factory.mktemp("nfcorpus") / "release"
    done = command(*("builder", "build", "rebuilt", "--collection", shared / "beir" / "nfcorpus", "--out", out))
    assert done.returncode == 0, done.stderr
    return open_release(out)


@pytest.mark.slow
def test_nfcorpus_is_rebuilt_with_the_defaults(nfcorpus: Release) -> None:
    assert not faults(nfcorpus.folder)
    assert set(nfcorpus.configs) == {*("topic", "length", "resttest", "restrain"), *("validation", "qrels", "passages")}
    assert nfcorpus.configs["restrain"] == ["interpolate_1k", "extrapolate_1k"]
    assert sum(len(nfcorpus.test_sets[name].queries) for name in ("length.short", "length.long")) == 324
    assert nfcorpus.test_sets["dev"].measures[0] == nfcorpus.test_sets["test"].measures[0] == "nDCG@10"
    remarks = "\n".join(nfcorpus.manifest.remarks)
    few = "no wh: The parts of wh have fewer than 30"
    for said in ("502,939", "2,590", "ReSTrain size 72", few, "a relevant passage tells"):
        assert said in remarks
    card = (nfcorpus.folder / "README.md").read_text()
    assert "pretty_name: nfcorpus-shift" in card and "TREC DL" not in card
