"""The `unlearn` answer as a table and as caveats: what may be concluded, and what fits a terminal."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.report_runs import unlearn_run

from jaxaudit.audits.unlearn.result import COMPARED, MethodResult, Scores, UnlearnAudit
from jaxaudit.metrics.retrained_band import place
from jaxaudit.report.unlearn.record import caveats, unlearn_json
from jaxaudit.report.unlearn.table import unlearn_table
from jaxaudit.report.unlearn.view import unlearn_part

SEEDS = 10
SPREAD = np.linspace(0.5, 0.6, SEEDS)


def scores(changed: Mapping[str, float] | None = None) -> Scores:
    """The retrained models' scores, some of them multiplied."""
    columns = {name: (SPREAD * (changed or {}).get(name, 1.0))[None] for name in Scores._fields}
    return Scores(**columns)


def audit(original: Mapping[str, float], method: Mapping[str, float], seeds: int = SEEDS) -> UnlearnAudit:
    retrained = scores()

    def result(name: str, found: Scores) -> MethodResult:
        columns = {
            field: (getattr(found, field)[0, :seeds], getattr(retrained, field)[0, :seeds]) for field in COMPARED
        }
        places = {} if name == "retraining" else {field: (place(*both),) for field, both in columns.items()}
        return MethodResult(name, found, places, None)

    # So that ranks differ where nothing else does, and the signs of the differences alternate.
    untouched = Scores(*(column + 1e-6 * (-1.0) ** np.arange(SEEDS) for column in scores()))
    return UnlearnAudit(
        methods=(
            result("original", scores(original) if original else untouched),
            result("retraining", retrained),
            result("mine", scores(method) if method else untouched),
        ),
        forget=np.array([[True, False]]),
        forgotten=np.array([1]),
        seeds=seeds,
        examples=2,
        test_examples=2,
        nonmembers=2,
        members_share=0.5,
        level=0.95,
        models_per_batch=None,
    )


def shown(found: UnlearnAudit, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(unlearn_table(found, "some records", ()))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("original", "method", "seeds", "conclusion", "line"),
    [
        ({"efficacy": 9.0}, {"efficacy": 0.1}, SEEDS, "differs", "mine differs from retraining: efficacy below"),
        ({"efficacy": 9.0}, {}, SEEDS, "not told apart", "mine is not told apart from retraining"),
        (
            *({}, {}, SEEDS, "inconclusive"),
            "mine inconclusive: not even the original, which forgot nothing, is told apart from retraining",
        ),
        ({"efficacy": 9.0}, {"efficacy": 0.1}, 3, "inconclusive", "mine inconclusive: too few seeds"),
    ],
)
def test_what_is_concluded(original: Any, method: Any, seeds: int, conclusion: str, line: str):
    """A method that passes where the original would pass, too, has not been tested."""
    found = audit(original, method, seeds)
    assert found.conclusion("mine") == conclusion
    said = {each["name"]: each["conclusion"] for each in unlearn_json(found, "some records", (), {})["methods"]}
    assert said == {"original": None, "retraining": None, "mine": conclusion}
    assert line in " ".join(shown(found).split())


def test_scores_that_are_blind_are_named():
    found = audit({"efficacy": 9.0, "bound": 9.0}, {})
    assert found.blind() == ("forgotten_accuracy", "attack")
    said = "by forgotten accuracy and attack not even the original, which forgot nothing, is told apart from retraining"
    assert any(said in each for each in caveats(found, ()))
    every: dict[str, float] = dict.fromkeys(("efficacy", "bound", "forgotten_accuracy", "attack"), 9.0)
    assert audit(every, {}).blind() == ()
    assert not any("not even the original" in each for each in caveats(audit(every, {}), ()))
    one = audit({**every, "attack": 1.0}, {})
    assert any(each.startswith("by attack not even the original") for each in caveats(one, ()))


def test_wide_ranges_fit_80_columns():
    found = audit({"efficacy": 1e9}, {"efficacy": 1.5e-15, "bound": 2.5e-14})
    lines = shown(found).splitlines()
    assert not any("…" in line for line in lines)
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert "7.5e-16" in words
    assert "9e-16" in words
    assert "forgotten" in words


def test_a_page_does_not_praise_a_method_where_the_original_passes_too():
    run = unlearn_run()
    fisher = next(method for method in run.result["methods"] if method["name"] == "fisher")
    for conclusion, wanted in (("inconclusive", "open"), ("not told apart", "good")):
        fisher["conclusion"] = conclusion
        answer = next(each for each in unlearn_part(run).answers if each.about == "fisher")
        assert answer.tone == wanted, conclusion
