"""MkDocs events: pages from the code, pages outside ``docs/``, notebooks as pages, and figures of results."""

import json
import re
from pathlib import Path
from typing import Any

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
        files.append(File.generated(config, page, content=of_notebook(path)))
    return files


def of_notebook(path: Path) -> str:
    """Its texts, its code and what the code shows."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            if picture := output.get("data", {}).get("image/svg+xml"):
                parts.append(f"<figure>{''.join(picture)}</figure>")
            else:
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to files of the root at their pages; fill in rates and figures."""
    for source, target in OUTSIDE.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
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
    return f"<figure>{svg.style('figure')}{picture}<figcaption>{legend}</figcaption></figure>"


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings name code by Sphinx's roles; show the name alone."""
    return RST_ROLE.sub("", html)
