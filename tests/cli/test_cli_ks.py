"""`jaxaudit ks` from its options to its result."""

import json
import time
from pathlib import Path

import jax
import jsonschema
import numpy as np
import pytest
from support.cli_runs import (
    LEARNS,
    QUICK,
    RECORDS,
    SETS,
    Done,
    content,
    intercept,
    jaxaudit,
    records,
    write_sets,
)

from jaxaudit.audits.ks.plan import EFFORTS
from jaxaudit.audits.ks.tests_of_use import RhoTest
from jaxaudit.audits.pool import make_pool
from jaxaudit.cli.ks.run import described_files
from jaxaudit.data.roles import Sets
from jaxaudit.report.kinds import schema_of
from jaxaudit.shadow_models import no_models

KNOWN = ("--target-data", "query.npz")
AUDIT = "jaxaudit.cli.ks.run.train_shadows"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A run directory, and what its run printed."""
    folder = tmp_path_factory.mktemp("first")
    write_sets(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder / "runs/first", jaxaudit("ks", *QUICK, "--json", "--out", "runs/first")


def test_json_is_all_of_stdout_and_follows_the_schema(first: tuple[Path, Done]):
    _, done = first
    jsonschema.validate(done.result, schema_of("ks"))
    assert done.out.count("\n") == 1
    assert [target["name"] for target in done.result["targets"]] == ["model A", "model B", "model C"]
    truths = [target["truth"] for target in done.result["targets"]]
    assert [truth["used_fraction"] for truth in truths] == [1.0, 0.0, 0.5]
    assert [truth["training_records"] for truth in truths] == [501, 201, 351]
    assert [truth["expected"] for truth in truths] == ["not forgotten", "forgotten", "not forgotten"]


def test_run_directory_holds_the_same_result_and_plain_arrays(first: tuple[Path, Done]):
    run, done = first
    assert json.loads((run / "result.json").read_text()) == done.result
    with np.load(run / "confidences.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {"query", "calibration", "control", "labels", "target_0", "target_1", "target_2"}
        assert arrays["query"].shape == arrays["calibration"].shape == (3, RECORDS)
        assert arrays["control"].shape == (1, RECORDS)
        assert arrays["target_0"].shape == arrays["labels"].shape == (RECORDS,)
        assert (arrays["query"] > 0).all()
        assert (arrays["query"] <= 1).all()
        np.testing.assert_array_equal(arrays["labels"], np.arange(RECORDS) % 3)
    assert [path.name for path in run.parent.iterdir()] == ["first"]


@pytest.mark.outer
def test_a_verdict_changes_the_status_only_when_asked(sets: Path):
    """The table is all of stdout, talk is on stderr, and without `--out` nothing is written."""
    before = content(sets)
    words = ("ks", *LEARNS, *KNOWN)
    done = jaxaudit(*words, "--fail-on", "forgotten", "--fail-on", "inconclusive")
    assert done.code == 0
    assert content(sets) == before
    row = next(line for line in done.out.splitlines() if line.startswith("query.npz"))
    assert row.split()[:4] == ["query.npz", "100%", "not", "forgotten"]
    assert row.rstrip().endswith("not forgotten")
    assert max(map(len, done.out.splitlines())) <= 80
    training, comparing = done.err.splitlines()
    assert {"8", "mlp", "60"} <= set(training.split())
    assert "8" in comparing.split()
    full = jaxaudit(*words, "--details").out
    assert len(full) > len(done.out)
    failed = jaxaudit(*words, "--fail-on", "forgotten", "--fail-on", "not-forgotten", "--out", "run", "--json")
    assert failed.code == 3
    assert failed.result["targets"][0]["finding"]["verdict"] == "not forgotten"
    assert json.loads((sets / "run/result.json").read_text()) == failed.result
    assert (sets / "run/table.txt").read_text() == full


@pytest.mark.outer
def test_every_effort_is_planned_and_nothing_is_refused(sets: Path):
    for name, seed in (("query", 2), ("calibration", 3)):
        inputs, labels = records(seed, 0.7 * (seed - 2), 3000)
        np.savez(f"{name}.npz", x=inputs, y=labels)
    network = ("--hidden", "512,512", "--epochs", "4000", "--models-per-batch", "1")
    words = ("ks", *SETS, *network, "--replicates", "3", "--tests", "rho", "--dry-run", "--json")
    quick, standard, full = (
        json.loads(jaxaudit(*words, "--effort", effort).out) for effort in ("quick", "standard", "full")
    )
    assert (full["reduced"], full["larger"], full["models"]) == ([], {}, 10)
    assert quick["operations"] < full["operations"] <= standard["operations"] * 1.001
    assert list(quick["larger"]) == ["standard"]
    assert quick["larger"]["standard"]["reduced"] == standard["reduced"] == []
    # What was given stands, only records may go.
    assert [text.split()[1] for text in quick["reduced"]] == ["records", "records"]
    assert quick["unlike"] == quick["reduced"]
    asked = json.loads(jaxaudit(*words, "--sample", "3000").out)
    assert (asked["reduced"], asked["operations"]) == ([], full["operations"])
    text = jaxaudit(*words[:-1])
    assert "  --effort standard: about " in text.out
    assert "nothing reduced" in text.out


@pytest.mark.outer
def test_a_slow_machine_makes_the_same_plan_and_the_same_numbers(sets: Path, monkeypatch: pytest.MonkeyPatch):
    """And the recorded command repeats the plan: numbers, verdicts, and what the plan leaves out."""
    monkeypatch.setitem(EFFORTS, "quick", 1e9)
    words = ("ks", *SETS, "--hidden", "16", "--batch-size", "50", "--tests", "shadow", "--designs", "guess", "--json")
    results = []
    for slower in (1, 50):
        clock = time.perf_counter
        with monkeypatch.context() as patch:
            patch.setattr(time, "perf_counter", lambda: slower * clock())  # noqa: B023
            patch.setenv("JAXAUDIT_CACHE", str(sets / f"cache-{slower}"))
            results.append(jaxaudit(*words).result)
    first, second = results
    assert second["targets"] == first["targets"]
    assert second["provenance"]["plan"] == first["provenance"]["plan"]
    assert second["provenance"]["options"] == first["provenance"]["options"]
    assert {text.split(" ")[0] for text in first["provenance"]["plan"]["reduced"]} == {
        *("query", "calibration", "models", "epochs")
    }
    assert {"rho.replicates=2", "shadow.half=19"} <= set(first["provenance"]["options"]["test_option"])
    assert {"--effort", "quick"} <= set(first["provenance"]["command"])
    again = jaxaudit(*first["provenance"]["command"][1:], "--json").result
    assert again["targets"] == first["targets"]
    assert "not those that were asked for" in " ".join(again["targets"][0]["finding"]["caveats"])
    assert again["provenance"]["command"] == first["provenance"]["command"]


@pytest.mark.outer
def test_the_recorded_command_repeats_the_run(sets: Path, monkeypatch: pytest.MonkeyPatch):
    """Records are drawn, models per batch are chosen, and options that are falsy are options all the same."""
    monkeypatch.setenv("JAXAUDIT_CACHE", str(sets / "cache"))
    words = ["ks", *SETS, "--hidden", "32", "--epochs", "2", "--batch-size", "50", "--replicates", "2"]
    words += ["--tests", "rho,ema", "--sample", "120", "--controls", "0", "--color", "--json"]
    done = jaxaudit(*words, "--seed", "0")
    result, provenance = done.result, done.result["provenance"]
    assert any(line.startswith("Plan: 7 models") for line in done.err.splitlines())
    assert provenance["plan"]["reduced"] == []
    assert [provenance["data"][name]["records"] for name in ("query", "calibration")] == [120, 120]
    again = provenance["command"]
    assert again[:2] == ["jaxaudit", "ks"]
    with monkeypatch.context() as patch:
        patch.setenv("JAXAUDIT_CACHE", str(sets / "fresh"))
        second = jaxaudit(*again[1:], "--json").result
    assert second["targets"] == result["targets"]
    assert second["noise_floor"] == result["noise_floor"]
    assert second["provenance"]["command"] == again
    assert second["provenance"]["options"] == provenance["options"]
    assert second["provenance"]["plan"] == provenance["plan"]
    for target in second["targets"]:
        # The first test named decides.
        assert [test["name"] for test in target["tests"]] == ["rho", "ema"]
        assert target["tests"][0]["name"] == "rho"
        assert target["finding"] == target["tests"][0]["finding"]
        assert target["finding"]["verdict"] == target["tests"][0]["finding"]["verdict"]
    assert provenance["options"]["tests"] == "rho,ema"


@pytest.mark.outer
def test_columns_on_which_a_network_hardly_trains_are_told_of_before_it_does(
    sets: Path, monkeypatch: pytest.MonkeyPatch
):
    for place in (AUDIT, "jaxaudit.cli.power.run.measure_power", "jaxaudit.cli.shadows.train.bank_there"):
        intercept(monkeypatch, place)
    words = (*SETS, "--effort", "full")
    assert "scale each" not in jaxaudit("ks", *words).err
    inputs, labels = records(3, 0.7)
    np.savez("calibration.npz", x=1234.0 * inputs, y=labels)
    for command in (("ks", *words), ("power", *SETS), ("shadows", "train", *SETS, "--out", "bank")):
        told = jaxaudit(*command).err
        assert "networks train badly or not at all: scale each, in all sets alike" in told


def test_options_reach_the_audit(sets: Path, monkeypatch: pytest.MonkeyPatch):
    seen = intercept(monkeypatch, AUDIT)
    np.save("t.npy", np.full((RECORDS, 3), 1 / 3))
    given = {"replicates": 4, "controls": 2, "subsample": 0.5, "level": 0.8, "models_per_batch": 6}
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    recipe = ("--hidden", "7,5", "--epochs", "11", "--batch-size", "13", "--effort", "full")
    target = ("--target", "t.npy", "--target-data", "far.npz", "--allow-unrelated-target")
    command = ("ks", *SETS, *words, *recipe, *target, "--seed", "3", "--tests", "rho")
    assert jaxaudit(*command).err.endswith("Error: enough\n")
    assert seen["tests"] == (RhoTest(replicates=4, controls=2, subsample=0.5),)
    assert seen["execution"].models_per_batch == 6
    monkeypatch.setattr(
        AUDIT, lambda *_, **__: no_models(make_pool(Sets(query=seen["query"], calibration=seen["calibration"])))
    )
    judged = intercept(monkeypatch, "jaxaudit.cli.ks.run.judge")
    assert jaxaudit(*command).err.endswith("Error: enough\n")
    assert (judged["tests"], judged["level"]) == (seen["tests"], 0.8)
    file, simulated = seen["targets"]
    assert (file.name, file.allow_unrelated, simulated.name) == ("t.npy", True, "far.npz")
    assert (seen["learner"].epochs, seen["learner"].batch_size) == (11, 13)
    assert jax.random.key_data(seen["key"]).tolist() == jax.random.key_data(jax.random.key(3)).tolist()
    params, _ = jax.eval_shape(seen["learner"].net.init, jax.random.key(0))
    kernels = [leaf.shape for leaf in jax.tree.leaves(params) if leaf.ndim == 2]
    assert sorted(kernels) == sorted([(12, 7), (7, 5), (5, 3)])


def test_the_kind_of_outputs_may_be_said(sets: Path, monkeypatch: pytest.MonkeyPatch):
    asked = intercept(monkeypatch, AUDIT)
    # Within [0, 1], so that only its owner can know that these are logits.
    np.save("l.npy", np.random.default_rng(0).random((RECORDS, 3)))
    assert jaxaudit("ks", *QUICK, "--target", "l.npy", "--target-kind", "logits").err.endswith("Error: enough\n")
    (file,) = asked["targets"]
    (described,) = described_files([file])["targets"]
    assert described == {"name": "l.npy", "kind": "logits", "content_hash": file.outputs.content_hash}


def test_a_target_is_trained_on_the_union_of_its_data(sets: Path):
    words = ("--target-data", "calibration.npz", "--target-data", "query.npz:0.1", "--json")
    (target,) = jaxaudit("ks", *QUICK, *words).result["targets"]
    assert target["name"] == "calibration.npz + 10% of query.npz"
    assert target["truth"] == {"used_fraction": 0.1, "training_records": 330, "expected": "not forgotten"}


@pytest.mark.parametrize(("model", "batch_size"), [("mlp", 900), ("norm:Normed", 100_000)])
def test_a_minibatch_is_no_larger_than_all_records(
    sets: Path, monkeypatch: pytest.MonkeyPatch, model: str, batch_size: int
):
    """But where batch normalisation would see what fills it up."""
    seen = intercept(monkeypatch, AUDIT)
    monkeypatch.syspath_prepend(str(sets))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    Path("norm.py").write_text("from support.tiny_learners import Normed\n")
    known = ("--model", model, "--target-data", "far.npz", "--batch-size", "100000", "--effort", "full")
    assert jaxaudit("ks", *SETS, *known).err.endswith("Error: enough\n")
    assert seen["learner"].batch_size == batch_size
