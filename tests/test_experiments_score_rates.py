"""The worlds of `score_rates`, the numbers of its models against a slow twin, and what its rates count."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments import score_rates as judge
from experiments.score_rates import LAYOUT, by_way
from experiments.score_rates_worlds import DEALS, GROUPS, PART, WORLDS, draw_corpus, planned, token_numbers
from jaxaudit import language_model, models

NOTES = WORLDS["notes"]


@pytest.fixture(scope="module")
def corpus():
    return draw_corpus(NOTES, None)


def test_a_model_used_of_a_query_set_what_its_plan_says():
    plan, part_of = planned(NOTES), np.arange(GROUPS) // PART
    for deal in DEALS:
        shares = [model.used(deal) for model in plan]
        for model, share in zip(plan, shares, strict=True):
            if share is None:
                continue
            assert model.groups[part_of == deal.query].mean() == share
            assert model.groups[part_of == deal.members].all()
            assert not model.groups[part_of == deal.holdout].any()
        counts = {share: shares.count(share) for share in (0.0, 0.25, 0.5, 1.0)}
        assert counts == {0.0: NOTES.copies, 0.25: NOTES.partial, 0.5: NOTES.partial, 1.0: NOTES.copies}


def test_a_part_of_a_query_set_was_used_in_the_same_share():
    generator, plan = np.random.default_rng(1), planned(NOTES)
    for deal in DEALS:
        for model in (model for model in plan if model.used(deal) is not None):
            for groups, _ in judge.SIZES:
                query, holdout, members = judge.chosen_groups(generator, model, deal, groups)
                assert model.groups[query].mean() == model.used(deal)
                assert len(np.unique(query)) == len(np.unique(holdout)) == groups
                assert len(np.unique(np.concatenate([query, holdout, members]))) == 2 * groups + PART


def test_token_numbers_are_those_of_a_loop(corpus):
    learner = language_model(
        models.GPT,
        corpus.inputs.shape[1],
        corpus.vocabulary,
        optimizer=optax.sgd(0.1),
        epochs=1,
        batch_size=2,
    )
    params = learner.finish(learner.init(jax.random.key(1)))
    inputs = corpus.inputs[:3]
    numbers = np.asarray(jax.jit(lambda inputs: token_numbers(learner, params, inputs))(jnp.asarray(inputs)))
    np.testing.assert_allclose(
        numbers[:, 0], -np.asarray(learner.log_probs(params, jnp.asarray(inputs)))[:, 0], rtol=1e-5
    )
    tokens = np.where(inputs < 0, ~inputs, inputs)
    logits, _ = learner.net.apply(params.params, params.state, jnp.asarray(tokens), False)
    log_p = np.asarray(jax.nn.log_softmax(logits), np.float64)
    for row, record in enumerate(inputs):
        places = [place for place in range(1, len(record)) if record[place] >= 0]
        raw = [log_p[row, place - 1, record[place]] for place in places][:-1]
        normal = []
        for place in places[:-1]:
            p = np.exp(log_p[row, place - 1])
            mean = (p * log_p[row, place - 1]).sum()
            deviation = np.sqrt((p * log_p[row, place - 1] ** 2).sum() - mean**2)
            normal.append((log_p[row, place - 1, record[place]] - mean) / deviation)
        most = max(1, len(raw) // 5)
        slow = [-np.mean(sorted(values)[:most]) for values in (raw, normal)]
        np.testing.assert_allclose(numbers[row, 1:], slow, rtol=1e-3, atol=1e-3)


def answer(way: str, used: float, verdict: str, **more: Any) -> dict[str, Any]:
    facts = {"world": "notes", "deal": 0, "model": int(used * 8), "groups": 8, "records": 10}
    return {**facts, "way": way, "used": used, "verdict": verdict, "upper": 1.0, "p_never": 0.01, **more}


def test_rates_count_what_they_say():
    answers = [
        answer("members", 0.0, "not forgotten"),
        answer("members", 0.0, "forgotten", upper=0.1),
        answer("members", 0.25, "forgotten", upper=0.2),
        answer("members", 0.5, "forgotten", upper=0.2),
        answer("members", 1.0, "not forgotten"),
        answer("members", 1.0, "inconclusive"),
    ]
    cells = by_way(answers)["members"]
    counts = {name: (rate["count"], rate["of"]) for name, rate in cells.items()}
    assert counts == {
        "false alarms": (1, 2),
        "wrong forgotten": (1, 3),
        "at stated": (1, 1),
        "covered": (2, 4),
        "given covered": (0, 2),
        "forgotten": (1, 2),
        "found": (1, 2),
        "half found": (0, 1),
        "quarter found": (0, 1),
    }
    by_cell = {"first": by_way(answers[1:]), "second": by_way(answers)}
    name, rate = LAYOUT.worst(by_cell, "members", "false alarms") or ("", {})
    assert (name, rate["share"]) == ("second", 0.5)
    assert LAYOUT.worst(by_cell, "holdout", "covered") is None
    name, rate = LAYOUT.worst(by_cell, "members", "at stated") or ("", {})
    assert (name, rate["count"], rate["of"]) == ("every one", 2, 2)
