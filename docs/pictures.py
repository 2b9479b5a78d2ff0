"""``docs/assets/forest.svg``, as ``eval_kit compare --example --by metadata.topic --page`` draws it."""

from pathlib import Path

from eval_kit import svg
from eval_kit.protocols.compare import compare
from eval_kit.release import open_release

ROOT = Path(__file__).parent.parent
FOREST = ROOT / "docs" / "assets" / "forest.svg"


def forest() -> str:
    """The gain of one example over the other on each topic, as a file of its own."""
    runs = [ROOT / "examples" / f"{name}.trec" for name in ("bm25", "noisy")]
    compared = compare(runs, open_release(ROOT / "examples"), measures=["nDCG@10"], by=["metadata.topic"])
    return f"{svg.standalone(compared.figures()[-1].picture)}\n"


if __name__ == "__main__":
    FOREST.write_text(forest(), encoding="utf-8")
