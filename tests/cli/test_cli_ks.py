"""`jaxaudit ks` from its options to its result."""

import json
from pathlib import Path
from typing import Any

import jax
import jsonschema
import numpy as np
import pytest
from support.cli_runs import LEARNS, QUICK, RECORDS, SETS, Done, content, intercept, jaxaudit, process, records

from jaxaudit.audits.ks.tests import RhoTest
from jaxaudit.ensemble.models_per_batch import BatchChoice
from jaxaudit.report.kinds import schema_of

KNOWN = ("--target-data", "query.npz")


def rhos(done: Done) -> list[list[float]]:
    return [target["rho"]["values"] for target in done.result["targets"]]


def test_table_on_stdout_and_talk_on_stderr(sets: Path):
    before = content(sets)
    done = jaxaudit("ks", *LEARNS, *KNOWN)
    assert done.code == 0
    row = next(line for line in done.out.splitlines() if line.startswith("query.npz"))
    assert row.split()[:4] == ["query.npz", "100%", "not", "forgotten"]
    assert row.rstrip().endswith("not forgotten")
    assert max(map(len, done.out.splitlines())) <= 80
    training, comparing = done.err.splitlines()
    assert {"8", "mlp", "60"} <= set(training.split())
    assert "8" in comparing.split()
    assert content(sets) == before


def test_a_budget_plans_and_the_recorded_command_repeats_what_was_planned(sets: Path):
    """An eighth of the time that everything would take, however quick or busy the machine is."""
    for name, seed in (("query", 2), ("calibration", 3)):
        inputs, labels = records(seed, 0.7 * (seed - 2), 3000)
        np.savez(f"{name}.npz", x=inputs, y=labels)
    network = ("--hidden", "512,512", "--epochs", "4000", "--models-per-batch", "1")
    words = ("ks", *SETS, *network, "--replicates", "3", "--tests", "rho", "--dry-run", "--json")
    whole = jaxaudit(*words, "--budget", "100000h")
    assert whole.code == 0, whole.err
    assert json.loads(whole.out)["reduced"] == []
    seconds = round(json.loads(whole.out)["full_seconds"] / 8)
    budget = ("--budget", f"{seconds}s")
    planned = jaxaudit(*words, *budget)
    assert planned.code == 0, planned.err
    plan = json.loads(planned.out)
    assert plan["seconds"] <= seconds < plan["full_seconds"]
    # The speed is remembered, so that the plan is the same again; what was given stands, only records may go.
    assert "measuring" not in planned.err
    assert json.loads(jaxaudit(*words, *budget).out) == plan
    assert plan["models"] == 10
    assert [text.split()[1] for text in plan["reduced"]] == ["records", "records"]
    assert plan["unlike"] == plan["reduced"]
    none = jaxaudit(*words, "--sample", "3000", *budget)
    assert none.code == 2
    assert "--budget none" in none.err
    assert "--sample" in none.err


def test_columns_on_which_a_network_hardly_trains_are_told_of_before_it_does(
    sets: Path, monkeypatch: pytest.MonkeyPatch
):
    words = (*SETS, "--budget", "none", "--dry-run")
    assert "scale each" not in jaxaudit("ks", *words).err
    inputs, labels = records(3, 0.7)
    np.savez("calibration.npz", x=1234.0 * inputs, y=labels)
    told = jaxaudit("ks", *words)
    assert told.code == 0
    assert "networks train badly or not at all: scale each, in all sets alike" in told.err
    assert "scale each" in jaxaudit("shadows", "train", *SETS, "--out", "bank", "--dry-run").err
    intercept(monkeypatch, "jaxaudit.cli.power.run.audit_power")
    assert "scale each" in jaxaudit("power", *SETS).err


def test_more_tests_models_and_no_budget_change_no_number(sets: Path, monkeypatch: pytest.MonkeyPatch):
    """Also the models per batch, whose number is measured here, follows from the design alone."""
    monkeypatch.setenv("JAXAUDIT_CACHE", str(sets / "cache"))
    words = [word for word in QUICK if word not in ("--models-per-batch", "9", "--budget", "none", "--tests", "rho")]
    held = ("--holdout", "held.npz", "--json")
    inputs, labels = records(9, 0.0)
    np.savez("held.npz", x=inputs, y=labels)
    alone = jaxaudit("ks", *words, *held).result
    more = jaxaudit(
        "ks", *words, *held, "--tests", "all", "--shadow-models", "19", "--replicates", "4", "--budget", "none"
    ).result

    def by_holdout(result: dict[str, Any]) -> list[Any]:
        return [usage for target in result["targets"] for usage in target["usage"] if usage["method"] == "holdout"]

    assert len(by_holdout(alone)) == 3
    assert by_holdout(alone) == by_holdout(more)


def test_records_are_drawn_and_recorded(sets: Path):
    words = (*QUICK, "--sample", "120", "--json")
    result = jaxaudit("ks", *words).result
    assert [result["provenance"]["data"][name]["records"] for name in ("query", "calibration")] == [120, 120]
    repeated = result["provenance"]["command"]
    assert jaxaudit(*repeated[1:], "--json").result["targets"] == result["targets"]
    assert result["provenance"]["plan"] is None
    quick = [word for word in words if word not in ("--budget", "none")]
    budgeted = jaxaudit("ks", *quick)
    assert budgeted.result["targets"] == result["targets"]
    assert budgeted.result["provenance"]["plan"]["reduced"] == []
    assert any(line.startswith("Plan: 10 models") for line in budgeted.err.splitlines())


def test_json_is_all_of_stdout_and_follows_the_schema(sets: Path):
    done = jaxaudit("ks", *QUICK, "--json")
    jsonschema.validate(done.result, schema_of("ks"))
    assert done.out.count("\n") == 1
    assert [target["name"] for target in done.result["targets"]] == [
        "67% of calibration.npz + query.npz",
        "67% of calibration.npz",
        "67% of calibration.npz + 50% of query.npz",
    ]
    truths = [target["truth"] for target in done.result["targets"]]
    assert [truth["used_fraction"] for truth in truths] == [1.0, 0.0, 0.5]
    assert [truth["training_records"] for truth in truths] == [501, 201, 351]
    assert [truth["expected"] for truth in truths] == ["not forgotten", "forgotten", "not forgotten"]


def test_run_directory_holds_the_same_result_and_plain_arrays(sets: Path):
    done = jaxaudit("ks", *QUICK, "--json", "--out", "runs/first")
    assert json.loads((sets / "runs/first/result.json").read_text()) == done.result
    with np.load(sets / "runs/first/confidences.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {"query", "calibration", "control", "labels", "target_0", "target_1", "target_2"}
        assert arrays["query"].shape == arrays["calibration"].shape == (3, RECORDS)
        assert arrays["control"].shape == (1, RECORDS)
        assert arrays["target_0"].shape == arrays["labels"].shape == (RECORDS,)
        assert (arrays["query"] > 0).all()
        assert (arrays["query"] <= 1).all()
        np.testing.assert_array_equal(arrays["labels"], np.arange(RECORDS) % 3)
    assert sorted(path.name for path in (sets / "runs").iterdir()) == ["first"]


def test_the_recorded_command_repeats_the_run(sets: Path, monkeypatch: pytest.MonkeyPatch):
    # No --models-per-batch, so that it is measured; falsy values, which are options all the same.
    words = (*SETS, "--hidden", "16", "--epochs", "2", "--replicates", "2", "--batch-size", "50", "--tests", "rho")
    first = jaxaudit("ks", *words, "--seed", "0", "--controls", "0", "--color", "--json")
    again = first.result["provenance"]["command"]
    assert again[:2] == ["jaxaudit", "ks"]
    monkeypatch.setenv("JAXAUDIT_CACHE", str(sets / "fresh"))
    second = jaxaudit(*again[1:], "--json")
    for one in (first.result, second.result):
        del one["provenance"]["started"], one["provenance"]["seconds"]
    assert second.result["targets"] == first.result["targets"]
    assert second.result["noise_floor"] == first.result["noise_floor"]
    assert second.result["provenance"]["command"] == again
    assert second.result["provenance"]["options"] == first.result["provenance"]["options"]


def test_the_same_command_repeats_itself_with_the_models_per_batch_it_measured(
    sets: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAXAUDIT_CACHE", str(sets / "cache"))
    words = [word for word in QUICK if word not in ("--models-per-batch", "9")]
    measured = iter([BatchChoice(9, {})])
    monkeypatch.setattr("jaxaudit.audits.ks.models.measure_models_per_batch", lambda *_: next(measured))
    first = jaxaudit("ks", *words, "--json").result
    second = jaxaudit("ks", *words, "--json", "--seed", "8").result
    assert [each["provenance"]["options"]["models_per_batch"] for each in (first, second)] == [9, 9]


def test_all_randomness_follows_from_the_seed(sets: Path):
    one, same, other = (rhos(jaxaudit("ks", *QUICK, "--json", "--seed", seed)) for seed in ("1", "1", "2"))
    assert one == same
    assert one != other
    largest = rhos(jaxaudit("ks", *QUICK, "--json", "--seed", str(2**32 - 1)))
    assert largest not in (one, other)


def test_a_verdict_changes_the_status_only_when_asked(sets: Path):
    words = ("ks", *LEARNS, *KNOWN, "--json")
    done = jaxaudit(*words)
    assert done.result["targets"][0]["verdict"] == "not forgotten"
    assert done.code == 0
    assert jaxaudit(*words, "--fail-on", "not-forgotten").code == 3
    assert jaxaudit(*words, "--fail-on", "forgotten", "--fail-on", "not-forgotten").code == 3
    assert jaxaudit(*words, "--fail-on", "forgotten", "--fail-on", "inconclusive").code == 0
    failed = jaxaudit(*words, "--fail-on", "not-forgotten", "--out", "run")
    assert failed.code == 3
    assert json.loads((sets / "run/result.json").read_text()) == failed.result


def test_options_reach_the_audit(sets: Path, monkeypatch: pytest.MonkeyPatch):
    seen = intercept(monkeypatch, "jaxaudit.cli.ks.run.audit_ks")
    np.save("t.npy", np.full((RECORDS, 3), 1 / 3))
    given = {"replicates": 4, "controls": 2, "subsample": 0.5, "level": 0.8, "models_per_batch": 6}
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    recipe = ("--hidden", "7,5", "--epochs", "11", "--batch-size", "13")
    target = ("--target", "t.npy", "--target-data", "far.npz", "--allow-unrelated-target")
    done = jaxaudit("ks", *SETS, *words, *recipe, *target, "--seed", "3", "--tests", "rho")
    assert done.err.endswith("Error: enough\n")
    assert seen["tests"] == (RhoTest(replicates=4, controls=2, subsample=0.5),)
    assert (seen["level"], seen["execution"].models_per_batch) == (0.8, 6)
    file, simulated = seen["targets"]
    assert (file.name, file.allow_unrelated, simulated.name) == ("t.npy", True, "far.npz")
    assert (seen["learner"].epochs, seen["learner"].batch_size) == (11, 13)
    assert jax.random.key_data(seen["key"]).tolist() == jax.random.key_data(jax.random.key(3)).tolist()
    params, _ = jax.eval_shape(seen["learner"].net.init, jax.random.key(0))
    kernels = [leaf.shape for leaf in jax.tree.leaves(params) if leaf.ndim == 2]
    assert sorted(kernels) == sorted([(12, 7), (7, 5), (5, 3)])


@pytest.mark.parametrize(("model", "batch_size"), [("mlp", 900), ("norm:Normed", 100_000)])
def test_a_minibatch_is_no_larger_than_all_records(
    sets: Path, monkeypatch: pytest.MonkeyPatch, model: str, batch_size: int
):
    """But where batch normalisation would see what fills it up."""
    seen = intercept(monkeypatch, "jaxaudit.cli.ks.run.audit_ks")
    monkeypatch.syspath_prepend(str(sets))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    Path("norm.py").write_text("from support.tiny_learners import Normed\n")
    known = ("--model", model, "--target-data", "far.npz", "--batch-size", "100000")
    assert jaxaudit("ks", *SETS, *known).err.endswith("Error: enough\n")
    assert seen["learner"].batch_size == batch_size


def test_one_replicate_is_a_number_without_an_interval(sets: Path):
    done = jaxaudit("ks", *LEARNS, "--replicates", "1", *KNOWN, "--json")
    (target,) = done.result["targets"]
    assert target["rho"]["low"] is target["rho"]["high"] is None
    assert target["verdict"] == "inconclusive"
    assert target["paper_rule"] == "not forgotten"
    jsonschema.validate(done.result, schema_of("ks"))
    table = jaxaudit("ks", *LEARNS, "--replicates", "1", *KNOWN)
    row = next(line for line in table.out.splitlines() if line.startswith("query.npz"))
    assert row.split()[2] == "inconclusive"
    assert row.split()[-3:] == ["none", "not", "forgotten"]


@pytest.mark.outer
def test_as_a_process(sets: Path):
    done = process("ks", *QUICK, "--json", "--out", "run", cwd=sets)
    assert done.code == 0
    assert done.err.splitlines()[-1].startswith("written: run/result.json")
    assert "run/confidences.npz" in done.err.splitlines()[-1]
    assert json.loads((sets / "run/result.json").read_text()) == done.result
    assert rhos(done) == rhos(jaxaudit("ks", *QUICK, "--json"))
