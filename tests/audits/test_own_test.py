"""A person's own test of `ks`."""

import re
from dataclasses import dataclass
from typing import ClassVar

import jax
import numpy as np
import pytest
from jaxtyping import Array, Key
from sklearn.neighbors import KNeighborsClassifier
from support.clouds import CALIBRATION, QUERY
from support.html_pages import Parsed
from support.ks_audits import audit_ks
from support.saved_runs.ks import ks_run
from support.terminals import said

from jaxaudit import (
    Check,
    Evidence,
    Judgement,
    KSAudit,
    KSTest,
    Part,
    Pool,
    RhoTest,
    Role,
    Rows,
    Sets,
    SimulatedTarget,
    TargetOutputs,
    shadow_rows,
)
from jaxaudit.audits import Confidence, Finding
from jaxaudit.data import Examples
from jaxaudit.errors import InputError
from jaxaudit.json_types import from_builtins
from jaxaudit.learners import EstimatorLearner
from jaxaudit.metrics.checks import SHADOW_ACCURACY, TARGET_OUTPUTS
from jaxaudit.report import part_of, report_html, to_json

KEY = jax.random.key(5)
LEARNER = EstimatorLearner(KNeighborsClassifier(1), 3)
BOTH = SimulatedTarget("both", (Part(CALIBRATION, 0.67), Part(QUERY, 1.0)))
NEVER = SimulatedTarget("never", (Part(CALIBRATION, 0.67),))
WITHOUT = "models of the loss test"


@dataclass(frozen=True)
class LossTest(KSTest):
    """Is the target surer of the query set than any of a few models that never saw it?"""

    models: int = 4
    role: str = WITHOUT
    demands: str = TARGET_OUTPUTS
    name: ClassVar[str] = "loss"
    title: ClassVar[str] = "loss test"
    assumes: ClassVar[str] = "Loss test: the target was trained like the shadow models."

    def training_sizes(self, sizes: Sets[int]) -> tuple[tuple[int, int], ...]:
        return ((self.models, round(2 / 3 * sizes[Role.CALIBRATION])),)

    def refuse(self, sets: Sets[Examples]) -> None:
        if self.models < 2:
            raise InputError("the loss test takes at least 2 models.")

    def kinds(self) -> tuple[str, ...]:
        return (self.role,)

    def draw(self, key: Key[Array, ""], pool: Pool) -> Rows:
        nothing = np.zeros(0, int)
        return {self.role: shadow_rows(key, pool, self.role, nothing, 0, self.models)}

    def judge(
        self, key: Key[Array, ""], outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...]
    ) -> Judgement:
        n = evidence.queries
        own = float(outputs.log_odds[:n].clip(-20, 20).mean())
        others = outputs.at_resolution(evidence.log_odds(self.role))[:, :n].clip(-20, 20).mean(axis=1)
        used = own > others.max()
        check = Check("models of the loss test", len(others) >= 3, len(others), 3, True, f"there are {len(others)}")
        finding = Finding(
            "not forgotten" if used else "inconclusive",
            "bad" if used else "open",
            f"The target's mean log-odds are {own:.2f}, those of the others {others.max():.2f} at most.",
            (f"mean log-odds {own:.2f}",),
            Confidence("fair" if used else "none", "It was tried on little."),
            caveats=(self.assumes,),
        )
        rests_on = frozenset({check.name, self.demands})
        numbers = {"mean log-odds": own, "least": float("nan")}
        return Judgement(self.name, self.title, finding, rests_on, (check,), numbers=numbers)


def run(*tests: KSTest) -> KSAudit:
    return audit_ks(KEY, QUERY, CALIBRATION, LEARNER, [BOTH, NEVER], tests=tests)


def test_its_own_check_takes_its_verdict_away_and_no_other():
    target = run(LossTest(models=2), RhoTest(replicates=2)).targets[0]
    assert target.verdict == "inconclusive"
    assert target.because == "models of the loss test: there are 2"
    rho = target.tests[1].finding
    (shown,) = (each for each in rho.checks if each.name == "models of the loss test")
    assert (shown.state, shown.affects) == ("warning", "loss test")


@pytest.mark.parametrize("others", [(), (RhoTest(replicates=2),)])
def test_models_of_others_are_not_replaced(others: tuple[KSTest, ...]):
    for role in ("query", "calibration", "control", "target 0"):
        with pytest.raises(InputError, match=role):
            run(LossTest(role=role), *others)


def test_it_can_be_the_only_test_and_a_check_that_nobody_can_make_is_told():
    """Whether the shadow models of rho fit their data is not known where there are none."""
    both = run(LossTest(demands=SHADOW_ACCURACY)).targets[0]
    assert [each.name for each in both.tests] == ["loss"]
    assert both.ratio is None
    (shown,) = (each for each in both.finding.checks if each.name == SHADOW_ACCURACY)
    assert (shown.state, shown.affects) == ("warning", "")
    assert (both.verdict, both.finding.confidence.word) == ("not forgotten", "weak")
    assert SHADOW_ACCURACY in both.finding.confidence.why
    (made,) = (each for each in both.checks if each.name == SHADOW_ACCURACY)
    assert not made.decisive
    assert made.value is None
    made_run = ks_run(audit=run(LossTest()))
    assert part_of(made_run).pictures == ()
    text = Parsed(report_html(made_run)).text
    assert "Charts" not in text
    # Numbers of its own need no further line.
    own = made_run.result.targets[0].tests[0].numbers
    assert own.keys() == {"mean log-odds", "least"}
    assert own["least"] is None
    assert from_builtins(type(made_run.result), to_json(made_run.result)).targets[0].tests[0].numbers == own
    assert f"mean log-odds, loss test {own['mean log-odds']:.4g}" in " ".join(text.split())
    assert not re.search(r"\brho\b", said(made_run) + text)
