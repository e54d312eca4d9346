"""The deletion test in the `ks` audit: what it needs, what it says, and on the command line."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.cli_runs import jaxaudit
from support.clouds import HOLDOUT, QUERY, with_log_odds
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
    audit: Any = audit_ks(KEY, QUERY, None, None, [target(used, before)], holdout=HOLDOUT)
    (found,) = audit.targets
    assert (found.method, found.verdict) == ("deletion", verdict)
    (usage,) = found.usage
    assert usage.question == "left"
    assert usage.has_fraction == bool(before)
    assert len(audit.shadows) == 0


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


ASKED = ("--query", "q.npz", "--holdout", "later.npz")
FILES = ("--target", "after.csv", "--holdout-target", "after_h.csv")
BEFORE = ("--before", "before.csv", "--holdout-before", "before_h.csv")


@pytest.fixture
def deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, examples in (("q.npz", QUERY), ("later.npz", HOLDOUT)):
        np.savez(name, x=examples.inputs, y=examples.labels)
    for name, seed, used in (("after", 1, 0.0), ("before", 2, 1.0)):
        for suffix, file in zip(("", "_h"), outputs(seed, used), strict=True):
            np.savetxt(f"{name}{suffix}.csv", file.probabilities, "%.6f", ",")


@pytest.mark.outer
@pytest.mark.usefixtures("deletion")
def test_the_command_line_needs_neither_calibration_nor_members() -> None:
    done = jaxaudit("ks", *ASKED, *FILES, *BEFORE, "--out", "run", "--json")
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
