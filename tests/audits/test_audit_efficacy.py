"""What is measured is what the network computes: its outputs are logits, and those of its own framework."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.pure_modules import KEY, images

from jaxaudit.audits.efficacy.audit import CHUNK, NamedWeights, checked_labels, measure_efficacy
from jaxaudit.audits.efficacy.result import EfficacyAudit
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError
from jaxaudit.kernels.likelihoods import CATEGORICAL, Bernoulli, Gaussian
from jaxaudit.models import MLP, PureModule, pure_module
from jaxaudit.models.bridge import Origin


class Probabilities(nnx.Module):
    def __init__(self, in_features: int, num_classes: int, *, rngs: nnx.Rngs) -> None:
        self.out = nnx.Linear(in_features, num_classes, rngs=rngs)

    def __call__(self, inputs: Any) -> Any:
        return nnx.softmax(self.out(inputs))


def audited(net: PureModule, count: int = 6) -> EfficacyAudit:
    examples = Examples(images(count, 4), np.arange(count) % 3, ("a", "b", "c"), "records")
    return measure_efficacy(net, NamedWeights("judged", *net.init(KEY)), examples)


def of_another(change: Callable[[np.ndarray], np.ndarray]) -> PureModule:
    """A network whose own framework has outputs that differ by this much from those in JAX."""
    net = pure_module(MLP, (4,), 3)

    def outputs(params: Any, state: Any, inputs: np.ndarray) -> np.ndarray:
        return change(np.array(net.apply(params, state, jnp.asarray(inputs), False)[0]))

    return net._replace(origin=Origin("torch", outputs))


def test_a_network_of_jax_is_compared_with_nothing_and_probabilities_are_no_logits():
    with pytest.raises(InputError, match="probabilities"):
        audited(pure_module(Probabilities, (4,), 3))
    found = audited(pure_module(MLP, (4,), 3))
    assert (found.result.framework, found.result.conversion_error) == ("flax.nnx", None)


def test_the_farthest_record_of_all_chunks_counts():
    """One record of the second chunk, relative to the root mean square norm of all."""
    seen: list[np.ndarray] = []

    def change(outputs: np.ndarray) -> np.ndarray:
        if seen:
            outputs[2, 0] += 1e-5
        seen.append(outputs)
        return outputs

    found = audited(of_another(change), CHUNK + 5)
    whole = np.concatenate(seen).astype(np.float64)
    assert [len(each) for each in seen] == [CHUNK, 5]
    wanted = 1e-5 / np.sqrt((whole**2).sum(axis=1).mean())
    assert found.result.conversion_error == pytest.approx(wanted, rel=0.02)


@pytest.mark.parametrize("shift", [1e-3, np.nan])
def test_another_function_is_refused(shift: float):
    """Beyond rounding; where JAX has no numbers and the framework has, too."""
    net = of_another(lambda outputs: outputs + (0 if np.isnan(shift) else shift * np.abs(outputs).max()))
    if np.isnan(shift):
        whole = net.apply
        net = net._replace(apply=lambda *args: (whole(*args)[0] * np.float32(np.nan), args[1]))
        net = net._replace(origin=Origin("torch", lambda params, state, inputs: np.ones((len(inputs), 3))))
    with pytest.raises(InputError, match="in JAX the outputs"):
        audited(net)


@pytest.mark.parametrize(
    ("labels", "likelihood", "outputs", "message"),
    [
        (np.array([0, 3]), CATEGORICAL, 3, "no classes of a network with 3 outputs"),
        (np.array([0.5, 1]), CATEGORICAL, 3, "are no classes"),
        (np.array([[0, 1]]), CATEGORICAL, 3, "are no classes"),
        (np.array([[0, 1]]), Bernoulli(), 3, r"shape \(1, 2\), .*of shape \(1, 3\)"),
        (np.array([[0.5]]), Bernoulli(), 1, "0 or 1"),
        (np.array([np.inf]), Gaussian(), 1, "finite"),
    ],
)
def test_labels_that_the_likelihood_does_not_allow(labels: np.ndarray, likelihood: Any, outputs: int, message: str):
    with pytest.raises(InputError, match=message):
        checked_labels(labels, likelihood, outputs, "records")


def test_one_output_takes_labels_with_and_without_an_axis():
    for labels in (np.array([0.5, 2]), np.array([[0.5], [2]])):
        assert checked_labels(labels, Gaussian(), 1, "records").dtype == np.float32
