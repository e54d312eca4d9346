"""Shadow models that did not learn: of which it is said, and how."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.banks import CLASSES, QUERY, RECORDS, planned, save, target
from support.simulated_shadows import shadow_models

from jaxaudit import Evidence, FileTarget, HoldoutTest, MembersTest, Sets, ShadowTest, judge, load_bank, load_outputs
from jaxaudit.audits import evidence_for, open_bank, unlearned_models
from jaxaudit.data import Examples, OutputsPlace
from jaxaudit.shadow_models import Pool

HOLDOUT, SHADOW = HoldoutTest(), ShadowTest()
LEARNED, BARELY = 0.41, 0.39
"""Accuracies; a third of the records is of the commonest class, so that 0.4 is 0.1 of the way to none wrong."""


def evidence(accuracy: dict[str, float]) -> Evidence:
    """Twenty models of each kind, whose median training accuracies are these."""
    inputs = np.random.default_rng(1).normal(size=(9, 2)).astype(np.float32)
    examples = Examples(inputs, np.arange(9) % 3, ("a", "b", "c"), "records")
    pool = Pool(examples, slice(0, 3), slice(3, 6), slice(6, 9))
    rows = {kind: np.zeros((20, 9), bool) for kind in accuracy}
    reached = np.concatenate([middle + np.linspace(-0.3, 0.3, 20) for middle in accuracy.values()])
    return Evidence(shadow_models(pool, rows, np.zeros((len(reached), 6)), reached))


BOTH = {"mixed": LEARNED, "never": BARELY, "half": BARELY, "fully": BARELY}


@pytest.mark.parametrize(
    ("accuracy", "tests", "titles"),
    [
        ({"mixed": LEARNED}, [HOLDOUT, MembersTest()], []),
        ({"mixed": BARELY}, [HOLDOUT, MembersTest()], ["Holdout test"]),
        (BOTH, [SHADOW, HOLDOUT], ["Shadow test"]),
    ],
)
def test_models_that_did_not_learn_are_named_by_their_test(accuracy: dict[str, float], tests: Any, titles: list[str]):
    assert [each.partition(":")[0] for each in unlearned_models(evidence(accuracy), tests)] == titles


def test_the_verdict_by_a_bank_of_such_models_has_it_among_its_caveats(tmp_path: Path):
    """The median of 30 accuracies by guessing is a tenth of the way to none wrong once in more than 10,000 keys."""
    planned(tmp_path / "bank", 30, 0, holdout=True)
    noise = np.random.default_rng(4)
    for model in range(30):
        save(tmp_path / "bank", model, noise.normal(size=(RECORDS, CLASSES)))
    bank = load_bank(tmp_path / "bank")
    target(bank.directory, "used", np.arange(RECORDS) < QUERY, 6.0)
    on_query, on_holdout = (
        load_outputs(OutputsPlace(tmp_path / "used.npz", role), CLASSES, QUERY, of=role)
        for role in ("query", "holdout")
    )
    targets, shadows, tests = (
        [FileTarget(Sets(query=on_query, holdout=on_holdout), allow_unrelated=True)],
        open_bank(bank),
        [HOLDOUT],
    )
    evidence_of_bank, _ = evidence_for(Evidence(shadows), targets, tests)
    (sentence,) = evidence_of_bank.limitations
    assert sentence.startswith("Holdout test: its shadow models did not learn")
    (judged,) = judge(jax.random.key(8), shadows, targets, tests=tests).targets
    assert sentence in judged.finding.caveats
