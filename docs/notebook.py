"""A notebook as Markdown, and run again: ``python docs/notebook.py FILE`` writes its outputs anew.

Cells run with ``exec`` in one namespace, in the notebook's folder; what is shown is what they print, and the value of
the last line where that is an expression.
"""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def markdown(path: Path) -> str:
    """The notebook as a page: its texts, its code and what the code shows."""
    parts = []
    for cell in _read(path)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [f"```text\n{_text(output).rstrip()}\n```" for output in cell["outputs"]]
    link = f"This page is a [notebook]({path.name}); the tests run it."
    return "\n\n".join([*parts, link]) + "\n"


def shown(path: Path) -> list[tuple[str, str]]:
    """The code of every code cell, and what the file says it shows."""
    cells = [cell for cell in _read(path)["cells"] if cell["cell_type"] == "code"]
    return [("".join(cell["source"]), "".join(map(_text, cell["outputs"]))) for cell in cells]


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
    return output.getvalue() + (f"{value!r}\n" if value is not None else "")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _text(output: dict[str, Any]) -> str:
    return "".join(output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"])


def _with_outputs(document: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
    codes = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    for cell, text in zip(codes, outputs, strict=True):
        lines = text.splitlines(keepends=True)
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    return document


if __name__ == "__main__":
    file = Path(sys.argv[1])
    document = _with_outputs(_read(file), run([code for code, _ in shown(file)]))
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
