"""`--dry-run` of commands that train: what the whole would take, from its beginning."""

import json
from pathlib import Path

import pytest
from support.cli_runs import jaxaudit

from jaxaudit.cli import trial
from jaxaudit.cli.trial import Trial
from jaxaudit.cli.workers import Crew

WORDS = ("pdtp", "--data", "digits", "--sample", "100", "--measured-records", "6", "--models-per-batch", "2")


class Clock:
    """Seconds that only a test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        # By hand: 10 s to begin with 4 of 100, then 6 in 30 s: 10 + 96 x 5 = 490 s.
        (((1.0, 0), (10.0, 4), (12.0, 4), (14.0, 5), (40.0, 10)), 490),
        # A run that comes to its end took what it took.
        (((3.0, 50), (5.0, 100)), 5),
    ],
)
def test_the_pace_after_the_first_step_is_that_of_the_whole(
    steps: tuple[tuple[float, int], ...], seconds: float, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock()
    monkeypatch.setattr(trial, "time", clock)
    timed = Trial(Crew(None, False, []))
    for clock.now, done in steps[:-1]:
        timed(done, 100)
    clock.now, last = steps[-1]
    with pytest.raises(KeyboardInterrupt):
        timed(last, 100)
    assert timed.seconds() == pytest.approx(seconds)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.outer)])
def test_a_dry_run_trains_for_a_while_and_keeps_nothing(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "SECONDS", 0.2)
    more = ("--workers", str(workers)) if workers else ()
    # Long enough that it cannot come to its end.
    done = jaxaudit(*WORDS, *more, "--epochs", "4000", "--out", "run", "--dry-run", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["workers"], found["models_per_batch"]) == (workers, 2)
    assert 0 < found["timed_share"] < 1
    assert found["seconds"] > found["timed_seconds"] > 0
    assert not Path("run").exists()
    assert not list(tmp_path.rglob("*.npz"))


def test_what_trains_nothing_says_so():
    done = jaxaudit("pdtp", "--model", "nb", "--dry-run")
    assert done.code == 0
    assert "no models are trained" in done.out
