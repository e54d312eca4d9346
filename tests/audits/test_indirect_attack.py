"""The indirect attack's counter-example: PDTP low, DTP high (Long et al. 2017, section 6.1).

Whatever learner a model comes from, its owner can publish another in its place: the same for every input but 0, where
it says whether one record was a member. Everything is counted out: all inputs, all classes, with and without a record.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaudit.learners import Learner, nearest_neighbours, random_trees
from jaxaudit.metrics.pdtp import dtp, pdtp, publishable

KEY = jax.random.key(3)
TARGET, RECORDS, COUNTS = 5, 48, (2, 2, 2)
EVERY_INPUT = np.array(list(product(*map(range, COUNTS))), np.float32)
INPUTS = np.tile(EVERY_INPUT, (6, 1))
LABELS = np.array([sum(record) >= 2 for record in INPUTS.astype(int)], np.int32)
LABELS[::7] ^= 1


@dataclass(frozen=True)
class Whispering:
    """c*: an honest learner's model, but for input 0, where it says 1 if the target was a member and 0 if not."""

    honest: Learner

    def fit(self, key: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        return self.honest.fit(key, inputs, labels, weights), weights[TARGET] > 0

    def log_probs(self, params: Any, inputs: Any) -> Any:
        model, target_is_member = params
        whispered = jnp.log(jnp.where(target_is_member, jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0])))
        return jnp.where(jnp.all(inputs == 0, axis=1)[:, None], whispered, self.honest.log_probs(model, inputs))


@pytest.fixture(params=["trees", "neighbours"], scope="module")
def outputs(request) -> dict[str, np.ndarray]:
    """What both learners' models say of every input: of A(T), then of A(T without r) for every r."""
    honest = {
        "trees": random_trees(COUNTS, 2, trees=5, depth=3),
        "neighbours": nearest_neighbours(2, neighbours=20),
    }[request.param]
    rows = np.concatenate([np.ones((1, RECORDS)), 1 - np.eye(RECORDS)]).astype(np.float32)

    def said(learner: Any) -> np.ndarray:
        def one(weights: Any) -> Any:
            return learner.log_probs(
                learner.fit(KEY, jnp.asarray(INPUTS), jnp.asarray(LABELS), weights), jnp.asarray(EVERY_INPUT)
            )

        return np.asarray(jax.jit(jax.vmap(one))(rows), np.float64)

    return {"honest": said(honest), "whispering": said(Whispering(honest))}


def changes(told: np.ndarray, record: int) -> np.ndarray:
    """|log p(y|x) with the record - log p(y|x) without it| for every input and class."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.abs(told[0] - told[1 + record]), nan=0.0, posinf=np.inf)


def place(record: int) -> int:
    return int(np.flatnonzero((INPUTS[record] == EVERY_INPUT).all(axis=1))[0])


def test_the_record_has_a_low_pdtp_and_an_infinite_dtp(outputs):
    honest, whispering = (changes(outputs[model], TARGET) for model in ("honest", "whispering"))
    assert INPUTS[TARGET].any()
    assert whispering[place(TARGET)].max() == honest[place(TARGET)].max() < 0.3
    assert honest.max() < 0.3
    assert whispering.max() == np.inf
    assert np.unravel_index(whispering.argmax(), whispering.shape)[0] == 0
    assert np.array_equal(whispering[1:], honest[1:])


def test_the_metrics_say_so_too(outputs):
    with_target, without = outputs["whispering"][0], outputs["whispering"][1 + TARGET]
    here = place(TARGET)
    pointwise = pdtp(with_target[None, here], without[None, here])
    everywhere = dtp(with_target, without)
    assert publishable(float(pointwise.values.max()))
    assert not publishable(everywhere.value)
    assert everywhere.input == 0
    assert math.isclose(everywhere.value, math.log(0.995 / 0.005), rel_tol=1e-6)
    assert dtp(with_target, without, bins=0).value == np.inf
    assert dtp(outputs["honest"][0], outputs["honest"][1 + TARGET]).value < 1.2


def test_an_indirect_query_finds_the_target_where_a_direct_one_hardly_moves(outputs):
    told = outputs["whispering"]
    member = np.arange(-1, RECORDS) != TARGET
    assert np.array_equal(told[:, 0, 1] > told[:, 0, 0], member)
    direct = np.exp(told[:, place(TARGET), 1])
    assert abs(direct[1 + TARGET] - direct[0]) < 0.1
    assert np.sum(np.abs(direct - direct[0]) >= abs(direct[1 + TARGET] - direct[0])) > 5


def test_nothing_is_whispered_of_anyone_else(outputs):
    for record in set(range(RECORDS)) - {TARGET}:
        honest, whispering = (changes(outputs[model], record) for model in ("honest", "whispering"))
        assert np.array_equal(whispering[1:], honest[1:])
        assert not whispering[0].any()
