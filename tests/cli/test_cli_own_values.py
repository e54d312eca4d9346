"""`--tests file.py:Name` and `--attacks file.py:Name`: a test of use, and an attack on records, of one's own."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import cli_runs
from support.banks import QUERY, RECORDS, planned, target, train
from support.cli_runs import QUICK, SHORT, intercept, jaxaudit, own_modules
from support.deals import write_deal, write_model
from support.details import details_of

from jaxaudit import load_bank
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.own_code import source_hashes

ROOT = Path(__file__).parents[2]
EXAMPLE = "elsewhere/own_test.py:SurenessTest"
ATTACK = """
from dataclasses import dataclass
from jaxaudit.attacks.records.attack import Least

@dataclass(frozen=True)
class Above:
    name: str = "above"
    meaning: str = "Log-odds above those of all models."
    source: str = "this file"
    least: Least = Least()

    def scores(self, shadowed):
        return (shadowed.attacked - shadowed.models.mean(axis=0)).mean(axis=1)

named_lira = Above("lira")
twice = Above()
spaced = Above("a/../b")
class Silent:
    name = "silent"
class Sized:
    def __init__(self, size):
        self.size = size
"""
HELD = """
from own_test import *

@dataclass(frozen=True)
class HeldTest(SurenessTest):
    \"\"\"By the models that a bank has.\"\"\"
    name: ClassVar[str] = "held"
    title: ClassVar[str] = "held test"

    def kinds(self):
        return ("mixed",)

    def judge(self, key, said, evidence, common, level):
        n = evidence.queries
        surer = float(said.log_odds[:n].mean() - said.log_odds[n:].mean())
        confidence = ja.Confidence("weak", "Tried on nothing.")
        finding = ja.Finding("inconclusive", "open", f"Surer by {surer:.3f}.", (), confidence)
        return ja.Judgement(self.name, self.title, finding, rests_on=frozenset(), checks=())
"""


@pytest.fixture
def own(sets: Path) -> Iterator[Path]:
    """A working folder, and a test in the file of another one that lies outside of it."""
    with own_modules(sets):
        Path("elsewhere").mkdir()
        shutil.copy(ROOT / "examples/own_test.py", "elsewhere")
        yield sets


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bank`, and outputs of a target that used its query set."""
    folder = tmp_path_factory.mktemp("made")
    train(load_bank(planned(folder / "bank", 20, 0, holdout=True)), range(20), 4.0)
    target(folder / "bank", "used", np.arange(RECORDS) < QUERY, 4.0)
    return folder


@pytest.fixture
def banked(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A working folder with the bank, the targets, and code of one's own."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    with own_modules(tmp_path):
        shutil.copy(ROOT / "examples/own_test.py", "own_test.py")
        Path("mine.py").write_text(ATTACK)
        Path("held.py").write_text(HELD)
        yield tmp_path


def test_its_code_is_part_of_a_runs_identity(own: Path, monkeypatch: pytest.MonkeyPatch):
    asked, noted = intercept(monkeypatch, "jaxaudit.cli.ks.run.train_shadows"), cli_runs.identities(monkeypatch)

    def identity() -> Any:
        assert jaxaudit("ks", *QUICK, "--tests", f"{EXAMPLE},rho").err.endswith("Error: enough\n")
        return [test.name for test in asked["tests"]], noted[-1]

    names, usual = identity()
    assert names == ["sureness", "rho"]
    assert identity()[1] == usual
    with Path("elsewhere/own_test.py").open("a") as file:
        file.write("\n")
    assert identity()[1] != usual


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mine.py:X", ("mine.py",)),
        ("elsewhere/own_test.py", ("elsewhere/own_test.py:Test",)),
        ("shadow,elsewhere/own_test.py:Nobody", ("'Nobody'",)),
        ("elsewhere/own_test.py:KIND", ("type str", "training_sizes", "KSTest")),
        ("elsewhere/own_test.py:Finding", ("",)),
        (f"{EXAMPLE},sures", ("'sures'",)),
        (f"{EXAMPLE},./{EXAMPLE}", ("'sureness'", "taken")),
    ],
)
def test_tests_that_cannot_be_used(own: Path, words: str, said: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jaxaudit.cli.ks.run.train_shadows", None)
    np.save("t.npy", np.full((300, 3), 1 / 3))
    cli_runs.refused(("ks", *QUICK, "--target", "t.npy", "--tests", words), ("--tests", *said))


@pytest.mark.parametrize("name", ["holdout", "members"])
def test_what_a_test_beside_ones_own_lacks_is_said_before_training(
    own: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    np.save("t.npy", np.full((300, 3), 1 / 3))
    words = ("ks", *SHORT, "--target", "t.npy", "--tests", f"{EXAMPLE},{name}")
    cli_runs.refused(words, (f"the {name} test needs a holdout",))


def test_where_the_holdout_test_is_made_it_decides(own: Path, monkeypatch: pytest.MonkeyPatch):
    write_deal("deal", query=cli_runs.records(2, 0.0), holdout=cli_runs.records(5, 0.0))
    model = write_model("model.npz", query=np.full((300, 3), 1 / 3), holdout=np.full((300, 3), 1 / 3))
    held = ("--deal", "deal", *SHORT[2:], "--target", model, "--tests")
    cli_runs.refused(("ks", *held, f"{EXAMPLE},holdout"), ("the holdout test decides", f"holdout,{EXAMPLE}"))
    # A test of one's own may be what the holdout is for.
    asked = intercept(monkeypatch, "jaxaudit.cli.ks.run.train_shadows")
    assert jaxaudit("ks", *held, EXAMPLE).err.endswith("Error: enough\n")
    assert [test.name for test in asked["tests"]] == ["sureness"]


def test_by_a_bank(banked: Path):
    """The test has the bank's models, and no other moves; one that the bank has no models for is refused."""
    by = ("--shadows", "bank", "--target", "used.npz")
    usual = jaxaudit("ks", *by, "--json").result
    done = jaxaudit("ks", *by, "--tests", "holdout,held.py:HeldTest", "--json").result
    (found,), (before,) = done["targets"], usual["targets"]
    assert details_of(found) == details_of(before)
    assert found["tests"][0]["name"] == "holdout"
    shown = {each["name"]: each["finding"]["sentence"] for each in found["tests"]}
    assert shown["held"].startswith("Surer by ")
    assert done["provenance"]["options"]["tests"] == "holdout,held.py:HeldTest"
    assert done["provenance"]["code_hashes"].keys() == {"tests 1"}
    again = jaxaudit(*done["provenance"]["command"][1:], "--json").result
    assert again["targets"] == done["targets"]
    alone = jaxaudit("ks", *by, "--tests", "held.py:HeldTest", "--json").result["targets"][0]
    assert (alone["tests"][0]["name"], alone["finding"]["sentence"]) == ("held", shown["held"])
    more = ("--tests", "held.py:HeldTest", "--test-option", "held.models=39")
    assert jaxaudit("ks", *by, *more, "--json").result["targets"][0]["finding"]["sentence"] == shown["held"]
    for option, words in {
        "nobody.models=39": ("nobody", "sureness"),
        "sureness.size=39": ("no field size", "models"),
        "sureness.models=many": ("'many'", "models"),
        "sureness.name=other": ("no field name",),
        "sureness": ("NAME.FIELD=VALUE",),
    }.items():
        own = ("--tests", "own_test.py:SurenessTest")
        cli_runs.refused(("ks", *by, *own, "--test-option", option), words)
    cli_runs.refused(("ks", *by, "--tests", "holdout,own_test.py:SurenessTest"), ("sureness test", "0 of at least 19"))
    cli_runs.refused(("ks", *by, "--tests", "held.py:HeldTest,holdout"), ("the holdout test decides",))
    cli_runs.refused(("ks", *by, "--tests", "held.py:HeldTest,rho"), ("rho", "members, holdout, deletion, shadow."))


def test_an_attack_of_ones_own_stands_beside_the_others_and_moves_none(banked: Path):
    usual = jaxaudit("attack", "--shadows", "bank", "--attacks", "lira,rmia", "--json").result["attacks"]
    words = ("--attacks", f"lira,{banked}/mine.py:Above,rmia", "--out", "run", "--json")
    done = jaxaudit("attack", "--shadows", "bank", *words).result
    lira, above, rmia = done["attacks"]
    assert [lira, rmia] == usual
    assert (above["name"], above["meaning"]) == ("above", "Log-odds above those of all models.")
    with np.load("run/scores.npz") as scores:
        assert scores.files == ["lira", "above", "rmia"]
    provenance = done["provenance"]
    assert provenance["options"]["attacks"] == "lira,mine.py:Above,rmia"
    assert provenance["code_hashes"].keys() == {"attacks 1"}
    assert jaxaudit(*provenance["command"][1:], "--json").result["attacks"] == done["attacks"]
    assert str(banked) not in Path("run/result.json").read_text()
    with Path("mine.py").open("a") as file:
        file.write("\n")
    other = jaxaudit(*provenance["command"][1:], "--json").result["provenance"]
    assert other["code_hashes"] != provenance["code_hashes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mine.py:named_lira", ("'lira'", "taken")),
        ("stacked,mine.py:Above,mine.py:twice", ("'above'", "taken")),
        ("mine.py:spaced", ("letters, digits and hyphens",)),
        ("mine.py:Silent", ("type Silent", "meaning, source, least, scores", "RecordAttack")),
        ("mine.py:Sized", ("without arguments", "'size'")),
        ("mine.py:Nobody", ("'Nobody'",)),
        ("nowhere.py:X", ("nowhere.py",)),
        ("mine.py:Above,distance", ("distance",)),
        ("mine.py:Above,lyra", ("'lyra'", "did you mean lira?")),
    ],
)
def test_attacks_that_cannot_be_used(banked: Path, words: str, said: tuple[str, ...]):
    cli_runs.refused(("attack", "--shadows", "bank", "--attacks", words, "--out", "run"), ("--attacks", *said))


def test_without_a_bank_an_attack_on_records_is_refused_with_what_to_do(banked: Path):
    cli_runs.refused(
        ("attack", "--attacks", "distance,mine.py:Above"), ("mine.py:Above", "jaxaudit.attacks.attack.Attack")
    )
    cli_runs.refused(("attack", "--attacks", "distance,stacked"), ("stacked", "--shadows"))


def test_code_that_is_not_named_is_not_hashed():
    assert source_hashes(KSOptions()) == {}
