"""`jaxaudit ks --calibration-target` and `--designs`, on sets small enough to train on in a second."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, jaxaudit, records

from jaxaudit.audits.ks.audit import audit_ks
from jaxaudit.cli.ks import run as ks_run
from jaxaudit.errors import InputError

FEW = ("--hidden", "16", "--epochs", "4", "--learning-rate", "0.02", "--shadow-models", "19", "--replicates", "2")
GIVEN = ("--target", "out.npy", "--calibration-target", "out_c.npy", "--budget", "none", "--models-per-batch", "16")


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
    return SimpleNamespace(**made)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command asks `audit_ks` for, in place of the audit."""
    kept: dict[str, Any] = {}

    def stop(*arguments: Any, **options: Any) -> None:
        kept.update(options, query=arguments[1], calibration=arguments[2], learner=arguments[3], targets=arguments[4])
        raise InputError("enough")

    assert ks_run.audit_ks is audit_ks
    monkeypatch.setattr(ks_run, "audit_ks", stop)
    return kept


def test_it_decides_and_says_of_what_it_rests(outputs: SimpleNamespace):
    done = jaxaudit("ks", *SETS, *FEW, *GIVEN, "--out", "run", "--json")
    (target,) = done.result["targets"]
    assert target["method"] == "reference"
    assert [(usage["method"], usage["design"]) for usage in target["usage"]] == [("reference", "mixed")]
    assert target["usage"][0]["upper"] <= 1
    provenance = done.result["provenance"]
    assert [file["name"] for file in provenance["calibration_targets"]] == ["out_c.npy"]
    assert "--calibration-target" in provenance["command"]
    assert json.loads(Path("run/result.json").read_text()) == done.result
    alone = jaxaudit("ks", *SETS, *FEW, *GIVEN, "--designs", "guess", "--json").result["targets"][0]
    assert alone["usage"][0]["design"] == "guessed"
    assert alone["rho"] == target["rho"]


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


def test_designs_are_those_that_are_named_the_guess_first(outputs: SimpleNamespace, asked: dict[str, Any]):
    def made(*words: str) -> dict[str, Any]:
        assert jaxaudit("ks", *SETS, *FEW, *GIVEN, *words).code == 2
        return {design.name: design.learner for design in asked["designs"]}

    every = made()
    assert list(every) == ["shorter", "longer", "momentum", "wider"]
    assert (every["shorter"].epochs, every["longer"].epochs, asked["learner"].epochs) == (2, 8, 4)
    assert list(made("--designs", "wider,guess,longer")) == ["longer", "wider"]
    assert made("--designs", "guess") == {}


def test_a_holdout_decides_and_the_reference_stands_beside_it(outputs: SimpleNamespace, asked: dict[str, Any]):
    x, y = records(9, 0.0)
    np.savez("holdout.npz", x=x, y=y)
    np.save("out_h.npy", np.eye(3, dtype=np.float32)[y] * 0.4 + 0.2)
    jaxaudit("ks", *SETS, *FEW, *GIVEN, "--holdout", "holdout.npz", "--holdout-target", "out_h.npy")
    assert [test.name for test in asked["tests"]] == ["holdout", "reference", "rho"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--target", "out.npy", "--tests", "reference"), "--calibration-target"),
        ((*GIVEN, "--tests", "shadow"), "--calibration-target"),
        ((*GIVEN, "--target", "out.npy"), "--target was given 2 times and --calibration-target 1"),
        ((*GIVEN, "--designs", "fancy"), "--designs"),
    ],
)
def test_what_does_not_go_together_is_refused(outputs: SimpleNamespace, words: tuple[str, ...], named: str):
    done = jaxaudit("ks", *SETS, *words)
    assert done.code == 2
    assert named in done.err
    assert not done.out


def test_a_file_of_other_length_is_refused(outputs: SimpleNamespace):
    np.save("out_c.npy", outputs.calibration[:100])
    done = jaxaudit("ks", *SETS, *FEW, *GIVEN)
    assert done.code == 2
    for named in ("out_c.npy", "100", "300", "calibration set"):
        assert named in done.err
