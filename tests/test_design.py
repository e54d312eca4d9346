"""DESIGN.md is a map: short, and what it names exists; the package is imported without loops."""

import ast
import re
from pathlib import Path

import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

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


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted((ROOT / "jaxaudit").rglob("*.py"))
    if path.name != "__init__.py"
}


def imports(path: Path) -> set[str]:
    """The files of the package that a file imports anywhere."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    names = {name for node in nodes for item in node.names for name in (node.module, f"{node.module}.{item.name}")}
    return {name for name in names if name in MODULES}


def test_imports_go_one_way():
    places = {name: place for place, name in enumerate(MODULES)}
    edges = [(places[name], places[other]) for name, path in MODULES.items() for other in imports(path)]
    rows, columns = zip(*edges, strict=True)
    graph = csr_array(([1] * len(edges), (rows, columns)), shape=(len(MODULES), len(MODULES)))
    count, parts = connected_components(graph, connection="strong")
    loops = [
        tuple(name for name, part in zip(MODULES, parts, strict=True) if part == number) for number in range(count)
    ]
    found = {tuple(name.rpartition(".")[2] for name in loop) for loop in loops if len(loop) > 1}
    assert not found
