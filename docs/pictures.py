"""The pictures of README and docs: ``python docs/pictures.py [PAGE.html …]``.

Without pages it draws ``docs/assets/forest.svg``, as ``eval_kit compare examples/*.trec --release examples --by
metadata.topic`` does. The top of each page, such as a model's card, becomes ``docs/assets/<page>.png``, by Chromium and
Pillow, in so few colours that it stays below 60 kB.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from eval_kit.protocols.compare import compare
from eval_kit.release import open_release

ROOT = Path(__file__).parent.parent
ASSETS = ROOT / "docs" / "assets"
WIDTH, HEIGHT, COLOURS = 1240, 760, 64
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


def shot(page: Path, picture: Path) -> None:
    """The top of a page as a picture."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.png"
        size = (f"--window-size={WIDTH},{HEIGHT}", "--hide-scrollbars", f"--screenshot={raw}")
        subprocess.run(["chromium", "--headless", "--no-sandbox", *size, page.resolve().as_uri()], check=True)
        Image.open(raw).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        shot(page, ASSETS / f"{page.stem}.png")
    if not sys.argv[1:]:
        (ASSETS / "forest.svg").write_text(forest(), encoding="utf-8")
