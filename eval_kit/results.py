"""What a command computes, in one shape: a :class:`Result`.

Every result has rows (a dataframe with one figure or comparison a row), provenance, tables, figures and notes. From
these follow all the forms in which people and programs want it, in Python::

    scores = eval_kit.score("bm25.trec")
    scores                      # the printed tables, cut to a screen; a table in a notebook
    scores.to_polars()          # also to_pandas(), to_csv(), to_markdown(), to_latex(), as_json()
    scores.notes()              # what a reader must know about these figures; method() says how they are computed

and on the command line, where :func:`eval_kit.output.emit` alone writes results. A new kind of result is a frozen
dataclass made with ``repr=False`` that derives from :class:`Result`, has a field or property ``provenance``, sets
``title`` and defines :meth:`~Result.to_polars` and :meth:`~Result.tables`; see :mod:`eval_kit.protocols.compare`.
"""

import io
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, Literal

import polars as pl
from markupsafe import Markup
from rich.console import Console

from eval_kit import known
from eval_kit.errors import UserError, printable
from eval_kit.markup import element
from eval_kit.tables import latex, markdown, terminal
from eval_kit.tables.table import Table

SIGNS = ("°", "?", "≈", "†", "‡", "·")
"""Behind figures; a note that begins with one says what it means."""
_REPR_WIDTH = 120
SHOWN_NOTES = 3
"""Notes in a terminal, if the data need no more; a page has all."""
REPR_LINES = 40
"""Lines of a result in a Python session; the rest is counted."""
_REPR_TABLES = 8
"""Tables of a result in a notebook."""


@dataclass(frozen=True)
class Picture:
    """A picture on a page, an SVG element, with its caption; ``series`` are its legend, in the markers' order."""

    picture: Markup
    caption: str = ""
    series: Sequence[str] = field(default_factory=tuple)

    def _repr_svg_(self) -> str:
        """For a notebook."""
        from eval_kit.svg import standalone  # numpy, which plain scores need not

        return standalone(self.picture)


@dataclass(frozen=True)
class Section:
    """A section of a page, in place of the pictures, tables and notes one after the other."""

    title: str
    content: Markup


@dataclass(frozen=True)
class Fact:
    """One of several things that a result has to say, on a line of its own.

    The verdict, in a word or two, stands before the text, coloured on a page by the class ``word``; a command to copy,
    behind.
    """

    about: str
    text: str
    verdict: str = ""
    word: Literal["", "good", "bad", "open"] = ""
    command: Sequence[str] = ()

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.about, self.verdict, " ".join(filter(None, (self.text, self.shell))))))

    @property
    def shell(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(self.command)


class Result(ABC):
    """What a command computed.

    Attributes:
        title: the heading of its page.
        provenance: what it was computed from: at least ``kit_version`` and, of a release, ``release``.
        tone: the class of the summary's first sentence, where it is a verdict whose text is coloured on a page.
        otherwise: where runs lack queries, what figures are on those that all runs have, a sentence each.
    """

    title: ClassVar[str]
    provenance: Mapping[str, Any]
    otherwise: Sequence[str] = ()
    tone: ClassVar[Literal["", "good", "bad", "open"]] = ""

    @abstractmethod
    def to_polars(self) -> pl.DataFrame:
        """The rows: every number in full."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """The rows laid out for readers."""

    @property
    def heading(self) -> str:
        """The title of its page, with the names of what it is about."""
        return self.title

    def summary(self) -> list[str]:
        """What it has to say, in one to five sentences; first on its page."""
        return []

    def facts(self) -> list[Fact]:
        """What more it has to say, below the summary."""
        return []

    def said(self) -> list[str]:
        """What every form begins with: what is known of the runs that may make it another answer, and the answer."""
        facts = [str(fact) for fact in self.facts() if not fact.command]
        return [*self.reservations(), *self.summary(), *facts]

    def reservations(self) -> list[str]:
        """What is known of the runs that may make it another answer, and figures on the queries that all runs have."""
        return [*known.first(self.provenance), *self.otherwise]

    def following(self) -> list[str]:
        """The next commands that a terminal ends with, as this one was typed."""
        return []

    def figures(self) -> list[Picture]:
        """The pictures of its page."""
        return []

    def sections(self) -> list[Section]:
        """The sections of its page, where it needs more than what follows from the other methods."""
        return []

    def details(self) -> list[Table]:
        """What its page has below the tables, folded."""
        return []

    @property
    def subject(self) -> str:
        """What it is about, in a line below the heading of its page, beside the release."""
        return ""

    def printed(self) -> list[Table]:
        """The tables as a paper prints them."""
        return self.tables()

    def captioned(self, tables: list[Table] | None = None) -> list[Table]:
        """The tables, or these; their titles say so where the data are synthetic."""
        tables = self.tables() if tables is None else tables
        if not is_synthetic(self.provenance):
            return tables
        return [replace(table, title=f"{table.title}, synthetic data") if table.title else table for table in tables]

    def all_notes(self) -> list[str]:
        """The notes, what is known of the runs and of the release, and the method."""
        return [*self.cautions(), *self.method_shown()]

    def cautions(self) -> list[str]:
        """The notes, and what every result says of its runs and of its release."""
        notes = [*self.notes(), *known.further(self.provenance)]
        of_release = (self.provenance.get("release") or {}).get("cautions", ())
        return [*notes, *(each for each in of_release if not any(each in note for note in notes))]

    def notes(self) -> list[str]:
        """What a reader must know about these figures, a sentence each."""
        return []

    def method(self) -> list[str]:
        """How such figures are computed and what signs mean, a sentence each: the same for any data."""
        return []

    def method_shown(self) -> list[str]:
        """The method, without what begins with a sign that no table has."""
        texts = (cell.text + cell.mark for table in self.tables() for row in table.rows() for cell in row)
        found = set(SIGNS).intersection(chain.from_iterable(texts))
        return [note for note in self.method() if note[:1] not in SIGNS or note[0] in found]

    @property
    def exit_status(self) -> int:
        """What the command exits with: 0, unless it answers a question that a script asked."""
        return 0

    def content(self) -> dict[str, Any]:
        """What its JSON holds between the answer and the notes: the rows."""
        return {"rows": self.to_polars().to_dicts()}

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values: the answer, the content, the notes and the provenance."""
        notes = [*self.notes(), *known.further(self.provenance), *self.method()]
        return {"said": self.said(), **self.content(), "notes": notes, "provenance": dict(self.provenance)}

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``; imports pandas only here, and pyarrow nowhere."""
        try:
            import pandas
        except ImportError as error:
            raise UserError(
                "pandas is not installed", do="Use to_polars(), which gives the same table without it"
            ) from error
        # numbers as arrays: a list of nothing but None would be a column of objects
        columns = {
            each.name: each.to_numpy() if each.dtype.is_numeric() else each.to_list() for each in self.to_polars()
        }
        return pandas.DataFrame(columns)

    def to_csv(self) -> str:
        """The rows as CSV that a spreadsheet shows as they are.

        A text that it would take for a formula, as it begins with =, +, -, @ or a control character, gets an apostrophe
        in front (OWASP, CSV Injection).
        """
        texts = pl.col(pl.String).str.replace(r"^([=+\-@\t\r\n])", "'$1")
        rows = self.to_polars().with_columns(pl.col(pl.List(pl.String)).list.join("; "))
        return rows.with_columns(texts.map_elements(printable, pl.String)).write_csv()

    def to_markdown(self) -> str:
        """The answer, the tables in GitHub's Markdown, each under its title, and the notes, folded."""
        said = (f"{markdown.escape(sentence)}\n" for sentence in self.said())
        notes = "".join(f"- {markdown.escape(note)}\n" for note in self.all_notes())
        folded = [f"<details><summary>Notes</summary>\n\n{notes}\n</details>\n"] if notes else []
        return "\n".join([*said, *map(markdown.to_markdown, self.captioned()), *folded])

    def to_latex(self) -> str:
        """The tables as floats of booktabs and graphicx, with captions; the answer and the notes stand in comments."""
        heading = f"{self.heading}{', synthetic data' * is_synthetic(self.provenance)}"
        named = (table if table.heading else replace(table, title=heading) for table in self.captioned(self.printed()))
        tables = map(latex.to_latex, named)
        comments = [*self.said(), *self.all_notes(), r"\usepackage{booktabs, graphicx}"]
        return "".join(f"% {printable(note)}\n" for note in comments) + "\n".join(tables)

    def show(self, console: Console) -> int:
        """Print what it has to say, the tables, each section under its heading, the other notes, and what follows.

        Of the method, only as much as makes :data:`SHOWN_NOTES` in all, and what explains a sign. Returns how many
        sentences of the method were left out.
        """
        said, section = self.said(), ""
        terminal.show_notes(said, console, style="")
        for table in self.captioned():
            if table.section != section:
                section = table.section
                console.rule(printable(section))
            terminal.show(table, console)
        notes = [note for note in self.cautions() if note not in said]
        method = self.method_shown()
        signs = [note for note in method if note[:1] in SIGNS]
        room = max(SHOWN_NOTES - len(notes) - len(signs), 0)
        rest = [note for note in method if note[:1] not in SIGNS]
        terminal.show_notes([*notes, *signs, *rest[:room]], console)
        terminal.show_notes(self.following(), console, style="")
        return len(rest[room:])

    def __repr__(self) -> str:
        """What the command prints, cut to :data:`REPR_LINES` lines."""
        console = Console(file=io.StringIO(), width=_REPR_WIDTH, color_system=None, force_terminal=False)
        with console.capture() as capture:
            self.show(console)
        lines = [line.rstrip() for line in capture.get().splitlines()]
        if len(lines) > REPR_LINES:
            rest = f"… {len(lines) - REPR_LINES:,} more lines; to_polars() has all {self.to_polars().height:,} rows"
            lines = [*lines[:REPR_LINES], rest]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The answer, the tables and the notes for a notebook."""
        from eval_kit.tables.html import to_html  # only notebooks need it

        tables = self.captioned()
        parts = [element("p", sentence) for sentence in self.said()]
        notes: list[str] = []
        for table in tables[:_REPR_TABLES]:
            parts.append(to_html(table, bars=False))
            notes += table.notes
        if len(tables) > _REPR_TABLES:
            parts.append(element("p", f"… {len(tables) - _REPR_TABLES:,} more tables"))
        for note in [*notes, *self.all_notes()]:
            parts.append(element("p", note))
        return Markup().join(parts)


def is_synthetic(provenance: Mapping[str, Any]) -> bool:
    """Whether figures rest on the mini release, or on a part of it."""
    release = provenance.get("release") or {}
    return release.get("kind") == "mini" or any(each.startswith("synthetic") for each in release.get("cautions", ()))


def origin(provenance: Mapping[str, Any]) -> str:
    """The release, the kit's version and the rule for ties that figures rest on, as far as they have them."""
    origin = f"eval_kit {provenance['kit_version']}"
    if release := provenance.get("release"):
        origin = f"{release['kind']} release {release['version']} ({release['digest'][:16]}), {origin}"
    return f"{origin}, ties {provenance['tie_rule']}" if "tie_rule" in provenance else origin
