"""Outputs on any set that are in another order, of another set or on another scale give no verdict of use."""

import jax
import numpy as np
import pytest
from scipy import special
from support.clouds import HOLDOUT, QUERY, examples, probabilities, replaced, with_log_odds
from support.ks_audits import audit_ks

from jaxaudit import FileTarget, Role, Sets, TargetResult
from jaxaudit.data import Examples, Outputs, are_copies
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import (
    BEFORE_ON_HOLDOUT,
    BEFORE_OUTPUTS,
    HOLDOUT_OUTPUTS,
    MEMBERS_OUTPUTS,
    OUTPUTS_ON_ONE_SCALE,
    TARGET_OUTPUTS,
)

KEY = jax.random.key(3)
MEMBERS = examples(7, 0.0, "members")
SETS = Sets(query=QUERY, holdout=HOLDOUT, members=MEMBERS)
SURE = np.random.default_rng(4)


def says(of: Examples, seed: int, used: bool) -> Outputs:
    """A model that knows the classes of all records, and of used ones better by 2 nats."""
    odds = np.random.default_rng(seed).normal(1.0 + 2 * used, 2.0, len(of))
    return with_log_odds(odds, of, f"{seed}.csv")


SEEDS = {Role.QUERY: 0, Role.HOLDOUT: 1, Role.MEMBERS: 2}
BY_MEMBERS = FileTarget(SETS.map(lambda role, of: says(of, SEEDS[role], role == Role.MEMBERS)))
"""It never used the query set."""
BY_BEFORE = replaced(BY_MEMBERS, members=None)._replace(
    before=Sets(query=says(QUERY, 3, True), holdout=says(HOLDOUT, 4, False))
)
"""It once did."""


def judged(target: FileTarget) -> TargetResult:
    members = MEMBERS if Role.MEMBERS in target.on else None
    return audit_ks(KEY, QUERY, None, None, [target], holdout=HOLDOUT, members=members).targets[0]


def failed(found: TargetResult) -> set[str]:
    return {check.name for check in found.checks if not check.passed}


def with_file(target: FileTarget, field: str, role: Role, file: Outputs) -> FileTarget:
    return target._replace(**{field: getattr(target, field) | Sets(**{role: file})})


@pytest.mark.parametrize("target", [BY_MEMBERS, BY_BEFORE], ids=["members", "before"])
def test_outputs_in_order_pass(target: FileTarget) -> None:
    found = judged(target)
    assert not failed(found)
    # The answers before and after have nothing in common here, so that no deletion is seen in them.
    assert found.verdict == ("forgotten" if target == BY_MEMBERS else "inconclusive")


@pytest.mark.parametrize(
    ("target", "field", "role", "check"),
    [
        (BY_MEMBERS, "on", Role.QUERY, TARGET_OUTPUTS),
        (BY_MEMBERS, "on", Role.HOLDOUT, HOLDOUT_OUTPUTS),
        (BY_MEMBERS, "on", Role.MEMBERS, MEMBERS_OUTPUTS),
        (BY_BEFORE, "on", Role.HOLDOUT, HOLDOUT_OUTPUTS),
        (BY_BEFORE, "before", Role.QUERY, BEFORE_OUTPUTS),
        (BY_BEFORE, "before", Role.HOLDOUT, BEFORE_ON_HOLDOUT),
    ],
)
def test_rows_in_another_order_give_no_verdict(target: FileTarget, field: str, role: Role, check: str) -> None:
    """Of the holdout they look less remembered than those of a query set that was never used."""
    file = getattr(target, field)[role]
    shuffled = with_file(target, field, role, file.take(np.random.default_rng(5).permutation(len(file.values))))
    found = judged(shuffled)
    assert failed(found) == {check}
    assert found.verdict == "inconclusive"
    allowed = judged(shuffled._replace(allow_unrelated=True))
    assert check not in failed(allowed)


@pytest.mark.parametrize(
    ("target", "field", "role", "copied"),
    [
        (BY_MEMBERS, "on", Role.HOLDOUT, Role.QUERY),
        (BY_MEMBERS, "on", Role.MEMBERS, Role.QUERY),
        (BY_MEMBERS, "on", Role.MEMBERS, Role.HOLDOUT),
        (BY_BEFORE, "before", Role.HOLDOUT, Role.QUERY),
    ],
)
def test_the_outputs_on_one_set_as_those_on_another_are_refused(
    target: FileTarget, field: str, role: Role, copied: Role
) -> None:
    file, other = getattr(target, field)[role], getattr(target, field)[copied]
    mixed = file.values.copy()
    mixed[:200] = other.values[:200]
    for copy in (other, probabilities(mixed, "mixed")):
        with pytest.raises(InputError, match="has the same rows as"):
            judged(with_file(target, field, role, copy))


def test_outputs_that_are_alike_by_chance_are_no_copies() -> None:
    """A model that is sure of nearly all records, and a tree of four leaves."""
    for odds in (np.full(300, 40.0), SURE.integers(0, 4, 300) / 2.0):
        same, members = (with_log_odds(np.asarray(odds, float), of, "a.csv") for of in (QUERY, MEMBERS))
        held = with_log_odds(np.asarray(odds, float), HOLDOUT, "b.csv")
        judged(FileTarget(Sets(query=same, holdout=held, members=members)))


def test_votes_on_few_records_are_no_copies() -> None:
    """Five records in which ten trees agree nearly always: in about 1 of 12 pairs most rows were the same."""
    shape = (1000, 2, 5, 1)
    votes = SURE.binomial(10, SURE.choice([0.02, 0.98], shape)) / 10
    assert not any(are_copies(first, second) for first, second in votes)
    assert are_copies(np.arange(10.0)[:, None], np.arange(10.0)[:, None])


def test_a_file_on_another_scale_or_a_part_of_one_out_of_line_gives_no_verdict() -> None:
    """The holdout's rows from the middle on belong to the records after them."""
    target = BY_MEMBERS
    odds = np.random.default_rng(9).normal(0.3, 0.2, len(HOLDOUT))
    found = judged(replaced(target, holdout=with_log_odds(odds, HOLDOUT, "softmax_twice.csv")))
    assert failed(found) == {OUTPUTS_ON_ONE_SCALE}
    assert found.verdict == "inconclusive"
    half = len(HOLDOUT) // 2
    rows = np.append(np.delete(np.arange(len(HOLDOUT)), half), len(HOLDOUT) - 1)
    found = judged(replaced(target, holdout=target.on[Role.HOLDOUT].take(rows)))
    assert failed(found) == {HOLDOUT_OUTPUTS}
    assert found.verdict == "inconclusive"


def test_a_model_that_knows_its_members_alone_is_judged() -> None:
    """It learned its members by heart, and answers all others at random."""
    random = np.random.default_rng(6)

    def guessed(of: Examples, name: str) -> Outputs:
        return probabilities(special.softmax(random.normal(0, 0.5, (len(of), 3)), axis=1), name)

    known = with_log_odds(random.normal(5, 1, len(MEMBERS)), MEMBERS, "members.csv")
    found = judged(
        FileTarget(Sets(query=guessed(QUERY, "query.csv"), holdout=guessed(HOLDOUT, "holdout.csv"), members=known))
    )
    assert not failed(found)
    assert found.verdict == "forgotten"
