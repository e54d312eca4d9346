"""The rules of names in the package: what a newcomer must hold, an AST count (CONTRIBUTING.md, "What a change should
look like"); and files import one another one way.
"""

import ast
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NO_NOUNS = frozenset(
    {
        *("each", "found", "own", "said", "there", "given", "asked", "dealt", "those", "these", "them", "whose"),
        *("what", "both", "mine", "theirs", "others", "told", "known", "wanted", "made", "named", "like", "here"),
    }
)
"""Pronouns and participles: as names they say that there is a thing, and not what it is."""
SEVERAL = frozenset({"prepare", "pictures", "compared"})
"""Public functions of several modules, which are always reached through their module: a command's work, an audit's
charts."""


@cache
def nodes() -> list[tuple[str, Any]]:
    """All that stands in the files of the package, each file from its outermost node on."""
    files = sorted((ROOT / "jaxaudit").rglob("*.py"))
    return [(str(file.relative_to(ROOT)), node) for file in files for node in ast.walk(ast.parse(file.read_text()))]


def test_a_variable_is_the_noun_of_what_it_holds() -> None:
    """Every variable and parameter where it gets its value; fields of classes are names of results."""
    bodies = (node.body for _, node in nodes() if isinstance(node, ast.ClassDef))
    fields = {id(part.target) for body in bodies for part in body if isinstance(part, ast.AnnAssign)}
    found = []
    for file, node in nodes():
        variable = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields
        name = node.id if variable else node.arg if isinstance(node, ast.arg) else ""
        if name in NO_NOUNS:
            found.append((file, node.lineno, name))
    assert found == []


def test_a_name_is_defined_once_in_the_package() -> None:
    """Classes, and public functions of modules; what ends in Audit is a result, and no options of a command."""
    classes = [(file, node.name) for file, node in nodes() if isinstance(node, ast.ClassDef)]
    bodies = (node.body for _, node in nodes() if isinstance(node, ast.Module))
    functions = [part.name for body in bodies for part in body if isinstance(part, ast.FunctionDef)]
    for names in ([name for _, name in classes], [name for name in functions if not name.startswith("_")]):
        assert {name for name, count in Counter(names).items() if count > 1} <= SEVERAL
    assert [each for each in classes if each[1].endswith("Audit") and "/cli/" in each[0]] == []


def test_arguments_are_not_wrapped_to_be_unwrapped() -> None:
    calls = ((file, node.lineno, part) for file, node in nodes() if isinstance(node, ast.Call) for part in node.args)
    assert [call for call in calls if isinstance(call[2], ast.Starred) and isinstance(call[2].value, ast.Tuple)] == []


def test_imports_go_one_way() -> None:
    """Among files that are no doors, imports within functions included: a loop is a `CycleError`."""
    modules = {file.removesuffix(".py").replace("/", ".") for file, _ in nodes() if not file.endswith("__init__.py")}
    graph = {module: set[str]() for module in modules}
    for file, node in nodes():
        if isinstance(node, ast.ImportFrom) and (module := file.removesuffix(".py").replace("/", ".")) in modules:
            graph[module] |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)} & modules
    assert {*TopologicalSorter(graph).static_order()} == modules
