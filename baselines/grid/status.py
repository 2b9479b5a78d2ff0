"""How far a grid is: one row a cell, read from the cells' folders alone."""

import contextlib
import filecmp
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from baselines.cell import Cell, published
from baselines.grid.documents import description
from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.runs import names
from eval_kit.shifts import TRAINED_FOR
from eval_kit.tables.table import Column, Row, Table, Value, number_columns, text_columns

_STYLES = {"done": "green", "under way": "yellow", "failed": "red", "open": "dim"}
"""The states of a cell, ``under way`` also if its process was killed, in the order in which they are counted."""

type Status = dict[str, Any]
"""One cell's, as ``--json`` prints it, and ``settings``: what decides the cell beside its name."""


def of_grid(root: Path) -> list[Status]:
    """All cells below ``root``, by shift, held-out part, system and seed."""
    cells = [_of_cell(path) for path in root.glob("*/cell.json")]
    if not cells:
        make = "Make one: python -m baselines grid run --config mini --out DIR"
        raise UserError(f"{root} does not contain a grid", do=make)
    order = list(TRAINED_FOR)
    return sorted(cells, key=lambda cell: (order.index(cell["shift"]), _name(cell)))


def layout(cells: Sequence[Status]) -> Table:
    """One row per cell; several of one name are told apart by their settings."""
    groups, apart = defaultdict[names.RunName, list[Status]](list), dict[str, str]()
    for cell in cells:
        groups[_name(cell)].append(cell)
    for group in groups.values():
        if len(group) > 1:
            said = _told_apart([cell["settings"] for cell in group])
            apart |= {cell["digest"]: words for cell, words in zip(group, said, strict=True)}
    columns = text_columns("shift", "held out", "system", "seed", "state", wrap="never")
    columns += number_columns("seconds", "loss", wrap="never")
    columns.append(Column("", wrap="anywhere"))
    lines: list[Row] = []
    for cell in cells:
        state = Value(cell["state"], style=_STYLES[cell["state"]])
        seconds = f"{sum(cell['seconds'].values()):,.1f}" if cell["seconds"] else ""
        losses = [f"{cell[f'{which}_loss']:.3f}" for which in ("first", "last") if cell[f"{which}_loss"] is not None]
        settings = f"{apart[cell['digest']]}{'; in runs' if cell['in_runs'] else ''}" if cell["digest"] in apart else ""
        progress = "{step:,} of {steps:,} steps".format_map(cell["progress"]) if cell["progress"] else ""
        texts = filter(None, [cell["reason"], progress, settings])
        name = [cell["shift"], cell["held_out"], cell["system"], str(cell["seed"])]
        lines.append([*name, state, seconds, " → ".join(losses), "; ".join(texts)])
    return Table(columns, [lines])


def summary(cells: Iterable[Status]) -> str:
    """How many cells there are in each state."""
    count = Counter(cell["state"] for cell in cells)
    return ", ".join(f"{count[state]:,} {state}" for state in _STYLES if count[state])


def changes(cells: Sequence[Cell]) -> list[str]:
    """A line for each change of settings that makes new cells beside old ones of their names."""
    new = [cell for cell in cells if not (cell.folder / "cell.json").is_file()]
    old: dict[names.RunName, dict[str, Any]] = {}
    for before in [_of_cell(path) for path in sorted(new[0].root.glob("*/cell.json"))] if new else ():
        if before["in_runs"] or _name(before) not in old:
            old[_name(before)] = before["settings"]
    changed = defaultdict[str, list[str]](list)
    for cell in new:
        if cell.name in old:
            change = " → ".join(_told_apart([old[cell.name], _settings(description(cell))]))
            changed[change].append(cell.name.file.removesuffix(".trec"))
    return [
        f"New settings for {first}{f' and {len(rest):,} more' if rest else ''}: {change}. Cells of the old ones stay"
        for change, (first, *rest) in changed.items()
    ]


def _of_cell(path: Path) -> Status:
    """Of the cell that a ``cell.json`` describes."""
    folder, document = path.parent, strict_json.read(path)
    try:
        name, digest = names.RunName(**document["cell"]), str(document["digest"])
        settings = _settings(document)
        own_name = names.run_name(Path(name.file))
        if name not in (names.cell_of(own_name), names.control_of(own_name)):
            raise TypeError
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} does not describe a cell", do=f"Remove {folder}") from error
    run, target = folder / name.file, published(folder.parent, name)
    error_file, training = folder / "error.txt", _json(folder / "training.json")
    if (folder / "done.json").is_file() and run.is_file():
        state = "done"
    elif error_file.is_file():
        state = "failed"
    else:
        state = "under way" if (folder / ".lock").exists() else "open"
    losses = {f"{which}_loss": training.get(f"{which}_loss") for which in ("first", "last")}
    return {
        **document["cell"],
        "run": name.file,
        "digest": digest,
        "state": state,
        "in_runs": run.is_file() and target.is_file() and filecmp.cmp(run, target),
        "seconds": _json(folder / "seconds.json"),
        "progress": _progress(folder),
        "reason": error_file.read_text(encoding="utf-8").splitlines()[-1] if state == "failed" else None,
        **{which: None if loss != loss else loss for which, loss in losses.items()},  # NaN is no JSON
        "settings": settings,
    }


def _json(path: Path) -> dict[str, Any]:
    """What one of our own documents says; nothing where there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _progress(folder: Path) -> dict[str, int]:
    """The ``step`` of a training's last checkpoint, of how many ``steps``; a training may write or delete it now."""
    steps: list[dict[str, int]] = [{}]
    for path in folder.glob("training/checkpoints/*/trainer_state.json"):
        with contextlib.suppress(OSError, ValueError):
            state = json.loads(path.read_text(encoding="utf-8"))
            steps.append({"step": state["global_step"], "steps": state["max_steps"]})
    return max(steps, key=lambda one: one.get("step", 0))


def _name(cell: Status) -> names.RunName:
    return names.RunName(cell["system"], cell["shift"], cell["held_out"], cell["seed"])


def _settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a cell beside its name, of its ``cell.json``."""
    others = {key: document.get(key) for key in ("code_version", "backbone_commit", "teacher_commit")}
    return {**document["options"], "release": document["release"]["digest"][:8], **others}


def _told_apart(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of each cell, the settings in which they differ; what is at its default is not among them."""
    keys = [
        key for key in dict.fromkeys(chain.from_iterable(settings)) if len({repr(one.get(key)) for one in settings}) > 1
    ]
    if not keys:
        return ["other weights to start from"] * len(settings)
    return [", ".join(f"{key} {one.get(key, 'at its default')}" for key in keys) for one in settings]
