"""DESIGN.md is a map: short, and what it names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DESIGN = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", DESIGN, re.MULTILINE)
FILES = sorted(set(re.findall(r"`([\w/]+\.py)`", DESIGN)))


def functions(path: Path) -> set[str]:
    """The functions of a file, and the methods of its classes as `Class.method`."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    methods = {
        f"{node.name}.{method.name}"
        for node in body
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef)
    }
    return methods | {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_the_design_is_read_in_minutes_and_walks_a_dozen_steps():
    assert len(DESIGN.split()) <= 1000
    assert 12 <= len(STEPS) <= 14


@pytest.mark.parametrize(("file", "function"), STEPS)
def test_a_step_of_the_walk_exists(file: str, function: str):
    assert function in functions(ROOT / "jaxaudit" / file)


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_the_design_names_gives_its_reasons(file: str):
    path = ROOT / file if file.startswith("docs/") else ROOT / "jaxaudit" / file
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
