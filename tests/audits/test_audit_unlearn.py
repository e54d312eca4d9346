"""The unlearn audit: each score by hand, methods of one's own, stops and refusals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny_learners import Normed, compiled_fit, diverging, flat, learner, records, small_mlp

from jaxaudit import score_unlearning
from jaxaudit.attacks import fit_learned, learned_probabilities
from jaxaudit.audits import COMPARED, ScoreSpread, UnlearnAudit, compare_unlearning
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution, log_probs_many
from jaxaudit.errors import InputError
from jaxaudit.learners import NetworkParams
from jaxaudit.learners.learner import init_key
from jaxaudit.metrics import Answers, challenge_score, u_lira
from jaxaudit.randomness import stream

KEY = jax.random.key(21)
INPUTS, LABELS = records(60, 4)
NAMES = ("a", "b", "c")
TRAIN, TEST = Examples(INPUTS[:40], LABELS[:40], NAMES, "train"), Examples(INPUTS[40:], LABELS[40:], NAMES, "test")
FORGET = np.arange(40) < 12
NETWORK = learner(small_mlp, (4,), "sgd")
SEEDS = 16
"""So many take the challenge's score and U-LiRA: 8 models of a method, and 8 retrained ones."""


def untouched(key, log_probs, params, inputs, labels, forget):
    return params


def zeroed(key, log_probs, params, inputs, labels, forget):
    return jax.tree.map(jnp.zeros_like, params)


def noisy(key, log_probs, params, inputs, labels, forget):
    """By the key, and by what is to be forgotten."""
    shift = 0.1 * jnp.mean(inputs * forget[:, None])
    return jax.tree.map(lambda leaf: leaf + shift + 0.1 * jax.random.normal(key, leaf.shape), params)


METHODS = {"noisy": noisy, "untouched": untouched, "zeroed": zeroed}
CALL: dict[str, Any] = {"seeds": SEEDS, "attack_epochs": 2, "execution": Execution(SEEDS)}
SETS: Any = (KEY, TRAIN, TEST, NETWORK, FORGET)


@pytest.fixture(scope="module")
def audit() -> UnlearnAudit:
    return compare_unlearning(*SETS, methods=METHODS, **CALL)


def model(audit: UnlearnAudit, name: str, seed: int) -> NetworkParams:
    return jax.tree.map(lambda leaf: leaf[seed], audit.models[name])


def values(spread: ScoreSpread) -> np.ndarray:
    return np.array(spread.values)


@jax.jit
def gradient(params: NetworkParams, x: Any, y: Any) -> Any:
    """Of one record's log p(label)."""
    return jax.grad(lambda inner: NETWORK.log_probs(NetworkParams(inner, params.state), x[None])[0, y])(params.params)


@jax.jit
def said(params: NetworkParams) -> Any:
    return NETWORK.log_probs(params, jnp.asarray(INPUTS))


@pytest.mark.parametrize("name", ["untrained", "original", "amnesiac", "noisy"])
def test_scores_are_those_of_each_model_alone(audit, name):
    scores, params = audit.result[name].scores, model(audit, name, 1)
    each = np.stack([flat(gradient(params, INPUTS[i], LABELS[i])) for i in np.flatnonzero(FORGET)])
    information = (each**2).sum(axis=1).mean()
    np.testing.assert_allclose(scores["information"].values[1], information, rtol=1e-4)
    np.testing.assert_allclose(scores["efficacy"].values[1], 1 / information, rtol=1e-4)
    np.testing.assert_allclose(scores["bound"].values[1], 1 / (each.mean(axis=0) ** 2).sum(), rtol=1e-3)
    hits = np.asarray(said(params)).argmax(axis=1) == LABELS
    assert scores["remaining_accuracy"].values[1] == pytest.approx(hits[:40][~FORGET].mean())
    assert scores["forgotten_accuracy"].values[1] == pytest.approx(hits[:40][FORGET].mean())
    assert scores["test_accuracy"].values[1] == pytest.approx(hits[40:].mean())
    assert (values(scores["efficacy"]) <= values(scores["bound"])).all()
    assert ("attack" not in scores) == (name == "untrained")


def test_models_are_what_their_names_say(audit):
    keys = jax.random.split(stream(KEY, "train"), SEEDS)
    begin, fit = jax.jit(lambda key: NETWORK.finish(NETWORK.init(init_key(key)))), compiled_fit(NETWORK)
    for seed in (0, SEEDS - 1):
        expected = {
            "untrained": begin(keys[seed]),
            "original": fit(keys[seed], TRAIN.inputs, TRAIN.labels, np.ones(40, np.float32)),
            "retraining": fit(keys[seed], TRAIN.inputs, TRAIN.labels, np.float32(~FORGET)),
        }
        for name, params in expected.items():
            np.testing.assert_allclose(flat(model(audit, name, seed)), flat(params), atol=1e-5)
        np.testing.assert_array_equal(flat(model(audit, "untouched", seed)), flat(model(audit, "original", seed)))
    assert list(audit.models) == ["untrained", "original", "retraining", "amnesiac", *METHODS]
    protocol = audit.result.protocol
    assert (protocol.forgotten_records, audit.result.forgotten) == (12, "12 of 40 records")
    assert (protocol.training_records, protocol.test_records, protocol.attack_nonmembers) == (40, 20, 20)
    assert protocol.members_share == pytest.approx(2 / 3)


def test_a_method_is_placed_among_the_retrained(audit):
    result = audit.result
    assert result["retraining"].places == {}
    assert set(result["untrained"].places) == set(COMPARED) - {"attack"}
    places, retrained = result["zeroed"].places, values(result["retraining"].scores["efficacy"])
    assert set(places) == set(result["original"].places) == set(COMPARED)
    where = places["efficacy"]
    assert (where.retrained_low, where.retrained_high) == (retrained.min(), retrained.max())
    assert result.protocol.p_value_threshold == pytest.approx(0.05 / 6)


@pytest.mark.parametrize("each", [False, True])
def test_whom_the_attack_learned_from(audit, each):
    """The originals; or, as in the paper, every model anew, whose members are then the remaining records."""
    found = audit
    if each:
        how = {"methods": {"zeroed": zeroed}, "attack_each": True, "amnesiac": False, **CALL}
        found = compare_unlearning(*SETS, **how)
        assert list(found.models) == ["untrained", "original", "retraining", "zeroed"]
    asked: Any = found.models["zeroed"]
    source: Any = asked if each else found.models["original"]
    keys, known = stream(KEY, "attack"), log_probs_many(NETWORK, source, INPUTS)
    member, used = np.tile(np.arange(60) < 40, (SEEDS, 1)), np.ones((SEEDS, 60), bool)
    if each:
        used[:, :40] = ~FORGET
    attack = fit_learned(jax.random.split(keys, SEEDS), known, LABELS, member, 3, used=used, epochs=2)
    expected = learned_probabilities(attack, log_probs_many(NETWORK, asked, INPUTS[:40]), LABELS[:40])
    np.testing.assert_allclose(
        values(found.result["zeroed"].scores["attack"]), expected[:, FORGET].mean(axis=1), rtol=1e-4
    )


def test_models_are_told_from_retrained_ones_of_other_seeds(audit):
    """By hand: log-odds of the records to forget, models of the first 8 seeds against retrained ones of the last 8."""

    def answers(name: str, seeds: slice) -> Answers:
        params = [model(audit, name, seed) for seed in range(SEEDS)[seeds]]
        outputs = np.stack([np.asarray(said(each), np.float64) for each in params])
        hits = outputs.argmax(axis=2) == LABELS
        own = np.take_along_axis(outputs[:, :40], np.tile(LABELS[:40, None], (len(outputs), 1, 1)), axis=2)[..., 0]
        phi = own - np.log1p(-np.exp(own))
        return Answers(phi[:, FORGET], hits[:, :40][:, ~FORGET].mean(axis=1), hits[:, 40:].mean(axis=1))

    theirs = answers("retraining", slice(8, None))
    for name in ("original", "retraining", "zeroed"):
        mine, of_method = answers(name, slice(8)), audit.result[name]
        challenge, lira = challenge_score(KEY, mine, theirs), u_lira(KEY, mine.log_odds, theirs.log_odds)
        np.testing.assert_allclose(of_method.challenge.epsilon, challenge.epsilon, rtol=1e-6)
        assert of_method.challenge.remaining_ratio == pytest.approx(challenge.remaining_ratio)
        assert of_method.challenge.test_ratio == pytest.approx(challenge.test_ratio)
        assert challenge.score is not None
        assert of_method.challenge.score.value == pytest.approx(challenge.score.value)
        assert of_method.u_lira.value == pytest.approx(lira.accuracy.value)
        np.testing.assert_allclose(audit.u_lira[name], lira.per_record)
    assert audit.result["untrained"].challenge is audit.result["untrained"].u_lira is None


def test_the_models_outputs_alone_give_the_same_numbers(audit):
    """By `score_unlearning`. The untouched models are the original ones: one file of them is enough."""

    def outputs(name: str) -> dict[str, np.ndarray]:
        on_train, on_test = (log_probs_many(NETWORK, audit.models[name], part.inputs) for part in (TRAIN, TEST))
        hits = on_train.argmax(axis=2) == TRAIN.labels, on_test.argmax(axis=2) == TEST.labels
        return {"forget": on_train[:, FORGET], "retain": hits[0][:, ~FORGET].mean(axis=1), "test": hits[1].mean(axis=1)}

    sides: Any = {"untouched": outputs("untouched")}, outputs("retraining"), TRAIN.labels[FORGET]
    found = score_unlearning(KEY, *sides, original=outputs("original")).result
    assert found.compared == 8
    for name, ours in (("retraining", "retrained again"), ("original", "original"), ("untouched", "untouched")):
        expected, scored = audit.result[name], found[ours]
        assert (scored.challenge, scored.u_lira) == (expected.challenge, expected.u_lira)
        for score_name in ("forgotten_accuracy", "remaining_accuracy", "test_accuracy"):
            assert scored.scores[score_name].values == pytest.approx(expected.scores[score_name].values)


def reshaped(key, log_probs, params, inputs, labels, forget):
    return jax.tree.map(lambda leaf: leaf[None], params)


def broken(key, log_probs, params, inputs, labels, forget):
    return jax.tree.map(lambda leaf: leaf * jnp.nan, params)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forget": np.zeros(40, bool)}, "forget is empty"),
        ({"forget": np.ones(40, bool)}, "forget is everything"),
        ({"forget": FORGET[:20]}, r"`forget` has shape \(20,\) .*\(40,\)"),
        ({"learner": learner(Normed, (4,)), "amnesiac": True}, "running statistics"),
        ({"seeds": 1}, "`seeds` must be at least 2; got 1"),
        ({"attack_epochs": 0}, "`attack_epochs` must be at least 1; got 0"),
        ({"nonmembers": 21}, "`nonmembers` .* at most 20; got 21"),
        ({"methods": {"amnesiac": zeroed}}, "a method cannot be named 'amnesiac'"),
        ({"methods": {"odd": reshaped}}, "the method `odd` returned parameters that do not fit the model"),
        ({"methods": {"odd": broken}}, "model 0 of odd has outputs that are not finite: did"),
        ({"learner": diverging()}, "model 0 of original has outputs that are not finite"),
        (
            {"train": Examples(INPUTS[:40], LABELS[:40] + 1, (*NAMES, "d"), "train")},
            "train has label 3, but the network .*3",
        ),
        ({"test": Examples(INPUTS[40:, :3], LABELS[40:], NAMES, "test")}, r"test has records of shape \(3,\), which"),
    ],
)
def test_bad_input_is_one_clear_line(change, message):
    call = {"train": TRAIN, "test": TEST, "learner": NETWORK, "forget": FORGET, **CALL, "amnesiac": False, **change}
    with pytest.raises(InputError, match=message) as caught:
        compare_unlearning(KEY, **call)
    assert "\n" not in str(caught.value)
