"""`jaxaudit power` from its options to its result, and the audit behind it."""

from pathlib import Path
from typing import Any

import jax
import jsonschema
import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, jaxaudit, refused
from support.clouds import CALIBRATION, LEARNER, QUERY, records

from jaxaudit.audits import measure_power
from jaxaudit.errors import InputError
from jaxaudit.report import schema_of

RECIPE = ("--recipe", "hidden=32", "--recipe", "learning-rate=0.01", "--recipe", "batch-size=50", "--epochs", "40")
WORDS = (*SETS, *RECIPE, "--recipe", "models-per-batch=19", "--effort", "full", "--models", "19")
FEW = ("power", *WORDS, "--epochs", "2")


def test_json_follows_the_schema(sets: Path):
    done = jaxaudit("power", *WORDS, "--holdout-size", "100", "--fraction", "0.5", "--json")
    jsonschema.validate(done.result, schema_of("power"))
    assert "19 models" in done.err
    (given,) = [size for size in done.result["sizes"] if size["given"]]
    assert (given["query"], given["holdout"]) == (RECORDS, 100)
    # Clouds that overlap are learned by heart, so members stand out.
    assert done.result["separation"]["difference"] > 0.1
    chances = given["chances"]
    assert len(chances) == len(done.result["fractions"])
    assert chances == sorted(chances)
    assert chances[-1] > 0.95
    assert [size["holdout"] for size in done.result["holdouts"]] == [RECORDS, 2 * RECORDS, 3 * RECORDS, 4 * RECORDS]
    assert done.result["separation"]["stretch"] >= 1
    assert "--holdout-size" in done.result["provenance"]["command"]
    concluded = given["conclusions"]
    assert [each["by"] for each in concluded[::3]] == ["members and shadow models", "members", "holdout"]
    # Clouds learned by heart are remembered well, and a holdout alone never says that they are not.
    assert concluded[0]["memory"] > 3
    assert 0.2 < concluded[0]["forgotten"] < 0.95
    assert [each["forgotten"] for each in concluded[6:]] == [None] * 3


@pytest.mark.outer
def test_members_have_a_number(sets: Path):
    sizes = jaxaudit(*FEW, "--members-size", "60", "--json").result["sizes"]
    conclusions = [each for size in sizes for each in size["conclusions"]]
    assert {each["members"] for each in conclusions} == {0, 15, 30, 60, 120, 240}
    assert [each["forgotten"] is None for each in conclusions[:6]] == [True] * 6
    few = jaxaudit(*FEW, "--members-size", "49")
    assert (few.code, "--members" in few.err) == (2, True)
    with pytest.raises(InputError, match="`members_size` must be at least 50; got 49"):
        measure_power(jax.random.key(1), QUERY, CALIBRATION, LEARNER, members_size=49)


@pytest.mark.outer
def test_a_sample_is_trained_on_and_the_answer_is_about_the_whole(sets: Path):
    np.save("groups.npy", np.arange(RECORDS) // 6)
    done = jaxaudit(*FEW, "--sample", "100", "--groups", "groups.npy", "--json").result
    assert done["provenance"]["data"]["query"]["records"] == 96
    assert done["provenance"]["data"]["calibration"]["records"] == 100
    (given,) = [size for size in done["sizes"] if size["given"]]
    assert (given["query"], given["holdout"]) == (RECORDS, RECORDS)
    assert "query records 300 to 96; calibration records 300 to 100" in done["finding"]["caveats"][0]
    again = jaxaudit(*done["provenance"]["command"][1:], "--json").result
    assert again["sizes"] == done["sizes"]


def test_what_cannot_be_is_refused(sets: Path):
    np.save("groups.npy", np.arange(RECORDS) // 6)
    np.save("few.npy", np.arange(RECORDS) // 100)
    for fraction in ("0", "1.5", "nan"):
        refused((*FEW, "--fraction", fraction), ("--fraction ", fraction))
    refused((*FEW, "--groups", "few.npy"), ("`different_groups`", "got 3"))
    refused(("power", "--groups", "groups.npy"))
    wrong: dict[str, Any] = {"holdout_size": 1, "fraction": 0.0, "models": 3}
    for option, value in wrong.items():
        with pytest.raises(InputError, match=option.split("_")[0]):
            measure_power(jax.random.key(1), QUERY, CALIBRATION, LEARNER, **{option: value})


@pytest.mark.outer
def test_a_set_alone_is_measured_before_it_is_dealt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copies are left out, a third of it is other data, and a third of it will be withdrawn."""
    monkeypatch.chdir(tmp_path)
    inputs, labels = records(8, 0.0)
    np.savez("alone.npz", x=np.concatenate([inputs, inputs[:5]]), y=np.concatenate([labels, labels[:5]]))
    done = jaxaudit("power", "--query", "alone.npz", *RECIPE, "--epochs", "2", "--models", "19", "--json")
    assert done.code == 0, done.err
    assert "5 copies" in done.err
    data = done.result["provenance"]["data"]
    assert data["query"]["records"] + data["calibration"]["records"] == len(labels)
    (given,) = [size for size in done.result["sizes"] if size["given"]]
    assert given["query"] == given["holdout"] == (len(labels) + 5) // 3
    groups = jaxaudit("power", "--query", "alone.npz", "--groups", "y")
    assert (groups.code, "--calibration" in groups.err) == (2, True)
