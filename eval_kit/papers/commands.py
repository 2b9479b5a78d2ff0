"""The command for each published table and figure of the five papers, or why there is none.

``python -m eval_kit.papers.commands > docs/published-tables.md`` writes the list as Markdown.
"""

import json
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path

DATA = Path(__file__).parent / "commands.json"
HEAD = """# Published tables, and the commands that give them

The tables and figures of the five papers. `eval_kit protocol --paper ID` prints the figures of each one that has an
id, and `eval_kit protocol GRID/runs --paper ID` below them those of a grid where it gives them. The last column names
the command that computes the table from your own runs or release, or says what stands in the way: {without} of the
{all} entries have none.

This list is generated: `python -m eval_kit.papers.commands > docs/published-tables.md`.
"""


@dataclass(frozen=True)
class PublishedTable:
    """One table or figure.

    Attributes:
        paper: venue and year.
        table: its number there.
        shows: in a few words.
        id: as :func:`eval_kit.release.reference.load` takes it; empty if the table is not kept as data.
        own: the command for your own figures; empty where there is none.
        why: what is missing or different.
    """

    paper: str
    table: str
    shows: str
    id: str = ""
    own: str = ""
    why: str = ""

    @property
    def command(self) -> str:
        """``own`` for this table."""
        return self.own.replace("{id}", self.id)


@cache
def published_tables() -> list[PublishedTable]:
    """Every table and figure, paper by paper."""
    return [PublishedTable(**row) for row in json.loads(DATA.read_text(encoding="utf-8"))]


def own_figures(id: str) -> str:
    """One sentence on how to compute the figures of a table oneself."""
    table = next(table for table in published_tables() if table.id == id)
    return "; ".join(filter(None, (f"your own figures: {table.command}" if table.own else "", table.why)))


def markdown() -> str:
    """The list as Markdown."""
    tables = published_tables()
    lines = [HEAD.format(without=list(map(attrgetter("own"), tables)).count(""), all=len(tables))]
    for paper in dict.fromkeys(map(attrgetter("paper"), tables)):
        lines += [f"## {paper}", "", "| | shows | id | your own figures |", "| --- | --- | --- | --- |"]
        for table in tables:
            if table.paper == paper:
                id = f"`{table.id}`" if table.id else ""
                how = "; ".join(filter(None, (f"`{table.command}`" if table.own else "", table.why)))
                lines.append(f"| {table.table} | {table.shows} | {id} | {how} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(), end="")
