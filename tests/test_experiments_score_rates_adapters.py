"""The fine-tunes of `score_rates_adapters`, and what its rates count."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.score_rates_adapters import by_given
from experiments.score_rates_adapters_worlds import (
    ADAPTED,
    TARGETS,
    Base,
    adapted,
    corpora_of,
    merged,
    target_plan,
)
from experiments.score_rates_worlds import DEALS, GROUPS, PART, learner_of

NOTES = ADAPTED["notes"]


@pytest.fixture(scope="module")
def corpora():
    return corpora_of(NOTES, None)


@pytest.fixture(scope="module")
def base(corpora):
    learner = learner_of(NOTES, corpora[0])
    return Base(learner, learner.finish(learner.init(jax.random.key(1))), corpora[0])


def test_a_base_model_never_saw_a_group_of_its_world_and_each_recipe_has_targets_of_each_share(corpora):
    world, others = corpora
    assert not set(world.texts) & set(others.texts)
    assert world.vocabulary == others.vocabulary > max(world.inputs.max(), others.inputs.max())
    for recipe in TARGETS:
        plan = target_plan(NOTES, recipe)
        used = [model.used(deal) for deal in DEALS for model in plan]
        assert [used.count(share) / len(DEALS) for share in (0.0, 0.25, 0.5, 1.0)] == [1, 0.5, 0.5, 1]
        for deal in DEALS:
            query = np.arange(GROUPS) // PART == deal.query
            assert all(model.groups[query].mean() == model.used(deal) for model in plan if model.used(deal) is not None)


def test_an_adapter_starts_from_the_base_model_and_adds_a_product_of_its_rank(base):
    rank, inputs = 3, jnp.asarray(base.corpus.inputs[:2])
    net = adapted(base, rank)
    params, state = net.init(jax.random.key(2))
    weights, tokens = base.params.params, jnp.where(inputs < 0, ~inputs, inputs)
    expected, _ = base.learner.net.apply(weights, state, tokens, False)
    np.testing.assert_array_equal(net.apply(params, state, tokens, False)[0], expected)
    assert len(params) == 2 * 4, "the linear layers of two blocks"
    # B is no longer 0: each weight differs by 2 A B, and all others are those of the base model.
    moved = {name: (a, jnp.ones_like(b)) for name, (a, b) in params.items()}
    for path, weight in jax.tree_util.tree_leaves_with_path(merged(weights, moved)):
        name = jax.tree_util.keystr(path)
        start = next(leaf for other, leaf in jax.tree_util.tree_leaves_with_path(weights) if other == path)
        if name in moved:
            a, b = (np.asarray(each) for each in moved[name])
            assert a.shape[1] == b.shape[0] == rank
            np.testing.assert_allclose(weight, np.asarray(start) + 2 * np.einsum("ir,ro->io", a, b), rtol=1e-5)
        else:
            np.testing.assert_array_equal(weight, start)


def answer(given: str, used: float, verdict: str, **more: Any) -> dict[str, Any]:
    kind, _, way = given.rpartition(", ")
    facts = {"world": "notes, again", "deal": 0, "model": int(8 * used), "rank": 4, "length": 1.0, "groups": 8}
    return {**facts, "kind": kind, "way": way, "used": used, "verdict": verdict, "upper": 1.0, **more}


def test_rates_are_of_the_way_of_giving_data():
    answers = [
        answer("rank 4, known 3", 0.0, "not forgotten"),
        answer("rank 4, alone 3", 0.0, "forgotten"),
        answer("all weights, known 3", 0.5, "forgotten", upper=0.2),
        answer("members", 0.5, "not forgotten"),
    ]
    cells = by_given(answers)
    assert [cells[f"rank 4, {way} 3"]["false alarms"]["count"] for way in ("known", "alone")] == [1, 0]
    assert cells["all weights, known 3"]["wrong forgotten"]["count"] == cells["members"]["covered"]["count"] == 1
    assert cells["holdout"]["false alarms"]["of"] == 0
