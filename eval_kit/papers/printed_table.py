"""A published table as printed, with your own figures, where there are any, below those of its cells."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from eval_kit.release.reference import as_printed
from eval_kit.tables.table import Column, Table, Value, laid_out


class Key(NamedTuple):
    """Identifies a published cell; ``system`` is ``none`` where a table describes queries or datasets."""

    system: str
    training: str
    test_set: str
    measure: str
    figure: str


_MOST_COLUMNS = 8
_CELL = "cell"
_IMPLIED = ("", "none", "value")
"""Not mentioned where all cells share it."""


def key(cell: Mapping[str, Any]) -> Key:
    """The key of a cell of :func:`eval_kit.release.reference.load`."""
    return Key(cell["system"], cell.get("training", ""), cell["test_set"], cell["measure"], cell["figure"])


def table(reference: Mapping[str, Any], our_values: Mapping[Key, str]) -> Table:
    """One row per system, one column per figure; transposed if too wide. What all cells share is in the title."""
    cells = {key(cell): as_printed(cell) for cell in reference["cells"]}
    varying, common = [], []
    for name, values in zip(Key._fields, zip(*cells, strict=True), strict=True):
        if len(set(values)) > 1:
            varying.append(name)
        elif values[0] not in _IMPLIED:
            common.append(values[0])
    down = [name for name in ("system", "training") if name in varying] or varying[:1]
    across = [name for name in varying if name not in down]
    if len({_varying_names(at, across) for at in cells}) > _MOST_COLUMNS:
        down, across = across, down
    by_position = {(_varying_names(at, down), _varying_names(at, across)): at for at in cells}
    places, names = map(dict.fromkeys, zip(*by_position, strict=True))
    columns = [Column(name.replace("_", " "), "heading", name, wrap="never") for name in down]
    for name in names:
        *group, last = name or ("published",)
        columns.append(Column(last, "number", (_CELL, *name), none="", group=" ".join(group), wrap="never"))
    rows: list[dict[Any, Any]] = []
    for place in places:
        rows.append(dict(zip(down, place, strict=True)))
        for name in names:
            at = by_position.get((place, name))
            rows[-1][_CELL, *name] = at and Value(cells[at], below=our_values.get(at, ""))
    paper = reference["paper"]
    title = f"{paper['venue']} {paper['year']}, {reference['table']}"
    about = ", ".join(common)
    notes = [reference["caption"], *reference.get("remarks", [])]
    return laid_out(rows, columns, title=f"{title}: {about}" if about else title, notes=notes)


def _varying_names(at: Key, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(partial(getattr, at), names))
