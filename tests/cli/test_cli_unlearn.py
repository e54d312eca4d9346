"""`jaxaudit unlearn` from its words to what it prints, writes, refuses and resumes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from support.cli_runs import content, jaxaudit, process, records, write_sets

from jaxaudit.data.weights.weights import read_weights
from jaxaudit.report.kinds import schema_of

DATA = ("--data", "query.npz", "--class", "1", "--per-class", "20")
SMALL = (*DATA, "--hidden", "8", "--epochs", "4", "--batch-size", "10", "--seeds", "3", "--models-per-batch", "3")
QUICK = (*SMALL, "--nonmembers", "0")
"""Without membership attacks."""
FILES = [f"{method}-0{seed}.safetensors" for method in ("amnesiac", "fisher") for seed in range(3)]
FILES += ["forget.npz", *(f"original-0{seed}.safetensors" for seed in range(3)), "result.json"]
FILES += [*(f"retraining-0{seed}.safetensors" for seed in range(3)), "table.txt"]

OURS = """
from flax import nnx


class Net(nnx.Module):
    def __init__(self, input_shape, classes, *, rngs):
        self.first = nnx.Linear(input_shape[0], 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.last = nnx.Linear(4, classes, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sets(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def method(result: dict, name: str) -> dict:
    return next(each for each in result["methods"] if each["name"] == name)


def test_the_answer_by_its_schema_and_the_whole_run_directory():
    done = jaxaudit("unlearn", *SMALL, "--attack-epochs", "2", "--out", "run", "--json")
    result = done.result
    jsonschema.validate(result, schema_of("unlearn"))
    assert [each["name"] for each in result["methods"]] == ["untrained", "original", "retraining", "amnesiac", "fisher"]
    assert result["forgotten"] == "10 of the 20 records of class 1"
    assert result["protocol"]["training_records"] == 60
    assert result["protocol"]["test_records"] == 240
    assert result["protocol"]["members_share"] == 0.5
    for each in result["methods"]:
        for name, spread in each["scores"].items():
            if spread is None:
                assert (each["name"], name) == ("untrained", "attack")
                continue
            assert len(spread["values"]) == 3
            assert spread["low"] <= spread["median"] <= spread["high"]
        for mine, most in zip(each["scores"]["efficacy"]["values"], each["scores"]["bound"]["values"], strict=True):
            assert mine <= most
    assert method(result, "retraining")["places"] == {}
    assert {place["verdict"] for place in method(result, "fisher")["places"].values()} == {"too few seeds"}
    assert result["protocol"]["enough_seeds"] is False
    assert result["finding"]["verdict"] == "inconclusive"
    assert sorted(os.listdir("run")) == sorted(FILES)
    assert json.loads(Path("run/result.json").read_text()) == result
    assert "10 of the 20 records of class 1" in done.err
    assert {"60", "6", "3"} <= set(re.findall(r"\d+", done.err))
    forget, (inputs, labels) = np.load("run/forget.npz"), records(2, 0.0)
    np.testing.assert_array_equal(forget["x"], inputs[labels == 1][:10])
    assert set(forget["y"]) == {1}


@pytest.mark.parametrize("name", ["original", "retraining", "amnesiac", "fisher"])
def test_weights_it_saves_are_judged_by_efficacy_as_it_judged_them(tmp_path_factory, name: str, folder: Path):
    """The round trip, with the forgotten records that it saves beside them."""
    place = tmp_path_factory.getbasetemp() / "unlearned"
    if not place.exists():
        assert jaxaudit("unlearn", *QUICK, "--out", str(place)).code == 0
    scores = method(json.loads((place / "result.json").read_text()), name)["scores"]
    for seed in (0, 2):
        params = ("--params", str(place / f"{name}-0{seed}.safetensors"))
        reference = ("--reference", f"retrained={place / 'retraining-00.safetensors'}")
        words = ("--model", "mlp", "--hidden", "8", *params, *reference, "--data", str(place / "forget.npz"))
        found = jaxaudit("efficacy", *words, "--json").result["models"]
        for score in ("efficacy", "information", "bound"):
            assert found[0][score] == pytest.approx(scores[score]["values"][seed], rel=1e-3), score
        assert found[0]["accuracy"] == pytest.approx(scores["forgotten_accuracy"]["values"][seed])
        assert found[1]["name"] == "retrained"


@pytest.mark.outer
def test_a_noise_of_strength_0_leaves_the_original_and_is_a_process(folder: Path):
    words = (*QUICK, "--methods", "fisher", "--alpha", "0", "--out", "run", "--json")
    done = process("unlearn", *words, cwd=folder)
    assert [each["name"] for each in done.result["methods"]] == ["untrained", "original", "retraining", "fisher"]
    original, fisher = (method(done.result, name)["scores"] for name in ("original", "fisher"))
    assert fisher == original
    for seed in range(3):
        first, second = (read_weights(f"run/{name}-0{seed}.safetensors") for name in ("original", "fisher"))
        assert first.keys() == {f"layers/{layer}/{kind}" for layer in (0, 1) for kind in ("kernel", "bias")}
        assert all(np.array_equal(first[each], second[each]) for each in first)


def test_variants_of_fisher_forgetting_differ():
    words = ("unlearn", *QUICK, "--methods", "fisher", "--alpha", "1e-4", "--json", "--fisher-variant")
    found = [method(jaxaudit(*words, name).result, "fisher")["scores"] for name in ("golatkar", "paper", "becker-code")]
    assert len({json.dumps(scores["information"]["values"]) for scores in found}) == 3
    assert len({json.dumps(scores["forgotten_accuracy"]) for scores in found}) > 1


TRAINED_ON = ("fine-tuning", "gradient-ascent", "negative-gradient", "scrub")


def test_every_other_method_by_its_name():
    """Asking for them changes no number of the others, and each has its options."""
    chosen = (*TRAINED_ON, "ssd")
    words = ("unlearn", *QUICK, "--json", "--methods")
    how = ("--unlearn-rate", "0.1", "--unlearn-epochs", "2", "--ssd-alpha", "1")
    found = jaxaudit(*words, ",".join(("fisher", *chosen)), *how).result
    assert [each["name"] for each in found["methods"]] == ["untrained", "original", "retraining", "fisher", *chosen]
    alone = jaxaudit(*words, "fisher").result
    for name in ("untrained", "original", "retraining", "fisher"):
        assert method(found, name)["scores"] == method(alone, name)["scores"]
    said = " ".join(found["caveats"])
    assert f"{', '.join(TRAINED_ON)}: 2 epochs, learning rate 0.1, 0.1, 0.1, 0.1." in said
    scores = {name: method(found, name)["scores"]["information"] for name in ("original", *chosen)}
    assert len({json.dumps(each["values"]) for each in scores.values()}) == len(scores)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        *((name, option) for name in TRAINED_ON for option in (("--unlearn-epochs", "1"), ("--unlearn-rate", "0.2"))),
        ("negative-gradient", ("--beta", "0.5")),
        ("ssd", ("--ssd-alpha", "1")),
        ("ssd", ("--ssd-alpha", "1", "--ssd-lambda", "0.5")),
    ],
)
def test_an_option_of_a_method_has_an_effect(name: str, option: tuple[str, ...]):
    words = ("unlearn", *QUICK, "--seeds", "2", "--models-per-batch", "2", "--epochs", "2", "--methods", name, "--json")
    usual, other = (method(jaxaudit(*words, *more).result, name)["scores"] for more in ((), option))
    assert usual["information"] != other["information"]


def test_a_strength_at_which_nothing_can_change_is_said():
    """10 of 60 records are forgotten: no Fisher information of theirs is 10 times that of all."""
    words = ("--seeds", "2", "--models-per-batch", "2", "--epochs", "1", "--methods", "ssd", "--json")
    found = jaxaudit("unlearn", *QUICK, *words).result
    assert any(said.startswith("ssd: nothing changes") for said in found["caveats"])
    assert method(found, "ssd")["scores"] == method(found, "original")["scores"]
    found = jaxaudit("unlearn", *QUICK, *words, "--ssd-alpha", "5.9").result
    assert not any(said.startswith("ssd: ") for said in found["caveats"])


def test_sixteen_seeds_tell_models_from_retrained_ones():
    words = ("unlearn", *QUICK, "--seeds", "16", "--models-per-batch", "16", "--methods", "fisher", "--alpha", "0")
    done = jaxaudit(*words, "--json")
    jsonschema.validate(done.result, schema_of("unlearn"))
    found = {each["name"]: (each["challenge"], each["u_lira"]) for each in done.result["methods"]}
    assert found.pop("untrained") == (None, None)
    for challenge, lira in found.values():
        assert len(challenge["epsilon"]) == 10
        assert 0 <= challenge["quality"]["low"] <= challenge["quality"]["value"] <= 1
        assert 0 <= lira["low"] <= lira["value"] <= lira["high"] <= 1
    # A noise of strength 0 forgets nothing.
    original, fisher = found["original"], found["fisher"]
    assert fisher[0]["epsilon"] == original[0]["epsilon"]
    assert fisher[1]["value"] == original[1]["value"]
    out = jaxaudit(*words).out
    assert "Told from retrained models of other seeds" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_table_for_people():
    done = jaxaudit("unlearn", *QUICK, "--methods", "retraining,amnesiac")
    assert done.code == 0
    said = " ".join(done.out.split())
    assert "10 of the 20 records of class 1" in said
    assert "amnesiac: inconclusive" in said
    assert "fisher" not in said
    assert "query.npz (the first 20 of each class, 60 records)" in said
    assert max(map(len, done.out.splitlines())) <= 80
    alone = jaxaudit("unlearn", *QUICK, "--methods", "retraining", "--json").result
    assert [each["name"] for each in alone["methods"]] == ["untrained", "original", "retraining"]


def test_enough_seeds_tell_a_method_that_does_nothing_from_retraining():
    """8 seeds, learned by heart: fisher with a noise of 0 classifies what retrained models cannot."""
    words = ("--hidden", "32", "--epochs", "60", "--batch-size", "10", "--seeds", "8", "--models-per-batch", "8")
    fisher = ("--methods", "fisher", "--alpha", "0", "--fraction", "1", "--nonmembers", "0")
    done = jaxaudit("unlearn", *DATA, *words, *fisher, "--json", "--fail-on", "distinguishable")
    assert done.code == 3
    assert method(done.result, "fisher")["finding"]["verdict"] == "distinguishable"
    assert method(done.result, "fisher")["places"]["forgotten_accuracy"]["verdict"] == "above"


def test_the_recorded_command_repeats_the_run():
    measured = QUICK[: QUICK.index("--models-per-batch")]
    words = [*measured, "--nonmembers", "0", "--test-data", "calibration.npz", "--color"]
    first = jaxaudit("unlearn", *words, "--json").result
    assert "--class" in first["provenance"]["command"]
    second = jaxaudit(*first["provenance"]["command"][1:], "--json").result
    assert second["methods"] == first["methods"]
    assert second["provenance"]["command"] == first["provenance"]["command"]
    assert first["protocol"]["test_records"] == 300
    other = jaxaudit(*first["provenance"]["command"][1:], "--seed", "8", "--json").result
    assert other["methods"] != first["methods"]


@pytest.mark.outer
def test_a_run_killed_and_started_again_ends_as_if_it_had_not_been():
    words = (*QUICK, "--models-per-batch", "1", "--seeds", "6", "--epochs", "200", "--methods", "retraining", "--json")
    whole = jaxaudit("unlearn", *words).result
    command = [sys.executable, "-m", "jaxaudit", "unlearn", *words, "--out", "run"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        deadline = time.monotonic() + 120
        while len(list(Path("run/unfinished").glob("chunks/*/*.npz"))) < 3:
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        run.send_signal(signal.SIGKILL)
        run.communicate()
    kept = len(list(Path("run/unfinished").glob("chunks/*/*.npz")))
    assert 3 <= kept < 12
    before = content(Path.cwd())
    refused = jaxaudit("unlearn", *words, "--epochs", "201", "--out", "run")
    assert (refused.code, refused.out) == (2, "")
    assert re.search(r"\(epochs: 200\b.*\b201\b", refused.err)
    assert content(Path.cwd()) == before
    done = jaxaudit("unlearn", *words, "--out", "run")
    assert f"Resuming: {kept} of 12 models " in done.err
    assert done.result["methods"] == whole["methods"]
    assert "unfinished" not in os.listdir("run")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--methods", "amnesic"), ("--methods", "'amnesic'", "amnesiac?")),
        (("--methods", "zzz"), ("--methods", "'zzz'", "retraining, amnesiac, fisher")),
        (("--methods", ","), ("--methods", "retraining, amnesiac, fisher")),
        (("--alpha", "-1"), ("--alpha", "-1")),
        (("--alpha", "nan"), ("--alpha", "nan")),
        (("--unlearn-rate", "0"), ("--unlearn-rate", " 0.")),
        (("--unlearn-rate", "nan"), ("--unlearn-rate", "nan")),
        (("--beta", "1.1"), ("--beta", "1.1")),
        (("--ssd-alpha", "-1"), ("--ssd-alpha", "-1")),
        (("--ssd-lambda", "-1"), ("--ssd-lambda", "-1")),
        (("--ssd-alpha", "nan"), ("--ssd-alpha", "nan")),
        (("--fraction", "0"), ("--fraction", " 0.")),
        (("--fraction", "nan"), ("--fraction", "nan")),
        (("--fraction", "0.01"), ("--fraction 0.01", "20", "class 1")),
        (("--class", "9"), ("--class", "query.npz", "'9'", "0, 1, 2")),
        (("--data", "one.npz", "--fraction", "1"), ("one.npz",)),
        (("--per-class", "0"), ("query.npz", "test", "--test-data", "--per-class")),
        (("--test-data", "gone.npz"), ("--test-data gone.npz",)),
        (("--level", "1"), ("--level", " 1.")),
        (("--nonmembers", "1000"), ("--nonmembers 1000", "240")),
        (("--data", "one.npz"), ("one.npz",)),
        (("--test-data", "same.npz"), ("60", "same.npz", "--test-data")),
        (("--test-data", "narrow.npz"), ("narrow.npz", "(3,)", "(12,)")),
        (("--test-data", "strange.npz"), ("strange.npz", "'7'", "query.npz")),
        (("--data", "torn"), ("x_test.npy",)),
        (("--learning-rate", "0"), ("--learning-rate", " 0.")),
        (("--hidden", "x"), ("--hidden x",)),
        (("--model", "liu-cnn"), ("LiuCNN",)),
        (("--model", "mine:f"), ("--model mine:f", "'mine'")),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(folder: Path, words: tuple[str, ...], said: tuple[str, ...]):
    inputs, labels = records(2, 0.0)
    np.savez("one.npz", x=inputs[labels == 1], y=np.zeros(100, int), class_names=np.array(["1"]))
    first = np.concatenate([np.flatnonzero(labels == label)[:20] for label in range(3)])
    np.savez("same.npz", x=inputs[first], y=labels[first])
    np.savez("narrow.npz", x=inputs[:, :3], y=labels)
    np.savez("strange.npz", x=inputs + 1, y=np.where(labels == 2, 7, labels))
    Path("torn").mkdir()
    for split in ("train", "test"):
        np.save(f"torn/x_{split}.npy", inputs)
        np.save(f"torn/y_{split}.npy", labels)
    whole = Path("torn/x_test.npy").read_bytes()
    Path("torn/x_test.npy").write_bytes(whole[: len(whole) // 2])
    before = content(folder)
    done = jaxaudit("unlearn", *QUICK, *words, "--out", "run")
    assert (done.code, done.out) == (2, ""), done
    last = done.err.splitlines()[-1]
    assert last.startswith("Error: ")
    assert [each for each in said if each not in last] == [], last
    assert content(folder) == before


def test_without_data_it_takes_the_digits_that_come_with_the_package():
    words = ("--epochs", "1", "--seeds", "2", "--nonmembers", "0", "--methods", "retraining", "--models-per-batch", "2")
    result = jaxaudit("unlearn", *words, "--json").result
    assert result["forgotten"] == "50 of the 100 records of class 3"
    assert (result["protocol"]["training_records"], result["protocol"]["test_records"]) == (1000, 797)
    options = result["provenance"]["options"]
    assert (options["hidden"], options["attack_epochs"], options["class"]) == ("128,64", 20, "3")


@pytest.mark.skipif(
    not (Path(os.environ.get("JAXAUDIT_DATA", "/nonexistent")) / "mnist").is_dir(),
    reason="needs the original MNIST files in $JAXAUDIT_DATA/mnist",
)
def test_mnist_as_in_the_paper():
    words = ("--data", "mnist", "--class", "3", "--fraction", "0.25", "--hidden", "8", "--epochs", "1", "--seeds", "2")
    quick = ("--nonmembers", "0", "--methods", "retraining", "--models-per-batch", "2")
    result = jaxaudit("unlearn", *words, *quick, "--json").result
    assert result["forgotten"] == "25 of the 100 records of class 3"
    assert (result["protocol"]["training_records"], result["protocol"]["test_records"]) == (1000, 10_000)
    assert result["provenance"]["data"]["test"]["name"] == "mnist@test"
    assert result["provenance"]["options"]["attack_epochs"] == 100


def test_records_that_were_trained_on_are_no_test_records():
    """Half of them here: what is left is of two classes, which may be."""
    inputs, labels = records(2, 0.0)
    chosen = np.flatnonzero(labels != 2)
    np.savez("half.npz", x=inputs[chosen], y=labels[chosen])
    words = ("--seeds", "2", "--epochs", "1", "--methods", "retraining", "--test-data", "half.npz")
    done = jaxaudit("unlearn", *QUICK, *words, "--json")
    assert done.result["protocol"]["test_records"] == 160
    assert any(said.startswith("40 of the 200 records of half.npz ") for said in done.result["caveats"])


def test_a_network_of_ones_own_with_dropout_and_batch_normalisation(folder: Path):
    """Its random keys and running statistics are trained, kept and saved; amnesiac unlearning is refused at once."""
    Path("ours.py").write_text(OURS)
    words = (*QUICK, "--seeds", "2", "--epochs", "1", "--model", "ours:Net")
    refused = jaxaudit("unlearn", *words)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("Error: --methods amnesiac ")
    assert "ours:Net" in refused.err
    assert "--methods retraining,fisher" in refused.err
    done = jaxaudit("unlearn", *words, "--methods", "retraining", "--out", "run", "--json")
    assert any("evaluation mode" in said for said in done.result["caveats"])
    params = ("--model", "ours:Net", "--params", "run/retraining-01.safetensors", "--data", "run/forget.npz")
    found = jaxaudit("efficacy", *params, "--json").result["models"][0]
    wanted = method(done.result, "retraining")["scores"]["efficacy"]["values"][1]
    assert found["efficacy"] == pytest.approx(wanted, rel=1e-3)
    sys.modules.pop("ours")


def test_a_class_must_be_named_for_data_of_ones_own():
    done = jaxaudit("unlearn", "--data", "query.npz")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: --class ")
    assert "0, 1, 2" in done.err
