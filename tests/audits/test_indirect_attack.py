"""The indirect attack's counter-example: PDTP low, DTP high (Long et al. 2017, section 6.1).

Whatever learner a model comes from, its owner can publish another in its place: the same for every input but 0, where
it says whether one record was a member. Everything is counted out: all inputs, all classes, with and without a record.
"""

import math
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxaudit.learners import nearest_neighbours
from jaxaudit.metrics.pdtp import dtp, pdtp, publishable

TARGET, RECORDS, COUNTS = 5, 48, (2, 2, 2)
EVERY_INPUT = np.array(list(product(*map(range, COUNTS))), np.float32)
INPUTS = np.tile(EVERY_INPUT, (6, 1))
LABELS = np.array([sum(record) >= 2 for record in INPUTS.astype(int)], np.int32)
LABELS[::7] ^= 1
HERE = TARGET % len(EVERY_INPUT)
"""The target's own input, which is not 0."""


def test_the_record_has_a_low_pdtp_and_an_infinite_dtp() -> None:
    learner = nearest_neighbours(2, neighbours=20)

    @jax.jit
    def said(weights: Any) -> Any:
        model = learner.fit(jax.random.key(3), jnp.asarray(INPUTS), jnp.asarray(LABELS), weights)
        return learner.log_probs(model, jnp.asarray(EVERY_INPUT))

    rows = np.ones(RECORDS, np.float32), np.float32(np.arange(RECORDS) != TARGET)
    honest = [np.asarray(said(row), np.float64) for row in rows]
    # Of input 0 another model says 1 if the target was a member and 0 if not.
    whispering = [each.copy() for each in honest]
    for each, words in zip(whispering, ([-np.inf, 0.0], [0.0, -np.inf]), strict=True):
        each[0] = words
    pointwise, everywhere = pdtp(*(each[None, HERE] for each in whispering)), dtp(*whispering)
    assert pointwise.values.max() == pdtp(*(each[None, HERE] for each in honest)).values.max() < 0.3
    assert publishable(float(pointwise.values.max()))
    assert not publishable(everywhere.value)
    assert everywhere.input == 0
    assert math.isclose(everywhere.value, math.log(0.995 / 0.005), rel_tol=1e-6)
    assert dtp(*whispering, bins=0).value == np.inf
    assert dtp(*honest).value < 1.2
