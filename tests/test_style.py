"""Style that no linter checks: how dense a package is with comprehensions, and names that are no nouns."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
PACKAGES = ("eval_kit", "builder", "baselines", "bench")
MOST = 25
"""Comprehensions in 1,000 lines."""
PARTICIPLES = 4
"""Bare participles in 1,000 names: ``compared`` says what was done to a thing, not what it is. Lower it too."""
IRREGULAR = {"built", "chosen", "done", "drawn", "found", "given", "held", "kept", "known", "left", "lost", "made"} | {
    "own",
    "seen",
    "sent",
    "shown",
    "spent",
    "taken",
    "told",
    "written",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_comprehensions_are_few(package: str):
    lines = comprehensions = 0
    for path in (ROOT / package).rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        lines += source.count("\n")
        comprehensions += sum(isinstance(node, COMPREHENSIONS) for node in ast.walk(ast.parse(source)))
    assert 1_000 * comprehensions / lines <= MOST


def test_names_are_nouns():
    names = participles = 0
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if name := bound(node):
                names += 1
                participles += is_participle(name)
    assert 1_000 * participles / names <= PARTICIPLES


def bound(node: ast.AST) -> str | None:
    """The name that a node binds, if it does: a variable's, an argument's, a function's or a class's."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    return node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else None


def is_participle(name: str) -> bool:
    bare = name.strip("_")
    return bare in IRREGULAR or (
        bare.endswith("ed") and "_" not in bare and bare.lower() not in {"seed", "need", "feed", "speed", "embed"}
    )
