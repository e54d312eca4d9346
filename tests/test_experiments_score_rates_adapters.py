"""The fine-tunes of `score_rates_adapters`, and what its rates count."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.score_rates import COUNTS, tokens_in
from experiments.score_rates_adapters import GIVEN, adapter_lines, by_given, summarise_adapters, summary
from experiments.score_rates_adapters_worlds import (
    ADAPTED,
    KNOWN,
    TARGETS,
    Base,
    Recipe,
    Tuned,
    adapted,
    corpora_of,
    judged_adapters,
    known_plan,
    merged,
    target_plan,
    tuned,
)
from experiments.score_rates_worlds import DEALS, GROUPS, PART, PER_GROUP, SCORES, learner_of

NOTES = ADAPTED["notes"]


@pytest.fixture(scope="module")
def corpora():
    return corpora_of(NOTES, None)


@pytest.fixture(scope="module")
def base(corpora):
    learner = learner_of(NOTES, corpora[0])
    return Base(learner, learner.finish(learner.init(jax.random.key(1))), corpora[0])


def test_a_base_model_never_saw_a_group_of_its_world(corpora):
    world, others = corpora
    assert len(world.texts) == len(others.texts) == GROUPS * PER_GROUP == len(world.wrong)
    assert not set(world.texts) & set(others.texts)
    assert world.vocabulary == others.vocabulary > max(world.inputs.max(), others.inputs.max())


def test_each_recipe_has_targets_of_each_share_in_each_world():
    for recipe in TARGETS:
        plan = target_plan(NOTES, recipe)
        used = [model.used(deal) for deal in DEALS for model in plan]
        counts = {share: used.count(share) for share in (0.0, 0.25, 0.5, 1.0)}
        assert counts == {0.0: len(DEALS), 0.25: len(DEALS) / 2, 0.5: len(DEALS) / 2, 1.0: len(DEALS)}
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


def test_recipes_differ_by_rank_and_length(base):
    epochs = {recipe: tuned(base, recipe).epochs for recipe in TARGETS}
    assert {epochs[Recipe(4, length)] for length in (0.5, 1.0, 2.0)} == {2, 4, 8}
    start, _ = tuned(base, Recipe(0)).net.init(jax.random.key(3))
    assert jax.tree.all(jax.tree.map(lambda one, other: bool((one == other).all()), start, base.params.params))


def test_every_way_is_asked_about_every_target(corpora):
    """Scores of pure chance."""
    world, random = NOTES._replace(copies=max(COUNTS)), np.random.default_rng(4)

    def numbers(models: int) -> np.ndarray:
        return 1 + random.random((models, GROUPS * PER_GROUP, len(SCORES)))

    known = {kind: numbers(len(known_plan(world))) for kind in KNOWN}
    recipe = TARGETS[0]
    targets = {recipe: numbers(len(target_plan(world, recipe)))}
    fine_tunes = Tuned(known_plan(world), known, targets, tokens_in(corpora[0]))
    answers = [{**answer, "world": "notes"} for answer in judged_adapters("notes", world, fine_tunes, 0)]
    asked = [answer for answer in answers if "again" not in answer]
    assert {(answer["used"], answer["groups"]) for answer in asked} >= {(0.0, 8), (0.0, 20), (1.0, 8), (1.0, 20)}
    ways = {", ".join(filter(None, (answer["kind"], answer["way"]))) for answer in asked}
    assert ways == set(GIVEN)
    found = summarise_adapters(answers)
    assert (found["targets"], found["models"]) == (3, 3)
    assert found["again"]["adapters of rank 4"]["all"]["of"] == 8


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
    assert (cells["rank 4, known 3"]["false alarms"]["count"], cells["rank 4, alone 3"]["false alarms"]["count"]) == (
        1,
        0,
    )
    assert cells["all weights, known 3"]["wrong forgotten"]["count"] == cells["members"]["covered"]["count"] == 1
    assert cells["holdout"]["false alarms"]["of"] == 0


def test_the_page_tells_every_way():
    answers = [answer(given, used, "inconclusive") for given in GIVEN for used in (0.0, 0.25, 0.5, 1.0)]
    answers += [{**answer("holdout", 0.0, ""), "kind": kind, "again": 0.03} for kind in ("", *KNOWN)]
    found = summarise_adapters(answers)
    page = "\n".join(adapter_lines(found))
    assert all(words in page for words in (*GIVEN.values(), *map(str, TARGETS), *found["worlds"]))
    assert {row.quantity.partition(":")[0] for row in summary({"rates": found})}
