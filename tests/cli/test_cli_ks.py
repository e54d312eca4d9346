"""`jaxaudit ks` from its options to its result; without a target, the set is dealt."""

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
    recipe,
    records,
    write_sets,
)

from jaxaudit import RhoTest, Role, Sets
from jaxaudit.audits import EFFORTS, make_pool
from jaxaudit.cli.ks.inputs import dealt_set
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.data import Examples
from jaxaudit.report import schema_of
from jaxaudit.shadow_models import no_models

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
    words = ("ks", *LEARNS)
    done = jaxaudit(*words, "--fail-on", "not-forgotten")
    assert done.code == 0
    assert content(sets) == before
    row = next(line for line in done.out.splitlines() if line.startswith("model A"))
    assert row.split()[:4] == ["model", "A", "100%", "inconclusive"]
    assert max(map(len, done.out.splitlines())) <= 80
    *_, training, comparing = done.err.splitlines()
    assert {"10", "mlp", "60"} <= set(training.split())
    assert "10" in comparing.split()
    failed = jaxaudit(*words, "--fail-on", "forgotten", "--fail-on", "inconclusive", "--out", "run", "--details")
    assert failed.code == 3
    assert len(failed.out) > len(done.out)
    assert (sets / "run/table.txt").read_text() == failed.out


@pytest.mark.outer
def test_a_slow_machine_makes_the_same_plan_and_the_same_numbers(sets: Path, monkeypatch: pytest.MonkeyPatch):
    """And the recorded command repeats the plan: numbers, verdicts, and what the plan leaves out."""
    monkeypatch.setitem(EFFORTS, "quick", 1e9)
    words = ("ks", *SETS, "--recipe", "hidden=16", "--recipe", "batch-size=50", "--tests", "shadow,rho", "--json")
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
    words = [*recipe("models-per-batch=6", "hidden=7,5", "batch-size=13"), "--epochs", "11", "--effort", "full"]
    for field in ("replicates=4", "controls=2", "subsample=0.5"):
        words += ["--test-option", f"rho.{field}"]
    target = ("--target", "t.npy", "--allow-unrelated-target")
    command = ("ks", *SETS, *words, *target, "--seed", "3", "--tests", "rho")
    assert jaxaudit(*command).err.endswith("Error: enough\n")
    assert seen["tests"] == (RhoTest(replicates=4, controls=2, subsample=0.5),)
    assert seen["execution"].models_per_batch == 6
    monkeypatch.setattr(
        AUDIT, lambda *_, **__: no_models(make_pool(Sets(query=seen["query"], calibration=seen["calibration"])))
    )
    judged = intercept(monkeypatch, "jaxaudit.cli.ks.run.judge")
    assert jaxaudit(*command).err.endswith("Error: enough\n")
    assert judged["tests"] == seen["tests"]
    (file,) = seen["targets"]
    assert (file.name, file.allow_unrelated) == ("t.npy", True)
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
    assert file.on[Role.QUERY].kind == "logits"


@pytest.mark.parametrize(("model", "batch_size"), [("mlp", 600), ("norm:Normed", 100_000)])
def test_a_minibatch_is_no_larger_than_all_records(
    sets: Path, monkeypatch: pytest.MonkeyPatch, model: str, batch_size: int
):
    """But where batch normalisation would see what fills it up."""
    seen = intercept(monkeypatch, AUDIT)
    monkeypatch.syspath_prepend(str(sets))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    Path("norm.py").write_text("from support.tiny_learners import Normed\n")
    known = ("--model", model, "--recipe", "batch-size=100000", "--effort", "full")
    assert jaxaudit("ks", *SETS, *known).err.endswith("Error: enough\n")
    assert seen["learner"].batch_size == batch_size


TINY = ("--recipe", "hidden=8", "--epochs", "1", "--effort", "full", "--test-option", "holdout.mixed=19")
FEW = (*TINY, "--sample", "90")


def numbers(count: int) -> Examples:
    return Examples(np.arange(count, dtype=np.uint8)[:, None], np.zeros(count, np.int32), ("one", "other"), "numbers")


def test_each_record_is_in_one_of_three_sets_and_a_copy_in_none() -> None:
    whole = numbers(90)
    twice = whole.take(np.r_[:90, :30])
    dealt, again, other = (dealt_set(jax.random.key(seed), twice) for seed in (1, 1, 2))
    parts = {role: examples.inputs[:, 0].tolist() for role, examples in dealt.items()}
    assert [len(part) for part in parts.values()] == [30, 30, 30]
    assert sorted(record for part in parts.values() for record in part) == list(range(90))
    assert [examples.content_hash for examples in again.values()] == [each.content_hash for each in dealt.values()]
    assert other[Role.QUERY].content_hash != dealt[Role.QUERY].content_hash
    assert dealt[Role.MEMBERS].name == "numbers (members)"


def test_whoever_gives_another_set_a_test_or_a_target_deals_himself() -> None:
    assert KSOptions().has_set_alone
    assert KSOptions(query="mnist", sample=100, test_option=("holdout.mixed=0",)).has_set_alone
    others = {"calibration": "c.npz", "deal": Path("deal"), "tests": "shadow", "target": (Path("o.csv"),)}
    for name, value in {**others, "shadows": Path("bank")}.items():
        assert not KSOptions(**{name: value}).has_set_alone


@pytest.mark.outer
def test_a_set_alone_is_judged_by_known_members_and_the_run_can_be_repeated() -> None:
    done = jaxaudit("ks", *FEW, "--json")
    assert done.code == 0, done.err
    targets = done.result["targets"]
    assert [target["truth"]["expected"] for target in targets] == ["not forgotten", "forgotten", "not forgotten"]
    assert [target["truth"]["used_fraction"] for target in targets] == pytest.approx([1, 0, 0.5], abs=0.01)
    assert [test["name"] for test in targets[0]["tests"]] == ["members", "holdout"]
    again = jaxaudit(*done.result["provenance"]["command"][1:], "--json")
    assert (again.result["targets"], again.result["noise_floor"]) == (targets, done.result["noise_floor"])


@pytest.mark.outer
def test_texts_alone_are_dealt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f'{{"text": "the record number {index} is {index % 7} and {index * 31 % 97}"}}' for index in range(240)]
    Path("texts.jsonl").write_text("\n".join(lines), "utf-8")
    small = ("--model", "gpt-1-8", *recipe("tokens=words"), "--epochs", "1", "--effort", "full")
    done = jaxaudit("ks", "--query", "texts.jsonl", *small, "--json")
    assert done.code == 0, done.err
    assert done.result["targets"][0]["tests"][0]["name"] == "members"


@pytest.mark.outer
def test_a_test_that_is_named_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digits are then no set to be dealt: half of them are the calibration set."""
    monkeypatch.chdir(tmp_path)
    few = ("--epochs", "1", "--recipe", "hidden=4", "--sample", "50", "--test-option", "rho.replicates=2", "--json")
    data = jaxaudit("ks", "--tests", "rho", *few).result["provenance"]["data"]
    assert [data[role]["name"] for role in ("query", "calibration")] == ["digits@train[:900]", "digits@train[900:]"]
