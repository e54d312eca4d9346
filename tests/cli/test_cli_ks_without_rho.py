"""`jaxaudit ks --replicates 0`: an audit without rho, from its options to its page."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, jaxaudit, process, records
from support.html_pages import Parsed

from jaxaudit.report.kinds import schema_of

FEW = ("--hidden", "16", "--epochs", "4", "--learning-rate", "0.02", "--batch-size", "50", "--models-per-batch", "16")
FEW += ("--shadow-models", "19", "--holdout-shadow-models", "19")
ONE = ("--target-data", "query.npz")
"""19 models are enough for the p-value of one target."""
NONE = ("--replicates", "0")
TRACES = re.compile(r"\brho\b|paper's rule|noise floor|query models?\b|positive control", re.IGNORECASE)
OF_RHO = ("rho", "ks", "controls", "paper_rule", "rho_verdict")


def usage(result: dict[str, Any]) -> list[Any]:
    """All numbers of the tests of use."""
    return [target["usage"] for target in result["targets"]]


@pytest.mark.outer
def test_as_a_process(sets: Path):
    inputs, labels = records(5, 0.0)
    np.savez("holdout.npz", x=inputs, y=labels)
    words = ("ks", *SETS, *FEW, *NONE, "--holdout", "holdout.npz", "--tests", "holdout,shadow", "--budget", "none")
    done = process(*words, "--out", "run", "--report", "page.html", cwd=sets, COLUMNS="80")
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= 80
    result = json.loads(Path("run/result.json").read_text())
    jsonschema.validate(result, schema_of("ks"))
    for text in (done.out, done.err, Parsed(Path("page.html").read_text("utf-8")).text):
        assert not TRACES.search(text)
    with np.load("run/confidences.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {"labels", "target_0", "target_1", "target_2"}
        assert arrays["target_0"].shape == (RECORDS,)
    again = process("report", "run", "--text", cwd=sets)
    assert again.out.split() == done.out.split()
    drawn = process("report", "run", "--figures", "charts", "--out", "again.html", cwd=sets)
    assert drawn.code == 0, drawn.err
    assert [path.name for path in Path("charts").iterdir()] == ["used.svg"]


def test_it_trains_fewer_models_and_changes_no_other_number(sets: Path):
    words = ("ks", *SETS, *FEW, *ONE, "--budget", "none", "--json")
    without, beside = (jaxaudit(*words, *more) for more in (NONE, ("--replicates", "2")))
    assert [set(re.findall(r"(\d+) models", done.err)) for done in (without, beside)] == [{"58"}, {"63"}]
    assert usage(without.result) == usage(beside.result)
    assert without.result["noise_floor"] is None
    for target in without.result["targets"]:
        assert {target[name] for name in OF_RHO} == {None}
        assert [test["name"] for test in target["tests"]] == ["shadow"]
    repeated = without.result["provenance"]["command"]
    assert "--replicates" in repeated
    assert jaxaudit(*repeated[1:], "--json").result["targets"] == without.result["targets"]


def test_whether_the_calibration_set_is_like_the_query_set_is_still_checked(sets: Path):
    """On shadow models trained without the query set, which are no better than chance if clouds have other names."""
    words = ("ks", "--query", "query.npz", *FEW, *NONE, "--epochs", "25", "--budget", "none", "--json")
    for calibration, verdicts, state in (("calibration.npz", None, "passed"), ("far.npz", {"inconclusive"}, "failed")):
        targets = jaxaudit(*words, "--calibration", calibration, "--target-data", "query.npz").result["targets"]
        (shown,) = (each for each in targets[0]["finding"]["checks"] if each["name"] == "calibration like query")
        assert shown["state"] == state
        assert "shadow models without query records" in shown["message"]
        assert verdicts is None or {target["verdict"] for target in targets} == verdicts


def test_a_budget_plans_without_rho(sets: Path):
    plan = jaxaudit("ks", *SETS, *FEW, *ONE, *NONE, "--budget", "10m", "--dry-run")
    assert plan.code == 0, plan.err
    assert "rho" not in plan.out
    done = jaxaudit("ks", *SETS, *FEW, *ONE, *NONE, "--budget", "10m", "--json")
    assert done.result["provenance"]["options"]["replicates"] == 0
    assert done.result["provenance"]["plan"]["models"] == 58
