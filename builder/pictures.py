"""The similarity of a shift's clusters, as a table and a heatmap (arXiv:2205.02870, Figure 1), and a map of them."""

import json
import warnings
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from builder.encoders import by_name, embed, public_name
from builder.reports import SIMILARITY
from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic
from eval_kit.release import Release
from eval_kit.shifts import union
from eval_kit.stats.similarity import by_cluster, mean_cosine, weighted_jaccard
from eval_kit.stats.typical import topics
from eval_kit.stats.vectors import Vectors

SHIFTS, SPLITS = ("topic", "wh", "length"), ("train", "test")
OTHERS = "others"
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#D55E00", "#F0E442")
"""Okabe and Ito's, which colour-blind readers can tell apart."""
TERMS = 5
"""How many words describe a topic in the picture."""
CELL = 0.62
"""Inches."""
POINTS = 5_000
"""Queries in the map of the topics, at most."""
SEED = 13


def draw(release: Release, encoder: str = "lsa", cache: Path | None = None) -> list[Path]:
    """Write ``similarity.json``, ``similarity.png`` and ``topics.png`` to the release's ``reports/``.

    Args:
        release: a folder with topic, wh or length queries; without topic test queries, there is no ``topics.png``.
        encoder: of the queries, by name; see :mod:`builder.encoders`.
        cache: where vectors are kept; None keeps none.

    Raises:
        UserError: there are no such queries, the encoder cannot be obtained, or the folder cannot be written.
    """
    queries = union(release, _tables(release)).unique("query_id", maintain_order=True)
    if queries.is_empty():
        raise UserError(f"{release.folder}: holds no topic, wh or length queries")
    model = by_name(encoder)
    name = public_name(model)
    vectors = embed(queries, model, cache)
    table = similarities(release, vectors)
    document = {
        "release": {"version": release.version, "kind": release.manifest.kind, "digest": release.digest},
        "encoder": {"name": name, "revision": model.revision},
        "similarity": table.to_dicts(),
    }
    reports = release.folder / "reports"
    paths = [release.folder / SIMILARITY, reports / "similarity.png"]
    with disk_errors(reports):
        reports.mkdir(exist_ok=True)
        _heatmaps(table, {"jaccard": "weighted Jaccard", "cosine": f"mean cosine, {name}"}, paths[1])
        if "test" in release.configs.get("topic", []):
            paths.append(reports / "topics.png")
            _topics(release, vectors, paths[2])
    atomic.write_text(paths[0], json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return paths


def similarities(release: Release, vectors: Vectors) -> pl.DataFrame:
    """The similarity of every cluster to every other of its shift and split, and to all the others together.

    A query in two clusters (wh) counts on both sides. A query whose vector is zero (``lsa`` knows none of its words)
    has no cosine and is left out of those means.

    Args:
        vectors: of all queries of its topic, wh and length tables.

    Returns:
        ``shift``, ``split``, ``cluster``, ``other`` (a cluster, or ``others``), ``n`` and ``n_other`` (queries),
        ``jaccard`` (ECIR 2023 §5.2) and ``cosine`` (arXiv:2205.02870 §3.1).
    """
    rows: list[dict[str, Any]] = []
    for shift, split in _tables(release):
        texts, directions = {}, {}
        for (name,), part in release.table(shift, split).group_by("cluster", maintain_order=True):
            values = vectors.of(part["query_id"])
            texts[str(name)], directions[str(name)] = part["text"], values[np.linalg.norm(values, axis=1) > 0]
        cosines = {}
        for left, right in permutations(texts, 2):
            cosines[left, right] = mean_cosine(directions[left], directions[right])
            row = {"cluster": left, "other": right, "n": len(texts[left]), "n_other": len(texts[right])}
            jaccard = weighted_jaccard(texts[left], texts[right])
            rows.append({"shift": shift, "split": split} | row | {"jaccard": jaccard, "cosine": cosines[left, right]})
        for whole in by_cluster(release, shift, splits=[split]).iter_rows(named=True):
            counts = {name: len(rows_of) for name, rows_of in directions.items() if name != whole["cluster"]}
            total = sum(cosines[whole["cluster"], name] * count for name, count in counts.items())
            mean = {"n_other": whole.pop("others"), "cosine": total / sum(counts.values())}
            rows.append({"shift": shift, "split": split, "other": OTHERS} | whole | mean)
    return pl.DataFrame(rows).select("shift", "split", "cluster", "other", "n", "n_other", "jaccard", "cosine")


def _tables(release: Release) -> list[tuple[str, str]]:
    return [(shift, split) for shift, split in product(SHIFTS, SPLITS) if split in release.configs.get(shift, [])]


def _heatmaps(table: pl.DataFrame, titles: dict[str, str], path: Path) -> None:
    """One row of maps per shift, one column per measure; from a shift's train queries if there are any, else test."""
    from matplotlib.figure import Figure

    first_split = pl.col("split") == pl.col("split").first().over("shift")
    panels = table.filter(first_split).partition_by("shift", maintain_order=True)
    heights = [part["cluster"].n_unique() for part in panels]
    figure = Figure(figsize=(2 * CELL * (max(heights) + 4), CELL * (sum(heights) + 1.9 * len(heights))))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    axes = figure.subplots(len(panels), 2, squeeze=False, height_ratios=heights)
    for column, (measure, title) in enumerate(titles.items()):
        limits = (table[measure].min(), table[measure].max())
        for row, part in enumerate(panels):
            split = part["split"][0]
            _heatmap(axes[row][column], part, measure, limits)
            axes[row][column].set_title(f"{part['shift'][0]} ({split}): {title}", fontsize=11)
    _save(figure, path)


def _heatmap(axes: Any, part: pl.DataFrame, measure: str, limits: tuple[Any, Any]) -> None:
    clusters = part["cluster"].unique(maintain_order=True).to_list()
    sizes = dict(part.select("cluster", "n").iter_rows())
    columns = [*clusters, OTHERS]
    grid = part.pivot("other", index="cluster", values=measure).select(columns).to_numpy()
    image = axes.imshow(grid, cmap="cividis", vmin=limits[0], vmax=limits[1], aspect="equal")
    for y, x in np.argwhere(~np.isnan(grid)):  # a cluster beside itself has no value
        value = grid[y, x]
        dark = image.norm(value) < 0.5
        axes.text(x, y, f"{value:.3f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(clusters)), [f"{name} (n = {sizes[name]:,})" for name in clusters])
    for border in np.arange(1, len(clusters)) - 0.5:
        axes.axhline(border, color="white", linewidth=1)
        axes.axvline(border, color="white", linewidth=1)
    axes.axvline(len(clusters) - 0.5, color="white", linewidth=5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _topics(release: Release, vectors: Vectors, path: Path) -> None:
    """The topics' test queries in two dimensions (Figure 1): t-SNE on the first 50 principal components."""
    from cycler import cycler
    from matplotlib import rc_context, rcParams
    from matplotlib.figure import Figure
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    queries = release.table("topic", "test")
    titles = {about.cluster: f"{about.cluster}: {', '.join(about.terms[:TERMS])}" for about in topics(queries)}
    fonts = _fonts("".join(titles.values()))
    if not fonts:
        what = f"no installed font has the letters of the topics' words, which {path.name} leaves out"
        warnings.warn(what, stacklevel=2)
        titles = dict(zip(titles, titles, strict=True))
    queries = queries.with_row_index("row").sample(min(POINTS, queries.height), seed=SEED, shuffle=True).sort("row")
    if queries.height < 3:
        raise UserError("a picture of the topics needs at least three queries")
    values = vectors.of(queries["query_id"]).astype("float32")
    components = PCA(min(50, *values.shape), random_state=SEED).fit_transform(values)
    perplexity = min(30, (len(components) - 1) / 3)
    points = TSNE(random_state=SEED, perplexity=perplexity).fit_transform(components)
    family = fonts or list(rcParams["font.family"])
    with rc_context({"axes.prop_cycle": cycler(color=COLOURS), "font.family": family}):
        figure = Figure(figsize=(6, 6), layout="constrained")
        axes = figure.subplots()
        for cluster in queries["cluster"].unique().sort():
            members = (queries["cluster"] == cluster).to_numpy()
            axes.scatter(points[members, 0], points[members, 1], s=3, linewidths=0, label=titles[cluster])
        axes.set(xticks=[], yticks=[], title=f"Query topics (t-SNE of {vectors.source})")
        axes.legend(markerscale=4, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0), fontsize=8)
        _save(figure, path)


def _fonts(text: str) -> list[str]:
    """Families that have a text's letters: matplotlib's, with an installed one for what it lacks; empty if none has."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    family = list(rcParams["font.family"])
    missing = set(map(ord, text)) - get_font(findfont(FontProperties())).get_charmap().keys()
    if not missing:
        return family
    for font in fontManager.ttflist:  # Last Resort has a box for every letter
        if not font.name.startswith("Last Resort") and missing <= get_font(font.fname).get_charmap().keys():
            return [*family, font.name]
    return []


def _save(figure: Any, path: Path) -> None:
    """Save without the date and versions that matplotlib writes, so that the bytes depend only on the picture."""
    with atomic.whole(path) as part:
        figure.savefig(part, format="png", dpi=150, metadata={"Software": None})
