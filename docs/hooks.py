"""MkDocs events: pages generated from the code, pages that live outside ``docs/``, and the notebook as a page."""

import re
from pathlib import Path
from typing import Any

import notebook
import reference
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "DATA-LICENSES.md": "data-licenses.md",
}
"""Files of the repository's root that are pages too."""
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


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to files of the root, which are right in the repository, at their pages."""
    for source, target in OUTSIDE.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings name code by Sphinx's roles; show the name alone."""
    return RST_ROLE.sub("", html)
