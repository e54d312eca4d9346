"""The `unlearn` answer as JSON, on a terminal and on a page."""

import msgspec
import numpy as np
import pytest
from support.html_pages import Parsed
from support.saved_runs import as_json
from support.saved_runs.unlearn import CHALLENGE, SEEDS, SPREAD, unlearn_audit, unlearn_run
from support.terminals import said, shown

from jaxaudit.report.build import part_of
from jaxaudit.report.html.render import report_html

pytestmark = pytest.mark.usefixtures("no_charts")

NOTE = "Trained on digits."
METHODS = {"mine": {"efficacy": 0.1}, "a-longer-name": {}}


def test_how_models_are_told_from_retrained_ones_is_in_every_output():
    run = unlearn_run(audit=unlearn_audit({"efficacy": 9.0}, METHODS, told=CHALLENGE))
    result = as_json(run)
    assert [method["challenge"] is None for method in result["methods"]] == [True, *[False] * 4]
    mine = result["methods"][3]
    assert mine["challenge"] == {
        "epsilon": [0.25, 50.0],
        "quality": {"value": 0.1875, "low": 0.125, "high": 0.25},
        "remaining_ratio": 1.0,
        "test_ratio": 0.9375,
        "score": {"value": 0.1758, "low": 0.11, "high": 0.24},
    }
    assert mine["u_lira"] == {"value": 0.5625, "low": 0.5, "high": 0.625}
    text, page = said(run), Parsed(report_html([run])).text
    for number in ("0.19", "0.12 to 0.25", "1.00", "0.94", "0.18", "0.11 to 0.24", "0.56", "0.50 to 0.62"):
        assert number in text
        assert number in page
    assert "U-LiRA" in page
    pictures = {each.name: each for each in part_of(run).pictures()}
    assert pictures["quality"].numbers.rows[2] == ("mine", "0.1875", "0.1250", "0.2500")
    assert pictures["u-lira"].numbers.rows[2] == ("mine", "0.5625", "0.5000", "0.6250")
    assert not {"quality", "u-lira"} & {each.name for each in part_of(unlearn_run()).pictures()}
    assert any("biased upward" in each for each in result["finding"]["caveats"])


def test_a_ratio_over_0_is_null_and_shown_as_none():
    found = msgspec.structs.replace(CHALLENGE, test_ratio=None, score=None)
    run = unlearn_run(audit=unlearn_audit({"efficacy": 9.0}, METHODS, told=found))
    challenge = as_json(run)["methods"][3]["challenge"]
    assert (challenge["test_ratio"], challenge["score"]) == (None, None)
    assert "none" in shown(run)


def test_the_numbers_and_words_of_json():
    methods = {"mine": {"efficacy": np.inf, "bound": 0.1}, "same": {}}
    result = as_json(unlearn_run(audit=unlearn_audit({"efficacy": 9.0}, methods, notes=(NOTE,))))
    mine, same = result["methods"][3:]
    assert mine["scores"]["efficacy"] == {
        **dict.fromkeys(("median", "low", "high", "mean"), "infinity"),
        "values": ["infinity"] * SEEDS,
    }
    assert mine["scores"]["bound"]["values"] == (0.1 * SPREAD).tolist()
    assert {name: place["verdict"] for name, place in mine["places"].items()} == {
        "efficacy": "above",
        "bound": "below",
        **dict.fromkeys(("remaining_accuracy", "forgotten_accuracy", "test_accuracy", "attack"), "not distinguishable"),
    }
    assert mine["places"]["bound"]["p_value"] == 2 / 2**SEEDS
    assert [method["finding"] and method["finding"]["verdict"] for method in result["methods"]] == [
        *(None, None, None, "distinguishable", "not distinguishable")
    ]
    assert result["methods"][0]["scores"]["attack"] is None
    assert result["finding"]["verdict"] == "distinguishable"
    for finding in (result["finding"], mine["finding"], same["finding"]):
        assert finding["caveats"][-1] == NOTE
    assert result["protocol"]["members_share"] == 4 / 6
    unattacked = unlearn_run(audit=unlearn_audit({}, {"mine": {}}, 3, attacked=False)).result
    assert unattacked.protocol.members_share is None
    assert unattacked.methods[3].places["bound"].verdict == "too few seeds"
