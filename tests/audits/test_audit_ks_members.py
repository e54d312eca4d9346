"""Known members, and outputs before a deletion, in the `ks` audit: what is judged by them, and what changes nothing."""

from dataclasses import replace
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from scipy import stats
from support.clouds import DEALT, replaced, with_log_odds
from support.ks_audits import audit_ks
from support.simulated_shadows import provider

from jaxaudit import (
    DeletionTest,
    FileTarget,
    HoldoutTest,
    MembersTest,
    Part,
    Role,
    Sets,
    SimulatedTarget,
    TargetResult,
    judge,
    train_shadows,
)
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import MEMBERS_LIKE_QUERY

KEY = jax.random.key(5)
SURE = 1e-4
"""A correct test fails for one key in ten thousand; the key is fixed."""
SETS = QUERY, HOLDOUT, MEMBERS = DEALT
HELD = HoldoutTest(mixed=20)
WORLD = provider(np.random.default_rng(1), sum(map(len, SETS)), 5.0)
"""What models say that were never trained: they remember each record by up to 5 nats."""


def target(seed: int, share: float, memory: float = 1.0) -> FileTarget:
    """A target that used all members and a share of the query set, and remembers as much as the models or less."""
    used = np.repeat([0.0, 0.0, 1.0], [len(each) for each in SETS])
    used[: round(share * len(QUERY))] = 1
    odds = WORLD.outputs(np.random.default_rng(seed), memory * used)
    parts = np.split(odds, np.cumsum([len(each) for each in SETS])[:2])
    query, holdout, members = (with_log_odds(part, of, f"{seed}.csv") for part, of in zip(parts, SETS, strict=True))
    return FileTarget(Sets(query=query, holdout=holdout, members=members), allow_unrelated=True)


USED, UNUSED, FORGETFUL = target(11, 1.0), target(12, 0.0), target(13, 1.0, 0.0)
QUERIES = np.arange(len(QUERY))
ALONE: dict[str, Any] = {"holdout": HOLDOUT, "members": MEMBERS}


def by_members(*targets: FileTarget, **options: Any) -> tuple[TargetResult, ...]:
    audit: Any = audit_ks(KEY, QUERY, None, None, targets, **{**ALONE, **options})
    assert audit.models_per_batch is None
    assert len(audit.shadows) == 0
    return audit.targets


OTHER = WORLD.outputs(np.random.default_rng(3), np.zeros(sum(map(len, SETS)))) - 9
SWAPPED = replaced(UNUSED, members=with_log_odds(OTHER[-len(MEMBERS) :], MEMBERS, "members"))
"""Outputs on members that look less used than the holdout."""
OVER = replaced(UNUSED, query=with_log_odds(OTHER[: len(QUERY)], QUERY, "over.csv"))
"""Outputs on the query set that look less used than the holdout, as after over-forgetting."""


@pytest.mark.parametrize(
    ("given", "stated", "verdict", "reason"),
    [
        (USED, 0.25, "not forgotten", "for a target that remembers none of the query set"),
        (UNUSED, 0.25, "forgotten", "95% upper limit of the fraction left"),
        (UNUSED, 0.01, "inconclusive", "of the memory may be left"),
        (FORGETFUL, 0.25, "inconclusive", "cannot tell how much memory of the query set is left"),
        (SWAPPED, 0.25, "inconclusive", "the holdout is remembered more than the members"),
        (OVER, 0.25, "inconclusive", "the query set is remembered less than the holdout (p = 0.0005)"),
    ],
    ids=["all", "none", "a limit that is too large", "no memory", "members of another model", "over-forgotten"],
)
def test_what_is_left_is_the_same_number_in_other_words(
    given: FileTarget, stated: float, verdict: str, reason: str
) -> None:
    now, left = (
        by_members(given, tests=[MembersTest(stated=stated, question=question)])[0] for question in ("used", "left")
    )
    assert now.verdict == left.verdict == verdict
    (of_use,), (of_memory,) = now.usage, left.usage
    words: Any = {name: getattr(of_use, name) for name in ("question", "reasons")}
    in_words_of_use = msgspec.structs.replace(of_memory, **words)
    np.testing.assert_equal(msgspec.structs.asdict(in_words_of_use), msgspec.structs.asdict(of_use))
    text = " ".join([left.finding.sentence, *left.finding.reasons, *of_memory.reasons, left.finding.confidence.why])
    assert reason in text


@pytest.mark.parametrize("strange", ["a class is missing", "shifted inputs", "one class"])
def test_members_that_were_drawn_otherwise_give_no_forgotten(strange: str) -> None:
    """Of one class, outputs are in order if most records are given it; that they are drawn otherwise is told anyway."""
    kept = {"a class is missing": MEMBERS.labels != 2, "one class": MEMBERS.labels == 0}.get(strange)
    rows = np.arange(len(MEMBERS)) if kept is None else np.flatnonzero(kept)
    members = MEMBERS.take(rows)
    members = replace(members, inputs=members.inputs + (strange == "shifted inputs"))
    given = UNUSED.taken(Sets(query=QUERIES, holdout=QUERIES, members=rows))._replace(
        allow_unrelated=strange != "one class"
    )
    (found,) = by_members(given, members=members)
    assert found.verdict == "inconclusive"
    assert not found.usage[0].has_fraction
    failed = {each.name for each in found.finding.checks if each.state == "failed"}
    assert failed == {MEMBERS_LIKE_QUERY}
    assert found.finding.reasons[0].startswith(MEMBERS_LIKE_QUERY)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (replaced(UNUSED, holdout=None), {"holdout": None}),
        (SimulatedTarget("both", (Part(QUERY, 1.0),)), {}),
        (UNUSED, {"tests": [MembersTest(), HELD]}),
        (UNUSED._replace(before=USED.on.only(Role.QUERY, Role.HOLDOUT)), {"tests": [MembersTest()]}),
    ],
    ids=["no holdout", "a target to train", "a test that trains", "before, which this test does not compare"],
)
def test_what_members_alone_cannot_judge_is_refused(given: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        audit_ks(KEY, QUERY, None, None, [given], **{**ALONE, **options})


def test_whole_groups_are_permuted() -> None:
    """Of 30 targets that used nothing, 5% have p <= 5%; by single records 12 would."""
    random = np.random.default_rng(5)
    # Groups of ten, in one set each.
    whole, members = np.arange(len(QUERY) + len(HOLDOUT)) // 10, 1000 + np.arange(len(MEMBERS))
    query, holdout = (
        replace(of, groups=part) for of, part in zip((QUERY, HOLDOUT), np.split(whole, [len(QUERY)]), strict=True)
    )

    def unused() -> FileTarget:
        """It used the members alone, and says much the same of all records of a group."""
        level = random.normal(0, 3, whole.max() + 1)[whole] + random.normal(0, 1, len(whole))
        parts = (*np.split(level, [len(QUERY)]), random.normal(4, 3, len(MEMBERS)))
        sides = (with_log_odds(part, of, "g.csv") for part, of in zip(parts, SETS, strict=True))
        return FileTarget(Sets(**dict(zip(("query", "holdout", "members"), sides, strict=True))), allow_unrelated=True)

    sets: dict[str, Any] = {"holdout": holdout, "members": replace(MEMBERS, groups=members)}
    shadows = train_shadows(KEY, query, None, None, [USED], tests=[MembersTest()], **sets)
    with pytest.raises(InputError, match="members have none"):
        train_shadows(KEY, query, None, None, [USED], tests=[MembersTest()], **{**sets, "members": MEMBERS})
    audit = judge(KEY, shadows, [unused() for _ in range(30)], tests=[MembersTest()])
    few = sum(target.usage[0].p_never <= 0.05 for target in audit.targets)
    assert few <= stats.binom.ppf(1 - SURE, 30, 0.05)


OF_DELETION = jax.random.key(2)
LEVEL = np.random.default_rng(1).normal(0, 2, len(QUERY) + len(HOLDOUT))


def said_by(seed: int, used: float) -> list[Any]:
    """Of a model that used this share of the query set and remembers it by 3 nats: on query set and holdout."""
    generator, count = np.random.default_rng(seed), len(QUERY)
    rows = np.zeros(len(LEVEL))
    rows[generator.permutation(count)[: round(used * count)]] = 1
    odds = LEVEL + 3 * rows + generator.normal(size=len(LEVEL))
    return [with_log_odds(part, of, f"{seed}.csv") for part, of in zip(np.split(odds, [count]), SETS[:2], strict=True)]


def deleted(used: float, before: float = 1.0) -> FileTarget:
    (after, held), (earlier, earlier_held) = said_by(1, used), said_by(2, before)
    return FileTarget(
        Sets(query=after, holdout=held), before=Sets(query=earlier, holdout=earlier_held), allow_unrelated=True
    )


@pytest.mark.parametrize(
    ("used", "before", "verdict"),
    [(0.0, 1.0, "forgotten"), (1.0, 1.0, "not forgotten"), (0.0, 0.0, "inconclusive")],
)
def test_what_is_left_is_told_without_any_model(used: float, before: float, verdict: str) -> None:
    audit: Any = audit_ks(OF_DELETION, QUERY, None, None, [deleted(used, before)], holdout=HOLDOUT)
    (found,) = audit.targets
    assert (found.method, found.verdict) == ("deletion", verdict)
    (usage,) = found.usage
    assert usage.question == "left"
    assert usage.has_fraction == bool(before)
    assert len(audit.shadows) == 0


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (deleted(0.0)._replace(before=Sets()), {"holdout": HOLDOUT}),
        (deleted(0.0)._replace(before=deleted(0.0).before.only(Role.QUERY)), {"holdout": HOLDOUT}),
        (replaced(deleted(0.0), holdout=None), {}),
        (deleted(0.0), {"holdout": HOLDOUT, "tests": [DeletionTest(stated=1.0)]}),
        (deleted(0.0), {"holdout": HOLDOUT, "tests": [MembersTest()]}),
    ],
    ids=["nothing before", "half before", "no holdout", "nothing stated", "no test compares"],
)
def test_what_it_cannot_compare_is_refused(given: FileTarget, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        audit_ks(OF_DELETION, QUERY, None, None, [given], **{"tests": [DeletionTest()], **options})
