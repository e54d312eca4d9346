"""The rules of names in the package: what a newcomer must hold, an AST count (CONTRIBUTING.md, "What a change should
look like").
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "jaxaudit"
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
TREES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def places(nodes: Iterator[tuple[Path, ast.AST, str]]) -> list[str]:
    """Where these nodes stand, with a name."""
    return [f"{path.relative_to(PACKAGE.parent)}:{getattr(node, 'lineno', 0)}: {name}" for path, node, name in nodes]


def variables() -> Iterator[tuple[Path, ast.AST, str]]:
    """Every variable and parameter where it gets its value; fields of classes are names of results."""
    for path, tree in TREES.items():
        fields = {
            id(field.target)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for field in node.body
            if isinstance(field, ast.AnnAssign)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                yield path, node, node.arg
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
                yield path, node, node.id


def defined(kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> dict[str, list[str]]:
    """Where classes or public functions of modules are defined, by name."""
    found = defaultdict[str, list[str]](list)
    for path, tree in TREES.items():
        for node in ast.walk(tree) if kind is ast.ClassDef else tree.body:
            if isinstance(node, kind) and (kind is ast.ClassDef or not node.name.startswith("_")):
                found[node.name] += places(iter([(path, node, node.name)]))
    return found


def test_a_variable_is_the_noun_of_what_it_holds() -> None:
    assert not places(entry for entry in variables() if entry[2] in NO_NOUNS)


@pytest.mark.parametrize("kind", [ast.ClassDef, ast.FunctionDef])
def test_a_name_is_defined_once_in_the_package(kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> None:
    assert not {name: where for name, where in defined(kind).items() if len(where) > 1 and name not in SEVERAL}


def test_arguments_are_not_wrapped_to_be_unwrapped() -> None:
    calls = (
        (path, node, "*(...)")
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and any(isinstance(part, ast.Starred) and isinstance(part.value, ast.Tuple) for part in node.args)
    )
    assert not places(calls)


def test_an_audit_is_a_result_and_no_options_of_a_command() -> None:
    """A class that ends in Audit is a result; options of a command end otherwise."""
    assert not [where for name, where in defined(ast.ClassDef).items() if name.endswith("Audit") and "cli/" in where[0]]
