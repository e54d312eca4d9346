"""`--model`: the built-in designs and people's own modules, found in the working folder."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import QUICK, intercept, jaxaudit, options_of, own_modules, refused
from support.small_sets import write_patient

from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.own_code import source_hashes
from jaxaudit.cli.read_sets import read_examples
from jaxaudit.cli.sets import SetsFlags

NET = """
from flax import nnx
class Net(nnx.Module):
    def __init__(self, input_shape, classes, *, rngs):
        self.layer = nnx.Linear(input_shape[0], classes, rngs=rngs)
    def __call__(self, inputs):
        return self.layer(inputs)
"""


@pytest.fixture
def own(sets: Path) -> Iterator[Path]:
    """A working folder whose modules are forgotten afterwards."""
    with own_modules(sets):
        yield sets


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the audit would have been given, where it stops at once."""
    return intercept(monkeypatch, "jaxaudit.cli.ks.run.train_shadows")


@pytest.mark.outer
def test_a_module_of_ones_own(own: Path, monkeypatch: pytest.MonkeyPatch):
    """In a package, or in a file with what lies beside it; it is trained as the built-in network that it makes."""
    monkeypatch.setenv("HOME", str(own / "home"))
    Path("nets").mkdir()
    Path("nets/__init__.py").touch()
    Path("nets/small.py").write_text(
        "from jaxaudit.models import MLP\n"
        "def factory(input_shape, classes, *, rngs):\n"
        "    return MLP(input_shape, classes, hidden=(32,), rngs=rngs)\n"
    )
    Path("home/nets").mkdir(parents=True)
    Path("home/nets/widths.py").write_text("width = 32\n")
    mine = Path("home/nets/mine.py")
    mine.write_text(
        "import widths\n"
        "from dataclasses import dataclass\n"
        "from jaxaudit.models import MLP\n"
        "@dataclass\n"
        "class Sizes:\n"
        "    width: int = widths.width\n"
        "def f(num_classes, in_features, rngs):\n"
        "    return MLP((in_features,), num_classes, hidden=(Sizes().width,), rngs=rngs)\n"
    )
    built_in = jaxaudit("ks", *QUICK, "--json").result["targets"]
    for name in ("nets.small:factory", "~/nets/mine.py:f"):
        done = jaxaudit("ks", *QUICK, "--model", name, "--json")
        provenance = done.result["provenance"]
        assert done.result["targets"] == built_in
        assert (provenance["options"]["model"] == name) is (name == "nets.small:factory")
    options = options_of(KSOptions, model="~/nets/mine.py:f")
    before = source_hashes(options)["model"]
    assert provenance["model_hash"] == before
    mine.write_text("")
    assert source_hashes(options)["model"] != before
    # What is imported from now on is not looked for beside that file first.
    assert sys.path[0] != str(own / "home/nets")


def test_its_file_may_lie_outside_of_the_working_folder(own: Path, untrained: dict[str, Any]):
    Path("nets").mkdir()
    Path("nets/mine.py").write_text(NET)
    shutil.copytree(own, "work", ignore=shutil.ignore_patterns("nets", "work"))
    with own_modules(own / "work"):
        assert jaxaudit("ks", *QUICK, "--model", f"{own}/nets/mine.py:Net").err.endswith("Error: enough\n")
    assert not untrained["learner"].convolves


def test_the_recipe_is_the_targets_own_by_word_or_by_code(own: Path, monkeypatch: pytest.MonkeyPatch):
    Path("mine.py").write_text(NET)
    monkeypatch.setattr("jaxaudit.cli.ks.run.train_shadows", lambda *_, **__: None)
    judged = intercept(monkeypatch, "jaxaudit.cli.ks.run.judge")
    ways = {(): False, ("--same-recipe",): True, ("--model", "mine.py:Net"): True, ("--model", "mlp"): False}
    for words, own_recipe in ways.items():
        assert jaxaudit("ks", *QUICK, *words).err.endswith("Error: enough\n")
        assert judged["own_recipe"] is own_recipe


@pytest.mark.parametrize(
    ("source", "model", "said"),
    [
        ("", "cnn", ("mlp, liu-cnn, medical-cnn",)),
        ("import nowhere", "mine:factory", ("'nowhere'",)),
        ("", "mine:factory", ("mine ", "'factory'")),
        ("1 / 0", "mine:factory", ("ZeroDivisionError: division by zero",)),
        ("raise SystemExit(0)", "mine:f", ("SystemExit: 0",)),
        ("", "mine:", ("package.module:factory",)),
        ("factory = 3", "mine:factory", ("type int",)),
        ("", "mine.py", ("mine.py:factory",)),
        ("", "nets/mine.py:f", ("no file nets/mine.py",)),
        ("import beside", "mine.py:f", ("'beside'", "mine.py")),
        ("", "mine.py:f", ("mine.py ", "'f'")),
    ],
)
def test_modules_that_cannot_be_imported(own: Path, source: str, model: str, said: tuple[str, ...]):
    Path("mine.py").write_text(source)
    refused(("ks", *QUICK, "--model", model), (f"--model {model}", *said))


@pytest.mark.parametrize(
    ("source", "model", "said"),
    [
        ("def f(input_shape, classes, *, rngs): return 3", "mine:f", (" f ", " int")),
        ("def f(a, rngs): pass", "mine:f", (" f ", "(a, rngs)")),
        (NET + "net = Net((12,), 3, rngs=nnx.Rngs(1))", "mine:net", (" Net ",)),
        (NET.replace("classes, rngs", "9, rngs"), "mine:Net", (" Net ", "(2, 9)")),
        (NET.replace("input_shape[0]", "5"), "mine:Net", (" Net ", "(12,)")),
    ],
)
def test_modules_that_do_not_fit(own: Path, source: str, model: str, said: tuple[str, ...]):
    Path("mine.py").write_text(source)
    refused(("ks", *QUICK, "--model", model), said)


def test_a_failure_is_one_line_and_status_1_with_a_traceback_for_who_asks(own: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAXAUDIT_DEBUG", raising=False)
    Path("mine.py").write_text(NET.replace("return self.layer(inputs)", "raise RuntimeError('no\\nluck')"))
    done = jaxaudit("ks", *QUICK, "--model", "mine:Net", "--out", "run")
    assert (done.code, done.out) == (1, "")
    last = done.err.splitlines()[-1]
    assert last.startswith("Failed: RuntimeError: no ")
    assert "JAXAUDIT_DEBUG=1" in last
    assert not Path("run").exists()
    monkeypatch.setenv("JAXAUDIT_DEBUG", "1")
    with pytest.raises(RuntimeError, match="no\nluck"):
        jaxaudit("ks", *QUICK, "--model", "mine:Net")


def test_acdc_by_field_strength(sets: Path, untrained: dict[str, Any]):
    """From a folder whose name has the characters that part a name; the table may lie elsewhere."""
    folder = Path("a@b:c")
    for index in range(1, 9):
        write_patient(folder, f"patient{index:03}", ("NOR", "DCM")[index % 2], (9, 8, 3, 2))
    fields = (f"patient{index:03},{1.5 if index < 5 else 3.0}" for index in range(1, 9))
    (folder / "field_strength.csv").write_text("\n".join(["patient,field_strength", *fields]))
    rows = (f"patient{index:03},{7 if index == 3 else 3}" for index in range(1, 9))
    Path("elsewhere.csv").write_text("\n".join(["patient,field_strength", *rows]))
    data = ("--query", "acdc:a@b:c@3", "--calibration", "acdc:a@b:c@1.5", "--target-data", "acdc:a@b:c@3")
    done = jaxaudit("ks", *data, "--model", "medical-cnn", "--image-size", "8x6", "--tests", "rho", "--effort", "full")
    assert done.err.startswith("acdc:a@b:c@3: 24 images of 256x256")
    assert untrained["learner"].convolves
    assert untrained["query"].inputs.shape == untrained["calibration"].inputs.shape == (4 * 6, 8, 6, 1)
    (target,) = untrained["targets"]
    assert target.parts[0].examples is untrained["query"]
    assert len(read_examples("acdc:a@b:c@7", SetsFlags(field_strength=Path("elsewhere.csv")))) == 6


def test_the_default_design_for_images_is_the_papers(sets: Path, untrained: dict[str, Any]):
    for name, seed in (("a", 1), ("b", 2)):
        images = np.random.default_rng(seed).integers(0, 255, (4, 9, 9), dtype=np.uint8)
        np.savez(name, images=images, labels=np.arange(4) % 2)
    done = jaxaudit("ks", "--query", "a.npz", "--calibration", "b.npz", "--tests", "rho", "--effort", "full")
    assert untrained["query"].inputs.shape == (4, 28, 28, 1)
    assert {"14", "liu-cnn", "15"} <= set(done.err.split())
    assert untrained["learner"].batch_size == 64


def test_it_is_said_where_all_models_begin_alike(own: Path, untrained: dict[str, Any]):
    Path("mine.py").write_text(NET + "def f(): return Net((12,), 3, rngs=nnx.Rngs(1))\n")
    assert " rngs" in jaxaudit("ks", *QUICK, "--model", "mine.py:f").err
    assert " rngs" not in jaxaudit("ks", *QUICK, "--model", "mine.py:Net").err
