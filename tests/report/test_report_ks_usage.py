"""The answers of the tests of use as a table and as JSON."""

import json
from dataclasses import replace
from io import StringIO

import jsonschema
import numpy as np
import pytest
from jaxaudit.audits.ks.settle import settle
from jaxaudit.report.ks.table import ks_table
from rich.console import Console

from jaxaudit.audits.ks.result import KSAudit, TargetResult, Truth
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ema import EMA, Thresholds
from jaxaudit.metrics.ks import Rho
from jaxaudit.metrics.usage import Usage
from jaxaudit.report.ks.record import ks_json, ks_schema

ONES = np.ones((1, 4), np.float32)
USED = Usage("holdout", "not forgotten", 0.0005, 0.4, 0.92, 0.7, 1.0, 0.1, ())
UNUSED = Usage("holdout", "forgotten", 0.6, 0.025, 0.0, 0.0, 0.05, 0.031, ())
NOTHING = Usage("shadow", "inconclusive", 0.3, None, float("nan"), 0.0, 1.0, None, ("too few records",))
FLAGGED = EMA(0.02, 0.75, np.array([True, True, True, False]), Thresholds(np.zeros(2), np.zeros(2)))
CONTROL = Check("positive control", False, 1.2, 1.0, True, "a control has rho 1.20")


def target(name: str, *usage: Usage, emas: tuple[EMA, ...] = (), truth: Truth | None = None) -> TargetResult:
    rho = Rho(np.array([0.5, 0.5]), 0.5, 0.4, 0.6, np.ones(2), np.ones(2))
    plain = TargetResult(name, truth, rho, "inconclusive", "rho", "not forgotten", (CONTROL,), (), ONES)
    return settle(plain, usage, emas)


def table(*targets: TargetResult, width: int = 100) -> str:
    out = StringIO()
    shown = KSAudit(targets, np.array([0.01]), ONES, ONES, ONES, np.zeros(4, np.int32), 3)
    Console(file=out, width=width).print(ks_table(shown, 0.95))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_a_row_a_target():
    shown = table(target("a.csv", USED), target("b.csv", UNUSED))
    rows = [line.split() for line in shown.splitlines()]
    assert ["a.csv", "not", "forgotten", "<.001", ".40", "92%", "(70-100)", "10%", "0.50"] in rows
    assert ["b.csv", "forgotten", ".60", ".025", "0%", "(0-5)", "3.1%", "0.50"] in rows
    assert "`forgotten` is said of used shares from the least seen up (at most 3.1% here)" in shown
    assert "holdout test: p never is exact" in shown
    assert "shadow test:" not in shown


@pytest.mark.parametrize(
    "usage",
    [
        UNUSED._replace(fraction_high=1.0, p_fully=0.3),
        UNUSED._replace(fraction=1.0, fraction_high=1.0, p_fully=0.031),
        USED._replace(fraction=1.0, p_fully=0.031),
    ],
)
def test_a_share_that_is_unknown_is_no_number(usage):
    shown = table(target("a.csv", usage))
    (row,) = (line for line in shown.splitlines() if "a.csv" in line and "unknown" in line)
    assert "%" not in row.replace("3.1%", "").replace("10%", "")
    assert "unknown: the interval of the used share is from 0 to 100%" in shown
    (said,) = ks_json(KSAudit((target("a.csv", usage),), np.array([0.01]), ONES, ONES, ONES, np.zeros(4), 3), {})[
        "targets"
    ][0]["usage"]
    assert said["fraction"] is None
    assert (said["fraction_low"], said["fraction_high"]) == (usage.fraction_low, usage.fraction_high)


def test_shares_that_are_known_need_no_word_on_others():
    assert "unknown" not in table(target("a.csv", USED), target("b.csv", UNUSED))


def test_what_rho_alone_rests_on_is_called_so():
    assert "for rho alone, failed positive control: a control has rho 1.20" in table(target("a.csv", USED))


def test_what_rho_alone_rests_on_is_said_once():
    first, second = target("a.csv", USED), target("b.csv", USED)
    second = replace(second, checks=(CONTROL._replace(message="a control has rho 1.21"),))
    shown = table(first, second)
    assert "for rho alone, failed positive control: a control has rho 1.20" in shown
    assert "rho 1.21" not in shown


def test_further_tests_stand_below():
    shown = table(target("a.csv", USED, NOTHING, emas=(FLAGGED,)))
    lines = [line.split() for line in shown.splitlines() if line.startswith(" ")]
    assert ["by", "the", "shadow", "test", "inconclusive", ".30", "none", "unknown", "none"] in lines
    assert ["by", "EMA", "forgotten", ".020", "75%", "flagged"] in lines
    assert ["by", "rho", "inconclusive"] in lines


def test_it_fits_a_terminal_of_80_columns():
    shown = table(target("printed-digits + 50% of digits", USED, truth=Truth(0.5, 10, "not forgotten")), width=80)
    assert max(map(len, shown.splitlines())) <= 80
    # A target's name has room for more than a word.
    assert "\nprinted-digits + 50%" in shown
    assert "not forgotten" in shown
    assert "50%" in shown


def test_ema_alone_has_the_paper_table_and_its_sentence():
    sure = FLAGGED._replace(p_value=1.0)
    fine = replace(target("a.csv"), checks=())
    shown = table(settle(fine, (), (sure,)))
    assert " a.csv: EMA: 75.0% of the query records look like training records (p = 1)" in shown


def as_json(*targets: TargetResult) -> dict:
    return ks_json(KSAudit(targets, np.array([0.01]), ONES, ONES, ONES, np.zeros(4, np.int32), 3), {})


def test_json():
    result = as_json(target("a.csv", USED, NOTHING, emas=(FLAGGED, FLAGGED._replace(p_value=0.5))))
    json.dumps(result, allow_nan=False)
    (only,) = result["targets"]
    assert (only["verdict"], only["method"], only["rho_verdict"]) == ("not forgotten", "holdout", "inconclusive")
    assert only["usage"][0]["p_never"] == 0.0005
    assert only["usage"][1]["fraction"] is only["usage"][1]["p_fully"] is only["usage"][1]["detectable"] is None
    assert only["usage"][1]["reasons"] == ["too few records"]
    assert only["ema"]["p_value"] == pytest.approx(0.26)
    assert only["ema"]["rule"] == "not forgotten"
    assert as_json(target("b"))["targets"][0]["ema"] is None


def test_the_schema_knows_the_new_fields_and_old_results():
    schema = json.loads(ks_schema())
    targets = jsonschema.Draft202012Validator(schema["properties"]["targets"])
    (only,) = as_json(target("a.csv", USED, NOTHING, emas=(FLAGGED,)))["targets"]
    assert targets.is_valid([only])
    assert not targets.is_valid([{**only, "usage": [{**only["usage"][0], "p_never": 1.5}]}])
    assert not targets.is_valid([{**only, "method": "guess"}])
    added = ("method", "rho_verdict", "usage", "ema")
    assert targets.is_valid([{name: value for name, value in only.items() if name not in added}])
