"""The `attack` answer as JSON and on a terminal."""

import json

import numpy as np
from support.saved_runs.attack import attack_audit, attack_run
from support.terminals import said

from jaxaudit.report.record import to_json


def test_every_target_is_listed():
    audit = attack_audit()
    result = to_json(attack_run(audit=audit).result)["splits"]
    assert audit.measurements is not None
    pdtp = audit.measurements.mean(axis=0)
    assert result["strongest"]["pdtp_above_1"] == (pdtp > 1).sum()
    assert [record["index"] for record in result["records"]] == audit.records.tolist()
    assert [record["pdtp"] for record in result["records"]] == pdtp.tolist()
    for record in result["records"]:
        assert record["accuracy"][record["strongest_attack"]] == record["largest_accuracy"]


def test_json_has_words_for_what_json_cannot_hold():
    run = attack_run(audit=attack_audit(measurements=np.full((1, 30), np.inf), bins=0))
    result = to_json(run.result)
    json.dumps(result, allow_nan=False)
    assert result["splits"]["max_pdtp"] == result["splits"]["records"][0]["pdtp"] == "infinity"
    correlated = result["splits"]["strongest"]["correlation"]
    assert (correlated["coefficient"], correlated["p_value"], correlated["count"]) == (None, None, 30)
    assert "infinite" in correlated["reason"]
    assert "infinite" in " ".join(result["finding"]["caveats"])
    assert "infinite" in said(run)
