"""YAML from outside: bounded in size and depth, without aliases, every scalar as its text."""

from pathlib import Path
from typing import Any

from eval_kit.errors import UserError
from eval_kit.files.strict_json import MOST_DEPTH
from eval_kit.files.text import read_utf8


def read(path: Path, most: int) -> Any:
    """The document in a file of at most ``most`` bytes: dictionaries, lists and texts; None if it is empty.

    Lines ``ir_metadata.start`` and ``ir_metadata.end`` (ir-metadata.org) are left out.

    Raises:
        UserError: the file cannot be read, or (with the line) is not YAML, or not accepted here.
    """
    import yaml

    lines = read_utf8(path, most).splitlines()
    text = "\n".join("" if line in ("ir_metadata.start", "ir_metadata.end") else line for line in lines)
    try:
        check(text, path)
        return _value(yaml.compose(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)), path)
    except yaml.YAMLError as error:
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{_at(path, getattr(error, 'problem_mark', None))}: is not YAML: {reason}") from None


def check(text: str, path: Path) -> None:
    """Refuse what can turn a small document into a large value.

    Raises:
        UserError: an alias, or too deep a nesting, with the line.
        yaml.YAMLError: it is not YAML.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise UserError(f"{_at(path, event.start_mark)}: is nested more than {MOST_DEPTH} deep")
        if isinstance(event, yaml.AliasEvent):
            raise UserError(f"{_at(path, event.start_mark)}: has an alias; write the value out")


def _value(node: Any, path: Path) -> Any:
    if node is None or isinstance(node.value, str):
        return node and node.value
    if node.id == "sequence":
        return [_value(item, path) for item in node.value]
    values: dict[str, Any] = {}
    for key, value in node.value:
        where = _at(path, key.start_mark)
        if not isinstance(key.value, str):
            raise UserError(f"{where}: a key is not plain text")
        if key.value in values:
            raise UserError(f"{where}: the key {key.value!r} appears twice")
        values[key.value] = _value(value, path)
    return values


def _at(path: Path, mark: Any) -> str:
    return f"{path}:{mark.line + 1}" if mark else str(path)
