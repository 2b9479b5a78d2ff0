"""One self-contained HTML page from a template, with styles, scripts and data inside.

Templates escape everything that is not markup already. A content security policy keeps a browser from fetching anything
and from running any script but the page's own.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from eval_kit import __version__
from eval_kit.files import atomic
from eval_kit.markup import visible
from eval_kit.measures.definitions import parse
from eval_kit.results import SIGNS, Result, Section, is_synthetic, origin
from eval_kit.svg import loss_bar, swatch
from eval_kit.tables.html import sort_header, to_html, typographic
from eval_kit.tables.table import share


def number(value: float, measure: str) -> str:
    """A mean in the unit of the papers: reciprocal ranks times 100, search lengths plain."""
    return typographic(parse(measure).show_as_ecir_2023(value))


def percent(value: float | None) -> str:
    """A loss for people: ``12.3 %``, or a dash where there is none."""
    return typographic(share(value))


def anchored(notes: Sequence[str]) -> list[tuple[str | None, str]]:
    """The notes, each with the id that its sign links to, where it is the first of that sign."""
    found: set[str] = set()
    anchors = []
    for note in notes:
        sign = note[:1] if note[:1] in SIGNS and note[:1] not in found else ""
        found.add(sign)
        anchors.append((f"note-{sign}" if sign else None, note))
    return anchors


TEMPLATES = Environment(
    loader=PackageLoader("eval_kit.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.globals["synthetic"] = is_synthetic
for helper in (anchored, loss_bar, number, percent, sort_header, swatch):
    TEMPLATES.globals[helper.__name__] = helper
# For the filter ``tojson``, which escapes whatever could end a script element.
TEMPLATES.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}


def section(title: str, template: str, provenance: Mapping[str, Any], **values: Any) -> Section:
    """A section of a page from a template, which has the tables' renderer besides its values."""
    mark = "synthetic data" if is_synthetic(provenance) else ""
    content = TEMPLATES.get_template(template).render(
        to_html=partial(to_html, mark=mark), provenance=provenance, **values
    )
    return Section(title, Markup(content))


def render(template: str | Template, scripts: Sequence[str], **values: Any) -> str:
    """A whole page."""
    assets = files("eval_kit.pages") / "assets"
    code, hashes = [], []
    for name in scripts:
        script = (assets / name).read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        code.append(script)
        hashes.append(f"'sha256-{digest}'")
    mark = "synthetic data" if is_synthetic(getattr(values.get("result"), "provenance", {})) else ""
    page = TEMPLATES.get_template(template).render(
        to_html=partial(to_html, mark=mark),
        style=(assets / "page.css").read_text(encoding="utf-8"),
        scripts=code,
        allowed=" ".join(hashes) or "'none'",
        version=__version__,
        **values,
    )
    return visible(page)


def about(result: Result) -> dict[str, Any]:
    """What a page says of the release and the day above its results, and at its foot."""
    release = result.provenance.get("release")
    kinds = {"beir": "a folder in BEIR's format", "judgements": "judgements of one's own"}
    words = kinds.get(release["kind"], f"{release['kind']} release {release['version']}") if release else ""
    day = date.today()
    words = ", ".join(filter(None, (words, f"{day.day} {day:%B %Y}")))
    if result.subject and release:
        words = f"{result.subject}; {words} ({release['digest'][:12]})"
    cautions = release.get("cautions", []) if release else []
    return {"release": words, "cautions": cautions, "origin": origin(result.provenance)}


def result_page(result: Result) -> str:
    """The page of a result: its sections, or else what it has to say, its figures, tables and notes."""
    sections = result.sections()
    return render("result.html.j2", ["tables.js"], result=result, about=about(result), sections=sections)


def write_page(result: Result, path: str | PathLike[str]) -> None:
    """Write the page of a result: one HTML file that needs no other.

    Raises:
        UserError: the file cannot be written.
    """
    atomic.write_text(Path(path), result_page(result))
