"""Outputs on views in the `ks` audit: the members test uses them, and nothing else changes by a bit."""

from dataclasses import replace
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from support.clouds import CALIBRATION, HOLDOUT, QUERY, examples, with_log_odds
from support.ks_audits import audit_ks
from support.simulated_shadows import bank_of, provider

from jaxaudit.audits.ks.evidence import Evidence, odds_over_views, of_file
from jaxaudit.audits.ks.judge_outputs import judge_outputs
from jaxaudit.audits.ks.result import TargetResult
from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests_of_use import HoldoutTest, MembersTest
from jaxaudit.audits.ks.tests_of_use.members import BY_VIEWS
from jaxaudit.audits.pool import make_pool
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.data.roles import Sets
from jaxaudit.metrics.usage import Usage

KEY = jax.random.key(5)
MEMBERS = examples(7, 0.0, "members")
HELD = HoldoutTest(mixed=20)
SETS = (QUERY, HOLDOUT, MEMBERS)
POOL = make_pool(Sets(query=QUERY, calibration=CALIBRATION, holdout=HOLDOUT, members=MEMBERS))
WORLD = provider(np.random.default_rng(1), len(POOL.compared), 5.0)
CUTS = np.cumsum([len(each) for each in SETS])[:2]


def outputs(seed: int, share: float, memory: float) -> list[Outputs]:
    """What a target says of the three sets that used all members and a share of the query set."""
    used = np.repeat([0.0, 0.0, 1.0], [len(each) for each in SETS])
    used[: round(share * len(QUERY))] = 1
    parts = np.split(WORLD.outputs(np.random.default_rng(seed), memory * used), CUTS)
    return [with_log_odds(part, of, f"{seed}.csv") for part, of in zip(parts, SETS, strict=True)]


def target(share: float, memory: float, of_views: float, views: int = 4) -> FileTarget:
    """A target that remembers so much, by the records themselves and by further views of them; 0 views: a plain one."""
    further = [outputs(20 + view, share, of_views) for view in range(views)]
    query, holdout, members = (
        replace(of_set, views=tuple(each[place] for each in further))
        for place, of_set in enumerate(outputs(11, share, memory))
    )
    return FileTarget(query, holdout, True, on_members=members)


def judged(given: FileTarget, **options: Any) -> TargetResult:
    return audit_ks(KEY, QUERY, None, None, [given], holdout=HOLDOUT, members=MEMBERS, **options).targets[0]


@pytest.mark.parametrize(
    ("memory", "of_views", "score_of"), [(1.0, 0.0, "record"), (0.0, 1.0, "views"), (1.0, 0.9, "record and views")]
)
def test_the_members_test_says_what_its_score_is_of(memory: float, of_views: float, score_of: str) -> None:
    used, unused = (judged(target(share, memory, of_views)) for share in (1.0, 0.0))
    assert used.verdict == "not forgotten" != unused.verdict
    for result in (used, unused):
        assert result.usage[0].score_of == score_of
        assert BY_VIEWS in result.finding.caveats


def test_use_that_views_alone_show_is_found_by_views_alone() -> None:
    with_views, without = (judged(target(1.0, 0.0, 1.0, views)) for views in (4, 0))
    assert (with_views.verdict, without.verdict) == ("not forgotten", "inconclusive")
    assert "score_of" not in msgspec.to_builtins(without.usage[0])
    assert BY_VIEWS not in without.finding.caveats


def bank() -> Evidence:
    return bank_of(KEY, WORLD, POOL, [HELD])


@pytest.mark.parametrize("score_of", ["record", "views"])
def test_other_tests_use_the_outputs_on_the_records_alone(score_of: str) -> None:
    """Beside shadow models, which take off difficulty for views, too; and the choice is the same with them."""
    evidence = bank()
    given = target(1.0, *((1.0, 0.0) if score_of == "record" else (0.0, 1.0)))
    plain = given._replace(
        **{name: replace(getattr(given, name), views=()) for name in ("outputs", "on_holdout", "on_members")}
    )
    tests = [MembersTest(), HELD]
    (members, holdout), (of_plain, holdout_plain) = (
        judge_outputs(KEY, evidence, [each.says(evidence, "", with_signals=False)], tests).targets[0].usage
        for each in (given, plain)
    )
    assert holdout == holdout_plain
    assert (members.score_of, of_plain.score_of) == (score_of, None)
    if score_of == "record":
        # The score is divided by its deviation, which moves no p-value and the limits by rounding.
        assert members.p_never == of_plain.p_never
        assert members.upper == pytest.approx(of_plain.upper, rel=1e-9)


def test_the_mean_is_of_log_odds_and_a_set_without_views_counts_as_it_is() -> None:
    models = bank().models
    query, holdout, _ = outputs(11, 1.0, 1.0)
    views = tuple(outputs(20 + view, 1.0, 1.0)[0] for view in range(2))
    labels = (QUERY.labels, HOLDOUT.labels)
    odds = odds_over_views((replace(query, views=views), holdout), labels, models)
    alone = [of_file((file, holdout), labels, models)[0] for file in (query, *views)]
    assert odds is not None
    np.testing.assert_allclose(odds, np.sum(alone, axis=0) / 3, rtol=1e-6)
    np.testing.assert_allclose(odds[len(QUERY) :], alone[0][len(QUERY) :], rtol=1e-6)
    assert odds_over_views((query, holdout), labels, models) is None


def test_records_that_are_left_out_take_their_views_along() -> None:
    whole = target(1.0, 1.0, 1.0)
    given = whole.taken(Sets(query=np.arange(0, len(QUERY), 2)))
    for before, after in zip(whole.outputs.views, given.outputs.views, strict=True):
        np.testing.assert_array_equal(after.values, before.values[::2])
    assert given.on_members is not None
    assert len(given.on_members.views[0].values) == len(MEMBERS)


def test_the_field_is_left_out_of_json_where_there_are_no_views() -> None:
    usage = Usage("members", "inconclusive", 0.3, None, 0.1, 0.0, 1.0, None, (), 1.0, None, "none", "used")
    assert "score_of" not in msgspec.to_builtins(usage)
    assert msgspec.to_builtins(msgspec.structs.replace(usage, score_of="record"))["score_of"] == "record"
