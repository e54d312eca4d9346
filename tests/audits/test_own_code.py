"""A person's own test of `ks` and own attack, beside those that are known."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import numpy as np
import optax
import pytest
from jaxtyping import Array, Float, Key
from support.clouds import CALIBRATION, QUERY
from support.html_pages import Parsed
from support.ks_audits import audit_ks
from support.saved_runs import save
from support.saved_runs.attack import attack_run
from support.saved_runs.ks import ks_run
from support.terminals import said
from support.tiny_learners import CLASSES, learner, records

from jaxaudit.attacks import Attack, AttackInputs, Distance, PairedShadows, PooledShadows
from jaxaudit.audits.attack.attack import attack
from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.audits.attack.train_splits import train_splits
from jaxaudit.audits.finding import Confidence, Finding
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs
from jaxaudit.audits.ks.models import Part, Pool, Rows, shadow_rows
from jaxaudit.audits.ks.plan import Free, Work, choose
from jaxaudit.audits.ks.result import KSAudit, OwnNumbers
from jaxaudit.audits.ks.target import SimulatedTarget
from jaxaudit.audits.ks.tests_of_use import Judgement, KSTest, RhoTest, ShadowTest
from jaxaudit.data import Examples
from jaxaudit.data.examples import Role, Sets
from jaxaudit.ensemble import Execution, Progress, StepCost
from jaxaudit.errors import InputError
from jaxaudit.json_types import from_builtins
from jaxaudit.learners import network
from jaxaudit.metrics.checks import SHADOW_ACCURACY, TARGET_OUTPUTS, Check
from jaxaudit.models import MLP
from jaxaudit.report.build import part_of
from jaxaudit.report.html.render import report_html
from jaxaudit.report.kinds import run_kind
from jaxaudit.report.numbers import precise
from jaxaudit.report.record import to_json
from jaxaudit.runs.saved import read_run

OF_TEST = jax.random.key(5)
SMALL = network(partial(MLP, hidden=(16,)), (12,), 3, optimizer=optax.adam(0.02), epochs=8, batch_size=50)
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

    @property
    def references(self) -> int:
        return self.models

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
        self, key: Key[Array, ""], outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...], level: float
    ) -> Judgement:
        n = evidence.queries
        own = float(outputs.log_odds[:n].mean())
        others = outputs.at_resolution(evidence.log_odds(self.role))[:, :n].mean(axis=1)
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
        numbers = OwnNumbers({"mean log-odds": own, "least": float("nan")})
        return Judgement(self.name, self.title, finding, rests_on, (check,), numbers)


def by_tests(*tests: KSTest, **options: Any) -> KSAudit:
    how: dict[str, Any] = {"execution": Execution(16), "min_accuracy": 0.5, **options}
    return audit_ks(OF_TEST, QUERY, CALIBRATION, SMALL, [BOTH, NEVER], tests=tests, **how)


def test_its_own_check_takes_its_verdict_away_and_no_other():
    target = by_tests(LossTest(models=2), RhoTest(replicates=2)).targets[0]
    assert target.verdict == "inconclusive"
    assert target.because == "models of the loss test: there are 2"
    rho = target.tests[1].finding
    (shown,) = (each for each in rho.checks if each.name == "models of the loss test")
    assert (shown.state, shown.affects) == ("warning", "loss test")


@pytest.mark.parametrize("others", [(), (RhoTest(replicates=2),)])
def test_models_of_others_are_not_replaced(others: tuple[KSTest, ...]):
    for role in ("query", "calibration", "control", "target 0"):
        with pytest.raises(InputError, match=role):
            by_tests(LossTest(role=role), *others)


def test_it_can_be_the_only_test_and_a_check_that_nobody_can_make_is_told():
    """Whether the shadow models of rho fit their data is not known where there are none."""
    both = by_tests(LossTest(demands=SHADOW_ACCURACY)).targets[0]
    assert [each.name for each in both.tests] == ["loss"]
    assert (both.rho, both.rho_verdict, both.paper_rule, both.controls) == (None, None, None, ())
    (shown,) = (each for each in both.finding.checks if each.name == SHADOW_ACCURACY)
    assert (shown.state, shown.affects) == ("warning", "")
    assert (both.verdict, both.finding.confidence.word) == ("not forgotten", "weak")
    assert SHADOW_ACCURACY in both.finding.confidence.why
    (made,) = (each for each in both.checks if each.name == SHADOW_ACCURACY)
    assert not made.decisive
    assert made.value is None
    made_run = ks_run(audit=by_tests(LossTest()))
    assert part_of(made_run).pictures() == ()
    text = Parsed(report_html([made_run])).text
    assert "Charts" not in text
    # Numbers of its own need no further line.
    own = made_run.result.targets[0].tests[0].numbers
    assert own.keys() == {"mean log-odds", "least"}
    assert own["least"] is None
    assert from_builtins(type(made_run.result), to_json(made_run.result)).targets[0].tests[0].numbers == own
    assert f"mean log-odds, loss test {precise(own['mean log-odds'])}" in " ".join(text.split())
    assert not re.search(r"\brho\b", said(made_run) + text)


def test_a_plan_makes_it_no_smaller():
    """No option could say so, and the command that repeats a run has options alone."""
    tests = LossTest(), ShadowTest()
    lightest = tuple(test.lighter() for test in tests)
    work = Work(60_000, 10_000, 0, (), 60_000, tests, 15, 64, lightest=lightest)
    own, shadow = choose(work, [StepCost(2e8, 1e6, 1)], "quick", Free(True, True)).work.tests
    assert own == tests[0]
    assert shadow == tests[1].lighter() != tests[1]


Shadows = Literal["paired", "pooled"]
EXAMPLES = Examples(*records(60, 4), tuple(f"class {i}" for i in range(CLASSES)), "candidates")
HOW: dict[str, Any] = {
    "iterations": 3,
    "targets": 8,
    "shadow_pairs": 2,
    "pooled_shadows": 3,
    "measured": 2,
    "execution": Execution(4),
}


@dataclass(frozen=True)
class Sure:
    """Whoever the model is surer of than shadow models without the record are was in."""

    name: ClassVar[str] = "sure"
    meaning: ClassVar[str] = "Says `in` where the model is surer than models that never saw the record."
    source: ClassVar[str] = "a test"
    shadows: ClassVar[Shadows] = "paired"
    needs_bins: ClassVar[bool] = False

    def scores(
        self,
        key: Key[Array, ""],
        asked: AttackInputs,
        shadows: PairedShadows | PooledShadows,
        progress: Progress | None,
    ) -> Float[np.ndarray, "models targets"]:
        assert isinstance(shadows, PairedShadows)
        own = np.take_along_axis(asked.outputs, asked.labels[None, :, None], axis=2)[..., 0]
        theirs = np.take_along_axis(shadows.without_target, asked.labels[None, :, None], axis=2)[..., 0]
        return (own - theirs.mean(axis=0)).astype(np.float64)


@dataclass(frozen=True)
class Blind:
    """Draws lots, and counts who the pooled shadow models were trained on."""

    name: ClassVar[str] = "blind"
    meaning: ClassVar[str] = "Draws lots."
    source: ClassVar[str] = "a test"
    shadows: ClassVar[Shadows] = "pooled"
    needs_bins: ClassVar[bool] = True

    def scores(
        self,
        key: Key[Array, ""],
        asked: AttackInputs,
        shadows: PairedShadows | PooledShadows,
        progress: Progress | None,
    ) -> Float[np.ndarray, "models targets"]:
        assert isinstance(shadows, PooledShadows)
        assert shadows.outputs.shape == (3, 60, CLASSES)
        assert (shadows.membership.sum(axis=1) == 30).all()
        return np.asarray(jax.random.normal(key, asked.outputs.shape[:2]), np.float64)


@pytest.fixture(scope="module")
def audit() -> AttackAudit:
    return attack(train_splits(jax.random.key(5), EXAMPLES, learner(), **HOW), attacks=[Sure(), Distance(), Blind()])


def test_it_runs_beside_the_others_and_every_output_says_so(audit: AttackAudit, tmp_path):
    assert isinstance(Sure(), Attack)
    assert list(audit.scores) == ["sure", "distance", "blind"]
    assert audit.result.splits is not None
    for name, scores in audit.scores.items():
        right = ((scores > 0) == audit.truth).mean(axis=0).tolist()
        assert [record.accuracy[name] for record in audit.result.splits.records] == right
    run = attack_run(audit=audit)
    value = to_json(run.result)
    assert str(from_builtins(run_kind("attack").record, value)) == str(run.result)
    assert [attack["name"] for attack in value["attacks"]] == ["sure", "distance", "blind"]
    assert value["attacks"][0]["meaning"] == Sure.meaning
    text, page = said(run), Parsed(report_html([run])).text
    for shown in (text, page):
        assert audit.finding.sentence in shown
        assert "sure" in shown
        assert "blind" in shown
    assert f"sure attack {Sure.meaning} {Sure.source}" in page
    again = read_run(save(run, tmp_path / "run"))
    assert report_html([again]) == report_html([attack_run(audit=audit)]).replace("c run", "run")


def test_it_changes_no_number_of_others(audit: AttackAudit):
    how = {**HOW, "pooled_shadows": 0}
    alone = attack(train_splits(jax.random.key(5), EXAMPLES, learner(), **how), attacks=[Distance()])
    np.testing.assert_array_equal(alone.scores["distance"], audit.scores["distance"])
    np.testing.assert_array_equal(alone.measurements, audit.measurements)
    assert str(alone.result.attacks[0]) == str(audit.result.attacks[1])


def test_one_that_needs_bins_is_refused_without():
    models = train_splits(jax.random.key(5), EXAMPLES, learner(), bins=0, **HOW)
    with pytest.raises(InputError, match="the blind attack"):
        attack(models, attacks=[Sure(), Blind()])
