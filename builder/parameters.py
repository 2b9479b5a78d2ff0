"""The parameters of all shifts together, and how a user sets one: ``topic.k=20``."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAliasType, get_args, get_origin, get_type_hints

from builder.mini import RESTRAIN_SHARES
from builder.shifts.chameleons import Parameters as Chameleons
from builder.shifts.length import Parameters as Length
from builder.shifts.restrain import Parameters as Restrain
from builder.shifts.resttest import Parameters as Resttest
from builder.shifts.topic import Parameters as Topic
from builder.shifts.wh import Parameters as Wh
from builder.sources.collection import SPLIT
from builder.sources.mini import TOPIC_SHARES
from eval_kit.errors import UserError

SHIFTS = ("topic", "wh", "length", "resttest", "restrain", "chameleons")
SEED = "seed"


@dataclass(frozen=True)
class Parameters:
    """Each shift's own, by default its paper's."""

    topic: Topic = field(default_factory=Topic)
    wh: Wh = field(default_factory=Wh)
    length: Length = field(default_factory=Length)
    resttest: Resttest = field(default_factory=Resttest)
    restrain: Restrain = field(default_factory=Restrain)
    chameleons: Chameleons = field(default_factory=Chameleons)

    def seeded(self, seed: int) -> "Parameters":
        """The same with one seed for all shifts that draw."""
        drawing = {
            shift: dataclasses.replace(getattr(self, shift), seed=seed)
            for shift in SHIFTS
            if hasattr(getattr(self, shift), SEED)
        }
        return dataclasses.replace(self, **drawing)

    def changed(self, settings: Sequence[str]) -> "Parameters":
        """The same with ``settings`` such as ``topic.k=20``, ``wh.rule=token`` or ``restrain.sizes=a:100,b:300``.

        Raises:
            UserError: an unknown name, or a value that is not of its kind.
        """
        found = self
        for setting in settings:
            name, equals, text = setting.partition("=")
            shift, _, parameter = name.partition(".")
            names = _names()
            if not equals or name not in names:
                raise UserError(f"--set {setting}: expected name=value with one of {', '.join(names)}")
            one = getattr(found, shift)
            kind = get_type_hints(type(one))[parameter]
            try:
                value = _value(kind, text)
            except ValueError:
                raise UserError(f"--set {setting}: {text!r} is not {_described(kind)}") from None
            found = dataclasses.replace(found, **{shift: dataclasses.replace(one, **{parameter: value})})
        return found

    def described(self, shift: str) -> dict[str, Any]:
        """One shift's parameters as plain JSON values, for the manifest."""
        one = getattr(self, shift)
        values = {entry.name: getattr(one, entry.name) for entry in dataclasses.fields(one)}
        return {name: _plain(value) for name, value in values.items()}


def for_mini(training: int) -> Parameters:
    """What suits the mini collection with so many training queries: topics and ReSTrain sets of the planted shares."""
    sizes = {name: round(share * training) for name, share in RESTRAIN_SHARES.items()}
    return Parameters(
        topic=Topic(k=20, size=round(TOPIC_SHARES[0] * training)),
        restrain=Restrain(MappingProxyType(sizes)),
    )


def _names() -> list[str]:
    """All names that can be set; the seed is one for all, and no parameter of its own."""
    return [
        f"{shift.name}.{entry.name}"
        for shift in dataclasses.fields(Parameters)
        for entry in dataclasses.fields(getattr(Parameters(), shift.name))
        if entry.name != SEED
    ]


def _value(kind: Any, text: str) -> Any:
    """The value that ``text`` says; ValueError if it is not of this kind."""
    kind = kind.__value__ if isinstance(kind, TypeAliasType) else kind
    origin = get_origin(kind)
    if origin is Literal:
        if text not in get_args(kind):
            raise ValueError
        return text
    if origin is Mapping:
        pairs = [part.split(":") for part in text.split(",")]
        if any(len(pair) != 2 or not SPLIT.fullmatch(pair[0]) for pair in pairs):
            raise ValueError
        sizes = {name: int(size) for name, size in pairs}
        if len(sizes) < len(pairs):
            raise ValueError
        return MappingProxyType(sizes)
    if origin is Sequence:
        return tuple(sorted({int(part) for part in text.split(",")}))
    return kind(text)


def _described(kind: Any) -> str:
    kind = kind.__value__ if isinstance(kind, TypeAliasType) else kind
    words = {int: "a whole number", float: "a number", Mapping: "name:number,name:number", Sequence: "number,number"}
    return words.get(get_origin(kind) or kind, f"one of {', '.join(map(str, get_args(kind)))}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
