"""The deletion test in the `ks` audit: what it needs, what it says, and on the command line."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy import special
from support.cli_runs import jaxaudit
from support.clouds import CALIBRATION, HOLDOUT, LEARNER, QUERY, with_log_odds
from support.deals import write_deal, write_model
from support.ks_audits import audit_ks

from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests_of_use import DeletionTest, MembersTest
from jaxaudit.errors import InputError

KEY = jax.random.key(2)
SETS = (QUERY, HOLDOUT)
LEVEL = np.random.default_rng(1).normal(0, 2, sum(map(len, SETS)))


def outputs(seed: int, used: float) -> list[Any]:
    """Of a model that used this share of the query set and remembers it by 3 nats: on query set and holdout."""
    generator, count = np.random.default_rng(seed), len(QUERY)
    rows = np.zeros(len(LEVEL))
    rows[generator.permutation(count)[: round(used * count)]] = 1
    odds = LEVEL + 3 * rows + generator.normal(size=len(LEVEL))
    return [with_log_odds(part, of, f"{seed}.csv") for part, of in zip(np.split(odds, [count]), SETS, strict=True)]


def target(used: float, before: float = 1.0) -> FileTarget:
    (after, held), (earlier, earlier_held) = outputs(1, used), outputs(2, before)
    return FileTarget(after, held, True, before=earlier, before_on_holdout=earlier_held)


@pytest.mark.parametrize(
    ("used", "before", "verdict"),
    [(0.0, 1.0, "forgotten"), (1.0, 1.0, "not forgotten"), (0.0, 0.0, "inconclusive")],
)
def test_what_is_left_is_told_without_any_model(used: float, before: float, verdict: str) -> None:
    audit = audit_ks(KEY, QUERY, None, None, [target(used, before)], holdout=HOLDOUT)
    (found,) = audit.targets
    assert (found.method, found.verdict) == ("deletion", verdict)
    (usage,) = found.usage
    assert usage.question == "left"
    assert usage.has_fraction == bool(before)
    assert audit.shadows is not None
    assert len(audit.shadows) == 0


def test_targets_beside_change_no_number_but_the_adjusted_one() -> None:
    alone, beside = (
        audit_ks(KEY, QUERY, None, None, targets, holdout=HOLDOUT).targets[0].usage[0]
        for targets in ([target(0.5)], [target(0.5), target(0.0)])
    )
    assert (alone.p_never, alone.fraction, alone.upper) == (beside.p_never, beside.fraction, beside.upper)


@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_outputs_of_an_unchanged_model_are_said_to_be_that(noise: float) -> None:
    """Byte for byte, or asked again in other batches."""
    before = target(1.0)
    again = [
        with_log_odds(
            np.asarray(special.logit(file.probabilities[np.arange(len(of)), of.labels].astype(float)))
            + noise * np.random.default_rng(3).normal(size=len(of)),
            of,
            "again.csv",
        )
        for file, of in ((before.before, QUERY), (before.before_on_holdout, HOLDOUT))
        if file is not None
    ]
    found = audit_ks(
        KEY,
        QUERY,
        None,
        None,
        [before._replace(outputs=again[0], on_holdout=again[1])],
        holdout=HOLDOUT,
        tests=[DeletionTest()],
    ).targets[0]
    assert found.verdict == "not forgotten"
    assert "the model is unchanged" in found.finding.sentence
    assert not any("cannot be read" in caveat for caveat in found.finding.caveats)
    changed = audit_ks(KEY, QUERY, None, None, [before], holdout=HOLDOUT, tests=[DeletionTest()]).targets[0]
    assert "unchanged" not in changed.finding.sentence


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (target(0.0)._replace(before=None, before_on_holdout=None), {"holdout": HOLDOUT}),
        (target(0.0)._replace(before_on_holdout=None), {"holdout": HOLDOUT}),
        (target(0.0)._replace(on_holdout=None), {}),
        (target(0.0), {"holdout": HOLDOUT, "tests": [DeletionTest(stated=1.0)]}),
        (target(0.0), {"holdout": HOLDOUT, "tests": [MembersTest()]}),
    ],
    ids=["nothing before", "half before", "no holdout", "nothing stated", "no test compares"],
)
def test_what_it_cannot_compare_is_refused(given: FileTarget, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        audit_ks(KEY, QUERY, None, None, [given], **{"tests": [DeletionTest()], **options})


@pytest.mark.outer
def test_beside_the_holdout_test_it_is_asked_by_name() -> None:
    from jaxaudit.audits.ks.tests_of_use import HoldoutTest

    tests = [HoldoutTest(mixed=20), DeletionTest()]
    (found,) = audit_ks(KEY, QUERY, CALIBRATION, LEARNER, [target(1.0)], holdout=HOLDOUT, tests=tests).targets
    assert [usage.method for usage in found.usage] == ["holdout", "deletion"]


DEAL, AFTER, BEFORE = ("--deal", "deal"), ("--target", "after.csv"), ("--before", "before.csv")


@pytest.fixture
def deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    query, holdout = ((examples.inputs, examples.labels) for examples in SETS)
    write_deal("deal", query=query, holdout=holdout)
    write_deal("no_holdout", query=query)
    for name, seed, used in (("after", 1, 0.0), ("before", 2, 1.0)):
        on_query, on_holdout = (file.probabilities for file in outputs(seed, used))
        write_model(f"{name}.csv", query=on_query, holdout=on_holdout)
        write_model(f"{name}_query.csv", query=on_query)


@pytest.mark.outer
@pytest.mark.usefixtures("deletion")
def test_the_command_line_needs_neither_calibration_nor_members() -> None:
    done = jaxaudit("ks", *DEAL, *AFTER, *BEFORE, "--out", "run", "--json")
    assert done.code == 0, done.err
    (found,) = done.result["targets"]
    details = found["tests"][0]["details"]
    assert (found["finding"]["verdict"], found["tests"][0]["name"]) == ("forgotten", "deletion")
    assert details["upper"] < 0.25 < 1
    assert details["fraction"] <= details["upper"]
    assert details["question"] == "left"
    again = jaxaudit(*done.result["provenance"]["command"][1:], "--json")
    assert again.result["targets"] == done.result["targets"]
    page = jaxaudit("report", "run", "--text")
    assert "before the deletion" in " ".join(page.out.split())


@pytest.mark.outer
@pytest.mark.usefixtures("deletion")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--deal", "no_holdout", *AFTER, *BEFORE), "no_holdout has no holdout"),
        ((*DEAL, *AFTER, "--before", "before_query.csv"), "has no outputs on a holdout"),
        ((*DEAL, "--target", "after_query.csv", *BEFORE), "each --target's outputs on the holdout"),
        ((*DEAL, *AFTER, *BEFORE, "--tests", "shadow"), "shadow"),
        ((*DEAL, *AFTER, *BEFORE, "--tests", "members"), "--before: no test"),
        ((*DEAL, *BEFORE), "--target"),
    ],
    ids=["no holdout", "no outputs before on it", "none on it", "a test with models", "no test", "no target"],
)
def test_what_lacks_is_named(words: tuple[str, ...], named: str) -> None:
    done = jaxaudit("ks", *words)
    assert done.code == 2
    assert named in done.err
