"""A person's own attack, beside those that are known."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import numpy as np
import pytest
from jaxtyping import Array, Float, Key
from support.html_pages import Parsed
from support.saved_runs import save
from support.saved_runs.attack import attack_run
from support.terminals import said
from support.tiny_learners import CLASSES, learner, records

from jaxaudit.attacks import Attack, AttackInputs, Distance, PairedShadows, PooledShadows
from jaxaudit.audits.attack.attack import attack
from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.audits.attack.train_splits import train_splits
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution, Progress
from jaxaudit.errors import InputError
from jaxaudit.json_types import from_builtins
from jaxaudit.report.html.render import report_html
from jaxaudit.report.kinds import run_kind
from jaxaudit.report.record import to_json
from jaxaudit.runs.saved import read_run

Shadows = Literal["paired", "pooled"]
EXAMPLES = Examples(*records(60, 4), tuple(f"class {i}" for i in range(CLASSES)), "candidates")
HOW: dict[str, Any] = {
    "iterations": 3,
    "targets": 8,
    "shadow_pairs": 2,
    "pooled_shadows": 3,
    "measured": 2,
    "execution": Execution(4),
}


@dataclass(frozen=True)
class Sure:
    """Whoever the model is surer of than shadow models without the record are was in."""

    name: ClassVar[str] = "sure"
    meaning: ClassVar[str] = "Says `in` where the model is surer than models that never saw the record."
    source: ClassVar[str] = "a test"
    shadows: ClassVar[Shadows] = "paired"
    needs_bins: ClassVar[bool] = False

    def scores(
        self,
        key: Key[Array, ""],
        asked: AttackInputs,
        shadows: PairedShadows | PooledShadows,
        progress: Progress | None,
    ) -> Float[np.ndarray, "models targets"]:
        assert isinstance(shadows, PairedShadows)
        own = np.take_along_axis(asked.outputs, asked.labels[None, :, None], axis=2)[..., 0]
        theirs = np.take_along_axis(shadows.without_target, asked.labels[None, :, None], axis=2)[..., 0]
        return (own - theirs.mean(axis=0)).astype(np.float64)


@dataclass(frozen=True)
class Blind:
    """Draws lots, and counts who the pooled shadow models were trained on."""

    name: ClassVar[str] = "blind"
    meaning: ClassVar[str] = "Draws lots."
    source: ClassVar[str] = "a test"
    shadows: ClassVar[Shadows] = "pooled"
    needs_bins: ClassVar[bool] = True

    def scores(
        self,
        key: Key[Array, ""],
        asked: AttackInputs,
        shadows: PairedShadows | PooledShadows,
        progress: Progress | None,
    ) -> Float[np.ndarray, "models targets"]:
        assert isinstance(shadows, PooledShadows)
        assert shadows.outputs.shape == (3, 60, CLASSES)
        assert (shadows.membership.sum(axis=1) == 30).all()
        return np.asarray(jax.random.normal(key, asked.outputs.shape[:2]), np.float64)


@pytest.fixture(scope="module")
def audit() -> AttackAudit:
    return attack(train_splits(jax.random.key(5), EXAMPLES, learner(), **HOW), attacks=[Sure(), Distance(), Blind()])


def test_it_runs_beside_the_others_and_every_output_says_so(audit: AttackAudit, tmp_path):
    assert isinstance(Sure(), Attack)
    assert list(audit.scores) == ["sure", "distance", "blind"]
    assert audit.result.splits is not None
    for name, scores in audit.scores.items():
        right = ((scores > 0) == audit.truth).mean(axis=0).tolist()
        assert [record.accuracy[name] for record in audit.result.splits.records] == right
    run = attack_run(audit=audit)
    value = to_json(run.result)
    assert str(from_builtins(run_kind("attack").record, value)) == str(run.result)
    assert [attack["name"] for attack in value["attacks"]] == ["sure", "distance", "blind"]
    assert value["attacks"][0]["meaning"] == Sure.meaning
    text, page = said(run), Parsed(report_html([run])).text
    for shown in (text, page):
        assert audit.finding.sentence in shown
        assert "sure" in shown
        assert "blind" in shown
    assert f"sure attack {Sure.meaning} {Sure.source}" in page
    again = read_run(save(run, tmp_path / "run"))
    assert report_html([again]) == report_html([attack_run(audit=audit)]).replace("c run", "run")


def test_it_changes_no_number_of_others(audit: AttackAudit):
    how = {**HOW, "pooled_shadows": 0}
    alone = attack(train_splits(jax.random.key(5), EXAMPLES, learner(), **how), attacks=[Distance()])
    np.testing.assert_array_equal(alone.scores["distance"], audit.scores["distance"])
    np.testing.assert_array_equal(alone.measurements, audit.measurements)
    assert str(alone.result.attacks[0]) == str(audit.result.attacks[1])


def test_one_that_needs_bins_is_refused_without():
    models = train_splits(jax.random.key(5), EXAMPLES, learner(), bins=0, **HOW)
    with pytest.raises(InputError, match="the blind attack"):
        attack(models, attacks=[Sure(), Blind()])
