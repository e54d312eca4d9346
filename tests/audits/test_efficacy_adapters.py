"""Efficacy of an adapter on a causal language model of transformers, beside a loop of gradients."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.language_models import save_model

from jaxaudit.audits import NamedWeights, measure_sequence_efficacy
from jaxaudit.kernels import SequenceLikelihood
from jaxaudit.models import Adapters

pytest.importorskip("torchax", reason="torchax is not installed (the torch extra)")
pytest.importorskip("transformers", reason="transformers is not installed")


def test_an_adapter_is_measured_and_its_base_is_constant(tmp_path: Path):
    save_model(tmp_path / "base", "llama")
    net = Adapters(str(tmp_path / "base"), rank=2)()
    shared, (start, _) = net.shared, net.init(jax.random.key(1))
    assert shared is not None
    draw = np.random.default_rng(2)
    params = {name: jnp.asarray(0.1 * draw.normal(size=each.shape), jnp.float32) for name, each in start.items()}
    tokens = draw.integers(0, 200, (3, 8)).astype(np.int32)
    tokens[:, :3] = ~tokens[:, :3]
    tokens[0, 6:] = ~0

    def log_likelihood(params: Any, tokens: Any, base: Any) -> Any:
        logits, _ = shared.apply(base, params, None, jnp.where(tokens < 0, ~tokens, tokens), False)
        return SequenceLikelihood().log_prob(logits, tokens)

    found = measure_sequence_efficacy(log_likelihood, NamedWeights("adapter", params, shared.arrays), tokens)
    gradient = jax.jit(jax.grad(lambda params, row: log_likelihood(params, row[None], shared.arrays)[0]))
    each = [gradient(params, jnp.asarray(row)) for row in tokens]
    for layer, numbers in found.result.models[0].layers.items():
        slow = [sum(float(jnp.sum(jnp.square(g))) for name, g in of.items() if name == layer) for of in each]
        assert numbers.information == pytest.approx(np.mean(slow), rel=1e-4)
    assert set(found.result.paths) == set(params)
    assert set(found.result.paths.values()) == {"contracted"}
