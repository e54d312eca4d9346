"""Causal language models in JAX: the logits of PyTorch, whatever fills up behind a record."""

from importlib import import_module
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support.language_models import save_model

from jaxaudit.models.causal import causal_model
from jaxaudit.models.language_model import LanguageModel, folder_hash

pytest.importorskip("torchax", reason="torchax is not installed (the torch extra)")
pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_logits_are_those_of_pytorch_and_padding_changes_none(kind: str, tmp_path: Path):
    torch: Any = import_module("torch")
    module = save_model(tmp_path / kind, kind)
    made = causal_model(tmp_path / kind)
    tokens = np.random.default_rng(2).integers(0, made.model.vocabulary, (3, 20)).astype(np.int32)
    with torch.no_grad():
        theirs = module(input_ids=torch.from_numpy(tokens).long()).logits.numpy()
    assert made.causal
    tensors = {**made.weights, **made.rest}
    np.testing.assert_allclose(made.apply(tensors, jnp.asarray(tokens)), theirs, rtol=1e-4, atol=1e-4)
    longer = np.concatenate([tokens, np.zeros((3, 12), np.int32)], axis=1)
    np.testing.assert_allclose(made.apply(tensors, jnp.asarray(longer))[:, :20], theirs, rtol=1e-4, atol=1e-4)
    # GPT-2's output layer is the embedding of its tokens, which stands among the weights once.
    assert sum(each.size for each in made.weights.values()) == sum(each.numel() for each in module.parameters())
    # torchax is imported by now, and states an accelerator that PyTorch cannot use.
    assert LanguageModel(tmp_path / kind).load().device.type in ("cpu", "cuda")


def test_the_hash_of_a_folder_is_of_what_the_model_computes_with(tmp_path: Path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        save_model(tmp_path / name, seed=seed)
    first = folder_hash(tmp_path / "one")
    (tmp_path / "one/README.md").write_text("A note changes nothing.")
    assert folder_hash(tmp_path / "one") == folder_hash(tmp_path / "same") == first
    assert folder_hash(tmp_path / "other") != first
    (tmp_path / "same/tokenizer.json").write_text("{}")
    assert folder_hash(tmp_path / "same") != first
