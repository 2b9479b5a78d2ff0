"""Configs: data that say how every system of a grid is trained and searched."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from baselines.config_faults import faults_of
from baselines.options import SYSTEMS, Options, SmallBackbone, Static, Trained
from eval_kit.documents import Document, Text, schema_of
from eval_kit.errors import UserError, choices
from eval_kit.files import strict_json
from eval_kit.runs.names import base
from eval_kit.sentences import counted
from eval_kit.shifts import check_names

FOLDER = Path(__file__).parent / "configs"
_BM25_OPTIONS = {"k1", "b", "tune"}


class Config(Document, frozen=True, kw_only=True):
    """How each system is trained and searched: by its own options, and the trained ones by those of 'neural' too."""

    description: str = ""
    shifts: Annotated[
        list[Annotated[str, Meta(description="A name of eval_kit.shifts.SHIFTS.")]] | None,
        Meta(
            description="What the config is for; all shifts of a release if left out, none (but the control) if empty.",
            extra_json_schema={"uniqueItems": True},
        ),
    ] = None
    control: Annotated[
        bool, Meta(description="Whether each trained system is also trained on all training queries, to compare with.")
    ] = False
    variations: Annotated[
        Literal["all"] | Annotated[list[Text], Meta(min_length=1, extra_json_schema={"uniqueItems": True})],
        Meta(
            description="Query variations that every cell searches too, as far as they are of its test sets: all, or "
            "names such as dl19.typo or dev.typo.3."
        ),
    ] = field(default_factory=list)
    neural: dict[str, Any] = field(default_factory=dict)
    systems: Annotated[
        dict[str, Any],
        Meta(
            min_length=1,
            description="By name, which also names the runs: a system, or a variant of one after a hyphen, as "
            "biencoder-roberta.",
            extra_json_schema={
                "propertyNames": {"pattern": f"^({'|'.join(SYSTEMS)})(-[a-z0-9_-]+)?$"},
                "patternProperties": {
                    f"^{name}(-|$)": {"$ref": f"#/$defs/{kind.__name__}"} for name, kind in SYSTEMS.items()
                },
            },
        ),
    ]


def schema() -> dict[str, Any]:
    """``schemas/config.schema.json``: an option may be left out where its field is None, but not be null."""
    document = schema_of(Config, "Config of a grid")
    parts = document["$defs"]
    kinds: list[type[Options]] = [Trained, *SYSTEMS.values()]
    for kind in kinds:
        parts |= msgspec.json.schema(kind)["$defs"]
        if rules := vars(kind).get("RULES"):
            parts[kind.__name__]["allOf"] = [*rules]
    for part in parts.values():
        for name, option in part["properties"].items():
            if {"type": "null"} in option.get("anyOf", ()):
                choice, _ = option.pop("anyOf")
                part["properties"][name] = {key: option[key] for key in option if key != "default"} | choice
    for kind in SYSTEMS.values():
        if issubclass(kind, Trained):
            parts[kind.__name__] = _beside(parts["Trained"], parts[kind.__name__])
    del parts["Trained"]["additionalProperties"]
    return document


def _beside(common: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A trained system's part of the schema, without what it shares with the others."""
    document = {"$ref": "#/$defs/Trained", **part, "unevaluatedProperties": False}
    del document["additionalProperties"]
    options = part["properties"].items()
    document["properties"] = {name: option for name, option in options if option != common["properties"].get(name)}
    document["required"] = [name for name in part["required"] if name not in common["required"]]
    return document


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

    Args:
        config: as of :func:`read`.
        systems: by name; all if None.
        backbone: replaces that of the transformers; ``static`` keeps its own, as it learns from scratch.
        precision: of their training, whatever the config says.
        instead_of_bfloat16: the same where the config says bfloat16, which the GPUs lack.
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

    Args:
        document: of a config.
        origin: names it in messages.
    """
    if isinstance(document, dict) and isinstance(document.get("systems"), dict):
        common = document.get("neural", {})
        systems = dict(document["systems"])
        for name, settings in systems.items():
            is_trained = issubclass(SYSTEMS.get(base(name), Trained), Trained)
            if is_trained and isinstance(settings, dict) and isinstance(common, dict):
                systems[name] = {**common, **settings}
        document = document | {"systems": systems}
    if faults := faults_of(document):
        first, further = faults[0], len(faults) - 1
        more = f"The config has {counted(further, 'more fault')}" if further else ""
        # of a rule about several options, jsonschema would print them all
        why = first.schema["description"] if first.validator in ("oneOf", "not") else first.message
        raise UserError(f"{origin}: {first.json_path}: {why}", more)
    check_names(document.get("shifts") or [], f"{origin}: $.shifts:")
    systems = document["systems"]
    for name, settings in systems.items():
        start = settings.get("starts_from")
        if start is not None and (start not in systems or base(start) != base(name) or "starts_from" in systems[start]):
            where = f"{origin}: $.systems.{name}.starts_from"
            raise UserError(f"{where}: {start} is not a bi-encoder of this config that starts from a backbone")
    of_bm25 = {name: value for name, value in systems.get("bm25", {}).items() if name in _BM25_OPTIONS}
    for name, settings in systems.items():
        if "candidates" in settings and not _BM25_OPTIONS & settings.keys():
            settings = {**settings, **of_bm25}
        systems[name] = options = msgspec.convert(settings, SYSTEMS[base(name)])
        backbone = getattr(options, "backbone", None)
        if isinstance(backbone, SmallBackbone) and backbone.width % backbone.heads:
            sizes = f"the width {backbone.width} is not a multiple of {counted(backbone.heads, 'head')}"
            raise UserError(f"{origin}: $.systems.{name}.backbone: {sizes}")
    return msgspec.convert(document, Config)
