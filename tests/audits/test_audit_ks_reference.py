"""The reference test, and shadow models of several designs, in the `ks` audit."""

from functools import partial

import jax
import numpy as np
import optax
import pytest
from support.clouds import CALIBRATION, LEARNER, QUERY, examples

from jaxaudit.audits.ks.audit import audit_ks, default_tests
from jaxaudit.audits.ks.models import Design
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.target import FileTarget, SimulatedTarget
from jaxaudit.audits.ks.tests import HoldoutTest, ReferenceTest, RhoTest, ShadowTest
from jaxaudit.audits.pool import Part
from jaxaudit.data import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import network
from jaxaudit.metrics.checks import REFERENCE_LIKE_TARGET
from jaxaudit.models import MLP

KEY = jax.random.key(5)
FEW = RhoTest(replicates=1, controls=0)
COUNTS = {"without_query": 19, "half_query": 2, "with_query": 19}
REFERENCE, SHADOW = ReferenceTest(**COUNTS), ShadowTest(**COUNTS)
FRESH = examples(11, 0.5, "fresh")
"""The target's own data: of the calibration set's kind, none of its records."""
WIDER = Design(
    "wider", network(partial(MLP, hidden=(64,)), (12,), 3, optimizer=optax.adam(0.02), epochs=20, batch_size=50)
)


def outputs(trained_on: list[Examples], asked: Examples, name: str) -> Outputs:
    inputs = np.concatenate([each.inputs for each in trained_on])
    labels = np.concatenate([each.labels for each in trained_on])
    params = jax.jit(LEARNER.fit)(jax.random.key(9), inputs, labels, np.ones(len(labels), np.float32))
    probabilities = np.exp(np.asarray(LEARNER.log_probs(params, jax.numpy.asarray(asked.inputs))))
    return Outputs(probabilities.astype(np.float32), "probabilities", None, "float32", name)


def target(name: str, trained_on: list[Examples]) -> FileTarget:
    query, calibration = (outputs(trained_on, asked, name) for asked in (QUERY, CALIBRATION))
    return FileTarget(query, on_reference=calibration)


USED, UNUSED = target("used.csv", [FRESH, QUERY]), target("unused.csv", [FRESH])
HALF = SimulatedTarget("half", (Part(CALIBRATION, 0.5), Part(QUERY, 0.5)))


@pytest.fixture(scope="module")
def audit() -> KSAudit:
    """Both tests, of two designs, on two files and a simulated target."""
    return audit_ks(
        KEY,
        QUERY,
        CALIBRATION,
        LEARNER,
        [USED, UNUSED, HALF],
        tests=[REFERENCE, SHADOW, FEW],
        designs=[WIDER],
        own_recipe=True,
        execution=Execution(16),
    )


def test_it_finds_use_and_calls_none_that_is_not(audit: KSAudit) -> None:
    used, unused, half = (each.usage[0] for each in audit.targets)
    assert [each.method for each in (used, unused, half)] == ["reference"] * 3
    assert used.p_never <= 0.05 < unused.p_never
    assert used.fraction_low > 0
    assert used.fraction_high == 1
    assert unused.fraction_low == 0
    assert half.fraction < used.fraction_high
    # 19 models are too few for a p-value of 0.05 that is adjusted for three targets.
    assert "not forgotten" not in [each.verdict for each in audit.targets]


def test_both_tests_share_their_models(audit: KSAudit) -> None:
    assert {role: len(odds) for role, odds in audit.shadow_log_odds.items()} == {"never": 19, "half": 2, "fully": 19}
    assert {odds.shape[1] for odds in audit.shadow_log_odds.values()} == {len(QUERY)}


def test_designs_take_turns_and_the_first_keeps_its_numbers(audit: KSAudit) -> None:
    alone = audit_ks(KEY, QUERY, CALIBRATION, LEARNER, [USED], tests=[REFERENCE, FEW], execution=Execution(16))
    assert alone.targets[0].verdict == "not forgotten"
    for role in ("never", "fully"):
        same = (alone.shadow_log_odds[role] == audit.shadow_log_odds[role]).all(axis=1)
        assert (same == (np.arange(19) % 2 == 0)).all()


def test_the_order_of_records_in_the_reference_is_checked() -> None:
    assert USED.on_reference is not None
    turned = Outputs(np.roll(USED.on_reference.probabilities, 1, axis=1), "probabilities", None, "float32", "turned")
    audit = audit_ks(
        KEY,
        QUERY,
        CALIBRATION,
        LEARNER,
        [USED._replace(on_reference=turned)],
        tests=[REFERENCE, FEW],
        execution=Execution(16),
    )
    failed = {check.name for check in audit.targets[0].finding.checks if check.state == "failed"}
    assert REFERENCE_LIKE_TARGET in failed
    assert audit.targets[0].verdict == "inconclusive"


def test_the_default_is_the_firmest_test_that_the_data_allow() -> None:
    assert isinstance(default_tests(None, [USED, HALF])[0], ReferenceTest)
    assert type(default_tests(None, [HALF])[0]) is ShadowTest
    assert type(default_tests(None, [USED, UNUSED._replace(on_reference=None)])[0]) is ShadowTest
    assert default_tests(QUERY, [USED]) == (HoldoutTest(), ReferenceTest(), RhoTest())


@pytest.mark.parametrize("taken", [None, slice(5)])
def test_outputs_that_are_missing_or_do_not_fit_are_refused(taken: slice | None) -> None:
    full = USED.on_reference
    assert full is not None
    on_reference = None if taken is None else full.take(np.arange(len(CALIBRATION))[taken])
    with pytest.raises(InputError, match=r"--calibration-target|has outputs of shape \(5, 3\)"):
        audit_ks(KEY, QUERY, CALIBRATION, LEARNER, [USED._replace(on_reference=on_reference)], tests=[REFERENCE, FEW])
