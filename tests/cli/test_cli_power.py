"""`jaxaudit power` from its options to its result, and the audit behind it."""

import json
from pathlib import Path

import jax
import jsonschema
import pytest
from support.cli_runs import RECORDS, SETS, jaxaudit
from support.clouds import CALIBRATION, LEARNER, QUERY

from jaxaudit.audits.power.audit import audit_power
from jaxaudit.errors import InputError
from jaxaudit.report.power.record import power_schema

WORDS = (*SETS, "--hidden", "32", "--learning-rate", "0.01", "--batch-size", "50", "--epochs", "40", "--width", "9")


def test_json_follows_the_schema(sets: Path):
    done = jaxaudit("power", *WORDS, "--holdout-shadows", "19", "--holdout-size", "100", "--fraction", "0.5", "--json")
    jsonschema.validate(done.result, json.loads(power_schema()))
    jsonschema.Draft202012Validator.check_schema(json.loads(power_schema()))
    assert done.err == "training 19 mlp models on cpu, 40 epochs each\n"
    (given,) = [size for size in done.result["sizes"] if size["given"]]
    assert (given["query"], given["holdout"]) == (RECORDS, 100)
    # Clouds that overlap are learned by heart, so members stand out.
    assert done.result["separation"]["difference"] > 0.1
    chances = [each["chance_noticed"] for each in given["chances"]]
    assert chances == sorted(chances)
    assert chances[-1] > 0.95
    least = [size["least_noticed"] or 1.0 for size in done.result["sizes"]]
    assert least == sorted(least, reverse=True)
    assert done.result["records_needed"] < 10 * RECORDS
    assert "--holdout-size" in done.result["provenance"]["command"]


def test_table(sets: Path):
    done = jaxaudit("power", *WORDS, "--holdout-shadows", "19")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("How likely is the use of a part of the query set noticed?")
    assert any(line.split()[:2] == ["300", "300"] for line in lines)
    assert "to notice the use of 10% 19 times of 20: " in done.out
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("fraction", ["0", "1.5", "nan"])
def test_fractions_out_of_range(sets: Path, fraction: str):
    done = jaxaudit("power", *WORDS, "--fraction", fraction)
    assert done.code == 2
    assert "--fraction must be above 0 and at most 1, such as 0.1" in done.err


@pytest.mark.parametrize("options", [{"holdout_size": 1}, {"fraction": 0.0}, {"models": 3}])
def test_options_out_of_range(options):
    with pytest.raises(InputError, match=r"power takes at least 4 query records \(got 300\), 2 in the holdout"):
        audit_power(jax.random.key(1), QUERY, CALIBRATION, LEARNER, **options)
