"""Writes `docs/api.md`, the reference, from the docstrings in the source: `python -m docs.api`."""

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
REFERENCE = Path(__file__).parent / "api.md"
HEAD = """# Reference

`python -m docs.api` writes this page from the docstrings; change it there. The tests run every example, and check the
shapes that signatures state. Units: log-probabilities and PDTP in nats, times in seconds.
"""
ROOMS = {
    "jaxaudit": "",
    "jaxaudit.models": "",
    "jaxaudit.learners": "",
    "jaxaudit.kernels": "",
    "jaxaudit.kernels.gradient_norms": "",
    "jaxaudit.kernels.ranking": "",
    "jaxaudit.kernels.binning": "",
    "jaxaudit.kernels.log_softmax": "",
    "jaxaudit.metrics": "*.py",
    "jaxaudit.attacks": "*.py",
    "jaxaudit.unlearning": "*.py",
}
"""Packages and modules in this order; with a pattern, each module of the package is shown with all it defines."""
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields|Example|Examples|Guarantees|Edge cases):$")
Definition = ast.FunctionDef | ast.ClassDef


def page() -> str:
    """The text of `docs/api.md`."""
    parts, contents, seen, anchors = [], [], set(), Counter()
    for room, pattern in ROOMS.items():
        modules = sorted(path_of(room).parent.glob(pattern)) if pattern else [path_of(room)]
        if pattern and path_of(room).with_suffix(".pyi").exists():
            modules.remove(path_of(room))
        for path in modules:
            module = room if path == path_of(room) else f"{room}.{path.stem}"
            found = [one for one in names(module) if one not in seen and not one[1].startswith("_")]
            shown = {name: text for home, name in found if (text := entry(home, name))}
            seen |= set(found)
            if shown:
                links = ", ".join(f"[{name}](#{anchor(name, anchors)})" for name in shown)
                contents.append(f"- `{module}`: {links}")
                parts += [f"## `{module}`\n", f"{markdown(ast.get_docstring(tree(path)) or '')}\n", *shown.values()]
    return "\n".join([HEAD, *contents, "", *parts]).rstrip() + "\n"


def anchor(name: str, taken: Counter[str]) -> str:
    """Where GitHub lets a link point: `PDTP` and `pdtp` are told apart by a number."""
    slug = name.lower()
    taken[slug] += 1
    return slug if taken[slug] == 1 else f"{slug}-{taken[slug] - 1}"


def path_of(module: str) -> Path:
    """The file of a module or package."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def names(module: str) -> list[tuple[str, str]]:
    """The public names of a module, each behind the one that defines it: of its stub or `__all__`, else all it has."""
    if (stub := path_of(module).with_suffix(".pyi")).exists():
        found = {alias.name for node in tree(stub).body if isinstance(node, ast.ImportFrom) for alias in node.names}
        return [(home(module, name), name) for name in sorted(found)]
    for node in tree(path_of(module)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [(home(module, name), name) for name in ast.literal_eval(node.value)]
    return [(module, node.name) for node in tree(path_of(module)).body if isinstance(node, Definition)]


def home(module: str, name: str) -> str:
    """The module in which a name is defined that `module` may only hand on."""
    stub = path_of(module).with_suffix(".pyi")
    for node in ast.walk(tree(stub if stub.exists() else path_of(module))):
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            source = f"{module}.{node.module}" if node.level else node.module
            return module if source == module else home(source, name)
    return module


def entry(module: str, name: str) -> str:
    """A function or class: its signature as it stands in the source, and its docstring; nothing for other names."""
    path = path_of(module)
    nodes = [node for node in tree(path).body if isinstance(node, Definition) and node.name == name]
    if not nodes or not ast.get_docstring(nodes[-1]):
        return ""
    lines = path.read_text(encoding="utf-8").splitlines()
    text = f"### `{name}`\n\nin `{module}`\n\n{described(nodes[-1], lines)}"
    if isinstance(nodes[-1], ast.ClassDef):
        for method in nodes[-1].body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_") and ast.get_docstring(method):
                text += f"\n#### `{name}.{method.name}`\n\n{described(method, lines)}"
    return text


def described(node: Definition, lines: list[str]) -> str:
    """The signature, with a class's fields, and the docstring."""
    start = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
    signature = lines[start : node.body[0].lineno - 1]
    if isinstance(node, ast.ClassDef):
        fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
        for part in fields:
            signature += lines[part.lineno - 1 : part.end_lineno]
    code = textwrap.dedent("\n".join(signature)).rstrip().removesuffix(":")
    return f"```python\n{code}\n```\n\n{markdown(ast.get_docstring(node) or '')}\n"


def markdown(docstring: str) -> str:
    """A docstring as Markdown: headings of its sections bold, their items a list, its examples code."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_rendered(docstring.splitlines()))).strip()


def _rendered(lines: list[str]) -> Iterator[str]:
    example = items = False
    for line in lines:
        if line.lstrip().startswith(">>>") and not example:
            example = True
            yield from ("", "```python")
        elif example and not line.strip():
            example = False
            yield "```"
        if example:
            yield line.strip() if items else line
        elif SECTION.match(line):
            items = True
            yield from ("", f"**{line.removesuffix(':')}**", "")
        elif items and re.match(r"    \S", line):
            yield f"- {_item(line.strip())}"
        elif items and line.startswith("     "):
            yield f"  {line.strip()}"
        else:
            items = items and not line.strip()
            yield line
    if example:
        yield "```"


def _item(text: str) -> str:
    name, colon, rest = text.partition(":")
    return f"`{name}`:{rest}" if colon and re.fullmatch(r"[\w, *]+", name) else text


def main() -> None:
    REFERENCE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
