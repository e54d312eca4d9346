"""Leave-one-out without refits in pieces: the numbers of one answer, whoever gave which piece."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.interrupts import stop_after

from jaxaudit.audits.left_out import leave_out, models_in_pieces
from jaxaudit.audits.pdtp.audit import measure_pdtp
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution, LocalWorkers, kept_models
from jaxaudit.learners import LogisticRegression, NearestNeighbours, ReadsAllForEach, naive_bayes

KEY, RECORDS, PIECE = jax.random.key(5), 61, 16
RANDOM = np.random.default_rng(5)
COLUMNS = RANDOM.random((RECORDS, 6)).astype(np.float32)
EXAMPLES = Examples(COLUMNS, (COLUMNS.sum(1) > 3).astype(np.int32), ("no", "yes"), "small")
CHOSEN = RANDOM.permutation(RECORDS)[:50]


@dataclass(frozen=True)
class FewNeighbours(NearestNeighbours):
    piece: int = PIECE


@dataclass(frozen=True)
class FewLogistic(LogisticRegression):
    piece: int = PIECE


LEARNERS: list[Any] = [FewNeighbours(2, 3, 0.01), FewLogistic(6, 2, 1.0, 1e-9)]


def at_once(learner: Any) -> Any:
    return replace(learner, piece=RECORDS)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda each: type(each).__name__)
def test_pieces_are_the_whole(learner: Any, tmp_path: Path):
    assert isinstance(learner, ReadsAllForEach)
    assert models_in_pieces(learner, 50)
    assert not models_in_pieces(at_once(learner), 50)
    # What takes no time stays in one piece.
    assert not models_in_pieces(naive_bayes((0,) * 6, 2), 10**7)
    told = []
    whole = leave_out(KEY, EXAMPLES, at_once(learner), CHOSEN)
    here = leave_out(
        KEY, EXAMPLES, learner, CHOSEN, execution=Execution(None, lambda *seen: told.append(seen), tmp_path)
    )
    assert told == [(0, 50), (13, 50), (26, 50), (39, 50), (50, 50)]
    assert kept_models(tmp_path) == 50
    for one, other in zip(whole, here, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.outer
def test_workers_give_the_same_pieces():
    with LocalWorkers(2) as workers:
        spread = leave_out(KEY, EXAMPLES, LEARNERS[0], CHOSEN, execution=Execution(executor=workers))
        assert workers.answered == 4
    for one, other in zip(leave_out(KEY, EXAMPLES, LEARNERS[0], CHOSEN), spread, strict=True):
        assert one.tobytes() == other.tobytes()


def test_finished_pieces_are_not_answered_again(tmp_path: Path):
    stopped = Execution(None, stop_after(0.5), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        measure_pdtp(KEY, EXAMPLES, LEARNERS[0], records=CHOSEN, execution=stopped)
    assert kept_models(tmp_path) == 26
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.npz")}
    found = measure_pdtp(KEY, EXAMPLES, LEARNERS[0], records=CHOSEN, execution=Execution(checkpoints=tmp_path))
    assert kept_models(tmp_path) == 50
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "written again"
    whole = measure_pdtp(KEY, EXAMPLES, at_once(LEARNERS[0]), records=CHOSEN)
    assert found.values.tobytes() == whole.values.tobytes()
