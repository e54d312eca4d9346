"""Do the tests notice? One small error at a time is made in the package, and the tests that run there must fail.

Cosmic Ray makes the errors: another operator, another number, a condition negated, a loop that does nothing. Which
modules, which places and which errors is drawn with a fixed seed. A test is run for an error if it ran a line of the
same function before, by coverage; the quickest first, up to `SECONDS` of tests.

    python -m pip install cosmic-ray pytest-cov
    python -m pytest --outer tests jaxaudit --cov=jaxaudit --cov-context=test --junitxml=times.xml \
        -n auto --dist loadfile
    python bench/mutations.py --times times.xml --out mutations.json [--processes 2]

Without `--outer tests jaxaudit`, and with `--inner` here, it is the inner circle that must notice: only tests of
`times.xml` are run. With `--again mutations.json` the errors are those of an earlier run, wherever a module has stayed
as it was.

Without an error all of these tests must pass in the copies of the tree that are used; else nothing is counted.

Annotations, imports and messages are spared: no test is there for them. Coverage does not see into processes that a
test starts, so errors that only such a test would notice count as survivors.
"""

import argparse
import ast
import importlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent
SEED, EACH = 7, 30
ROOMS = (
    *("attacks unlearning", "audits", "cli", "data", "ensemble", "kernels", "learners models", "metrics"),
    *("report plots", "runs"),
)
"""A module is drawn from each."""
LEAST_LINES = 120
SECONDS = 20.0
"""Of tests that one error may take, by their times without it."""
LIMIT = 150.0
"""Seconds of the clock; an error that makes a test hang is one that it notices."""
NO_TESTS = int(pytest.ExitCode.NO_TESTS_COLLECTED)


class Mutant(NamedTuple):
    """An error: the module, the operator and which of its places; the line as it was, and as it is."""

    module: str
    operator: str
    occurrence: int
    line: int
    before: str
    after: str


def modules() -> list[Path]:
    """The ten modules."""
    draw, found = random.Random(SEED), []
    for rooms in ROOMS:
        paths = sorted(path for room in rooms.split() for path in (ROOT / "jaxaudit" / room).rglob("*.py"))
        found.append(draw.choice([path for path in paths if len(path.read_text().splitlines()) >= LEAST_LINES]))
    return found


def spared(source: str) -> set[int]:
    """Lines of annotations, imports, decorators of typing, docstrings and messages of errors."""
    lines: set[int] = set()

    def add(node: ast.AST | None) -> None:
        if node is not None:
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]

    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                # From `def` to the line before the body: arguments, their types and their defaults.
                lines.update(range(node.lineno, node.body[0].lineno))
            case ast.AnnAssign() if node.value is None:
                add(node)
            case ast.Import() | ast.ImportFrom() | ast.Raise() | ast.Assert():
                add(node)
            case ast.If() if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                add(node)
    return lines


def mutants(path: Path) -> list[Mutant]:
    """Errors of one module: `EACH` places at random, and of each place one error at random."""
    trees, plugins = (importlib.import_module(f"cosmic_ray.{name}") for name in ("ast", "plugins"))
    source = path.read_text()
    leave, nodes = spared(source), list(trees.ast_nodes(trees.get_ast_from_path(path)))
    at: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    for name in plugins.operator_names():
        if "Variable" in name:
            continue
        operator = plugins.get_operator(name)()
        places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, place in enumerate(places):
            if place[0] not in leave:
                at[place].append((name, occurrence))
    draw, found = random.Random(f"{SEED} {path.name}"), []
    for place in draw.sample(sorted(at), len(at)):
        name, occurrence = draw.choice(at[place])
        changed = _with_error(source, name, occurrence)
        if changed is None or not _other_program(source, changed):
            continue
        pairs = zip(source.splitlines(), changed.splitlines(), strict=False)
        before, after = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
        found.append(Mutant(str(path.relative_to(ROOT)), name, occurrence, place[0], before.strip(), after.strip()))
        if len(found) == EACH:
            break
    return found


def _with_error(source: str, operator: str, occurrence: int) -> str | None:
    mutating, plugins = (importlib.import_module(f"cosmic_ray.{name}") for name in ("mutating", "plugins"))
    try:
        return mutating.mutate_code(source, plugins.get_operator(operator)(), occurrence)
    except AttributeError:
        # Cosmic Ray 8.7 cannot replace an exception that has a dot in its name.
        return None


def _other_program(source: str, changed: str) -> bool:
    """Whether the error is one: a program that Python reads, and reads otherwise."""
    try:
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def tests_of(mutant: Mutant, covered: dict[str, dict[int, set[str]]], times: dict[str, float]) -> list[str]:
    """The tests that ran a line of the function, or of the module where the line is in no function; quickest first."""
    lines = covered.get(mutant.module, {})
    around = [
        node
        for node in ast.walk(ast.parse((ROOT / mutant.module).read_text()))
        if isinstance(node, ast.FunctionDef) and node.lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    if around:
        # The outermost: what is traced once is run by the first test that comes, whichever test looks at it.
        first = min(around, key=lambda node: node.lineno)
        wanted = range(first.body[0].lineno, (first.end_lineno or 0) + 1)
    else:
        wanted = range(1, 1 << 20)
    tests = {test for line, found in lines.items() if line in wanted for test in found if test in times}
    chosen, left = [], SECONDS
    for test in sorted(tests, key=lambda test: (times[test], test)):
        left -= times[test]
        if left < 0 and chosen:
            break
        chosen.append(test)
    return chosen


def coverage_of(database: Path, paths: list[Path]) -> dict[str, dict[int, set[str]]]:
    """By module and line, the tests that ran it."""
    lines_of = importlib.import_module("coverage.numbits").numbits_to_nums
    found: dict[str, dict[int, set[str]]] = {}
    with sqlite3.connect(database) as connection:
        for path in paths:
            rows = connection.execute(
                "select context.context, numbits from line_bits join file on file.id = file_id"
                " join context on context.id = context_id where file.path like ?",
                (f"%/{path.relative_to(ROOT)}",),
            )
            lines: dict[int, set[str]] = defaultdict(set)
            for context, numbits in rows:
                for line in lines_of(numbits):
                    lines[line].add(context.partition("|")[0])
            found[str(path.relative_to(ROOT))] = lines
    return found


def times_of(path: Path) -> dict[str, float]:
    """Seconds of each test of an earlier run."""
    found = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        file = case.get("classname", "").replace(".", "/") + ".py"
        found[f"{file}::{case.get('name')}"] = float(case.get("time", 1))
    return found


class Chosen:
    """A plugin that leaves these tests and no others."""

    def __init__(self, tests: list[str]) -> None:
        self.tests = set(tests)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]


def start(copy: Path, mutant: Mutant | None, tests: list[str], inner: bool) -> int:
    """A child of this process, which has imported what takes long, runs the tests in a copy of the tree."""
    if mutant is not None:
        source = (ROOT / mutant.module).read_text()
        changed = _with_error(source, mutant.operator, mutant.occurrence)
        assert changed is not None, "it was drawn since it changes the module"
        (copy / mutant.module).write_text(changed)
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setsid()
        with open(os.devnull, "rb") as nothing, open(copy / "said", "wb") as said:
            for stream, file in enumerate((nothing, said, said)):
                os.dup2(file.fileno(), stream)
        os.chdir(copy)
        paths = [str(copy), str(copy / "tests")]
        sys.path[:0], sys.dont_write_bytecode = paths, True
        os.environ.update(PYTHONPATH=os.pathsep.join(paths), PYTHONDONTWRITEBYTECODE="1")
        stop = () if mutant is None else ("-x",)
        # Plugins of pytest were imported before pytest could look into them.
        plain = ("-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-o", f"cache_dir={ROOT / '.pytest_cache'}")
        files = sorted({test.partition("::")[0] for test in tests})
        where = ("-o", f"testpaths={' '.join(files)}") if inner else ("--outer", *files)
        code = int(pytest.main([*stop, *plain, *where], plugins=[Chosen(tests)]))
    except BaseException:
        (copy / "said").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def outcomes(asked: list[tuple[Mutant, list[str]]], processes: int, inner: bool) -> Iterator[tuple[int, str]]:
    """The place of each error in `asked`, and what became of it, as they end.

    Raises:
        SystemExit: a test fails without an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder) / str(place) for place in range(processes)]
        for copy in copies:
            for name in ("jaxaudit", "tests", "examples", "experiments", "docs", "bench"):
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
            for file in ROOT.glob("*.*"):
                if file.is_file():
                    shutil.copy(file, copy)
        wanted = sorted({test for _, tests in asked for test in tests})
        if os.waitpid(start(copies[0], None, wanted, inner), 0)[1]:
            raise SystemExit((copies[0] / "said").read_text())
        waiting, running = deque(range(len(asked))), {}
        while waiting or running:
            while waiting and copies:
                place = waiting.popleft()
                if not asked[place][1]:
                    yield place, "no test"
                    continue
                copy = copies.pop()
                running[start(copy, *asked[place], inner)] = (place, copy, time.monotonic() + LIMIT)
            time.sleep(0.05)
            for child, (place, copy, until) in list(running.items()):
                ended, status = os.waitpid(child, os.WNOHANG)
                late = not ended and time.monotonic() > until
                if late:
                    os.killpg(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                if ended or late:
                    del running[child]
                    shutil.copy(ROOT / asked[place][0].module, copy / asked[place][0].module)
                    copies.append(copy)
                    survived = ended and os.waitstatus_to_exitcode(status) in (0, NO_TESTS)
                    yield place, "late" if late else "survived" if survived else "killed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=Path, required=True, help="JUnit file of the run with coverage")
    parser.add_argument("--coverage", type=Path, default=ROOT / ".coverage")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--again", type=Path, help="what an earlier run wrote: its modules are taken, not drawn")
    parser.add_argument("--inner", action="store_true", help="as the inner circle runs alone")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    times = times_of(given.times)
    paths = [ROOT / path for path in json.loads(given.again.read_text())["modules"]] if given.again else modules()
    covered = coverage_of(given.coverage, paths)
    asked = [(mutant, tests_of(mutant, covered, times)) for path in paths for mutant in mutants(path)]
    # What every test imports, once.
    for name in [
        "jax",
        "flax.nnx",
        "optax",
        "scipy.stats",
        "sklearn",
        "hypothesis",
        "jaxtyping",
        "beartype",
        "pyarrow",
    ]:
        importlib.import_module(name)
    found: list[dict[str, Any]] = [{} for _ in asked]
    for place, outcome in outcomes(asked, given.processes, given.inner):
        mutant, tests = asked[place]
        found[place] = {**mutant._asdict(), "tests": len(tests), "outcome": outcome}
        done = Counter(each["outcome"] for each in found if each)
        print(f"\r{sum(done.values())} of {len(asked)}: {dict(done)}", end="", file=sys.stderr, flush=True)
    by_module: dict[str, Counter[str]] = defaultdict(Counter)
    for each in found:
        by_module[each["module"]][each["outcome"]] += 1
    each_in_a_line = ",\n".join(f"  {json.dumps(each)}" for each in found)
    text = f'{{\n "modules": {json.dumps(by_module)},\n "mutants": [\n{each_in_a_line}\n ]\n}}\n'
    given.out.write_text(text)
    print()
    for module, counts in by_module.items():
        print(f"{module:60} {dict(counts)}")


if __name__ == "__main__":
    main()
