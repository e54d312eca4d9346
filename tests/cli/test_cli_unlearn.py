"""`jaxaudit unlearn` from its words to what it prints, writes, refuses and resumes."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from support.cli_runs import intercept, jaxaudit, own_modules, records, refused, stopping, write_sets

from jaxaudit.cli.unlearn import UnlearnOptions
from jaxaudit.cli.unlearn.run import read_unlearn_sets
from jaxaudit.report import schema_of
from jaxaudit.unlearning import becker_code, paper

DATA = ("--data", "query.npz", "--class", "1", "--per-class", "20")
SMALL = (
    *DATA,
    *("--recipe", "hidden=8", "--epochs", "4", "--recipe", "batch-size=10", "--seeds", "3"),
    *("--recipe", "models-per-batch=3"),
)
QUICK = (*SMALL, "--nonmembers", "0")
"""Without membership attacks."""
FILES = [f"{method}-0{seed}.safetensors" for method in ("amnesiac", "fisher") for seed in range(3)]
FILES += ["forget.npz", *(f"original-0{seed}.safetensors" for seed in range(3)), "result.json"]
FILES += [*(f"retraining-0{seed}.safetensors" for seed in range(3)), "table.txt"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sets, sets that cannot be used, and `run`: the directory of a run, with its JSON and what it said."""
    folder = tmp_path_factory.mktemp("made")
    write_sets(folder)
    write_bad_sets(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = jaxaudit("unlearn", *SMALL, "--attack-epochs", "2", "--out", "run", "--json")
    assert done.code == 0, done.err
    (folder / "printed.json").write_text(done.out)
    (folder / "said.txt").write_text(done.err)
    return folder


@pytest.fixture(autouse=True)
def folder(made: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    with own_modules(tmp_path):
        yield tmp_path


def write_bad_sets(folder: Path) -> None:
    inputs, labels = records(2, 0.0)
    np.savez(folder / "one.npz", x=inputs[labels == 1], y=np.zeros(100, int), class_names=np.array(["1"]))
    first = np.concatenate([np.flatnonzero(labels == label)[:20] for label in range(3)])
    np.savez(folder / "same.npz", x=inputs[first], y=labels[first])
    np.savez(folder / "narrow.npz", x=inputs[:, :3], y=labels)
    np.savez(folder / "strange.npz", x=inputs + 1, y=np.where(labels == 2, 7, labels))
    for name, last in (("named", "l"), ("other", "z")):
        header = ",".join((*"abcdefghijk", last, "label"))
        np.savetxt(folder / f"{name}.csv", np.c_[inputs, labels], delimiter=",", header=header, comments="", fmt="%g")
    (folder / "torn").mkdir()
    for split in ("train", "test"):
        np.save(folder / f"torn/x_{split}.npy", inputs)
        np.save(folder / f"torn/y_{split}.npy", labels)
    os.truncate(folder / "torn/x_test.npy", 8000)


def method(result: dict, name: str) -> dict:
    return next(each for each in result["methods"] if each["name"] == name)


def test_the_answer_by_its_schema_and_the_whole_run_directory():
    result, said = json.loads(Path("printed.json").read_text()), Path("said.txt").read_text()
    jsonschema.validate(result, schema_of("unlearn"))
    assert [each["name"] for each in result["methods"]] == ["untrained", "original", "retraining", "amnesiac", "fisher"]
    assert result["forgotten"] == "10 of the 20 records of class 1"
    assert result["protocol"]["training_records"] == 60
    assert result["protocol"]["test_records"] == 240
    assert result["protocol"]["members_share"] == 0.5
    for each in result["methods"]:
        assert ("attack" not in each["scores"]) == (each["name"] == "untrained")
        for spread in each["scores"].values():
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
    assert "10 of the 20 records of class 1" in said
    assert {"60", "6", "3"} <= set(re.findall(r"\d+", said))
    forget, (inputs, labels) = np.load("run/forget.npz"), records(2, 0.0)
    np.testing.assert_array_equal(forget["x"], inputs[labels == 1][:10])
    assert set(forget["y"]) == {1}


def test_too_few_seeds_are_told_before_any_work(monkeypatch: pytest.MonkeyPatch):
    """Whatever the number of scores: the least p-value of six seeds is 3.1%, and that of nine 0.4%."""
    intercept(monkeypatch, "jaxaudit.cli.unlearn.run.compare_unlearning")
    told = "too few to tell any method from retraining"
    few, enough = (jaxaudit("unlearn", *QUICK, "--seeds", seeds) for seeds in ("6", "9"))
    assert (told in few.err, told in enough.err) == (True, False)


def test_weights_it_saves_are_judged_by_efficacy_as_it_judged_them():
    """The round trip, with the forgotten records that it saves beside them."""
    result = json.loads(Path("printed.json").read_text())
    files = [f"{name}-02" for name in ("original", "retraining", "amnesiac", "fisher")]
    references = [word for file in files[1:] for word in ("--reference", f"{file}=run/{file}.safetensors")]
    words = (
        *("--model", "mlp", "--recipe", "hidden=8", "--params", f"run/{files[0]}.safetensors"),
        *("--data", "run/forget.npz"),
    )
    found = jaxaudit("efficacy", *words, *references, "--json").result["models"]
    assert [each["name"] for each in found[1:]] == files[1:]
    for each, file in zip(found, files, strict=True):
        name, _, seed = file.rpartition("-")
        scores = method(result, name)["scores"]
        for score in ("efficacy", "information", "bound"):
            assert each[score] == pytest.approx(scores[score]["values"][int(seed)], rel=1e-3), (file, score)
        assert each["accuracy"] == pytest.approx(scores["forgotten_accuracy"]["values"][int(seed)])


TRAINED_ON = (
    *("fine-tuning", "gradient-ascent", "negative-gradient", "scrub"),
    *("gradient-difference", "npo", "simnpo"),
)
EVERY = ("fisher", *TRAINED_ON, "ssd")
"""But rmu, which is for texts."""


def test_an_option_of_a_method_reaches_that_method_and_no_other(monkeypatch: pytest.MonkeyPatch):
    """That each value moves the method's numbers is for the tests of the methods."""
    seen = intercept(monkeypatch, "jaxaudit.cli.unlearn.run.compare_unlearning")
    wanted: dict[str, dict[str, Any]] = {name: {"epochs": number} for number, name in enumerate(TRAINED_ON, 2)}
    wanted |= {"fisher": {"alpha": 1e-4}, "ssd": {"selection": 5.9, "strength": 0.5}}
    wanted["scrub"]["learning_rate"] = 0.2
    for name, beta in (("negative-gradient", 0.3), ("npo", 0.5), ("simnpo", 0.7)):
        wanted[name]["beta"] = beta
    texts = [f"{name}.{field}={value}" for name, fields in wanted.items() for field, value in fields.items()]
    asked = ("unlearn", *QUICK, "--methods", ",".join(EVERY))

    def methods(*more: str) -> dict[str, Any]:
        assert jaxaudit(*asked, *(word for text in more for word in ("--method-option", text))).code == 2
        return {name: (method.func, method.keywords) for name, method in seen["methods"].items()}

    usual, found = methods(), methods(*texts)
    for name, (function, given) in usual.items():
        options = wanted.get(name, {})
        if "recipe" in given:
            options["recipe"] = given["recipe"]._replace(epochs=options.pop("epochs"))
        assert found[name] == (function, {**given, **options}), name
    assert found.keys() == usual.keys()
    for variant, noise in (("paper", paper), ("becker-code", becker_code)):
        assert methods(f"fisher.variant={variant}")["fisher"][1] == {**usual["fisher"][1], "noise": noise}


@pytest.mark.outer
def test_a_run_stopped_and_started_again_ends_as_if_it_had_not_been(monkeypatch: pytest.MonkeyPatch):
    words = (*QUICK, "--recipe", "models-per-batch=1", "--methods", "retraining", "--json")
    whole = jaxaudit("unlearn", *words).result
    with monkeypatch.context() as patch:
        patch.setattr("jaxaudit.cli.progress.progress_on_stderr", stopping(0.7))
        assert jaxaudit("unlearn", *words, "--out", "part").code == 130
    kept = len(list(Path("part/unfinished").glob("chunks/*/*.npz")))
    assert 1 < kept < 6
    assert re.search(r"\(epochs: 4\b.*\b5\b", refused(("unlearn", *words, "--epochs", "5", "--out", "part")))
    done = jaxaudit("unlearn", *words, "--out", "part")
    assert f"Resuming: {kept} of 6 models " in done.err
    assert done.result["methods"] == whole["methods"]
    assert "unfinished" not in os.listdir("part")


@pytest.mark.outer
def test_what_methods_train_with_is_said_and_that_one_changes_nothing():
    options = ("--method-option", "fine-tuning.epochs=2", "--method-option", "fine-tuning.learning_rate=0.2")
    result = jaxaudit("unlearn", *QUICK, *options, "--methods", "fine-tuning,ssd", "--seeds", "2", "--json").result
    assert "fine-tuning: 2 epochs, learning rate 0.2." in " ".join(result["finding"]["caveats"])
    # 10 of 60 records are forgotten: no Fisher information of theirs is 10 times that of all.
    assert any(said.startswith("ssd: nothing changes") for said in result["finding"]["caveats"])
    assert method(result, "ssd")["scores"] == method(result, "original")["scores"]


def test_records_that_were_trained_on_are_no_test_records():
    """Half of them here: what is left is of two classes, which may be."""
    inputs, labels = records(2, 0.0)
    chosen = labels != 2
    np.savez("half.npz", x=inputs[chosen], y=labels[chosen])
    found = read_unlearn_sets(UnlearnOptions(data="query.npz", class_name="1", per_class=20, test_data="half.npz"))
    assert len(found.test) == 160
    assert any(said.endswith("40 of the 200 records of half.npz.") for said in found.notes)


WRONG: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("--methods", "amnesic"), ("--methods", "'amnesic'", "amnesiac?")),
    (("--methods", ","), ("--methods", "retraining, amnesiac, fisher")),
    (("--fraction", "nan"), ("--fraction", "nan")),
    *(
        (("--methods", field.partition(".")[0], "--method-option", field), (field, "no value of"))
        for field in (
            *("fisher.alpha=-1", "fisher.alpha=nan", "fisher.variant=golatka", "negative-gradient.beta=nan"),
            *("negative-gradient.beta=1.1", "ssd.selection=nan", "ssd.strength=-1", "npo.beta=inf", "npo.beta=0"),
            *("simnpo.beta=nan", "rmu.coefficient=nan", "scrub.epochs=0", "scrub.epochs=1.5"),
            *("npo.learning_rate=-1", "npo.learning_rate=nan"),
        )
    ),
    (("--methods", "rmu"), ("RMU",)),
    (("--method-option", "rmu.layer=block 1"), ("rmu is not made in this run", "fisher")),
    (("--fraction", "0.01"), ("is empty: there is nothing to forget", "fraction")),
    (("--class", "9"), ("--class", "query.npz", "'9'", "0, 1, 2")),
    (("--per-class", "0"), ("query.npz", "test", "--test-data", "--per-class")),
    (("--test-data", "gone.npz"), ("--test-data gone.npz",)),
    (("--nonmembers", "1000"), ("--nonmembers", "at most 240")),
    (("--data", "one.npz"), ("one.npz",)),
    (("--test-data", "same.npz"), ("60", "same.npz", "--test-data")),
    (("--test-data", "narrow.npz"), ("narrow.npz", "(3,)", "(12,)")),
    (("--test-data", "strange.npz"), ("strange.npz", "'7'", "query.npz")),
    (("--data", "named.csv", "--test-data", "other.csv"), ("other.csv", "'l'")),
    (("--data", "torn"), ("x_test.npy",)),
    (("--model", "liu-cnn"), ("LiuCNN",)),
)


def test_bad_input_is_one_line_and_writes_nothing():
    for words, said in WRONG:
        refused(("unlearn", *QUICK, *words, "--out", "new"), said)
    assert refused(("unlearn", "--data", "query.npz"), ("0, 1, 2",)).startswith("Error: --class ")
