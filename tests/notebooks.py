"""A notebook's cells, run one after the other; ``python tests/notebooks.py FILE`` writes their outputs anew.

Cells run with ``exec`` in one namespace; what is shown is what they print, and the value of the last line where that is
an expression: a picture as SVG, anything else as text.
"""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

SVG = "image/svg+xml"


def shown(path: Path) -> list[tuple[str, str]]:
    """The code of every code cell, and what the file says it shows."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    return [("".join(cell["source"]), "".join(map(_text, cell["outputs"]))) for cell in codes]


def _text(output: dict[str, Any]) -> str:
    return "".join(output["text"] if "text" in output else output["data"][SVG])


def run(codes: list[str]) -> list[str]:
    """Run cells one after the other; what each shows."""
    namespace: dict[str, Any] = {}
    return [_run(code, namespace) for code in codes]


def _run(code: str, namespace: dict[str, Any]) -> str:
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace) if last else None
    if hasattr(value, "_repr_svg_"):
        return value._repr_svg_()
    return output.getvalue() + (f"{value!r}\n" if value is not None else "")


if __name__ == "__main__":
    file = Path(sys.argv[1])
    document = json.loads(file.read_text(encoding="utf-8"))
    codes = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    for cell, text in zip(codes, run([code for code, _ in shown(file)]), strict=True):
        lines = text.splitlines(keepends=True)
        stream = {"name": "stdout", "output_type": "stream", "text": lines}
        picture = {"data": {SVG: lines}, "metadata": {}, "output_type": "display_data"}
        cell["outputs"] = [picture if text.startswith("<svg") else stream] if lines else []
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
