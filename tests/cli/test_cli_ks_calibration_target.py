"""`jaxaudit ks --calibration-target`, on sets small enough to train on in a second."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, intercept, jaxaudit, refused
from support.details import details_of

FEW = ("--recipe", "hidden=16", "--epochs", "4", "--recipe", "learning-rate=0.02", "--shadow-models", "19")
FEW += ("--test-option", "rho.replicates=2")
PLAIN = ("--effort", "full", "--recipe", "models-per-batch=16")
GIVEN = ("--target", "out.npy", "--calibration-target", "out_c.npy", *PLAIN)


@pytest.fixture
def outputs(sets: Path) -> SimpleNamespace:
    """Outputs on both sets, a row of its own for each record."""
    random = np.random.default_rng(4)
    made = {}
    for name, file in (("query", "out.npy"), ("calibration", "out_c.npy")):
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
def test_outputs_on_the_calibration_set_move_no_number_of_rho(outputs: SimpleNamespace):
    done = jaxaudit("ks", *SETS, *FEW, *GIVEN, "--out", "given", "--json")
    (given,) = done.result["targets"]
    assert given["tests"][0]["name"] == "shadow"
    assert [usage["method"] for usage in details_of(given)] == ["shadow"]
    assert given["tests"][0]["details"]["upper"] <= 1
    provenance = done.result["provenance"]
    assert [file["name"] for file in provenance["calibration_targets"]] == ["out_c.npy"]
    assert "--calibration-target" in provenance["command"]
    assert json.loads(Path("given/result.json").read_text()) == done.result

    done = jaxaudit("ks", *SETS, *FEW, *GIVEN[:2], *PLAIN, "--json")
    (alone,) = done.result["targets"]
    assert details_of(alone) != details_of(given)
    assert details_of(alone, "rho") == details_of(given, "rho")


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
    assert np.array_equal(asked["targets"][0].on_calibration.probabilities, outputs.calibration[left])
    jaxaudit("ks", *SETS, *FEW, *GIVEN, "--drop-overlap", "--sample", "40")
    place = {row.tobytes(): index for index, row in enumerate(inputs)}
    taken = [place[row.tobytes()] for row in asked["calibration"].inputs]
    assert len(taken) == 40
    assert np.array_equal(asked["targets"][0].on_calibration.probabilities, outputs.calibration[taken])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((*GIVEN, "--tests", "rho"), ("--tests rho", "--calibration-target")),
        (("--target", "out.npy", "--tests", "reference"), ("'reference'", "shadow")),
        ((*GIVEN, "--target", "out.npy"), ("--target was given 2 times", "--calibration-target 1")),
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
        ((*GIVEN, "--sample", "49"), ("`calibration_records_not_used`", "at least 50; got 49")),
        ((*GIVEN[:3], "short.npy", *PLAIN), ("short.npy", "100", "300", "calibration set")),
    ],
)
def test_outputs_that_do_not_fit_are_refused_before_training(
    outputs: SimpleNamespace, words: tuple[str, ...], named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    refused(("ks", *SETS, *FEW, *words), named)
