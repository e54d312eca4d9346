"""Designs of shadow models that did not learn: what is left out, what is kept, and what is said of it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from support.banks import CLASSES, QUERY, RECORDS, logits, planned, save, target
from support.simulated_shadows import shadow_models

from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.judge import evidence_for, judge
from jaxaudit.audits.ks.learned import without_unlearned
from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests_of_use import HoldoutTest, MembersTest, ReferenceTest, ShadowTest
from jaxaudit.audits.open_bank import open_bank
from jaxaudit.data import Examples
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.data.outputs.outputs import load_outputs
from jaxaudit.metrics.checks import MIN_ACCURACY
from jaxaudit.shadow_models import Pool

KEY = jax.random.key(8)
NAMES = ("guess", "wider", "adam", "plain")
HOLDOUT, SHADOW, REFERENCE = HoldoutTest(), ShadowTest(), ReferenceTest()
LEARNED, BARELY = 0.9, 0.39
"""Accuracies; a third of the records is of the commonest class, so that 0.4 is 0.1 of the way to none wrong."""


def evidence(counts: dict[str, int], accuracy: Sequence[float], targets: int = 1, scale: float = 1.0) -> Evidence:
    """Models that take turns among designs of these training accuracies."""
    inputs = scale * np.random.default_rng(1).normal(size=(9, 2)).astype(np.float32)
    examples = Examples(inputs, np.arange(9) % 3, ("a", "b", "c"), "records")
    pool = Pool(examples, slice(0, 3), slice(3, 6), slice(6, 9))
    designs = np.concatenate([np.arange(count) % len(accuracy) for count in counts.values()])
    rows = {kind: np.zeros((count, 9), bool) for kind, count in counts.items()}
    odds, own = np.arange(6.0 * len(designs)).reshape(-1, 6), np.array(accuracy)[designs]
    models = shadow_models(pool, rows, odds, own, designs=designs, design_names=NAMES)
    return Evidence(models, 0.9, targets=targets)


def left(found: Evidence, role: str) -> list[int]:
    """How many models of each design there are."""
    assert len(found.members(role)) == len(found.log_odds(role)) == found.count(role)
    return np.bincount(found.design_of(role), minlength=len(NAMES)).tolist()


def test_a_design_that_did_not_learn_is_left_out_and_named():
    whole = evidence({"mixed": 40}, (LEARNED, LEARNED, BARELY, LEARNED))
    found = without_unlearned(whole, [HOLDOUT])
    assert left(found, "mixed") == [10, 10, 0, 10]
    others = whole.log_odds("mixed")[np.arange(40) % 4 != 2]
    np.testing.assert_array_equal(found.log_odds("mixed"), others)
    (said,) = found.limitations
    assert "left out: adam (training accuracy 39%, guessing 33%)" in said
    assert "scale the inputs" not in said
    learned = without_unlearned(evidence({"mixed": 40}, (LEARNED, LEARNED, 0.41, LEARNED)), [HOLDOUT, SHADOW])
    assert left(learned, "mixed") == [10] * 4
    assert learned.limitations == ()


def test_a_test_keeps_as_many_models_as_it_needs():
    """The shadow test has 19 models of full use by default, and needs all of them."""
    counts = {"never": 39, "half": 19, "fully": 19}
    found = without_unlearned(evidence(counts, (LEARNED, LEARNED, BARELY, LEARNED)), [SHADOW])
    assert [sum(left(found, role)) for role in counts] == [39, 19, 19]
    (said,) = found.limitations
    assert said.startswith("Shadow test: ")
    assert "kept" in said
    assert "adam (training accuracy 39%, guessing 33%)" in said
    assert said.endswith("train more of them.")


def test_a_further_test_takes_no_model_from_another():
    counts = {"mixed": 40, "never": 39, "half": 19, "fully": 19}
    whole = evidence(counts, (LEARNED, BARELY, LEARNED, LEARNED))
    alone, beside = (without_unlearned(whole, tests) for tests in ([HOLDOUT], [SHADOW, HOLDOUT, REFERENCE]))
    assert left(alone, "mixed") == left(beside, "mixed") == [10, 0, 10, 10]
    assert left(beside, "fully")[1] > 0
    shared, _ = beside.limitations
    assert shared.startswith("Shadow test and reference test: ")


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_a_first_or_only_design_that_did_not_learn_stays_and_is_said(scale: float):
    whole = evidence({"mixed": 40}, (BARELY, LEARNED, LEARNED, LEARNED), scale=scale)
    found = without_unlearned(whole, [HOLDOUT])
    assert left(found, "mixed") == [10] * 4
    (said,) = found.limitations
    assert "the first design" in said
    assert "guess (training accuracy 39%" in said
    assert ("centre and scale the inputs" in said) == (scale > 1)
    whole = evidence({"mixed": 40}, (BARELY,))
    one = replace(whole, models=replace(whole.models, design_names=()))
    (said,) = without_unlearned(one, [HOLDOUT, MembersTest()]).limitations
    assert "its shadow models did not learn: training accuracy 39%" in said


# By a bank.


def bank_of(folder: Path, models: int) -> Path:
    """A bank of two designs in turn, of which the second answers at random."""
    planned(folder, models, 0, holdout=True)
    said = json.loads((folder / "bank.json").read_text())
    (folder / "bank.json").write_text(json.dumps({**said, "designs": ["guess", "adam"]}))
    np.save(folder / "designs.npy", np.arange(models) % 2)
    rows, noise = np.load(folder / "membership.npy"), np.random.default_rng(4)
    for model in range(models):
        save(folder, model, noise.normal(size=(RECORDS, CLASSES)) if model % 2 else logits(model, rows[model], 6.0))
    return folder


@pytest.mark.parametrize(("models", "kept"), [(44, 22), (30, 30)])
def test_a_bank_is_rid_of_a_design_that_did_not_learn_where_enough_are_left(tmp_path: Path, models: int, kept: int):
    """The median of 15 accuracies or more by guessing is a tenth of the way to none wrong once in 10,000 keys."""
    bank = load_bank(bank_of(tmp_path / "bank", models))
    target(bank.directory, "used", np.arange(RECORDS) < QUERY, 6.0)
    on_query, on_holdout = (
        load_outputs(tmp_path / f"used_{role}.npy", CLASSES, QUERY, of=role) for role in ("query", "holdout")
    )
    given = [FileTarget(on_query, on_holdout, True)]
    shadows, tests = open_bank(bank), [HoldoutTest()]
    found, _ = evidence_for(Evidence(shadows, MIN_ACCURACY), given, tests)
    assert found.count("mixed") == kept
    (judged,) = judge(KEY, shadows, given, tests=tests).targets
    assert judged.verdict == "not forgotten"
    (said,) = found.limitations
    assert said in judged.finding.caveats
    assert ("left out: adam" in said, "kept" in said) == (kept < models, kept == models)
    assert "shadow-models" not in said
