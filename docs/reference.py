"""Reference pages from the code, as far as no plugin makes them: commands, measures, shifts, schemas and test sets."""

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

import baselines.cli
import builder.cli
import eval_kit.cli
from eval_kit import documents
from eval_kit.documents import TestSetEntry
from eval_kit.measures import definitions
from eval_kit.release import Release, open_release
from eval_kit.shifts import SHIFTS, named
from eval_kit.stats import typical

ROOT = Path(__file__).parent.parent
PROGRAMS = {
    "eval_kit": eval_kit.cli.app,
    "python -m builder": builder.cli.app,
    "python -m baselines": baselines.cli.app,
}
HELP_WIDTH = 100
CLUSTERS = """\
The topics have the names that their authors give them (ECIR 2023, Table 1). Typical words are those of the greatest
z-score of the log-odds against the other parts (Monroe, Colaresi and Quinn, 2008). The card of any release has such a
table for its own parts.

The queries of topic, wh and length are from [naver/ms-marco-shift](https://github.com/naver/ms-marco-shift) by Simon
Lupart, Thibault Formal and Stéphane Clinchant (CC BY-NC-SA 4.0), the buckets of ReSTTest from
[jingtaozhan/extrapolate-eval](https://github.com/jingtaozhan/extrapolate-eval) by Jingtao Zhan et al. (MIT). All texts
are MS MARCO's, for non-commercial research."""
WITHOUT_HEADING = "    options:\n      show_root_heading: false\n      show_root_toc_entry: false"


def pages() -> dict[str, str]:
    """Markdown of every page but the test sets', which need a release."""
    return {"commands": _commands(), "measures": _measures(), "shifts": _shifts(), "schemas": _schemas()}


def test_sets(release: Release) -> str:
    """The page of the published release's test sets: sizes, measures, and the rule that each is made by.

    Args:
        release: built from all the lists at hand.
    """
    manifest = release.manifest
    rules = {table.key: table.rule for table in manifest.tables}
    lines = ["# Test sets", "", f"Those of the published release {release.version}, counted in the release itself."]
    for config in dict.fromkeys(entry.config for entry in manifest.test_sets):
        entries = [entry for entry in manifest.test_sets if entry.config == config]
        rule = rules[entries[0].table]
        lines += ["", f"## {config}", "", f"Rule: {rule.text} ({rule.source})."]
        for measures in dict.fromkeys(tuple(entry.measures) for entry in entries):
            lines += ["", f"Measures: {', '.join(f'`{measure}`' for measure in measures)}.", ""]
            lines += ["| test set | queries | selected by |", "| --- | ---: | --- |"]
            lines += [
                f"| `{entry.name}` | {entry.queries:,} | {_selection(entry)} |"
                for entry in entries
                if tuple(entry.measures) == measures
            ]
    return "\n".join(lines) + "\n"


def clusters(release: Release) -> str:
    """The page that says what each cluster of the published release is about: typical words, and a typical query.

    Args:
        release: built from all the lists at hand.
    """
    lines = ["# What the clusters are about", "", CLUSTERS, "", "| part | queries | typical words | a typical query |"]
    lines.append("|---|---:|---|---|")
    for shift in ("topic", "wh", "length", "resttest"):
        queries = release.table(shift, "test" if shift != "resttest" else "dev")
        label = "cluster" if "cluster" in queries.columns else "bucket"
        for topic in typical.topics(queries, label, examples=1):
            part = f"{shift}.{named(topic.cluster, release.manifest)}"
            lines.append(f"| {part} | {topic.queries:,} | {', '.join(topic.terms)} | {topic.examples[0]} |")
    return "\n".join(lines) + "\n"


def _selection(entry: TestSetEntry) -> str:
    table = f"`{entry.config}/{entry.split}`"
    return f"{table} where {entry.column} is {' or '.join(entry.values)}" if entry.values else f"all of {table}"


def _commands() -> str:
    parts = ["# Commands", "The text of `--help`, command by command."]
    for program, app in PROGRAMS.items():
        for name, text in _helps(get_command(app), program):
            level = "##" if name == program else "###"
            parts.append(f"{level} {name}\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def _helps(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    context = typer.Context(command, info_name=name, parent=parent, terminal_width=HELP_WIDTH)
    yield context.command_path, command.get_help(context)
    for subcommand, child in getattr(command, "commands", {}).items():
        yield from _helps(child, subcommand, context)


def _measures() -> str:
    parts = ["# Measures", inspect.getdoc(definitions) or ""]
    for kind in definitions.KINDS.values():
        facts = ["lower is better" if kind.lower_is_better else "higher is better", f"unit: {kind.unit.name}"]
        cutoff = "needs a cutoff" if kind.needs_cutoff else "with or without a cutoff"
        facts.append(cutoff if kind.takes_cutoff else "without a cutoff")
        at = "@10" if kind.takes_cutoff else ""
        example = f"`{kind.name}{at}`{f', `{kind.name}(rel=2){at}`' if kind.takes_grade else ''}"
        parts.append(f"## {kind.name}\n\n{inspect.getdoc(kind.value)}\n\n{example}: {'; '.join(facts)}.")
    parts.append("Which are the official ones of a test set: [test sets](test-sets.md).")
    return "\n\n".join(parts) + "\n"


def _shifts() -> str:
    rows = ["| shift | | published table | measures |", "| --- | --- | --- | --- |"]
    for shift in SHIFTS.values():
        measures = ", ".join(shift.measures) or "those of the test set"
        published = f"`{shift.published_table}`" if shift.published_table else ""
        rows.append(f"| `{shift.name}` | {shift.title} | {published} | {measures} |")
    table = "\n".join(rows)
    classes = "      members: [Shift, Clusters, WordClusters, Buckets, Regimes, Training]"
    shifts = f"::: eval_kit.shifts\n{WITHOUT_HEADING}\n{classes}"
    parts = ["# Shifts", table, shifts, "## Algorithms"]
    for name in (*SHIFTS, "chameleons"):
        docstring = f"::: builder.shifts.{name}\n{WITHOUT_HEADING}\n      members: false"
        parts.append(f"### How {name} is rebuilt\n\n{docstring}")
    return "\n\n".join(parts) + "\n"


def _schemas() -> str:
    parts = ["# Schemas", "JSON Schemas (draft 2020-12) of every document that is exchanged."]
    for path in sorted((ROOT / "schemas").glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        parts.append(f"## {schema['title']}\n\n{schema['description']}\n\n`schemas/{path.name}`")
        source = "\n".join(f"    {line}" for line in path.read_text(encoding="utf-8").splitlines())
        parts.append(f'??? note "{path.name}"\n    ```json\n{source}\n    ```')
    return "\n\n".join(parts) + "\n"


def write_schemas() -> None:
    """Write those of ``schemas/`` anew that are of classes; the others, of what is only written, are kept by hand."""
    schemas = {name: documents.schema(name) for name in documents.DOCUMENTS}
    for name, schema in schemas.items():
        text = json.dumps(schema, indent=1, ensure_ascii=False)
        (ROOT / "schemas" / f"{name}.schema.json").write_text(text + "\n", encoding="utf-8")


PAGES_OF_A_RELEASE = {"test-sets": test_sets, "clusters": clusters}

if __name__ == "__main__" and sys.argv[1] == "schemas":
    write_schemas()
elif __name__ == "__main__":
    print(PAGES_OF_A_RELEASE[sys.argv[1]](open_release(sys.argv[2])), end="")
