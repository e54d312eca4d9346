"""`jaxaudit power` from its options to its result, and the audit behind it."""

import json
import os
from pathlib import Path

import jax
import jsonschema
import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, jaxaudit
from support.clouds import CALIBRATION, LEARNER, QUERY

from jaxaudit.audits.power.audit import audit_power
from jaxaudit.errors import InputError
from jaxaudit.report.kinds import schema_of

RECIPE = ("--hidden", "32", "--learning-rate", "0.01", "--batch-size", "50", "--epochs", "40")
WORDS = (*SETS, *RECIPE, "--models-per-batch", "9")


def test_json_follows_the_schema(sets: Path):
    done = jaxaudit(
        "power", *WORDS, "--holdout-shadow-models", "19", "--holdout-size", "100", "--fraction", "0.5", "--json"
    )
    jsonschema.validate(done.result, schema_of("power"))
    jsonschema.Draft202012Validator.check_schema(schema_of("power"))
    assert "19 models" in done.err
    assert done.err.count("\n") == 1
    (given,) = [size for size in done.result["sizes"] if size["given"]]
    assert (given["query"], given["holdout"]) == (RECORDS, 100)
    # Clouds that overlap are learned by heart, so members stand out.
    assert done.result["separation"]["difference"] > 0.1
    chances = [each["chance_noticed"] for each in given["chances"]]
    assert chances == sorted(chances)
    assert chances[-1] > 0.95
    least = [size["least_noticed"] or 1.0 for size in done.result["sizes"]]
    assert least == sorted(least, reverse=True)
    assert done.result["records_needed"] < 20 * RECORDS
    assert [size["holdout"] for size in done.result["holdouts"]] == [RECORDS, 2 * RECORDS, 3 * RECORDS, 4 * RECORDS]
    assert done.result["separation"]["stretch"] >= 1
    assert "--holdout-size" in done.result["provenance"]["command"]


def test_table(sets: Path):
    done = jaxaudit("power", *WORDS, "--holdout-shadow-models", "19")
    assert done.code == 0
    lines = done.out.splitlines()
    assert any(line.split()[:2] == ["*300", "300"] for line in lines)
    assert "10%" in done.out
    assert max(map(len, lines)) <= 80


def test_a_verdict_a_run_directory_and_a_page(sets: Path):
    few = (*WORDS, "--holdout-shadow-models", "19", "--epochs", "2", "--models-per-batch", "19")
    done = jaxaudit("power", *few, "--fraction", "0.01", "--out", "run", "--report", "run/page.html", "--json")
    assert done.result["finding"]["verdict"] == "insufficient"
    assert sorted(os.listdir("run")) == ["page.html", "result.json", "table.txt"]
    assert json.loads(Path("run/result.json").read_text()) == done.result
    assert jaxaudit("power", *few, "--fraction", "0.01", "--fail-on", "insufficient").code == 3
    again = jaxaudit(*done.result["provenance"]["command"][1:], "--json").result
    assert again["sizes"] == done.result["sizes"]


@pytest.mark.parametrize("fraction", ["0", "1.5", "nan"])
def test_fractions_out_of_range(sets: Path, fraction: str):
    done = jaxaudit("power", *WORDS, "--fraction", fraction)
    assert done.code == 2
    assert "--fraction " in done.err
    assert fraction in done.err


@pytest.mark.parametrize("options", [{"holdout_size": 1}, {"fraction": 0.0}, {"models": 3}])
def test_options_out_of_range(options):
    with pytest.raises(InputError, match="300"):
        audit_power(jax.random.key(1), QUERY, CALIBRATION, LEARNER, **options)


def test_groups_and_designs(sets: Path):
    np.save("groups.npy", np.arange(RECORDS) // 6)
    np.save("few.npy", np.arange(RECORDS) // 100)
    few = (*WORDS, "--holdout-shadow-models", "20", "--epochs", "2", "--models-per-batch", "10")
    whole = jaxaudit("power", *few, "--groups", "groups.npy", "--json").result
    guess = jaxaudit("power", *few, "--groups", "groups.npy", "--designs", "guess", "--json").result
    assert whole["separation"] != guess["separation"]
    assert jaxaudit(*whole["provenance"]["command"][1:], "--json").result["sizes"] == whole["sizes"]
    refused = jaxaudit("power", *few, "--groups", "few.npy")
    assert (refused.code, "3 groups" in refused.err) == (2, True)
    short = audit_groups(10)
    assert "10" in str(short)
    assert jaxaudit("power", "--groups", "groups.npy").code == 2


def audit_groups(count: int) -> InputError:
    with pytest.raises(InputError) as refused:
        audit_power(jax.random.key(1), QUERY, CALIBRATION, LEARNER, groups=np.arange(count))
    return refused.value


def test_two_and_two_share_a_draw_of_the_calibration_set():
    """The stretch is measured: a run of an odd number of models has one without a pair, and the same numbers again."""
    found = [audit_power(jax.random.key(1), QUERY, CALIBRATION, LEARNER, models=7) for _ in range(2)]
    assert found[0].separation == found[1].separation
    assert found[0].separation.stretch >= 1
