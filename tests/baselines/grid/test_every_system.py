"""A grid of every system and two variants, on every shift and on everything, fills every table that a grid can fill."""

import json
import os
from pathlib import Path

import pytest

from baselines import config
from baselines.grid.grid import cells, run
from baselines.grid.stages import run_cell
from baselines.options import Options
from eval_kit.pages.page import result_page
from eval_kit.papers.beside import results
from eval_kit.papers.figures import benchmark_figures, own_figures
from eval_kit.papers.printed_table import Key, key
from eval_kit.protocols.variations import variations
from eval_kit.release.reference import load
from eval_kit.shifts import SHIFTS, TRAINED_FOR
from tests.baselines.grids import small_release
from tests.baselines.tiny_cells import SMALL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("WHOLE_GRID" not in os.environ, reason="takes some ten minutes; set WHOLE_GRID to run it"),
]

TABLES = [
    *(f"arxiv2022-table{number}" for number in (2, 3, 4, 5)),
    *(f"ecir2023-table{number}" for number in (2, 3)),
    *(f"cikm2022-table{number}" for number in (6, 7, 8, 9)),
]
VARIANTS = {"biencoder-rand": "cikm2022-table9", "biencoder-star": "cikm2022-table8"}
SIZES = {"14k": "small", "45k": "medium", "200k": "large"}
STEPS = {"steps": 4, "passage_length": 16, "query_length": 8}


def options(release_folder: Path) -> dict[str, Options]:
    """The systems of the config mini and the variants of cikm2022-tables8-9, all very small."""
    small = {"neural": {}, "systems": {}}
    for name, own in config.load("mini").items():
        small["systems"][name] = own.as_json() | (SMALL | STEPS if name != "bm25" else {})
    small["systems"]["monobert"] |= {"candidates": 5}
    for name in VARIANTS:
        more = {"mine_every": 2, "mine_depth": 5} if name == "biencoder-star" else {"negatives": 3}
        small["systems"][name] = small["systems"]["biencoder"] | more
    return config.checked(small, str(release_folder))


def test_every_table_is_filled(tmp_path: Path):
    release = small_release(tmp_path / "ms-marco-shift")
    systems = options(release.folder)
    named_by_papers = {name: own for name, own in systems.items() if name not in VARIANTS}
    variants = {name: systems[name] for name in VARIANTS}
    grid = cells(named_by_papers, release, tmp_path / "grid", control=True, variations=["all"])
    grid += cells(variants, release, tmp_path / "grid", shifts=["resttest", "restrain"])
    ended = list(run(grid, lambda some: map(run_cell, some)))
    assert {(outcome.state, outcome.reason) for outcome in ended} == {("done", None)}

    found = results(tmp_path / "grid" / "runs", release)
    assert found.incomplete == []
    own = {**own_figures(found.protocols), **benchmark_figures(found.benchmarks)}
    for id in TABLES:
        for cell in load(id)["cells"]:
            published = key(cell)
            assert on_mini(id, published) in own or unfilled(id, published), (id, published)
    assert set(found.benchmarks["training"]) == set(TRAINED_FOR) - {"restrain"}
    assert found.crossing is not None and set(found.crossing["shift"]) == {"restrain"}  # mini varies DL19 alone
    assert set(found.sparsity["shift"]) == set(SHIFTS) and (found.sparsity["passage"] > 0).all()

    page = result_page(found)
    assert all(f'aria-label="Figure {number}' in page for number in (3, 4, 5, 6))
    runs = [cell.published for cell in grid if cell.name.system == "splade" and cell.name.shift == "resttest"]
    runs += sorted((tmp_path / "grid" / "variations").glob("splade.resttest.*.trec"))
    changes = variations(runs, release, allow_missing=True).results
    assert set(changes["system"]) == {f"splade.resttest.b{number}" for number in range(1, 6)}
    done = [json.loads((cell.folder / "done.json").read_text()) for cell in grid]
    assert {name for record in done for name in record["variations"]} == set(release.variations)


def on_mini(id: str, published: Key) -> Key:
    """The key of our figure: the sizes of ReSTrain have other names, and only the published 45k is Tables 8 and 9's."""
    for variant, table in VARIANTS.items():
        if id == table and published.test_set == "dl19+dl20":
            return published._replace(system=variant, training="medium")
    return published._replace(training=SIZES.get(published.training, published.training))


def unfilled(id: str, published: Key) -> bool:
    """Rows of models that this grid does not train: other variants, and those that only a paper's table names."""
    if id in VARIANTS.values():
        return published.training not in ("rand", "bert+hardneg")
    return published.system not in ("bm25", "biencoder", "splade", "colbert", "monobert", "dr-base", "reranker")
