"""PDTP where whole groups are left out, and of texts: what one group changes, by models that are trained one by one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.sequences import TEXTS, small_learner
from support.tiny_learners import learner, records, small_mlp

from jaxaudit.audits.left_out import leave_out
from jaxaudit.audits.pdtp.audit import measure_pdtp
from jaxaudit.data import Examples
from jaxaudit.data.sequences import counted_tokens, sequences
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import naive_bayes
from jaxaudit.membership import leave_group_out
from jaxaudit.randomness import stream

KEY = jax.random.key(3)
INPUTS, LABELS = records(23, 4)
EXAMPLES = Examples(INPUTS, LABELS, ("a", "b", "c"), "small")
GROUPS = np.array(["ann", "bo", "cy", "di", "ed"])[np.random.default_rng(1).permutation(23) % 5]
(WRITTEN,) = sequences([TEXTS])
AUTHORS = np.array([4, 9, 4, 2, 9, 4])


def one_by_one(learner: Any, key: Any, examples: Examples, groups: np.ndarray) -> list[np.ndarray]:
    """Log-probabilities of each record with its group and without it, by a model trained for each group alone."""
    inputs, labels = jnp.asarray(examples.inputs), jnp.asarray(examples.labels)
    said = jax.jit(lambda weights: learner.log_probs(learner.fit(key, inputs, labels, weights), inputs))
    whole = np.asarray(said(np.ones(len(examples), np.float32)))
    less = np.zeros_like(whole)
    for group in set(groups.tolist()):
        own = groups == group
        less[own] = np.asarray(said(np.float32(~own)))[own]
    return [whole, less]


LEARNERS = {"network": learner(small_mlp), "closed form": naive_bayes((0,) * 4, 3)}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_group_is_left_out_as_a_whole(name: str):
    """A learner with a closed form for one record is refitted, too. Groups differ in size; records are in any order."""
    chosen = np.random.default_rng(2).permutation(23)[:15]
    how: dict[str, Any] = {"bins": 0, "seeds": 2, "groups": GROUPS, "execution": Execution(2)}
    found = measure_pdtp(KEY, EXAMPLES, LEARNERS[name], records=chosen, **how)
    key = jax.random.split(stream(KEY, "measure"), 1)[0]
    whole, less = one_by_one(LEARNERS[name], key, EXAMPLES, GROUPS)
    expected = np.abs(whole - less).max(axis=1)[chosen]
    np.testing.assert_allclose(found.values, expected, atol=2e-4)
    risks: Any = found.result.groups
    assert sum(each.records for each in risks) == 15
    for risk in risks:
        own = GROUPS[chosen] == GROUPS[risk.first]
        np.testing.assert_allclose(risk.pdtp, expected[own].max(), atol=2e-4)
        assert risk.records == own.sum()
    assert found.result.largest_group == max(np.unique(GROUPS, return_counts=True)[1])
    assert found.dtp_bound is None
    assert "group" in found.columns
    alone = measure_pdtp(KEY, EXAMPLES, LEARNERS[name], records=chosen, **{**how, "groups": None})
    assert alone.result.groups is None
    assert (alone.values != found.values).any()


def test_groups_of_one_record_are_records():
    with_groups = leave_out(KEY, EXAMPLES, LEARNERS["network"], np.arange(23), groups=np.arange(23)[::-1])
    plain = leave_out(KEY, EXAMPLES, LEARNERS["network"], np.arange(23))
    for one, other in zip(with_groups, plain, strict=True):
        np.testing.assert_array_equal(one, other)
    assert leave_group_out(np.arange(3), np.arange(2)).tolist() == [[False, True, True], [True, False, True]]


@pytest.mark.parametrize("groups", [None, AUTHORS])
def test_a_text_is_measured_by_the_probability_of_all_of_its_tokens(groups: np.ndarray | None):
    model = small_learner(WRITTEN.inputs.shape[1], 257)
    found = measure_pdtp(KEY, WRITTEN, model, groups=groups, seeds=2, execution=Execution(2))
    key = jax.random.split(stream(KEY, "measure"), 1)[0]
    whole, less = (each[:, 0] for each in one_by_one(model, key, WRITTEN, np.arange(6) if groups is None else groups))
    tokens = np.array([len(answer) + 1 for answer in TEXTS.answers])
    np.testing.assert_array_equal(counted_tokens(WRITTEN), tokens)
    np.testing.assert_allclose(found.values, np.abs(whole - less) * tokens, atol=2e-3)
    np.testing.assert_allclose(found.columns["per_token"], np.abs(whole - less), atol=2e-4)
    result: Any = found.result
    assert result.texts.tokens == tokens.sum()
    means = result.texts.with_record, result.texts.without_record
    np.testing.assert_allclose(means, [whole.mean(), less.mean()], 1e-4)
    assert result.train_accuracy is None
    assert found.seeded
    assert not found.only_member.any()


@pytest.mark.parametrize(
    ("examples", "how", "said"),
    [
        (WRITTEN, {"bins": 100}, "leave `bins` out"),
        (EXAMPLES, {"groups": GROUPS[:-1]}, r"`groups` has shape \(22,\) but must have \(23,\)"),
        (EXAMPLES, {"groups": np.zeros(23, int)}, "`different_groups` must be at least 2; got 1"),
        (EXAMPLES, {"groups": np.zeros(23)}, "one integer or text per record"),
    ],
)
def test_bad_groups_and_bins_are_refused(examples: Examples, how: Any, said: str):
    with pytest.raises(InputError, match=said):
        measure_pdtp(KEY, examples, LEARNERS["network"], **how)
