"""The `ks` answer as a table and as JSON."""

import json
from io import StringIO

import jsonschema
import numpy as np
import pytest
from jaxaudit.report.ks.table import ks_table
from rich.console import Console

from jaxaudit.audits.ks.result import KSAudit, TargetResult, Truth
from jaxaudit.errors import visible
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import Rho, Verdict
from jaxaudit.report.ks.record import ks_json, ks_schema

FINE = Check("query size", True, 0.1, 0.5, True, "enough")
FAILED = Check("noise floor", False, 0.9, 0.5, True, "seeds matter too much")
WARNING = Check("tied confidences", False, 0.6, 0.5, False, "many are 1")
ONES = np.ones((1, 4), np.float32)


def target(
    name: str = "outputs.csv",
    verdict: Verdict = "forgotten",
    because: str = "so it is",
    checks: tuple[Check, ...] = (FINE,),
    truth: Truth | None = None,
    numbers: tuple[float, float, float] = (1.25, 1.125, 1.5),
) -> TargetResult:
    values = np.array([numbers[0]] * 2)
    rho = Rho(values, *numbers, values, values)
    return TargetResult(name, truth, rho, verdict, because, "forgotten", checks, (rho._replace(high=0.75),), ONES)


def audit(*targets: TargetResult, floor: tuple[float, ...] = (0.01, 0.02, 0.06)) -> KSAudit:
    return KSAudit(targets, np.array(floor), ONES, ONES, ONES, np.zeros(4, np.int32), 3)


def table(shown: KSAudit, level: float = 0.95, width: int = 100) -> str:
    out = StringIO()
    Console(file=out, width=width).print(ks_table(shown, level))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_a_row():
    shown = table(audit(target()))
    assert ["outputs.csv", "1.25", "1.12-1.50", "forgotten", "forgotten"] in [
        line.split() for line in shown.splitlines()
    ]
    assert "used" not in shown
    assert "checks passed: query size" in shown
    assert "query models of different seeds are 0.020 apart (at most 0.060)" in shown


@pytest.mark.parametrize(
    ("level", "heading"),
    [(0.95, " 95%\n"), (0.995, " 99.5%\n"), (0.5, " 50%\n"), (0.9999999, " 99.99999%\n")],
)
def test_the_interval_says_its_level(level: float, heading: str):
    assert heading in table(audit(target()), level)


def test_truth_where_it_is_known():
    shares = (1.0, 0.5, 0.001, 0.0)
    known = [target(f"t{share}", truth=Truth(share, 10, "forgotten")) for share in shares]
    shown = table(audit(*known, target("file")))
    cells = [line.split()[1:3] for line in shown.splitlines() if line.startswith(("t", "file"))][1:]
    assert cells == [["100%", "1.25"], ["50%", "1.25"], ["under", "1%"], ["none", "1.25"], ["unknown", "1.25"]]
    assert "target trained on" in table(audit(*known))


def test_numbers_that_are_none():
    nothing = target(verdict="inconclusive", numbers=(float("nan"), float("nan"), float("nan")))
    rows = [line.split()[:4] for line in table(audit(nothing)).splitlines()]
    assert ["outputs.csv", "none", "none", "inconclusive"] in rows
    assert "noise floor:" not in table(audit(nothing, floor=()))


def test_a_reason_is_said_once_for_all_targets_it_holds_for():
    because = "noise floor: seeds matter too much"
    unsettled = [target(name, "inconclusive", because, (FINE, FAILED)) for name in ("a", "b")]
    shown = table(audit(*unsettled))
    assert " all targets: noise floor: seeds matter too much" in shown
    assert shown.count("seeds matter") == 1
    mixed = table(audit(*unsettled, target("c", checks=(FINE, FAILED))))
    assert " a, b: noise floor: seeds matter too much" in mixed
    assert mixed.count("seeds matter") == 1
    assert " a: noise floor: seeds matter too much" in table(audit(unsettled[0]))


def test_failed_checks_say_whose_they_are():
    shown = table(audit(target("a", checks=(FINE, FAILED, WARNING)), target("b", checks=(FINE, FAILED))))
    assert " FAILED noise floor: seeds matter too much" in shown
    assert " warning tied confidences (a): many are 1" in shown
    assert " checks passed: query size" in shown


HOSTILE = "[red]x[/red] :smile: [/] \x1b[31m\x07\nnext\r\u202egpj.exe"
SPELLED = r"[red]x[/red] :smile: [/] \x1b[31m\x07\nnext\r\u202egpj.exe"


def test_names_cannot_speak_to_the_terminal():
    check = Check("class coverage", False, 0.0, 1.0, False, f"the rarest class is {HOSTILE}")
    hostile = target(HOSTILE, "inconclusive", f"target outputs: {HOSTILE}", (check,))
    shown = table(audit(hostile), width=300)
    assert not {c for c in shown if not c.isprintable()} - {"\n"}
    assert shown.count(SPELLED) == 4
    out = StringIO()
    Console(file=out, width=300, force_terminal=True).print(ks_table(audit(hostile), 0.95))
    assert "\x1b[31m\x07" not in out.getvalue()


def test_visible():
    assert visible("Größe 日本 é.csv") == "Größe 日本 é.csv"
    assert visible("a\x9b\x7f\u2028\udc80") == r"a\x9b\x7f\u2028\udc80"


def test_json_has_null_for_what_json_cannot_hold():
    empty = Check("positive control", False, float("nan"), float("inf"), True, "none")
    nothing = target(verdict="inconclusive", numbers=(float("inf"), float("nan"), float("nan")), checks=(empty,))
    provenance = {"made": "up"}
    result = ks_json(audit(nothing, floor=()), provenance)
    json.dumps(result, allow_nan=False)
    (only,) = result["targets"]
    assert only["rho"] == {"median": None, "low": None, "high": None, "values": [None, None]}
    assert only["checks"][0]["value"] is only["checks"][0]["threshold"] is None
    assert result["noise_floor"] == {"median": None, "max": None, "values": []}
    assert result["provenance"] is provenance


def test_the_schema_is_a_schema_and_refuses_other_things():
    schema = json.loads(ks_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    result = ks_json(audit(target(truth=Truth(0.5, 10, "not forgotten"))), {})
    targets = jsonschema.Draft202012Validator(schema["properties"]["targets"])
    assert targets.is_valid(result["targets"])
    for field, wrong in (("verdict", "maybe"), ("name", 3), ("extra", 1), ("truth", {"used_fraction": 2})):
        assert not targets.is_valid([{**result["targets"][0], field: wrong}])
    assert not jsonschema.Draft202012Validator(schema).is_valid(result)


def test_numbers_in_json():
    result = ks_json(audit(target(numbers=(1.25, 1.0, 1.5))), {})
    assert result["schema"] == "jaxaudit.ks/1"
    assert result["noise_floor"]["median"] == pytest.approx(0.02)
    assert result["noise_floor"]["max"] == pytest.approx(0.06)
    assert result["targets"][0]["ks"] == {"target": [1.25, 1.25], "calibration": [1.25, 1.25]}
    assert result["targets"][0]["truth"] is None
    assert result["targets"][0]["controls"] == [{**result["targets"][0]["rho"], "high": 0.75}]
