"""Configs: data that say how every system of a grid is trained and searched."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baselines.generation import Recipe
from baselines.systems import is_trained, system
from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.files.schemas import faults_of
from eval_kit.shifts import check_names

if TYPE_CHECKING:
    from jsonschema import ValidationError

FOLDER = Path(__file__).parent / "configs"
BM25_OPTIONS = {"k1", "b", "tune"}


def names() -> list[str]:
    """Names of the kit's configs."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(config: str | Path) -> dict[str, dict[str, Any]]:
    """The options of each system, from one of the kit's configs by name, or from a JSON file.

    Returns:
        System → its options, including those that all neural systems share.

    Raises:
        UserError: there is no such config; it is not JSON; an option is unknown, missing or wrong.
    """
    return checked(*_document(config))


def chosen(
    config: str | Path,
    systems: Sequence[str] | None = None,
    backbone: str | None = None,
    precision: str | None = None,
    instead_of_bfloat16: str | None = None,
) -> dict[str, dict[str, Any]]:
    """The options of these systems, or of all.

    Args:
        config: as of :func:`load`.
        systems: by name; all if None.
        backbone: replaces that of the transformers; ``static`` keeps its own, as it learns from scratch.
        precision: of their training, whatever the config says.
        instead_of_bfloat16: the same where the config says bfloat16, which the GPUs lack.

    Raises:
        UserError: as :func:`load`, or the config lacks a system.
    """
    options = load(config)
    if unknown := [name for name in systems or () if name not in options]:
        raise UserError(f"{config}: has no system {unknown[0]!r}; it has {', '.join(options)}")
    named = {name: options[name] for name in systems or options}
    for name, own in named.items():
        if "backbone" in own:
            of_card = instead_of_bfloat16 if own.get("precision") == "bfloat16" else None
            given = {
                "backbone": backbone if system(name).TAKES_BACKBONE else None,
                "precision": precision or of_card,
            }
            named[name] = own | {option: value for option, value in given.items() if value is not None}
    return named


@dataclass(frozen=True)
class Plan:
    """A config's settings beyond its systems: arguments of :func:`baselines.grid.grid.cells`."""

    shifts: Sequence[str] | None
    control: bool
    variations: Sequence[str]


def plan(config: str | Path) -> Plan:
    """A config's plan; by default all shifts (None) and no variations.

    Raises:
        UserError: as :func:`load`.
    """
    document, origin = _document(config)
    checked(document, origin)
    shifts = document.get("shifts")
    check_names(shifts or [], f"{origin}: $.shifts:")
    variations = document.get("variations", [])
    return Plan(shifts, document.get("control", False), ["all"] if variations == "all" else variations)


def recipe(config: str | Path) -> Recipe:
    """How a config's queries are generated.

    Raises:
        UserError: as :func:`load`, or the config generates none.
    """
    document, origin = _document(config)
    checked(document, origin)
    if "generation" not in document:
        raise UserError(f"{origin}: generates no queries; genq and doct5query do")
    return Recipe(**document["generation"])


def _document(config: str | Path) -> tuple[Any, str]:
    path = FOLDER / f"{config}.json" if str(config) in names() else Path(config)
    if not path.is_file():
        raise UserError(f"{config}: no such config; there are {', '.join(names())}, or name a JSON file")
    return strict_json.read(path), str(path)


def checked(document: Any, origin: str) -> dict[str, dict[str, Any]]:
    """The options of each system in a parsed config; ``origin`` names it in messages.

    A re-ranker's candidates come from the config's BM25 unless its own options set BM25's parameters.

    Raises:
        UserError: it does not follow ``schemas/config.schema.json``; names the first fault and counts the rest.
    """
    if isinstance(document, dict) and isinstance(document.get("systems"), dict):
        shared = document.get("neural", {})
        systems = dict(document["systems"])
        for name, own in systems.items():
            if is_trained(name) and isinstance(own, dict) and isinstance(shared, dict):
                systems[name] = {**shared, **own}
        document = document | {"systems": systems}
    if faults := faults_of("config", document):
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        raise UserError(f"{origin}: {faults[0].json_path}: {_sentence(faults[0])}{more}")
    options: dict[str, dict[str, Any]] = document["systems"]
    for name, own in options.items():
        backbone = own.get("backbone")
        if isinstance(backbone, dict) and backbone["width"] % backbone["heads"]:
            raise UserError(f"{origin}: $.systems.{name}.backbone: its heads do not divide its width")
    of_bm25 = {name: value for name, value in options.get("bm25", {}).items() if name in BM25_OPTIONS}
    for name, own in options.items():
        if "candidates" in own and not BM25_OPTIONS & own.keys():
            options[name] = {**own, **of_bm25}
    return options


def _sentence(fault: "ValidationError") -> str:
    """The fault in words: the schema's own for a rule about several options, where jsonschema would print them all."""
    if fault.validator in ("oneOf", "not"):
        return str(fault.schema["description"])
    return str(fault.message)
