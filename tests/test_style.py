"""Style that no linter checks: how dense a package is with comprehensions."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LIMITS = {"eval_kit": 39.4, "builder": 37.1, "baselines": 25, "bench": 32.2}
"""Comprehensions in 1,000 lines: 25, or what a package has that was denser. Lower these, never raise them."""


@pytest.mark.parametrize("package", LIMITS)
def test_comprehensions_are_few(package: str):
    lines = comprehensions = 0
    for path in (ROOT / package).rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        lines += source.count("\n")
        comprehensions += sum(isinstance(node, COMPREHENSIONS) for node in ast.walk(ast.parse(source)))
    assert 1_000 * comprehensions / lines <= LIMITS[package]
