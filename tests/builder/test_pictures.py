"""The table of similarities against the published figures, and pictures that are the same at every call."""

import json
import shutil
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib import rcParams

from builder.encoders import Lsa, embed
from builder.pictures import _fonts, _topics, draw, similarities
from eval_kit.errors import UserError
from eval_kit.release import Release, open_release
from eval_kit.stats.vectors import Vectors

PNG = b"\x89PNG\r\n\x1a\n"
PUBLISHED = {
    "topic": [0.2984, 0.2449, 0.3388, 0.3005, 0.4268],
    "wh": [0.2793, 0.2261, 0.2762],
    "length": [0.3225, 0.3225],
}
"""Weighted Jaccard of each cluster's test queries with those of the others, computed from the authors' files."""


@pytest.fixture(scope="module")
def own(mini_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("pictures") / "ms-marco-shift"
    shutil.copytree(mini_release.folder, folder)
    return open_release(folder)


@pytest.fixture(scope="module")
def drawn(own: Release) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in draw(own)}


def test_the_published_figures(published_release: Release) -> None:
    queries = pl.concat(published_release.table(shift, "test").select("query_id", "text") for shift in PUBLISHED)
    ids = queries["query_id"].unique(maintain_order=True)
    vectors = Vectors("noise", ids, np.random.default_rng(0).normal(size=(len(ids), 2)))
    table = similarities(published_release, vectors).filter(pl.col("other") == "others")
    for shift, figures in PUBLISHED.items():
        assert table.filter(pl.col("shift") == shift)["jaccard"].round(4).to_list() == figures
    assert table["split"].unique().to_list() == ["test"]
    assert table.filter(pl.col("shift") == "topic")["n"].to_list() == [6595, 5960, 6255, 5868, 6566]
    assert (table["n"] + table["n_other"]).to_list() == [31_244] * 5 + [19_487] * 3 + [6_980] * 2


def test_every_pair_counted_by_hand(own: Release) -> None:
    queries = pl.concat(own.table("wh", split) for split in ("train", "test")).unique("query_id", maintain_order=True)
    others = pl.concat(own.table(shift, split) for shift in ("topic", "length") for split in ("train", "test"))
    texts = pl.concat(rows.select("query_id", "text") for rows in (queries, others)).unique("query_id")
    vectors = embed(texts, Lsa())
    rows = similarities(own, vectors).filter((pl.col("shift") == "wh") & (pl.col("split") == "test"))
    clusters = ("wha", "how", "who")
    pairs = [*permutations(clusters, 2), *product(clusters, ["others"])]
    assert rows.select("cluster", "other").rows() == pairs
    test = own.table("wh", "test").sort("query_id")
    members = {cluster: test.filter(pl.col("cluster") == cluster) for cluster in clusters}
    members["others"] = pl.concat([members["wha"], members["who"]])
    for other in ("wha", "others"):
        row = rows.row(by_predicate=(pl.col("cluster") == "how") & (pl.col("other") == other), named=True)
        left, right = (share(members[side]["text"]) for side in ("how", other))
        shares = [(left.get(word, 0), right.get(word, 0)) for word in {*left, *right}]
        least, most = sum(map(min, shares)), sum(map(max, shares))
        assert row["jaccard"] == pytest.approx(least / most)
        every = vectors.of(members["how"]["query_id"]).astype(float) @ vectors.of(members[other]["query_id"]).T
        assert row["cosine"] == pytest.approx(every.mean(), abs=1e-6)
        assert (row["n"], row["n_other"]) == every.shape


def test_a_query_without_known_words_has_no_cosine(own: Release) -> None:
    tables = [own.table(shift, split) for shift in PUBLISHED for split in ("train", "test")]
    ids = pl.concat(table.select("query_id") for table in tables)["query_id"].unique(maintain_order=True)
    values = np.random.default_rng(0).normal(size=(len(ids), 3))
    values[(ids == own.table("wh", "test").filter(pl.col("cluster") == "how")["query_id"][0]).to_numpy()] = 0
    vectors = Vectors("noise", ids, values)
    row = similarities(own, vectors).row(
        by_predicate=(pl.col("split") == "test") & (pl.col("cluster") == "who") & (pl.col("other") == "others"),
        named=True,
    )
    unit = {id: value / np.linalg.norm(value) for id, value in zip(ids, values, strict=True) if value.any()}
    members = own.table("wh", "test").select("query_id", "cluster").rows()
    left, right = (
        [unit[id] for id, name in members if name in names and id in unit] for names in (["who"], ["wha", "how"])
    )
    assert row["cosine"] == pytest.approx(float((np.array(left) @ np.array(right).T).mean()))
    assert row["n_other"] == len(right) + 1


def share(texts: pl.Series) -> dict[str, float]:
    words = [word for text in texts for word in text.lower().split()]
    return {word: words.count(word) / len(words) for word in set(words)}


def test_what_is_written(own: Release, drawn: dict[str, bytes]) -> None:
    assert list(drawn) == ["similarity.json", "similarity.png", "topics.png"]
    assert all(drawn[name].startswith(PNG) for name in ("similarity.png", "topics.png"))
    document = json.loads(drawn["similarity.json"])
    assert document["release"]["digest"] == own.digest
    assert document["encoder"]["name"] == "lsa"
    assert {(row["shift"], row["split"]) for row in document["similarity"]} == {
        (shift, split) for shift in PUBLISHED for split in ("train", "test")
    }
    assert sorted(path.name for path in (own.folder / "reports").iterdir()) == sorted(drawn)
    assert open_release(own.folder).digest == own.digest


def test_the_same_bytes_from_the_command(command, own: Release, drawn: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "ms-marco-shift"
    shutil.copytree(own.folder, folder, ignore=shutil.ignore_patterns("reports"))
    done = command("builder", "card", folder, "--pictures", "lsa", "--cache", tmp_path / "cache", OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:-1] == [str(folder / "reports" / name) for name in drawn]
    assert {name: (folder / "reports" / name).read_bytes() for name in drawn} == drawn


def test_a_folder_that_cannot_be_written(own: Release, tmp_path: Path) -> None:
    folder = tmp_path / "ms-marco-shift"
    shutil.copytree(own.folder, folder, ignore=shutil.ignore_patterns("reports"))
    (folder / "reports").write_text("a file")
    with pytest.raises(UserError, match="reports: cannot be written"):
        draw(open_release(folder))


def test_letters_that_matplotlibs_font_lacks(tmp_path: Path) -> None:
    """Without a font for them the picture has no words; a font that is installed is used beside matplotlib's."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.ttLib.tables._g_l_y_f import Glyph
    from matplotlib.font_manager import fontManager

    assert _fonts("c0: wörter, слова") == rcParams["font.family"]
    assert _fonts("c0: 黑豹") == []
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder([".notdef", "hei", "bao"])
    font.setupCharacterMap({ord("黑"): "hei", ord("豹"): "bao"})
    font.setupGlyf({name: Glyph() for name in (".notdef", "hei", "bao")})
    font.setupHorizontalMetrics(dict.fromkeys((".notdef", "hei", "bao"), (500, 0)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Two characters", "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(tmp_path / "two.ttf")
    installed = list(fontManager.ttflist)
    fontManager.addfont(tmp_path / "two.ttf")
    try:
        assert _fonts("c0: 黑豹") == [*rcParams["font.family"], "Two characters"]
        assert _fonts("c0: 黑豹队") == []
    finally:
        fontManager.ttflist[:] = installed


def test_a_picture_without_a_font_for_its_words_says_so(own: Release, tmp_path: Path, recwarn) -> None:
    queries = own.table("topic", "test").with_columns(text=pl.lit("黑豹队的防守") + pl.col("cluster").cast(pl.String))
    vectors = Vectors("noise", queries["query_id"], np.random.default_rng(0).normal(size=(queries.height, 4)))
    _topics(replace(own, _read={("topic", "test"): queries}), vectors, tmp_path / "topics.png")
    assert [str(warning.message) for warning in recwarn] == [
        "no installed font has the letters of the topics' words, which topics.png leaves out"
    ]
