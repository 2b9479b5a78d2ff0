"""Configs: data that say how every system of a grid is trained and searched."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from baselines.options import SYSTEMS, Options, SmallBackbone, Static, Trained
from eval_kit.documents import Document, Text
from eval_kit.errors import UserError, choices
from eval_kit.files import strict_json
from eval_kit.runs.names import base
from eval_kit.sentences import counted
from eval_kit.shifts import check_names

FOLDER = Path(__file__).parent / "configs"
_BM25_OPTIONS = {"k1", "b", "tune"}
_NAME = re.compile(f"({'|'.join(SYSTEMS)})(-[a-z0-9_-]+)?")


class Config(Document, frozen=True, kw_only=True):
    """How each system is trained and searched: by its own options, and the trained ones by those of 'neural' too."""

    description: str = ""
    shifts: list[str] | None = None
    """What it is for, such as topic, topic.c0 or restrain.45k; all if left out, none (but the control) if empty."""
    control: bool = False
    """Whether each trained system is also trained on all training queries, to compare with."""
    variations: Literal["all"] | Annotated[list[Text], Meta(min_length=1)] = field(default_factory=list)
    """Query variations that every cell searches too, as far as they are of its test sets: all, or names such as
    dl19.typo or dev.typo.3."""
    neural: dict[str, Any] = field(default_factory=dict)
    systems: Annotated[dict[str, Any], Meta(min_length=1)]
    """By name, which also names the runs: a system, or a variant of one after a hyphen, as biencoder-roberta."""

    def __post_init__(self) -> None:
        for name, listing in (("shifts", self.shifts or []), ("variations", self.variations)):
            if listing != "all" and len({*listing}) < len(listing):
                raise ValueError(f"{name} names one twice")
        if unknown := [name for name in self.systems if not _NAME.fullmatch(name)]:
            of = f"{', '.join(SYSTEMS)}, nor a variant such as biencoder-roberta"
            raise ValueError(f"the system {unknown[0]!r:.40} is none of {of}")


def names() -> list[str]:
    """Names of the kit's configs."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def choose(
    config: str | Path,
    systems: Sequence[str] | None = None,
    backbone: str | None = None,
    precision: str | None = None,
    instead_of_bfloat16: str | None = None,
) -> dict[str, Options]:
    """The options of these systems, or of all.

    ``backbone`` replaces that of the transformers (``static`` keeps its own, as it learns from scratch), ``precision``
    that of their training, and ``instead_of_bfloat16`` bfloat16, which the GPUs lack.
    """
    options: dict[str, Options] = read(config).systems
    if unknown := [name for name in systems or () if name not in options]:
        raise UserError(f"The config {config} has no system {unknown[0]!r}", do=f"Choose from: {choices(options)}")
    selection = {name: options[name] for name in systems or options}
    for name, system_options in selection.items():
        if (start := getattr(system_options, "starts_from", None)) not in (None, *selection):
            raise UserError(f"{name} starts from {start}, which is not selected", do=f"Add --system {start}")
    for name, system_options in selection.items():
        if isinstance(system_options, Trained):
            of_card = instead_of_bfloat16 if system_options.precision == "bfloat16" else None
            own_precision = precision or of_card or system_options.precision
            keeps_own = backbone is None or isinstance(system_options, Static)
            start = system_options.backbone if keeps_own else backbone
            selection[name] = msgspec.structs.replace(system_options, backbone=start, precision=own_precision)
    return selection


def read(config: str | Path) -> Config:
    """One of the kit's configs by name, or a JSON file, parsed by :func:`parse`."""
    path = FOLDER / f"{config}.json" if str(config) in names() else Path(config)
    if not path.is_file():
        which = f"Choose from: {', '.join(names())}, or write the name of a JSON file"
        raise UserError(f"The config {config} does not exist", do=which)
    return parse(strict_json.read(path), str(path))


def parse(document: Any, origin: str) -> Config:
    """The config of a parsed JSON document, its ``systems`` as :class:`baselines.options.Options`.

    These include the options that all neural systems share. A re-ranker's candidates come from the config's BM25
    unless its own options set BM25's parameters.
    """
    if isinstance(document, dict) and isinstance(document.get("systems"), dict):
        common = document.get("neural", {})
        systems = dict(document["systems"])
        for name, settings in systems.items():
            is_trained = issubclass(SYSTEMS.get(base(name), Trained), Trained)
            if is_trained and isinstance(settings, dict) and isinstance(common, dict):
                systems[name] = {**common, **settings}
        document = document | {"systems": systems}
    config = _converted(document, Config, f"{origin}: $")
    check_names([shift.partition(".")[0] for shift in config.shifts or []], f"{origin}: $.shifts:")
    systems = config.systems
    of_bm25 = {name: value for name, value in systems.get("bm25", {}).items() if name in _BM25_OPTIONS}
    options = dict[str, Any]()
    for name, settings in systems.items():
        where = f"{origin}: $.systems.{name}"
        if "candidates" in settings and not _BM25_OPTIONS & settings.keys():
            settings = {**settings, **of_bm25}
        options[name] = _converted(settings, SYSTEMS[base(name)], where)
        start = getattr(options[name], "starts_from", None)
        if start is not None and (start not in systems or base(start) != base(name) or "starts_from" in systems[start]):
            why = f"{start} is not a bi-encoder of this config that starts from a backbone"
            raise UserError(f"{where}.starts_from: {why}")
        backbone = getattr(options[name], "backbone", None)
        if isinstance(backbone, SmallBackbone) and backbone.width % backbone.heads:
            sizes = f"the width {backbone.width} is not a multiple of {counted(backbone.heads, 'head')}"
            raise UserError(f"{where}.backbone: {sizes}")
    return msgspec.structs.replace(config, systems=options)


def _converted[D: Document](settings: Any, kind: type[D], where: str) -> D:
    """The document of these JSON values, none of them null; ``where`` names it in messages."""
    for name in (name for name, value in settings.items() if value is None) if isinstance(settings, dict) else ():
        raise UserError(f"{where}.{name}: it is null", do="Leave it out")
    try:
        return msgspec.convert(settings, kind)
    except msgspec.ValidationError as error:
        why, _, path = str(error).partition(" - at `$")
        raise UserError(f"{where}{path.removesuffix('`')}: {why}") from None
