"""The `attack` answer as JSON and on a terminal."""

import json

import numpy as np
from support.saved_runs.attack import attack_audit, attack_run
from support.saved_runs.provenance import provenance
from support.terminals import said

from jaxaudit.report.attack.record import attack_record
from jaxaudit.report.record import to_json


def test_every_target_is_listed_by_its_place_in_the_table():
    audit = attack_audit()
    result = to_json(attack_record(audit, 10 * audit.targets, provenance("attack", "people.csv", {})))
    pdtp = audit.measurements.mean(axis=0)
    assert result["strongest"]["pdtp_above_1"] == (pdtp > 1).sum()
    assert [target["index"] for target in result["targets"]] == (10 * audit.targets).tolist()
    assert [target["pdtp"] for target in result["targets"]] == pdtp.tolist()
    for target in result["targets"]:
        assert target["accuracy"][target["strongest_attack"]] == target["largest_accuracy"]


def test_json_has_words_for_what_json_cannot_hold():
    run = attack_run(audit=attack_audit(measurements=np.full((1, 30), np.inf), bins=0))
    result = to_json(run.result)
    json.dumps(result, allow_nan=False)
    assert result["max_pdtp"] == result["targets"][0]["pdtp"] == "infinity"
    correlated = result["strongest"]["correlation"]
    assert (correlated["with_pdtp"], correlated["p_value"], correlated["targets"]) == (None, None, 30)
    assert "infinite" in correlated["reason"]
    assert "infinite" in " ".join(result["finding"]["caveats"])
    assert "infinite" in said(run)
