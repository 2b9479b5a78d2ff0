"""MkDocs events: pages generated from the code, pages outside ``docs/``, the notebook as a page, figures of results."""

import json
import re
from pathlib import Path
from typing import Any

import glossary_links
import notebook
import pictures
import polars as pl
import rates
import reference
from mkdocs.structure.files import File, Files

from eval_kit import plots, svg

ROOT = Path(__file__).parent.parent
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "DATA-LICENSES.md": "data-licenses.md"}
"""Files of the repository's root that are pages too."""
FIGURE = re.compile("<!-- figure: (crossed|leave_one_out) -->")
RST_ROLE = re.compile(r":(?:func|class|mod|meth|data):(?=<code>)")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages and those outside, and a page for each notebook."""
    for name, text in reference.pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    for source, target in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=text.replace("](docs/", "](")))
    for path in sorted((ROOT / "docs").rglob("*.ipynb")):
        page = path.relative_to(ROOT / "docs").with_suffix(".md").as_posix()
        files.append(File.generated(config, page, content=notebook.markdown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files of the root at their pages, link words to the glossary, draw figures."""
    for source, target in OUTSIDE.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
    path = page.file.src_uri
    if path == glossary_links.PAGE:
        markdown = glossary_links.anchored(markdown)
    elif not path.startswith("reference/"):
        glossary = (ROOT / "docs" / glossary_links.PAGE).read_text(encoding="utf-8")
        markdown = glossary_links.linked(markdown, path, glossary)
    return rates.filled(FIGURE.sub(lambda match: losses_on_squad(match[1]), markdown))


def losses_on_squad(grid: str) -> str:
    """The losses of a grid of docs/results.md against the parts' similarity to the others, as HTML."""
    squad = json.loads((ROOT / "bench/results/squad.json").read_text(encoding="utf-8"))
    rows = (
        squad["by_cluster"]
        if grid == "crossed"
        else [row for shift in squad["leave_one_out"].values() for row in shift]
    )
    points = pl.DataFrame(rows).rename({"rel_loss_low": "low", "rel_loss_high": "high"})
    systems = points["system"].unique(maintain_order=True).to_list()
    legend = " ".join(f"{svg.swatch(number)} {system}" for number, system in enumerate(systems))
    picture = plots.loss_against_jaccard(points, systems, "RR@10", title="Rel Loss of {measure} against similarity")
    return f"<figure>{pictures.style('figure')}{picture}<figcaption>{legend}</figcaption></figure>"


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings name code by Sphinx's roles; show the name alone."""
    return RST_ROLE.sub("", html)
