"""What `jaxaudit attack` says of an audit that is made up: as JSON, and as a table."""

import json
from dataclasses import replace

import jax
import jsonschema
import numpy as np
import pytest
from support.saved_runs.provenance import provenance

from jaxaudit.audits.attack.result import AttackAudit, AttackResult
from jaxaudit.cli.show import as_text
from jaxaudit.metrics.attack import attack_metrics, correlation, per_target_accuracy
from jaxaudit.report.attack.record import AttackRecord, attack_record
from jaxaudit.report.attack.view import attack_part
from jaxaudit.report.kinds import schema_of
from jaxaudit.report.record import to_json
from jaxaudit.report.run import Run
from jaxaudit.report.terminal import as_terminal


@pytest.fixture(scope="module")
def found() -> AttackAudit:
    """An audit made up: two attacks, of which one is right about the first targets, whose PDTP is largest."""
    random = np.random.default_rng(4)
    first = random.random((20, 40)) < 0.5
    truth = np.stack([first, ~first], axis=1).reshape(40, 40)
    pdtp = np.linspace(3, 0, 40)
    strengths = {"distance": pdtp, "frequency": 0 * pdtp}
    of_whom = np.tile(np.arange(40), 40)

    def judged(name: str) -> AttackResult:
        scores = np.where(truth, 1, -1) * strengths[name] + random.normal(size=truth.shape)
        flat = scores.ravel(), truth.ravel(), of_whom
        accuracy = per_target_accuracy(*flat, 40)
        metrics = attack_metrics(jax.random.key(1), *flat, bootstrap=50)
        return AttackResult(name, metrics, accuracy, correlation(accuracy, pdtp), scores)

    attacks = tuple(judged(name) for name in strengths)
    return AttackAudit(np.arange(40), truth, attacks, 0.0005, pdtp[None], 1.0, 0.5, 0.5, 0.95, 100, 100, 5, 4)


def record(audit: AttackAudit) -> AttackRecord:
    return attack_record(audit, 10 * audit.targets, provenance("attack", "people.csv", {}))


def shown(audit: AttackAudit, top: int = 3) -> list[str]:
    """On a terminal of 80 columns."""
    text = as_text(as_terminal(attack_part(Run("", "attack", record(audit), {}), top)))
    return [line.rstrip() for line in text.splitlines()]


def test_the_table_for_people(found: AttackAudit):
    said = shown(found)
    assert max(map(len, said)) <= 80
    assert "…" not in "".join(said)
    accuracy = found.attacks[0].metrics.accuracy
    row = next(place for place, line in enumerate(said) if line.split()[:2] == ["distance", f"{accuracy.value:.3f}"])
    assert said[row + 1].split()[0] == f"{accuracy.low:.2f}-{accuracy.high:.2f}".replace("0.", ".")
    # 800 attacks on non-members: 1% is within reach, 0.1% is not.
    assert said[row].split()[-2] == "-"
    assert {"26", "0.88"} <= {word.rstrip(".;,") for word in " ".join(said).split()}
    listed = len(shown(found, top=4)) - len(said)
    assert listed == 1
    assert not {"10", "20"} & {word for line in shown(found, top=0) for word in line.split()[:1]}


@pytest.mark.parametrize(("level", "said"), [(0.9, "90%"), (0.9999999, "99.99999%")])
def test_the_level_is_said_in_full(found: AttackAudit, level: float, said: str):
    assert said in " ".join(shown(replace(found, level=level)))


def test_the_question_is_answered_by_the_best_attack(found: AttackAudit):
    strong = record(found)
    assert (strong.finding.verdict, strong.best_attack) == ("attack succeeds", "distance")
    assert f"{found.attacks[0].metrics.accuracy.value:.1%}" in strong.finding.sentence
    weak = record(replace(found, attacks=found.attacks[1:], p_value=0.5))
    assert (weak.finding.verdict, weak.best_attack) == ("attacks fail", "frequency")
    assert record(replace(found, p_value=0.06)).finding.verdict == "inconclusive"


def test_the_first_targets_are_the_exposed_ones(found: AttackAudit):
    result = to_json(record(found))
    assert result["attacks"][0]["correlation"]["with_pdtp"] > 0.8
    assert abs(result["attacks"][1]["correlation"]["with_pdtp"]) < 0.5
    assert [target["index"] for target in result["targets"][:3]] == [0, 10, 20]
    assert result["targets"][0]["strongest_attack"] == "distance"
    assert result["strongest"]["pdtp_above_1"] == 26
    assert 0.8 < result["strongest"]["share_above"]["0.6"] <= 1


def test_json_has_words_for_what_json_cannot_hold(found: AttackAudit):
    exact = replace(found, measurements=np.full((1, 40), np.inf), bins=0)
    result = to_json(record(exact))
    json.dumps(result, allow_nan=False)
    assert result["max_pdtp"] == result["targets"][0]["pdtp"] == "infinity"
    correlated = result["strongest"]["correlation"]
    assert (correlated["with_pdtp"], correlated["p_value"], correlated["targets"]) == (None, None, 40)
    assert "infinite" in correlated["reason"]
    assert "infinite" in " ".join(result["finding"]["caveats"])
    assert "infinite" in " ".join(shown(exact))


def test_the_schema_is_a_schema_and_refuses_other_things(found: AttackAudit):
    schema = schema_of("attack")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    whole = json.loads(json.dumps(to_json(record(found))))
    assert validator.is_valid(whole)
    assert not validator.is_valid({"schema": "jaxaudit.attack/1"})
    assert not validator.is_valid({**whole, "schema": "jaxaudit.attack/1"})
    assert not validator.is_valid({**whole, "attacks": [{**whole["attacks"][0], "extra": 1}]})
    assert not validator.is_valid({**whole, "finding": {**whole["finding"], "tone": "great"}})
