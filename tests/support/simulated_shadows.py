"""Log-odds of models that were never trained: a record's own level, a gap for members, and noise."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.models import Trained
from jaxaudit.audits.ks.tests import KSTest
from jaxaudit.audits.pool import Pool
from jaxaudit.metrics.ema import Signals


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
    roles = {role: rows for test in tests for role, rows in test.draw(key, pool).items()}
    query, asked = pool.examples.take(pool.query), len(pool.asked)
    world = Provider(world.level[:asked], world.gap[:asked])

    def said(rows: list[np.ndarray]) -> Trained:
        odds = world.outputs(random, np.concatenate(rows)[:, pool.asked]).astype(np.float32)
        right, none = np.full(len(rows), 0.95), np.zeros((len(rows), 0))
        return Trained(special.expit(odds[:, : len(query)]), odds, right, right, Signals(none, none, none))

    trained = {role: said(rows) for role, rows in roles.items()}
    return Evidence(trained, roles, pool, query, 0.9, own_recipe=own_recipe)
