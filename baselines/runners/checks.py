"""Checks before a grid starts for what would stop it after hours: its models, its GPUs, and the room on its disk."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from baselines.cells.cell import Cell
from baselines.options import Biencoder, Colbert, Monobert, SmallBackbone, Splade, Trained
from baselines.training.distillation import ARCHITECTURES
from baselines.training.trainer import share_of
from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.search.encoders import store_of
from eval_kit.search.gpus import TOKENS, refuse_old_gpus, refuse_small_gpus
from eval_kit.search.late import PLAID_SHARE, engine_for
from eval_kit.search.passages import how_many
from eval_kit.search.shards import bytes_below

LINE_BYTES = 45
"""Of one line of a run."""
SHARED_BYTES = 930
"""Per passage, for all cells of a grid: text and BM25's index."""
WIDTH = 768
"""Of a named backbone's vectors."""
TERMS, TERM_BYTES = 130, 8
"""Weights of a passage in SPLADE, and bytes of each."""


def refuse(cells: Sequence[Cell], workers: int, processes: int = 1) -> None:
    """Refuse a grid that cannot finish.

    Args:
        cells: of the grid.
        workers: how many cells run at once.
        processes: that train a cell together.

    Raises:
        UserError: processes that cannot share a batch; a backbone or teacher that neither the Hub nor the cache has; a
            backbone that is no transformer; a teacher of another architecture; a GPU that is too old, or too small for
            PLAID's index; a disk that is too small.
    """
    unfinished_cells = [cell for cell in cells if not cell.is_finished]
    backbones, teachers, precisions = set(), set(), set()
    for cell in unfinished_cells:
        options = cell.options
        if isinstance(options, Trained):
            share_of(cell, processes)
            backbones.add(options.backbone)
            teachers.add((options.teacher, options.distillation))
            precisions.add(options.precision)
    for backbone in backbones:
        if isinstance(backbone, str):
            checkpoint.check_start(backbone)
    for teacher, distillation in teachers:
        if teacher is not None and distillation is not None:
            checkpoint.check(teacher, ARCHITECTURES[distillation])
    if precisions:
        refuse_old_gpus(bfloat16="bfloat16" in precisions)
    if unfinished_cells:
        passages = how_many(unfinished_cells[0].release) or 0
        if any(_by_plaid(cell, passages) for cell in unfinished_cells):
            refuse_small_gpus(passages)
        refuse_small_disk(unfinished_cells, workers)


def refuse_small_disk(cells: Sequence[Cell], workers: int) -> None:
    """Refuse a disk that will not hold these cells' runs and the passages that they encode at once.

    Raises:
        UserError: saying how much each needs, and how much is free.
    """
    root, passages = cells[0].root, how_many(cells[0].release) or 0
    queries = {cell.name.shift: cell for cell in cells}
    heights = {shift: cell.test_queries().height for shift, cell in queries.items()}
    runs = sum(heights[cell.name.shift] * cell.options.depth * LINE_BYTES for cell in cells)
    each = sorted((_bytes_of_a_passage(cell, passages) for cell in cells), reverse=True)
    encodings = passages * sum(each[:workers])
    shared_bytes = 0 if (root / "passages").exists() else passages * SHARED_BYTES
    need = runs + encodings + shared_bytes
    existing = next(filter(Path.exists, [root.absolute(), *root.absolute().parents]))
    free = shutil.disk_usage(existing).free + sum(bytes_below(cell.folder) for cell in cells)
    if need > free:
        raise UserError(
            f"{root}: the grid takes about {need / 1e9:,.1f} GB there (runs {runs / 1e9:,.1f}, passages encoded by "
            f"{min(workers, len(cells))} cells at once {encodings / 1e9:,.1f}, what all cells share "
            f"{shared_bytes / 1e9:,.1f}), but {free / 1e9:,.1f} GB are free or already used by them; make room, "
            "or name another --out"
        )


def _by_plaid(cell: Cell, passages: int) -> bool:
    return isinstance(cell.options, Colbert) and engine_for(passages, cell.options.engine) == "plaid"


def _bytes_of_a_passage(cell: Cell, passages: int) -> float:
    """Bytes of an encoded passage on disk, while the cell is searched."""
    options = cell.options
    if isinstance(options, Splade):
        return TERMS * TERM_BYTES
    if isinstance(options, Monobert) or not isinstance(options, Trained):
        return 0
    store = options.store if isinstance(options, Biencoder | Colbert) else None
    number = 2 if store_of(store, options.encode_precision) == "float16" else 4
    if isinstance(options, Colbert):
        return TOKENS * options.dimensions * number * (1 + PLAID_SHARE * _by_plaid(cell, passages))
    return number * (options.backbone.width if isinstance(options.backbone, SmallBackbone) else WIDTH)
