"""`jaxaudit ks --calibration-target`, `--reference` and `--designs`, on sets small enough to train on in a second."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, intercept, jaxaudit, records, refused
from support.details import details_of
from support.html_pages import Parsed

FEW = ("--hidden", "16", "--epochs", "4", "--learning-rate", "0.02", "--shadow-models", "19", "--replicates", "2")
PLAIN = ("--effort", "full", "--models-per-batch", "16")
GIVEN = ("--target", "out.npy", "--calibration-target", "out_c.npy", *PLAIN)
KEPT = ("--reference", "kept.npz", "--reference-target", "out_r.npy")
OTHER = ("--target", "out.npy", *KEPT, *PLAIN)
SAME = ("--target", "out.npy", "--reference", "calibration.npz", "--reference-target", "out_c.npy", *PLAIN)
LEFT = 120
"""Records of the reference that is a set of its own."""


@pytest.fixture
def outputs(sets: Path) -> SimpleNamespace:
    """Outputs on both sets and on a reference of its own, a row of its own for each record."""
    random = np.random.default_rng(4)
    made = {}
    inputs, classes = records(6, -0.5, LEFT)
    np.savez("kept.npz", x=inputs, y=classes)
    for name, file in (("query", "out.npy"), ("calibration", "out_c.npy"), ("kept", "out_r.npy")):
        labels = np.load(f"{name}.npz")["y"]
        made[name] = random.dirichlet(np.ones(3), len(labels)).astype(np.float32) + np.eye(3, dtype=np.float32)[labels]
        made[name] /= made[name].sum(axis=1, keepdims=True)
        np.save(file, made[name])
    np.save("short.npy", made["calibration"][:100])
    return SimpleNamespace(**made)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command asks `audit_ks` for, in place of the audit."""
    return intercept(monkeypatch, "jaxaudit.cli.ks.run.train_shadows")


@pytest.mark.outer
def test_a_reference_decides_and_moves_no_other_number(outputs: SimpleNamespace):
    """Of one target: by the calibration set, and by a reference of its own."""
    done = jaxaudit("ks", *SETS, *FEW, *GIVEN, "--out", "given", "--json")
    (given,) = done.result["targets"]
    assert given["tests"][0]["name"] == "reference"
    assert [(usage["method"], usage["design"]) for usage in details_of(given)] == [("reference", "mixed")]
    assert given["tests"][0]["details"]["upper"] <= 1
    provenance = done.result["provenance"]
    assert [file["name"] for file in provenance["calibration_targets"]] == ["out_c.npy"]
    assert "--calibration-target" in provenance["command"]
    assert json.loads(Path("given/result.json").read_text()) == done.result

    done = jaxaudit("ks", *SETS, *FEW, *OTHER, "--designs", "guess", "--out", "run", "--report", "page.html", "--json")
    (own,) = done.result["targets"]
    assert own["tests"][0]["name"] == "reference"
    assert [(usage["method"], usage["design"]) for usage in details_of(own)] == [("reference", "guessed")]
    provenance = done.result["provenance"]
    assert [file["name"] for file in provenance["reference_targets"]] == ["out_r.npy"]
    assert provenance["calibration_targets"] == []
    assert provenance["data"]["reference"]["records"] == LEFT
    assert {"--reference", "--reference-target"} <= set(provenance["command"])
    # A bank has no models of such a reference.
    assert not Path("run/bank.json").exists()
    assert f"a share of the reference, kept.npz ({LEFT} records)" in Parsed(Path("page.html").read_text()).text
    assert details_of(own, "rho") == details_of(given, "rho")


@pytest.mark.outer
def test_rows_follow_records_that_are_dropped_or_sampled(outputs: SimpleNamespace, asked: dict[str, Any]):
    shared, labels = (np.load("query.npz")[name][:7] for name in "xy")
    with np.load("calibration.npz") as known:
        inputs, classes = known["x"], known["y"]
    places = np.arange(10, 80, 10)
    inputs[places], classes[places] = shared, labels
    np.savez("calibration.npz", x=inputs, y=classes)
    jaxaudit("ks", *SETS, *FEW, *GIVEN, "--drop-overlap")
    left = np.delete(np.arange(RECORDS), places)
    assert np.array_equal(asked["calibration"].inputs, inputs[left])
    assert np.array_equal(asked["targets"][0].on_reference.probabilities, outputs.calibration[left])
    jaxaudit("ks", *SETS, *FEW, *GIVEN, "--drop-overlap", "--sample", "40")
    place = {row.tobytes(): index for index, row in enumerate(inputs)}
    taken = [place[row.tobytes()] for row in asked["calibration"].inputs]
    assert len(taken) == 40
    assert np.array_equal(asked["targets"][0].on_reference.probabilities, outputs.calibration[taken])


@pytest.mark.outer
def test_rows_follow_a_reference_of_its_own(outputs: SimpleNamespace, asked: dict[str, Any]):
    """It loses the records of other sets, which lose none for it; query set and holdout lose what they share."""
    sets = {name: np.load(f"{name}.npz")["x"] for name in ("query", "calibration", "kept")}
    x, y = records(9, 0.0)
    x[4] = sets["query"][8]
    np.savez("holdout.npz", x=x, y=y)
    np.save("out_h.npy", np.eye(3, dtype=np.float32)[y] * 0.4 + 0.2)
    inputs, places = sets["kept"], np.array([3, 40, 77, 78])
    inputs[places] = np.stack([sets["query"][5], sets["calibration"][6], x[7], sets["query"][5]])
    np.savez("kept.npz", x=inputs, y=np.load("kept.npz")["y"])
    held = ("--holdout", "holdout.npz", "--holdout-target", "out_h.npy", "--drop-overlap")
    done = jaxaudit("ks", *SETS, *FEW, *OTHER, *held)
    said = [line.split()[1:3] + line.split()[-2:] for line in done.err.splitlines() if " reference " in line]
    assert said[:3] == [
        ["2", "reference", "query", "set"],
        ["1", "reference", "calibration", "set"],
        ["1", "reference", "the", "holdout"],
    ]
    left = np.delete(np.arange(LEFT), places)
    assert np.array_equal(asked["reference"].inputs, inputs[left])
    assert [len(asked[role]) for role in ("query", "calibration", "holdout")] == [RECORDS - 1, RECORDS, RECORDS - 1]
    assert np.array_equal(asked["targets"][0].on_reference.probabilities, outputs.kept[left])
    # The holdout decides, and the reference stands beside it.
    assert [test.name for test in asked["tests"]] == ["holdout", "reference", "rho"]
    jaxaudit("ks", *SETS, *FEW, *OTHER, *held, "--sample", "60")
    place = {row.tobytes(): index for index, row in enumerate(inputs)}
    taken = [place[row.tobytes()] for row in asked["reference"].inputs]
    assert len(taken) == 60
    assert set(taken) <= set(left.tolist())
    assert np.array_equal(asked["targets"][0].on_reference.probabilities, outputs.kept[taken])


def test_images_and_classes_of_a_reference_become_those_of_the_query_set(sets: Path, asked: dict[str, Any]):
    random = np.random.default_rng(7)
    for name, size, names in (("q", 8, "ab"), ("c", 8, "ab"), ("r", 12, "ba")):
        images = random.integers(0, 256, (60, size, size, 3)).astype(np.uint8)
        np.savez(f"{name}.npz", images=images, labels=np.arange(60) % 2, class_names=np.array([*names]))
        np.save(f"out_{name}.npy", random.dirichlet(np.ones(2), 60))
    words = ("--query", "q.npz", "--calibration", "c.npz", "--image-size", "10x10", "--model", "mlp", *FEW, *PLAIN)
    jaxaudit("ks", *words, "--target", "out_q.npy", "--reference", "r.npz", "--reference-target", "out_r.npy")
    reference, query = asked["reference"], asked["query"]
    assert reference.inputs.shape == query.inputs.shape == (60, 10, 10, 1)
    assert reference.inputs.dtype == query.inputs.dtype
    assert reference.class_names == query.class_names == ("a", "b")
    assert reference.labels.tolist() == [1, 0] * 30


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--target", "out.npy", "--tests", "reference"), ("--calibration-target", "--reference")),
        ((*GIVEN, "--tests", "shadow"), ("--tests shadow", "--calibration-target")),
        ((*GIVEN, "--target", "out.npy"), ("--target was given 2 times", "--calibration-target 1")),
        (("--target", "out.npy", *KEPT[2:]), ("--reference-target", "--reference:")),
        (("--target", "out.npy", *KEPT[:2]), ("--target was given 1 times", "--reference-target 0")),
        ((*GIVEN, *KEPT), ("--calibration-target", "--reference", "two references")),
        ((*OTHER, "--reference", "nowhere.npz"), ("--reference nowhere.npz",)),
    ],
)
def test_what_does_not_go_together_is_refused_before_any_data_are_read(
    outputs: SimpleNamespace, words: tuple[str, ...], named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("jaxaudit.cli.ks.run.read_given", None)
    refused(("ks", *SETS, *words), named)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((*OTHER, "--sample", "49"), ("49 records", "at least 50")),
        (SAME, ("300 of the 300", "reference calibration.npz", "calibration set", "--calibration-target")),
        ((*SAME, "--drop-overlap"), ("300", "calibration.npz", "another reference")),
        ((*GIVEN[:3], "short.npy", *PLAIN), ("short.npy", "100", "300", "calibration set")),
        (("--target", "out.npy", *KEPT[:3], "out.npy", *PLAIN), ("out.npy", "300", str(LEFT), "reference")),
    ],
)
def test_a_reference_that_does_not_fit_is_refused_before_training(
    outputs: SimpleNamespace, words: tuple[str, ...], named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    refused(("ks", *SETS, *FEW, *words), named)
