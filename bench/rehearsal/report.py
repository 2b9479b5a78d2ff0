"""The rehearsal's figures as JSON, and as the Markdown tables that docs/full-size.md shows."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.rehearsal import waiting

RESULTS = Path(__file__).parent.parent / "results" / "rehearsal.json"
COLUMNS = ("stage", "how many", "wall", "CPU", "a CPU second", "peak memory", "open files", "on disk")


def keep(out: Path, scale: str, machine: Mapping[str, Any], stages: Mapping[str, Any]) -> dict[str, Any]:
    """Put the figures of one scale in the place of those that ``out`` has; returns those of all scales."""
    document = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    document[scale] = {"machine": dict(machine), "stages": dict(stages)}
    ordered = {name: document[name] for name in sorted(document, key=float)}
    out.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    return ordered


def markdown(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """One line a stage; below, how long look-ups take, and how long a GPU would wait."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|---|{'---:|' * (len(COLUMNS) - 1)}"]
    for name, figures in stages.items():
        cells = [
            name,
            f"{figures['count']:,} {figures['unit']}",
            f"{figures['wall_s']:,.1f} s",
            f"{figures['cpu_s']:,.1f} s",
            f"{figures['count'] / figures['cpu_s']:,.1f}",
            f"{figures['peak_gb']:.2f} GB",
            f"{figures['open_files']}",
            f"{figures['disk_gb']:.3f} GB",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if look_ups := stages.get("look-ups"):
        lines += ["", *(f"- {name}: {look_ups[name]} ms" for name in look_ups if name.startswith("128"))]
    if "feeding" in stages:
        lines += ["", waiting.markdown(stages["feeding"])]
    return "\n".join(lines)


def growth(scales: Mapping[str, Mapping[str, Any]]) -> str:
    """One line a stage, one column a scale: milliseconds of processor time for each unit of what the stage does."""
    names = dict.fromkeys(name for figures in scales.values() for name in figures["stages"])
    lines = [f"| CPU ms for each | {' | '.join(scales)} |", f"|---|{'---:|' * len(scales)}"]
    for name in names:
        stages = [figures["stages"].get(name) for figures in scales.values()]
        unit = next(stage["unit"] for stage in stages if stage)
        lines.append(f"| {name}, of the {unit} | {' | '.join(map(_cost, stages))} |")
    return "\n".join(lines)


def _cost(stage: Mapping[str, Any] | None) -> str:
    """Milliseconds for each unit, the small ones to more decimals; empty for a stage that a scale lacks."""
    if stage is None:
        return ""
    cost = 1_000 * stage["cpu_s"] / stage["count"]
    return f"{cost:,.3f}" if cost >= 0.1 else f"{cost:.5f}"
