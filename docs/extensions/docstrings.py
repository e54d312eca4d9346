"""Docstrings and signatures of the API pages: types and shapes as in the source, names and papers as links.

What is shown was run. README and site show no output that a program did not write: a test runs every session again and
compares words and numbers (`tests/readme_sections.py` writes them), tutorials run when the site is built, and how-to
pages include whole files of `examples/`, which tests run. The API pages list names by hand, in the order in which a
reader wants them; a test holds the lists against the stubs. Docstrings stay Markdown: `docs/extensions/docstrings.py`
turns them into what Sphinx reads, shows signatures as they are written (shapes included), and makes links of names and
papers. A docstring that cannot be read fails the build. Pages that the repository has anyway (this one, the change log,
the evidence) are copied into the site, not written twice.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

ROOMS = (
    "jaxaudit",
    "jaxaudit.metrics",
    "jaxaudit.kernels",
    "jaxaudit.learners",
    "jaxaudit.models",
    "jaxaudit.attacks",
    "jaxaudit.attacks.records",
    "jaxaudit.unlearning",
    "jaxaudit.ensemble",
    "jaxaudit.data",
    "jaxaudit.audits.ks.tests_of_use",
)
"""The packages whose names are public; a name of several stands under the first."""
ELSEWHERE = {
    "np.ndarray": "numpy.ndarray",
    "Array": "jax.Array",
    "Figure": "matplotlib.figure.Figure",
    "Path": "pathlib.Path",
}
"""What signatures call names of other projects."""
SECTION = re.compile(
    r"^ *(Args|Attributes|Raises|Returns|Yields|Examples?|Guarantees|Edge cases|Where .*):$", re.MULTILINE
)
RULE = re.compile(r"^ *\|-", re.MULTILINE)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
REFERENCES = Path(__file__).parent.parent / "references.md"
CITED = re.compile(
    r"\b(?P<first>[A-Z][\w-]+)(?:,\s[A-Z][\w-]+)*(?:\s(?:&|and)\s[A-Z][\w-]+|\set\sal\.)?,?\s"
    r"(?P<opened>\()?(?P<year>(?:19|20)\d\d)\b(?(opened)\))"
)


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    app.connect("autodoc-skip-member", _skipped)
    app.connect("missing-reference", _reference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def names_of(package: ModuleType) -> list[str]:
    """The public names of a room: its list, or what it imports under the same name."""
    imported = [name for name, one in vars(package).items() if not (name.startswith("_") or inspect.ismodule(one))]
    return list(getattr(package, "__all__", imported))


@cache
def public() -> dict[int, str]:
    """The path under which each public function, class and value is documented, by its identity."""
    found: dict[int, str] = {}
    for room in ROOMS:
        package = import_module(room)
        for name in names_of(package):
            found.setdefault(id(getattr(package, name)), f"{room}.{name}")
    return found


@cache
def known_as() -> dict[str, str]:
    """The same by every name that text and signatures may use: alone, with its room, or with its module."""
    names: dict[str, str] = {}
    for room in ROOMS:
        package = import_module(room)
        for name in names_of(package):
            one = getattr(package, name)
            if inspect.ismodule(one):
                continue
            path = public()[id(one)]
            module = getattr(one, "__module__", room)
            for alias in (name, f"{room}.{name}", f"{module}.{name}", f"ja.{name}", f"{room.partition('.')[2]}.{name}"):
                names.setdefault(alias, path)
    return names


@cache
def papers() -> frozenset[str]:
    """The labels of the page of references."""
    return frozenset(re.findall(r"^\((\w+)\)=$", REFERENCES.read_text(encoding="utf-8"), re.MULTILINE))


def _signature(app: Any, what: str, name: str, obj: Any, options: Any, args: str | None, back: str | None) -> Any:
    """Parameters and types as they are written, `Float[Array, "models n"]`, not what Python makes of them."""
    if what == "class":
        if getattr(obj, "_is_protocol", False) or not (inspect.isclass(obj) and args):
            return "", None
        fields = {field: text for one in reversed(obj.__mro__) for field, text in _fields(one)}
        return _of_class(obj, fields), None
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(obj))).body[0]
    except (OSError, TypeError, SyntaxError):
        return args, back
    if not isinstance(node, ast.FunctionDef):
        return args, back
    if what == "method" and node.args.args and node.args.args[0].arg in ("self", "cls"):
        del node.args.args[0]
    _with_values(node.args, obj)
    return _shapes(f"({ast.unparse(node.args)})"), _shapes(ast.unparse(node.returns)) if node.returns else None


def _with_values(arguments: ast.arguments, function: Any) -> None:
    """Named constants that are defaults become the numbers and texts that they are."""
    given = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    positional = [*arguments.posonlyargs, *arguments.args]
    first = len(positional) - len(arguments.defaults)
    for defaults, parameters in (
        (arguments.defaults, positional[first:]),
        (arguments.kw_defaults, arguments.kwonlyargs),
    ):
        for place, parameter in enumerate(parameters):
            if default := defaults[place]:
                defaults[place] = _valued(default, given.get(parameter.arg))


def _valued(default: ast.expr, value: Any) -> ast.expr:
    """A default; a named constant as the number or text that it is."""
    named = isinstance(default, ast.Name | ast.Attribute) and type(value) in (int, float, str)
    return ast.Constant(value) if named else default


def _shapes(text: str) -> str:
    """Without the blank by which linters take a shape of one axis for a text: `' n'` becomes `'n'`."""
    return re.sub(r"(?<=, )' (\w+')", r"'\1", text)


def _fields(one: type) -> Iterator[tuple[str, str]]:
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
    except (OSError, TypeError, SyntaxError):
        return
    for part in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            value = f" = {ast.unparse(_valued(part.value, getattr(one, part.target.id, None)))}" if part.value else ""
            yield part.target.id, f"{part.target.id}: {ast.unparse(part.annotation)}{value}"
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            for each in (*part.args.args[1:], *part.args.kwonlyargs):
                yield each.arg, ast.unparse(each) if each.annotation else each.arg


def _of_class(obj: type, fields: dict[str, str]) -> str:
    try:
        given = inspect.signature(obj).parameters
    except ValueError:
        return ""
    words, starred = [], False
    for parameter in given.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            words.append("*")
        words.append(fields.get(parameter.name, str(parameter)))
    return _shapes(f"({', '.join(words)})")


def _docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A docstring, which is written as Markdown is, in the markup that Sphinx reads; before napoleon takes it apart."""
    if what == "data":
        lines[:] = [*inspect.cleandoc(_beside(name)).split("\n"), ""]
    own = set(_parameters(obj))
    parts, code = [], False
    for part in re.split(r"\n{2,}", "\n".join(lines)):
        text, prompt, example = part.partition(">>>")
        code = part.startswith("    ") and (code or (bool(parts) and parts[-1].endswith("::")))
        if code:
            parts.append(part)
            continue
        if RULE.search(text):
            text = _table(text, own)
        else:
            text = _text(text, own)
            if text.endswith(":") and not SECTION.search(text):
                text += ":"
        parts.append(text + prompt + example)
    lines[:] = "\n\n".join(_unindented_ends(parts)).split("\n")


def _unindented_ends(parts: list[str]) -> Iterator[str]:
    """Two colons before what is indented alone."""
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        yield part if not part.endswith("::") or after.startswith("    ") else part[:-1]


def _parameters(obj: Any) -> Iterator[str]:
    try:
        yield from inspect.signature(obj).parameters
    except (TypeError, ValueError):
        return


def _beside(path: str) -> str:
    """The text below a constant, wherever in its room it is made."""
    room, _, name = path.rpartition(".")
    folder = Path(import_module(room).__file__ or "").parent
    for source in (*folder.rglob("*.py"), folder.parent / "randomness.py"):
        body = ast.parse(source.read_text(encoding="utf-8")).body
        for node, after in pairwise(body):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if name in [one.id for one in targets if isinstance(one, ast.Name)] and isinstance(after, ast.Expr):
                return ast.literal_eval(after.value)
    return ""


def _text(text: str, own: set[str]) -> str:
    """Names as links or code, papers as links, and no other character that means something."""
    pieces = SPAN.split(text)
    for place in range(0, len(pieces), 2):
        plain = re.sub(r"\|", r"\\|", pieces[place])
        plain = re.sub(
            r"(?<![\w*])(\*\*?)(?=\w)([^*\n]+)\1(?!\w)|\*", lambda found: found[0] if found[1] else r"\*", plain
        )
        pieces[place] = CITED.sub(_cited, plain)
    for place in range(1, len(pieces), 2):
        word = pieces[place]
        path = None if word in own else known_as().get(word.removesuffix("()"))
        pieces[place] = f":py:obj:`{word} <{path}>`" if path else f"``{word}``"
    return "".join(pieces)


def _table(text: str, own: set[str]) -> str:
    rows = [re.split(r"\s*(?<!\\)\|\s*", line.strip().strip("|").strip()) for line in text.strip().split("\n")]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (rows[0], *rows[2:]):
        lines += [f"   {'* -' if not place else '  -'} {_text(cell, own)}" for place, cell in enumerate(row)]
    return "\n".join(lines)


def _cited(found: re.Match[str]) -> str:
    label = f"{found['first'].lower()}{found['year']}"
    return found[0] if label not in papers() else f":ref:`{' '.join(found[0].split())} <{label}>`"


def _skipped(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Fields of a named tuple are told by its own text."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def _reference(app: Any, env: Any, node: Any, content: Any) -> Any:
    """A name as signatures have it leads to where it is documented; a type that is not documented is text."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    path = known_as().get(target) or known_as().get(target.rpartition(".")[2])
    if path and path != target:
        domain = env.get_domain("py")
        if found := domain.resolve_xref(env, node["refdoc"], app.builder, "obj", path, node, content):
            return found
    if elsewhere := ELSEWHERE.get(target):
        from sphinx.ext.intersphinx import resolve_reference_detect_inventory

        node["reftarget"] = elsewhere
        if found := resolve_reference_detect_inventory(env, node, content):
            return found
    return content if node["reftype"] == "class" else None
