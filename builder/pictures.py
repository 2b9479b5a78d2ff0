"""The similarity of a shift's clusters, as a table and a heatmap (arXiv:2205.02870, Figure 1), and a map of them."""

import json
import warnings
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from builder.encode import encode
from builder.encoders import by_name, public_name
from builder.reports import SIMILARITY
from builder.shifts import topic
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.release import Release
from eval_kit.shifts import CLUSTERED
from eval_kit.stats.similarity import by_cluster, mean_cosine, weighted_jaccard
from eval_kit.stats.typical import topics
from eval_kit.stats.vectors import Matrix, Vectors

SPLITS = ("train", "test")
OTHERS = "others"
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#D55E00", "#F0E442")
"""Okabe and Ito's, which colour-blind readers can tell apart."""
TERMS = 5
"""How many words describe a topic in the picture."""
CELL = 0.62
"""Inches."""


def pictures(release: Release, encoder: str = "lsa", cache: Path | None = None) -> list[Path]:
    """Write ``similarity.json``, ``similarity.png`` and ``topics.png`` to the release's ``reports/``.

    Args:
        release: a folder with topic, wh or length queries; without topic test queries, there is no ``topics.png``.
        encoder: of the queries, by name; see :mod:`builder.encoders`.
        cache: where vectors are kept; None keeps none.

    Returns:
        The files.

    Raises:
        UserError: there are no such queries, the encoder cannot be obtained, or the folder cannot be written.
    """
    queries = _queries(release)
    chosen = by_name(encoder)
    vectors = Vectors(public_name(chosen), queries["query_id"], encode(queries["text"], chosen, cache))
    table = similarities(release, vectors)
    document = {
        "release": {"version": release.version, "kind": release.manifest["kind"], "digest": release.digest},
        "encoder": {"name": public_name(chosen), "revision": chosen.revision},
        "similarity": table.to_dicts(),
    }
    written = [release.folder / SIMILARITY, release.folder / "reports" / "similarity.png"]
    try:
        written[0].parent.mkdir(exist_ok=True)
        titles = {"jaccard": "weighted Jaccard", "cosine": f"mean cosine, {public_name(chosen)}"}
        _heatmaps(table, titles, written[1])
        if "test" in release.configs.get("topic", []):
            written.append(release.folder / "reports" / "topics.png")
            _topics(release, vectors, written[2])
    except OSError as error:
        raise UserError(f"{written[0].parent}: cannot be written: {error.strerror or error}") from error
    atomic.write_text(written[0], json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return written


def similarities(release: Release, vectors: Vectors) -> pl.DataFrame:
    """The similarity of every cluster to every other of its shift and split, and to all the others together.

    A query in two clusters (wh) counts on both sides. A query whose vector is zero (``lsa`` knows none of its words)
    has no cosine and is left out of those means.

    Args:
        release: from :func:`eval_kit.release.open_release`.
        vectors: of all queries of its topic, wh and length tables.

    Returns:
        ``shift``, ``split``, ``cluster``, ``other`` (a cluster, or ``others``), ``n`` and ``n_other`` (queries),
        ``jaccard`` (ECIR 2023 §5.2) and ``cosine`` (arXiv:2205.02870 §3.1).
    """
    rows: list[dict[str, Any]] = []
    for shift, split in _tables(release):
        parts = release.table(shift, split).partition_by("cluster", maintain_order=True, as_dict=True)
        texts = {str(name): part["text"] for (name,), part in parts.items()}
        directions = {str(name): _directed(vectors.of(part["query_id"])) for (name,), part in parts.items()}
        cosines = {
            (left, right): mean_cosine(directions[left], directions[right]) for left, right in permutations(texts, 2)
        }
        for (left, right), cosine in cosines.items():
            rows.append(
                {
                    "shift": shift,
                    "split": split,
                    "cluster": left,
                    "other": right,
                    "n": len(texts[left]),
                    "n_other": len(texts[right]),
                    "jaccard": weighted_jaccard(texts[left], texts[right]),
                    "cosine": cosine,
                }
            )
        for row in by_cluster(release, shift, splits=[split]).iter_rows(named=True):
            counts = {name: len(rows_of) for name, rows_of in directions.items() if name != row["cluster"]}
            total = sum(cosines[row["cluster"], name] * count for name, count in counts.items())
            mean = {"n_other": row.pop("others"), "cosine": total / sum(counts.values())}
            rows.append({"shift": shift, "split": split, "other": OTHERS} | row | mean)
    return pl.DataFrame(rows).select("shift", "split", "cluster", "other", "n", "n_other", "jaccard", "cosine")


def _directed(vectors: Matrix) -> Matrix:
    directed: Matrix = vectors[np.linalg.norm(vectors, axis=1) > 0]
    return directed


def _tables(release: Release) -> list[tuple[str, str]]:
    return [(shift, split) for shift, split in product(CLUSTERED, SPLITS) if split in release.configs.get(shift, [])]


def _queries(release: Release) -> pl.DataFrame:
    parts = [release.table(*key).select("query_id", "text") for key in _tables(release)]
    if not parts:
        raise UserError(f"{release.folder}: holds no topic, wh or length queries")
    return pl.concat(parts).unique("query_id", maintain_order=True)


def _heatmaps(table: pl.DataFrame, titles: dict[str, str], path: Path) -> None:
    """One row of maps per shift, one column per measure; from a shift's train queries if there are any, else test."""
    from matplotlib.figure import Figure

    shown = [part for _, part in table.group_by("shift", maintain_order=True)]
    shown = [part.filter(pl.col("split") == part["split"][0]) for part in shown]
    heights = [part["cluster"].n_unique() for part in shown]
    figure = Figure(figsize=(2 * CELL * (max(heights) + 4), CELL * (sum(heights) + 1.9 * len(heights))))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    axes = figure.subplots(len(shown), 2, squeeze=False, height_ratios=heights)
    for column, (measure, title) in enumerate(titles.items()):
        limits = (table[measure].min(), table[measure].max())
        for row, part in enumerate(shown):
            split = part["split"][0]
            _heatmap(axes[row][column], part, measure, limits)
            axes[row][column].set_title(f"{part['shift'][0]} ({split}): {title}", fontsize=11)
    _save(figure, path)


def _heatmap(axes: Any, part: pl.DataFrame, measure: str, limits: tuple[Any, Any]) -> None:
    clusters = part["cluster"].unique(maintain_order=True).to_list()
    sizes = dict(part.select("cluster", "n").iter_rows())
    values = {(row["cluster"], row["other"]): row[measure] for row in part.iter_rows(named=True)}
    columns = [*clusters, OTHERS]
    grid = np.full((len(clusters), len(columns)), np.nan)
    for y, x in np.ndindex(grid.shape):
        grid[y, x] = values.get((clusters[y], columns[x]), np.nan)
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
    from cycler import cycler
    from matplotlib import rc_context, rcParams

    queries = release.table("topic", "test")
    titles = {about.cluster: f"{about.cluster}: {', '.join(about.terms[:TERMS])}" for about in topics(queries)}
    fonts = _fonts("".join(titles.values()))
    if not fonts:
        what = f"no installed font has the letters of the topics' words, which {path.name} leaves out"
        warnings.warn(what, stacklevel=2)
        titles = dict(zip(titles, titles, strict=True))
    assigned = queries.select("query_id", pl.col("cluster").cast(pl.String).replace_strict(titles))
    tested = Vectors(vectors.source, assigned["query_id"], vectors.of(assigned["query_id"]).astype("float32"))
    cycle, family = cycler(color=COLOURS), fonts or list(rcParams["font.family"])
    with atomic.whole(path) as part, rc_context({"axes.prop_cycle": cycle, "font.family": family}):
        topic.picture(tested, assigned, part)


def _fonts(text: str) -> list[str]:
    """Families that have a text's letters: matplotlib's, with an installed one for what it lacks; empty if none has."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    own = list(rcParams["font.family"])
    missing = {ord(letter) for letter in text} - get_font(findfont(FontProperties())).get_charmap().keys()
    if not missing:
        return own
    fonts = [font for font in fontManager.ttflist if not font.name.startswith("Last Resort")]  # it has boxes for all
    fonts = [font for font in fonts if missing <= get_font(font.fname).get_charmap().keys()]
    return next(([*own, font.name] for font in fonts), [])


def _save(figure: Any, path: Path) -> None:
    """Save without the date and versions that matplotlib writes, so that the bytes depend only on the picture."""
    with atomic.whole(path) as part:
        figure.savefig(part, format="png", dpi=150, metadata={"Software": None})
