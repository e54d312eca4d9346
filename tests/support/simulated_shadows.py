"""Log-odds of models that were never trained: a record's own level, a gap for members, and noise."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from jaxaudit import Bank, Evidence, KSTest
from jaxaudit.audits import open_bank
from jaxaudit.shadow_models import Pool, ShadowModels


class Provider(NamedTuple):
    """Records: their log-odds without training on them, and what training on them adds."""

    level: np.ndarray
    gap: np.ndarray

    def outputs(self, generator: np.random.Generator, membership: np.ndarray) -> np.ndarray:
        return self.level + self.gap * membership + generator.normal(size=membership.shape)


def provider(generator: np.random.Generator, records: int, gap: float) -> Provider:
    """Records of very different difficulty, whose gaps are up to `gap`."""
    return Provider(generator.normal(0, 2, records), generator.uniform(0, gap, records))


def halves(generator: np.random.Generator, models: int, records: int, size: int) -> np.ndarray:
    """Every model is trained on `size` of the records."""
    return generator.random((models, records)).argsort(axis=1) < size


def bank_of(key: Any, world: Provider, pool: Pool, tests: Iterable[KSTest], *, own_recipe: bool = False) -> Evidence:
    """What models of known membership, those that these tests draw, say of the records of a pool."""
    random = np.random.default_rng(2)
    rows = {kind: own for test in tests for kind, own in test.draw(key, pool).items()}
    asked = len(pool.compared)
    world = Provider(world.level[:asked], world.gap[:asked])
    odds = [world.outputs(random, own[:, pool.compared]).astype(np.float32) for own in rows.values()]
    return Evidence(shadow_models(pool, rows, np.concatenate(odds)), own_recipe=own_recipe)


def evidence_of(bank: Bank, models: Sequence[int] | None = None) -> Evidence:
    """What these models of a bank say, by default all that are finished."""
    shadows = open_bank(bank, models)
    return Evidence(replace(shadows, pool=shadows.pool._replace(compares_calibration=False)))


def shadow_models(
    pool: Pool, rows: dict[str, np.ndarray], odds: np.ndarray, accuracy: float | np.ndarray = 0.95, **more: Any
) -> ShadowModels:
    """Models with these training sets, log-odds on the records that tests ask about, and accuracies."""
    models = len(odds)
    whole = np.full((models, len(pool.examples)), np.nan, np.float32)
    whole[:, pool.compared] = odds
    reached = np.broadcast_to(accuracy, models)
    return ShadowModels(
        pool=pool,
        kinds=tuple(kind for kind, own in rows.items() for _ in own),
        membership=np.concatenate(list(rows.values())),
        log_odds=whole,
        correct=np.broadcast_to(reached[:, None], whole.shape),
        confidences=special.expit(whole),
        own_accuracy=reached,
        **more,
    )
