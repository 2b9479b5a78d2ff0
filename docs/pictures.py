"""``docs/assets/forest.svg``, as ``eval_kit compare --example --by metadata.topic --page`` draws it."""

import re
from pathlib import Path

from eval_kit.protocols.compare import compare
from eval_kit.release import open_release

ROOT = Path(__file__).parent.parent
FOREST = ROOT / "docs" / "assets" / "forest.svg"
_COLOURS = re.compile(r"^  (--.*)$", re.MULTILINE)
_LOOKS = re.compile(r"^(?:\.plot|\.grid|\.zero|\.few|\.range|\.mark|\.swatch|\.s\d).*$", re.MULTILINE)
"""Lines of the pages' style sheet that figures need: its first three lines of colours are a light page's."""


def style(of: str) -> str:
    """The style sheet of a figure in a light page, for the element ``of``."""
    css = (ROOT / "eval_kit/pages/assets/page.css").read_text(encoding="utf-8")
    return f"<style>{of} {{ {' '.join(_COLOURS.findall(css)[:3])} }} {' '.join(_LOOKS.findall(css))}</style>"


def forest() -> str:
    """The gain of one example over the other on each topic, as a file of its own."""
    runs = [ROOT / "examples" / f"{name}.trec" for name in ("bm25", "noisy")]
    compared = compare(runs, open_release(ROOT / "examples"), measures=["nDCG@10"], by=["metadata.topic"])
    picture = compared.figures()[-1].picture
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    start, end = picture.split(">", 1)
    font = "<style>text { font-family: system-ui, sans-serif; }</style>"
    return f'{start} xmlns="http://www.w3.org/2000/svg">{style("svg")}{font}{paper}{end}\n'


if __name__ == "__main__":
    FOREST.write_text(forest(), encoding="utf-8")
