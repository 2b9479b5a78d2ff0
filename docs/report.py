"""The report of NFCorpus' grid in the docs: ``python docs/report.py GRID/runs RELEASE``.

It lacks the section that shows single queries, as their texts are NFCorpus'.
"""

import sys
from pathlib import Path

from eval_kit.pages.page import about, render
from eval_kit.papers.beside import results
from eval_kit.release import open_release

PAGE = Path(__file__).parent / "tutorials" / "nfcorpus-report.html"

if __name__ == "__main__":
    runs, release = map(Path, sys.argv[1:])
    result = results(runs, open_release(release), allow_missing=True)
    sections = [section for section in result.sections() if section.title != "Queries"]
    page = render("result.html.j2", ["tables.js"], result=result, about=about(result), sections=sections)
    PAGE.write_text(page, encoding="utf-8")
