"""Files import each other in one direction, imports inside functions and of types included."""

import ast
from pathlib import Path

from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).parent.parent
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted((ROOT / "jaxaudit").rglob("*.py"))
    if path.name != "__init__.py"
}
MEANT = {
    # A network of another process is made again by its factory.
    ("adapters", "bridge", "causal", "keras_model", "linen", "module", "torch_module"),
    # Matplotlib and Flax are loaded where they are needed, and no sooner.
    ("figure", "result"),
    ("taught", "teachers"),
    # The second file has the closed form of the class in the first one.
    ("naive_bayes", "naive_bayes_leave_one_out"),
}
"""Loops that have a reason."""


def imports(path: Path) -> set[str]:
    """The files of the package that a file imports anywhere."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    names = {name for node in nodes for item in node.names for name in (node.module, f"{node.module}.{item.name}")}
    return {name for name in names if name in FILES}


def test_imports_go_one_way():
    places = {name: place for place, name in enumerate(FILES)}
    edges = [(places[name], places[other]) for name, path in FILES.items() for other in imports(path)]
    rows, columns = zip(*edges, strict=True)
    graph = csr_array(([1] * len(edges), (rows, columns)), shape=(len(FILES), len(FILES)))
    count, parts = connected_components(graph, connection="strong")
    loops = [tuple(name for name, part in zip(FILES, parts, strict=True) if part == number) for number in range(count)]
    found = {tuple(name.rpartition(".")[2] for name in loop) for loop in loops if len(loop) > 1}
    assert found == MEANT
