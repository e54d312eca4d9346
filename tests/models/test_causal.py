"""Causal language models in JAX: the logits of PyTorch, whatever fills up behind a record.

Adapters on a causal model: the numbers of `peft`, one base for all models, and what is refused.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.language_models import save_model

import jaxaudit as ja
from jaxaudit.ensemble import log_probs_many
from jaxaudit.errors import InputError
from jaxaudit.learners import LanguageModelLearner
from jaxaudit.learners.learner import compiled
from jaxaudit.models import Adapters, LanguageModel, folder_hash, write_adapter
from jaxaudit.models.causal import PREFIX, causal_model

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


torch: Any = import_module("torch")

LENGTH, VOCABULARY, MODELS = 16, 288, 3


def learner_of(adapters: Adapters, **how: Any) -> LanguageModelLearner:
    recipe: dict[str, Any] = {"optimizer": optax.adamw(1e-2), "epochs": 2, "batch_size": 6, **how}
    return ja.language_model(adapters, LENGTH, VOCABULARY, **recipe)


def tokens(records: int = 12) -> np.ndarray:
    inputs = np.random.default_rng(2).integers(0, VOCABULARY, (records, LENGTH)).astype(np.int32)
    inputs[:, :4] = ~inputs[:, :4]
    return inputs


def trained(learner: LanguageModelLearner, inputs: np.ndarray) -> tuple[np.ndarray, Any]:
    """The log-likelihood `[models, n]` and the parameters of models of random halves."""
    rows = np.random.default_rng(3).random((MODELS, len(inputs))) < 0.5
    keys, labels = jax.random.split(jax.random.key(1), MODELS), np.zeros(len(inputs), np.int32)
    return ja.fit_many(
        *(keys, rows, inputs, labels, learner),
        summarize=lambda params, _: (log_probs_many(learner, params, inputs)[:, :, 0], params.params),
    )


def log_likelihood(logits: Any, inputs: np.ndarray) -> Any:
    """By PyTorch, of each record's counted tokens."""
    ids, counts = torch.from_numpy(np.where(inputs < 0, ~inputs, inputs)).long(), torch.from_numpy(inputs >= 0)[:, 1:]
    own = torch.log_softmax(logits, -1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return (own * counts).sum(1) / counts.sum(1)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.filterwarnings("ignore")
def test_peft_reads_trained_adapters_and_gives_the_same_log_likelihoods(kind: str, tmp_path: Path):
    peft: Any = pytest.importorskip("peft", reason="peft is not installed")
    base, inputs = save_model(tmp_path / kind, kind), tokens()
    adapters = Adapters(str(tmp_path / kind), 4, 8.0)
    numbers, params = trained(learner_of(adapters), inputs)
    one = {name: each[1] for name, each in params.items()}
    write_adapter(tmp_path / "adapter", adapters, one)
    saved = import_module("safetensors.numpy").load_file(tmp_path / "adapter/adapter_model.safetensors")
    assert saved.keys() == {f"{PREFIX}{name}" for name in one}
    module = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    ids = torch.from_numpy(np.where(inputs < 0, ~inputs, inputs)).long()
    with torch.no_grad():
        theirs = log_likelihood(module(input_ids=ids).logits, inputs).numpy()
    np.testing.assert_allclose(numbers[1], theirs, rtol=0, atol=1e-5)
    with pytest.raises(InputError, match="give a new folder"):
        write_adapter(tmp_path / "adapter", adapters, one)


def test_training_is_that_of_a_loop_in_pytorch(tmp_path: Path):
    """Full batches of plain descent, so that no order of records enters."""
    module, inputs = save_model(tmp_path / "base"), tokens(6)
    adapters = Adapters(str(tmp_path / "base"), 2, 6.0, layers=("c_attn", "mlp.c_proj"))
    learner = learner_of(adapters, optimizer=optax.sgd(0.5), epochs=3, batch_size=6)
    key, labels = jax.random.key(4), jnp.zeros(6, jnp.int32)
    found = learner.fit(key, jnp.asarray(inputs), labels, jnp.ones(6)).params
    first = learner.fit(key, jnp.asarray(inputs), labels, jnp.zeros(6)).params
    assert {name.removesuffix(".lora_A.weight") for name in found if "lora_A" in name} == {
        f"transformer.h.{block}.{layer}" for block in (0, 1) for layer in ("attn.c_attn", "mlp.c_proj")
    }
    parts = {name: torch.tensor(np.array(each), requires_grad=True) for name, each in first.items()}
    layers = dict(module.named_modules())
    for name in {name.partition(".lora_")[0] for name in parts}:
        a, b = (parts[f"{name}.lora_{each}.weight"] for each in "AB")
        assert not b.detach().any()
        assert float(a.detach().abs().max()) <= a.shape[1] ** -0.5
        own = layers[name].forward
        layers[name].forward = lambda x, own=own, a=a, b=b: own(x) + 3.0 * (x @ a.T) @ b.T
    ids = torch.from_numpy(np.where(inputs < 0, ~inputs, inputs)).long()
    for _ in range(3):
        loss = -log_likelihood(module(input_ids=ids).logits, inputs).mean()
        gradients = torch.autograd.grad(loss, list(parts.values()))
        with torch.no_grad():
            for each, gradient in zip(parts.values(), gradients, strict=True):
                each -= 0.5 * gradient
    for name, each in parts.items():
        np.testing.assert_allclose(found[name], each.detach().numpy(), rtol=1e-3, atol=1e-5, err_msg=name)


def test_the_base_is_in_memory_once_and_no_constant_of_a_program(tmp_path: Path):
    save_model(tmp_path / "base")
    learner = learner_of(Adapters(str(tmp_path / "base"), 2))
    params = learner.net.init(jax.random.key(1))[0]
    frozen, rest = learner.shared
    assert set(params).isdisjoint({**frozen, **rest})

    @compiled()
    def outputs(learner: Any, params: Any, inputs: Any) -> Any:
        logits, _ = learner.net.apply(params, None, inputs, False)
        return logits

    program = jax.make_jaxpr(lambda params, inputs: outputs(learner, params, inputs))(params, jnp.abs(tokens()))
    (called,) = (each for each in program.eqns if each.primitive.name in ("jit", "pjit"))
    largest = max(each.size for each in frozen.values())
    assert all(np.size(each) < largest for each in called.params["jaxpr"].consts)
    assert largest in [each.aval.size for each in called.invars]
    # With other tensors in their place, the same program computes with them.
    there = learner.having(({name: 2 * each for name, each in frozen.items()}, rest))
    given = jnp.abs(tokens())
    assert not np.allclose(there.net.apply(params, None, given, False)[0], outputs(learner, params, given))


def test_dropout_is_of_training_alone_and_bfloat16_trains(tmp_path: Path):
    save_model(tmp_path / "base")
    plain, dropped = (learner_of(Adapters(str(tmp_path / "base"), 2, dropout=each)) for each in (0.0, 0.5))
    assert (plain.net.draws, dropped.net.draws) == (False, True)
    params, state = dropped.net.init(jax.random.key(1))
    params = {name: jnp.ones_like(each) for name, each in params.items()}
    given = jnp.asarray(np.abs(tokens()))
    calm, after = dropped.net.apply(params, state, given, False)
    first, later = dropped.net.apply(params, state, given, True)
    again = dropped.net.apply(params, later, given, True)[0]
    np.testing.assert_array_equal(calm, plain.net.apply(params, None, given, False)[0])
    assert after is state
    assert not np.allclose(first, calm)
    assert not np.allclose(first, again)
    adapters = Adapters(str(tmp_path / "llama"), 2)
    save_model(tmp_path / "llama", "llama")
    shared = adapters().shared
    assert shared is not None
    frozen, rest = shared.arrays
    assert any("inv_freq" in name for name in rest)
    # Frequencies of positions keep their precision: in bfloat16 they would be those of other positions.
    lower = {name: each.astype(jnp.bfloat16) for name, each in adapters().init(jax.random.key(1))[0].items()}
    made = adapters().apply(lower, None, given, False)[0]
    whole = causal_model(tmp_path / "llama")
    cast = {name: each.astype(jnp.bfloat16) for name, each in frozen.items()}
    seen = [whole.apply({**cast, **own}, given) for own in (rest, {k: v.astype(jnp.bfloat16) for k, v in rest.items()})]
    np.testing.assert_array_equal(made, seen[0])
    assert not np.array_equal(made, seen[1])
    short = learner_of(Adapters(str(tmp_path / "base"), 2), precision="bfloat16")
    numbers = [trained(each, tokens())[0] for each in (plain, short)]
    np.testing.assert_allclose(numbers[0], numbers[1], atol=0.1)
    assert np.abs(numbers[0] - numbers[1]).max() > 0


def test_adapters_that_cannot_be_are_refused(tmp_path: Path):
    save_model(tmp_path / "base")
    for adapters, said in (
        (Adapters(str(tmp_path / "base"), layers=("attention",)), "no such linear layer"),
        (Adapters(str(tmp_path / "base"), rank=0), "`rank`"),
        (Adapters(str(tmp_path / "other")), r"has no config\.json"),
    ):
        with pytest.raises(InputError, match=said):
            learner_of(adapters)
