"""`--model`: the built-in designs and people's own modules, found in the working folder."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import optax
import pytest
from support.cli_runs import QUICK, content, intercept, jaxaudit

from jaxaudit.cli.groups import Recipe
from jaxaudit.cli.own_model import source_hashes
from jaxaudit.cli.read_sets import read_examples
from jaxaudit.cli.recipe import make_factory, make_optimizer
from jaxaudit.cli.words import parse_hidden
from jaxaudit.errors import InputError

NET = """
from flax import nnx
class Net(nnx.Module):
    def __init__(self, input_shape, classes, *, rngs):
        self.layer = nnx.Linear(input_shape[0], classes, rngs=rngs)
    def __call__(self, inputs):
        return self.layer(inputs)
"""


@pytest.fixture
def own(sets: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder whose modules are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield sets
    for name in set(sys.modules) - before:
        if str(sets) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_module_of_ones_own(own: Path):
    Path("nets").mkdir()
    Path("nets/__init__.py").touch()
    Path("nets/small.py").write_text(
        "from jaxaudit.models import MLP\n"
        "def factory(input_shape, classes, *, rngs):\n"
        "    return MLP(input_shape, classes, hidden=(32,), rngs=rngs)\n"
    )
    done = jaxaudit("ks", *QUICK, "--model", "nets.small:factory", "--json")
    assert done.result["provenance"]["options"]["model"] == "nets.small:factory"
    assert "nets.small:factory" in done.result["provenance"]["command"]
    assert any("nets.small:factory" in line for line in done.err.splitlines())
    assert done.result["targets"] == jaxaudit("ks", *QUICK, "--json").result["targets"]


@pytest.mark.parametrize(
    ("words", "own_recipe"),
    [((), False), (("--same-recipe",), True), (("--model", "mine.py:Net"), True), (("--model", "mlp"), False)],
)
def test_the_recipe_is_the_targets_own_by_word_or_by_code(
    own: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], own_recipe: bool
):
    asked = intercept(monkeypatch, "jaxaudit.cli.ks.run.audit_ks")
    Path("mine.py").write_text(NET)
    assert jaxaudit("ks", *QUICK, *words).err.endswith("Error: enough\n")
    assert asked["own_recipe"] is own_recipe


def test_a_file_of_ones_own_and_what_lies_beside_it(own: Path, monkeypatch: pytest.MonkeyPatch):
    home = own / "home"
    (home / "nets").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (home / "nets/widths.py").write_text("width = 32\n")
    (home / "nets/mine.py").write_text(
        "import widths\n"
        "from dataclasses import dataclass\n"
        "from jaxaudit.models import MLP\n"
        "@dataclass\n"
        "class Sizes:\n"
        "    width: int = widths.width\n"
        "def f(num_classes, in_features, rngs):\n"
        "    return MLP((in_features,), num_classes, hidden=(Sizes().width,), rngs=rngs)\n"
    )
    done = jaxaudit("ks", *QUICK, "--model", "~/nets/mine.py:f", "--json")
    assert done.result["targets"] == jaxaudit("ks", *QUICK, "--json").result["targets"]
    before = source_hashes("~/nets/mine.py:f", None, ())["model"]
    assert done.result["provenance"]["model_hash"] == before
    (home / "nets/mine.py").write_text("")
    assert source_hashes("~/nets/mine.py:f", None, ())["model"] != before
    # What is imported from now on is not looked for beside that file first.
    assert sys.path[0] != str(home / "nets")


@pytest.mark.parametrize(
    ("source", "model", "said"),
    [
        ("", "nowhere.nets:factory", ("'nowhere'",)),
        ("import nowhere", "mine:factory", ("'nowhere'",)),
        ("", "mine:factory", ("mine ", "'factory'")),
        ("1 / 0", "mine:factory", ("ZeroDivisionError: division by zero",)),
        ("def f(:", "mine:f", ("SyntaxError",)),
        ("raise SystemExit(0)", "mine:f", ("SystemExit: 0",)),
        ("", "mine:", ("package.module:factory",)),
        ("", ":f", ("package.module:factory",)),
        ("", ".mine:f", ("package.module:factory",)),
        ("factory = 3", "mine:factory", ("type int",)),
        ("", "mine.py", ("mine.py:factory",)),
        ("", "nets/mine.py:f", ("no file nets/mine.py",)),
        ("import beside", "mine.py:f", ("'beside'", "mine.py")),
        ("1 / 0", "mine.py:f", ("ZeroDivisionError: division by zero",)),
        ("", "mine.py:f", ("mine.py ", "'f'")),
        ("", "mine.py:f()", ("file.py:factory",)),
    ],
)
def test_modules_that_cannot_be_imported(own: Path, source: str, model: str, said: tuple[str, ...]):
    refused(own, source, model, f"--model {model}", *said)


@pytest.mark.parametrize(
    ("source", "model", "said"),
    [
        ("def f(input_shape, classes, *, rngs): return 3", "mine:f", (" f ", " int")),
        ("def f(): pass", "mine:f", (" f ", "NoneType", "flax.nnx.Module")),
        ("def f(a, rngs): pass", "mine:f", (" f ", "(a, rngs)")),
        (NET + "net = Net((12,), 3, rngs=nnx.Rngs(1))", "mine:net", (" Net ",)),
        (NET.replace("classes, rngs", "9, rngs"), "mine:Net", (" Net ", "(2, 9)")),
        (NET.replace("input_shape[0]", "5"), "mine:Net", (" Net ", "(12,)")),
    ],
)
def test_modules_that_do_not_fit(own: Path, source: str, model: str, said: tuple[str, ...]):
    refused(own, source, model, *said)


def refused(own: Path, source: str, model: str, *said: str) -> None:
    Path("mine.py").write_text(source)
    before = content(own)
    done = jaxaudit("ks", *QUICK, "--model", model)
    assert (done.code, done.out) == (2, "")
    (last,) = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert done.err.endswith(f"{last}\n")
    assert [each for each in said if each not in last] == [], last
    assert content(own) == before


RAISES = NET.replace("return self.layer(inputs)", "raise RuntimeError('no\\nluck')")


def test_a_failure_is_one_line_and_status_1(own: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAXAUDIT_DEBUG", raising=False)
    Path("mine.py").write_text(RAISES)
    done = jaxaudit("ks", *QUICK, "--model", "mine:Net", "--out", "run")
    assert (done.code, done.out) == (1, "")
    last = done.err.splitlines()[-1]
    assert last.startswith("Failed: RuntimeError: no ")
    assert "JAXAUDIT_DEBUG=1" in last
    assert not Path("run").exists()


def test_the_traceback_is_there_for_who_asks(own: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAXAUDIT_DEBUG", "1")
    Path("mine.py").write_text(RAISES)
    with pytest.raises(RuntimeError, match="no\nluck"):
        jaxaudit("ks", *QUICK, "--model", "mine:Net")


def test_hidden_layers():
    assert parse_hidden("512,256,128") == (512, 256, 128)
    assert parse_hidden(" 16 , ") == (16,)
    assert parse_hidden("") == ()
    with pytest.raises(InputError, match="--hidden 1e3"):
        parse_hidden("1e3")


def test_an_unknown_design():
    with pytest.raises(InputError, match=r"--model cnn .*mlp, liu-cnn, medical-cnn"):
        make_factory("cnn", (1,))


def test_optimizers():
    params: Any
    params, gradient = {"w": np.ones(3, np.float32)}, {"w": np.array([1.0, -2.0, 0.0], np.float32)}
    for name, expected in (("sgd", optax.sgd(0.1)), ("adam", optax.adam(0.1, b1=0.5, b2=0.999))):
        found, same = make_optimizer(Recipe(optimizer=name, learning_rate=0.1)), []
        for optimizer in (found, expected):
            state = optimizer.init(params)
            updates: Any = None
            for _ in range(3):
                updates, state = optimizer.update(gradient, state, params)
            same.append(np.asarray(updates["w"]))
        np.testing.assert_array_equal(*same)


def write_acdc(root: Path) -> None:
    for index in range(1, 9):
        folder = root / f"patient{index:03}"
        folder.mkdir(parents=True)
        (folder / "Info.cfg").write_text(f"Group: {('NOR', 'DCM')[index % 2]}\n")
        volume = np.random.default_rng(index).integers(0, 900, (9, 8, 3, 2)).astype(np.int16)
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), folder / f"{folder.name}_4d.nii.gz")
    rows = [f"patient{index:03},{1.5 if index < 5 else 3.0}" for index in range(1, 9)]
    (root / "field_strength.csv").write_text("\n".join(["patient,field_strength", *rows]))


def test_acdc_by_field_strength(tmp_path: Path):
    write_acdc(tmp_path / "a@b:c")
    name = f"acdc:{tmp_path / 'a@b:c'}@1.5"
    examples = read_examples(name, None, (16, 12), True, None)
    assert examples.name == "acdc:a@b:c@1.5"
    assert examples.inputs.shape == (4 * 6, 16, 12, 1)
    assert examples.inputs.dtype == np.float32
    assert np.bincount(examples.labels).tolist().count(12) == 2
    table = tmp_path / "elsewhere.csv"
    rows = (f"patient{index:03},{7 if index == 3 else 3}" for index in range(1, 9))
    table.write_text("\n".join(["patient,field_strength", *rows]))
    assert len(read_examples(f"{name[:-3]}7", None, None, True, table)) == 6


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the audit would have been given, where it stops at once."""
    return intercept(monkeypatch, "jaxaudit.cli.ks.run.audit_ks")


def test_acdc_through_the_command(sets: Path, untrained: dict[str, Any]):
    write_acdc(Path("acdc"))
    data = ("--query", "acdc:acdc@3", "--calibration", "acdc:acdc@1.5", "--target-data", "acdc:acdc@3")
    done = jaxaudit("ks", *data, "--model", "medical-cnn", "--image-size", "8x6", "--tests", "rho", "--budget", "none")
    query, calibration, training, end = done.err.splitlines()
    assert end == "Error: enough"
    assert query.startswith("acdc:acdc@3: 24 images of 256x256")
    assert calibration.startswith("acdc:acdc@1.5: 24 images of 256x256")
    assert "8x6x1" in query
    assert {"12", "medical-cnn", "15"} <= set(training.split())
    assert untrained["learner"].convolves
    assert len(untrained["query"]) == len(untrained["calibration"]) == 24
    (target,) = untrained["targets"]
    assert target.name == "acdc:acdc@3"
    assert target.parts[0].examples is untrained["query"]


def test_the_default_design_for_images_is_the_papers(sets: Path, untrained: dict[str, Any]):
    for name, seed in (("a", 1), ("b", 2)):
        images = np.random.default_rng(seed).integers(0, 255, (4, 9, 9), dtype=np.uint8)
        np.savez(name, images=images, labels=np.arange(4) % 2)
    done = jaxaudit("ks", "--query", "a.npz", "--calibration", "b.npz", "--tests", "rho", "--budget", "none")
    assert untrained["query"].inputs.shape == (4, 28, 28, 1)
    assert {"14", "liu-cnn", "15"} <= set(done.err.split())
    assert untrained["learner"].batch_size == 64


def test_it_is_said_where_all_models_begin_alike(own: Path, untrained: dict[str, Any]):
    Path("mine.py").write_text(NET + "def f(): return Net((12,), 3, rngs=nnx.Rngs(1))\n")
    assert " rngs" in jaxaudit("ks", *QUICK, "--model", "mine.py:f").err
    assert " rngs" not in jaxaudit("ks", *QUICK, "--model", "mine.py:Net").err
