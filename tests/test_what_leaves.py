"""What commands write and print has nothing in it that its readers must not see: the table of SECURITY.md holds."""

import re
from collections.abc import Iterable
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import typer
from support.canaries import RECORDS, WORDS, found_in, write_evaluations, write_inputs, write_outputs
from support.cli_runs import jaxaudit
from support.language_models import save_model
from support.other_tools import write_lira

from jaxaudit.cli.app import app

SECURITY = Path(__file__).parents[1] / "SECURITY.md"
PRINTED = "what it prints"
NAMES = frozenset({"file", "class", "column"})
MAY_BE = {
    "anybody": frozenset[str](),
    "anybody who may know the names": NAMES,
    "who may know who is at risk": NAMES | {"record"},
    "nobody outside": NAMES | {"record", "output"},
    "who may have the records": NAMES | {"record", "value", "cell"},
    "nobody, until the deal must be shown": frozenset({"file", "column", "record"}),
    "you": NAMES | {"category"},
}
"""By the first words of the table's last column: the canaries that may be in such a file."""
SMALL = ("--recipe", "hidden=8", "--epochs", "2", "--recipe", "batch-size=50", "--recipe", "models-per-batch=20")
ENOUGH = ("--test-option", "holdout.mixed=20", "--test-option", "shadow.never=20", "--effort", "full")
PEOPLE = ("--label", "diagnosis", "--drop", "town", "--model", "nb")


class Row(NamedTuple):
    """A line of the table."""

    command: str
    files: tuple[str, ...]
    who: str


class Written(NamedTuple):
    """A file that a command wrote, or its output."""

    command: str
    name: str
    content: bytes
    numbers: dict[str, np.ndarray]


def table() -> list[Row]:
    """The table of SECURITY.md; of an empty first cell the command is that of the line above."""
    text = SECURITY.read_text(encoding="utf-8").partition("| command |")[2]
    rows: list[Row] = []
    commands: list[str] = []
    for line in text.splitlines()[2:]:
        if not line.startswith("|"):
            break
        command, files, _, who = (cell.strip() for cell in line.strip("|").split("|"))
        names = [*re.findall("`([^`]+)`", files), *([PRINTED] if PRINTED in files else [])]
        commands = re.findall("`([^`]+)`", command) or commands
        first = re.split(r"[.:]", who)[0]
        rows += [Row(each, tuple(names), first) for each in commands]
    return rows


def rows_of(written: Written) -> list[Row]:
    return [
        row for row in table() if row.command == written.command and any(fnmatch(written.name, f) for f in row.files)
    ]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    """What all commands write and print of inputs that are full of canaries, in a folder elsewhere."""
    home = tmp_path_factory.mktemp("home") / WORDS["folder"]
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("work"))
        return _run_all(home, home / WORDS["file"])


def _option(command: str, path: Path) -> str:
    """The option that names a file which is in no directory of a run."""
    if path.suffix == ".html":
        return "--out" if command == "report" else "--report"
    return str(Path(*path.parts[1:]))


def _run_all(home: Path, file: Path) -> list[Written]:
    first = write_inputs(home)
    numbers = {"value": first[:3], "output": first[:0]}
    written: list[Written] = []

    def run(command: str, *words: object, out: str = "", page: bool = True, printed: str = PRINTED) -> str:
        """Runs it, and keeps what it wrote; `out` is its new directory."""
        extra = ("--report", f"{out}.html") if out and page else ()
        before = {path for path in Path().rglob("*") if path.is_file()}
        done = jaxaudit(*command.split(), *map(str, words), *(("--out", out) if out else ()), *extra)
        assert done.code == 0, (command, words, done.err)
        for path in sorted(path for path in Path().rglob("*") if path.is_file() and path not in before):
            name = str(path.relative_to(out)) if out and path.is_relative_to(out) else _option(command, path)
            written.append(Written(command, name, path.read_bytes(), numbers))
        if done.out:
            written.append(Written(command, printed, done.out.encode(), numbers))
        return done.out

    share = ("--groups", "patient", "--members-share", "0.3", "--holdout-share", "0.4", "--seed", str(2**60 + 5))
    run("deal", f"{file}.csv", "--label", "diagnosis", *share, "--blind", out="of_csv", page=False)
    run("deal", f"{file}.npz", *share, "--blind", out="deal", page=False)
    run("deal", f"{file}.jsonl", *share, out="texts", page=False)
    Path("tables").mkdir()
    write_evaluations()
    run("scores lm-eval", "samples", "--query", "query", "--holdout", "holdout", "--out", "tables/samples.csv")
    for records in ("privleak", "verbmem"):
        log = ("muse.json", "--muse", records, "--unused", "other.json")
        run("scores open-unlearning", *log, "--out", f"tables/{records}.csv")
    if find_spec("torch") and find_spec("transformers"):
        save_model(home / "model")
        run("scores lm", home / "model", "texts/query.jsonl", "--out", "tables/scores.csv")
    roles = ("query", "holdout", "members")
    labels = {role: np.load(f"deal/{role}.npz")["y"] for role in roles}
    model = Path(f"{file}_model")
    model.mkdir()
    said = {role: write_outputs(model / f"{role}.csv", labels[role], 0.1 * (role == "members")) for role in roles}
    numbers["output"] = np.concatenate([each[:3] for each in said.values()])
    two, on_two = Path("two"), Path(f"{file}_on_two")
    for each in (two, on_two):
        each.mkdir()
    for role in roles[:2]:
        (two / f"{role}.npz").write_bytes(Path(f"deal/{role}.npz").read_bytes())
        (on_two / f"{role}.csv").write_bytes((model / f"{role}.csv").read_bytes())
    run("ks", "--deal", "deal", "--target", model, out="members")
    run("ks", "--deal", "deal", "--target", model, "--json", page=False, printed="--json")
    trained = ("--deal", two, "--calibration", f"{file}_other.npz", "--groups", "group")
    run("ks", *trained, "--target", on_two, *SMALL, *ENOUGH, "--tests", "all", out="trained")
    run("ks", "--shadows", "trained", "--target", on_two, out="banked")
    run("power", "--shadows", "trained", out="power")
    run("attack --shadows", "trained", "--target", model / "query.csv", out="bank_attacked")
    run("shadows train", *trained, *SMALL[:-2], "--models", 4, out="bank", page=False)
    run("shadows plan", *trained, "--models", 4, out="planned", page=False)
    count = sum(map(len, (labels["query"], labels["holdout"]))) + RECORDS
    np.save(f"{file}_one.npy", np.random.default_rng(1).normal(size=(count, 3)))
    run("shadows add", "planned", f"{file}_one.npy")
    write_lira(Path("experiments"), 4)
    run("shadows import", "experiments", out="imported", page=False)
    run("shadows show", "bank")
    run("shadows show", "bank", "--json", printed="--json")
    people = ("--data", f"{file}_people.csv", *PEOPLE)
    run("pdtp", *people, out="risks")
    run("attack", *people, "--targets", 4, "--iterations", 4, out="attacked")
    of_class = ("--data", f"{file}.npz", "--test-data", f"{file}_other.npz", "--class", f"{WORDS['class']}1")
    short = (*("--recipe", "hidden=8", "--recipe", "models-per-batch=2"), "--epochs", 1, "--seeds", 2)
    run("unlearn", *of_class, *short, "--attack-epochs", 1, out="unlearned")
    answers = np.random.default_rng(2).normal(size=(12, len(labels["query"]), 3))
    for name, models in (("mine", answers[:4]), ("again", answers[4:])):
        np.savez(f"{file}_{name}.npz", forget=models)
    np.save(f"{file}_labels.npy", labels["query"])
    files = ("--outputs", f"mine={file}_mine.npz", "--outputs", f"retrained={file}_again.npz")
    run("unlearn", *files, "--labels", f"{file}_labels.npy", out="scored")
    weights = ("--model", "mlp", "--recipe", "hidden=8", "--params", "unlearned/original-00.safetensors")
    run("efficacy", *weights, "--data", f"{file}.npz", "--reference", "untrained", out="measured")
    runs = ("members", "trained", "power", "bank_attacked", "risks", "attacked", "unlearned", "scored", "measured")
    for each in runs:
        run("cite", each)
        run("report", each, "--out", f"{each}_again.html")
    return written


def test_every_command_is_in_the_table():
    def names(group: typer.Typer, before: str = "") -> Iterable[str]:
        yield from (
            f"{before}{each.name or getattr(each.callback, '__name__', '')}" for each in group.registered_commands
        )
        for each in group.registered_groups:
            assert each.typer_instance is not None
            yield from names(each.typer_instance, f"{each.name} ")

    # The attacks that train and those of a bank write other files.
    assert {row.command for row in table()} == {*names(app), "attack --shadows"}
    assert {row.who for row in table()} <= set(MAY_BE)


@pytest.mark.outer
def test_every_file_that_a_command_writes_is_in_the_table(everything: list[Written]):
    assert {(each.command, each.name) for each in everything if len(rows_of(each)) != 1} == set()


@pytest.mark.outer
def test_no_file_has_more_in_it_than_its_readers_may_see(everything: list[Written]):
    leaks = set()
    for each in everything:
        found = found_in(each.name, each.content, each.numbers)
        allowed = frozenset[str]().union(*(MAY_BE[row.who] for row in rows_of(each)))
        leaks |= {(each.command, each.name, canary) for canary in found - allowed}
    assert leaks == set()


@pytest.mark.outer
def test_the_canaries_would_be_found(everything: list[Written]):
    """Each is somewhere where it may be; folders, groups, and arrays and columns that no command needs are nowhere."""
    found = {
        (each.command, each.name, canary)
        for each in everything
        for canary in found_in(each.name, each.content, each.numbers)
    }
    assert found >= {
        *(("deal", "deal.json", "file"), ("ks", "result.json", "file"), ("ks", "confidences.npz", "output")),
        *(("ks", "bank.json", "class"), ("pdtp", "result.json", "column"), ("pdtp", "table.txt", "record")),
        *(("pdtp", "--report", "record"), ("attack", "table.txt", "record"), ("efficacy", "records.csv", "record")),
    }
    assert any(canary == "value" for _, _, canary in found)
    assert not [where for where in found if where[2] == "cell" and where[1].endswith((".npz", ".csv"))]
    assert {"folder", "group"}.isdisjoint(canary for *_, canary in found)
