"""The `ks` audit end to end on clouds that a network learns by heart: verdicts, training sets, and refusals."""

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from support.clouds import CALIBRATION, HOLDOUT, LEARNER, QUERY, examples, probabilities, replaced, with_log_odds
from support.ks_audits import audit_ks

from jaxaudit import FileTarget, HoldoutTest, Part, RhoTest, Sets, ShadowTest, SimulatedTarget, TargetResult
from jaxaudit.audits import default_tests, make_pool, possible_tests, target_row
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY, HOLDOUT_MODELS, SHADOW_MODELS

KEY = jax.random.key(5)
BOTH = SimulatedTarget("both", (Part(CALIBRATION, 0.67), Part(QUERY, 1.0)))
NEVER = SimulatedTarget("never", (Part(CALIBRATION, 0.67),))
HELD_TEST = HoldoutTest(mixed=19)
COUNTS = {"never": 19, "half": 2, "fully": 19}
SHADOW = ShadowTest(**COUNTS)


def test_the_holdout_test_decides_and_use_is_found_where_it_was():
    tests = [HELD_TEST, SHADOW, RhoTest(replicates=2)]
    how: dict[str, Any] = {"holdout": HOLDOUT, "tests": tests, "own_recipe": True, "execution": Execution(16)}
    audit: Any = audit_ks(KEY, QUERY, CALIBRATION, LEARNER, [BOTH, NEVER], **how)
    for target in audit.targets:
        assert [usage.method for usage in target.usage] == ["holdout", "shadow"]
        assert (target.method, target.verdict) == ("holdout", target.usage[0].verdict)
        passed = {check.name for check in target.checks if check.passed}
        assert passed >= {HOLDOUT_LIKE_QUERY, HOLDOUT_MODELS, SHADOW_MODELS}
    both, never = audit.targets
    assert both.verdict == "not forgotten"
    assert both.usage[0].fraction > 0.25
    assert never.verdict != "not forgotten"
    assert never.usage[0].fraction_low == 0
    assert both.ratio.rho.median < never.ratio.rho.median
    truths = [target.truth for target in audit.targets]
    assert [(truth.used_fraction, truth.training_records) for truth in truths] == [(1.0, 501), (0.0, 201)]
    assert [truth.expected for truth in truths] == ["not forgotten", "forgotten"]
    assert Counter(audit.shadows.kinds) == {**COUNTS, "mixed": 19}
    assert not np.isnan(audit.shadows.log_odds).any()
    assert possible_tests(audit.shadows, [BOTH]) == (HELD_TEST,)


FEW = QUERY.take(slice(0, 80))
"""Too few to teach their difficulty, which takes a second: neighbours tell it."""
LEVEL = FEW.inputs @ np.random.default_rng(4).normal(size=12) + FEW.labels
"""Log-odds of a model that remembers none of these records: some are more difficult than others."""


def judged_alone(key: Any, gap: float, held: np.ndarray) -> TargetResult:
    """What the outputs of a model that is so much surer of the query set tell, with these records held out."""
    query, holdout = (FEW.take(rows) for rows in (~held, held))
    on_query, on_holdout = (with_log_odds(*each, "o") for each in ((LEVEL[~held] + gap, query), (LEVEL[held], holdout)))
    file = FileTarget(Sets(query=on_query, holdout=on_holdout), allow_unrelated=True)
    return audit_ks(key, query, None, None, [file], holdout=holdout, tests=[HoldoutTest(mixed=0)]).targets[0]


def test_a_holdout_alone_tells_use_and_never_that_there_was_none():
    held = np.random.default_rng(6).permutation(len(FEW)) < 40
    used, unused, swapped = (judged_alone(KEY, gap, held) for gap in (4, 0, -4))
    assert [target.verdict for target in (used, unused, swapped)] == ["not forgotten", "inconclusive", "inconclusive"]
    assert used.usage[0].p_never < 0.05 < unused.usage[0].p_never < swapped.usage[0].p_never
    assert not any(target.usage[0].has_fraction for target in (used, unused, swapped))


@pytest.mark.outer
def test_an_unused_target_is_called_used_at_most_at_the_stated_rate_without_any_model():
    """Of 200 random deals of its records at most 5%, and three standard errors; the key is fixed."""
    deals, rate, random = 200, 0.05, np.random.default_rng(7)
    targets = [
        judged_alone(jax.random.fold_in(KEY, place), 0, random.permutation(len(FEW)) < 40) for place in range(deals)
    ]
    rejected = np.mean([target.usage[0].p_never <= rate for target in targets])
    assert rejected <= rate + 3 * np.sqrt(rate * (1 - rate) / deals)
    assert np.mean([target.verdict == "not forgotten" for target in targets]) <= rejected
    assert {target.verdict for target in targets} <= {"not forgotten", "inconclusive"}


def test_models_of_the_shadow_test_are_trained_on_a_share_of_both_sets() -> None:
    pool = make_pool(Sets(query=QUERY, calibration=CALIBRATION, holdout=HOLDOUT))
    assert (pool.holdout, pool.calibration) == (slice(300, 600), slice(600, 900))
    assert pool.compared.tolist() == [*range(600)]
    assert pool._replace(compares_calibration=True).compared.tolist() == [*range(900)]
    assert np.arange(900)[pool.training_order].tolist() == [*range(300), *range(600, 900), *range(300, 600)]
    drawn = SHADOW.draw(KEY, pool)
    assert {role: len(rows) for role, rows in drawn.items()} == COUNTS
    for role, used in zip(COUNTS, (0, 150, 300), strict=True):
        rows = drawn[role]
        parts = (pool.query, pool.calibration, pool.holdout)
        assert {tuple(int(row[part].sum()) for part in parts) for row in rows} == {(used, 200, 0)}
        assert len({row[pool.calibration].tobytes() for row in rows}) == len(rows)


def test_a_slice_of_the_query_set_from_another_file_is_known_by_its_records():
    """With another name, and its classes in another order."""
    order = np.array([2, 0, 1])
    names = tuple(QUERY.class_names[k] for k in order)
    part = Examples(QUERY.inputs[30:90].copy(), np.argsort(order)[QUERY.labels[30:90]], names, "elsewhere")
    target = SimulatedTarget("t", (Part(part, 1.0), Part(CALIBRATION, 1.0)))
    pool = make_pool(Sets(query=QUERY, calibration=CALIBRATION), (target,))
    row = target_row(np.random.default_rng(1), pool, target.parts)[0]
    assert len(pool.examples) == 600
    assert np.flatnonzero(row[pool.query]).tolist() == list(range(30, 90))
    assert row[pool.calibration].all()


def test_whole_groups_are_drawn_of_a_query_set_that_was_dealt_by_groups():
    """Also of a slice of it, and no draw of other sets is another one for that."""
    sizes = np.random.default_rng(5).permutation(np.repeat(np.arange(32), np.arange(32) % 4 * 6 + 1))[:300]
    query = replace(QUERY, groups=sizes)
    for part, records in ((QUERY, np.arange(300)), (QUERY.take(slice(30, 90), "slice"), np.arange(30, 90))):
        target = SimulatedTarget("t", (Part(CALIBRATION, 0.5), Part(part, 0.25)))
        plain = make_pool(Sets(query=QUERY, calibration=CALIBRATION, holdout=HOLDOUT), (target,))
        of_groups = replace(HOLDOUT, groups=100 + np.arange(300) // 3)
        whole = make_pool(Sets(query=query, calibration=CALIBRATION, holdout=of_groups), (target,))
        known = np.unique(sizes[records])
        for seed in range(5):
            pools = plain, whole
            by_records, row = (target_row(np.random.default_rng(seed), each, target.parts)[0] for each in pools)
            np.testing.assert_array_equal(by_records[whole.calibration], row[whole.calibration])
            assert by_records[whole.query].sum() == round(len(records) / 4)
            assert not row[whole.holdout].any()
            drawn = np.unique(sizes[row[whole.query]])
            assert len(drawn) == round(len(known) / 4)
            # Every record of these groups that the part has, and no other.
            wanted = records[np.isin(sizes[records], drawn)]
            np.testing.assert_array_equal(np.flatnonzero(row[whole.query]), wanted)
    everyone = target_row(np.random.default_rng(1), whole, (Part(QUERY, 1.0),))[0]
    assert np.flatnonzero(everyone).tolist() == list(range(300))


FILE, SHORT = (probabilities(np.full((count, 3), 1 / 3), f"{name}.csv") for count, name in ((300, "o"), (200, "short")))
ALONE, HELD_OUT = FileTarget(Sets(query=FILE)), FileTarget(Sets(query=FILE, holdout=FILE))
BESIDE = FileTarget(Sets(query=FILE, calibration=FILE))
PAIR = HELD_OUT._replace(before=Sets(query=FILE, holdout=FILE))
HELD: dict[str, Any] = {"holdout": HOLDOUT, "tests": [HELD_TEST]}
BY_SHADOWS: dict[str, Any] = {"tests": [SHADOW, RhoTest(replicates=1, controls=0)]}


def test_the_default_is_the_firmest_test_that_the_data_allow() -> None:
    assert default_tests(Sets(), [BESIDE, NEVER])[0] == ShadowTest(targets=2)
    assert default_tests(Sets(), [NEVER]) == default_tests(Sets(), [ALONE]) == (ShadowTest(),)
    assert default_tests(Sets(holdout=HOLDOUT), [BESIDE]) == (HoldoutTest(), ShadowTest())
    assert default_tests(Sets(holdout=HOLDOUT), [ALONE]) == (HoldoutTest(),)


@pytest.mark.parametrize(
    ("targets", "options", "words"),
    [
        ([BOTH], {"tests": [RhoTest(replicates=0)]}, r"\(got 0\)"),
        ([BOTH], {"tests": [RhoTest(controls=-1)]}, r"\(got -1\)"),
        ([BOTH], {"tests": [RhoTest(subsample=1.5)]}, r"\(got 1.5\)"),
        ([SimulatedTarget("t", (Part(QUERY, 1.01),))], {}, "give one above 0 and at most 1"),
        ([SimulatedTarget("empty", ())], {}, r"^empty: no data to train this target on"),
        (
            [FileTarget(Sets(query=SHORT))],
            {"tests": [RhoTest()]},
            r"shape \(200, 3\), but the query set has 300 records and 3 classes",
        ),
        ([BESIDE, ALONE], BY_SHADOWS, "set, and some have none"),
        (
            [BESIDE],
            {**BY_SHADOWS, "calibration": examples(3, 0.5, "larger", 301)},
            r"shape \(300, 3\), but the calibration set has 301 records",
        ),
        (
            [replaced(BESIDE, calibration=FILE.take(np.arange(49)))],
            {**BY_SHADOWS, "calibration": CALIBRATION.take(np.arange(49))},
            "got 49",
        ),
        ([BESIDE, SimulatedTarget("most", (Part(CALIBRATION, 0.84), Part(QUERY, 0.5)))], BY_SHADOWS, "got 48"),
        ([HELD_OUT], {}, "o.csv: .*holdout but no records"),
        ([ALONE], HELD, "o.csv: .*holdout but no outputs"),
        ([replaced(HELD_OUT, holdout=SHORT)], HELD, r"\(200, 3\), but the holdout has 300 records"),
        ([HELD_OUT._replace(before=Sets(query=FILE))], HELD, "o.csv: outputs before the deletion"),
        (
            [PAIR._replace(before=Sets(query=SHORT, holdout=FILE))],
            HELD,
            r"\(200, 3\), but the query set has 300 records",
        ),
        ([PAIR], {"holdout": HOLDOUT, "tests": [ShadowTest()]}, "no test compares the outputs before"),
        ([BOTH], {**HELD, "tests": [HoldoutTest(stated=1.0)]}, "above 0 and below 1; got 1"),
        ([BOTH], {"tests": [ShadowTest(fully=18)]}, "at least 19 shadow models .* got 39 and 18"),
        ([BOTH], {"tests": [HELD_TEST]}, "the holdout test needs a holdout"),
        ([BOTH], {**HELD, "tests": [HoldoutTest(mixed=3)]}, "at least 19 shadow models .* got 3"),
        ([BOTH], {**HELD, "tests": [HELD_TEST, HELD_TEST]}, r"\(holdout, holdout\)"),
        (
            [BOTH],
            {**HELD, "holdout": replace(QUERY, name="twin")},
            r"300 of the 300 records of twin also occur in query .*, as holdout and query set",
        ),
        ([BOTH], {**HELD, "holdout": CALIBRATION}, "records of calibration also occur in calibration"),
        (
            [SimulatedTarget("t", (Part(HOLDOUT.take(slice(0, 7)), 1.0),))],
            HELD,
            r"7 of the 300 records of holdout also occur in .* as holdout and target's data",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_before_training(targets, options, words, monkeypatch):
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    options = {"calibration": CALIBRATION, **options}
    with pytest.raises(InputError, match=words):
        audit_ks(KEY, QUERY, options.pop("calibration"), LEARNER, targets, **options)
