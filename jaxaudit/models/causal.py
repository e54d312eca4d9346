"""A causal language model of `transformers` as a function of its weights and of tokens, traced by torchax."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxaudit.errors import InputError, first_line
from jaxaudit.models.language_model import LanguageModel
from jaxaudit.models.pretrained import pytorch
from jaxaudit.models.torch_module import AGREE, torchax_of, translated

RECORDS, TOKENS = 2, 6


class Causal(NamedTuple):
    """A causal language model in JAX.

    Attributes:
        model: its configuration and tokenizer.
        weights: its parameters, each once also where layers share it, in float32.
        rest: its other tensors, which no training changes.
        apply: `(tensors, tokens, key) -> logits`: `tensors` are the weights and the rest by name, tokens `[n, length]`
            from 0, and the logits `[n, length, vocabulary]` are of the next token at each position, which sees itself
            and those before it. The key is of dropout that was added; with None there is none.
        causal: whether the logits of a few tokens are those of PyTorch of a longer record's first tokens.
    """

    model: LanguageModel
    weights: dict[str, Array]
    rest: dict[str, Array]
    apply: Callable[..., Float[Array, "n length tokens"]]
    causal: bool


def causal_model(folder: Path, change: Callable[[Any], Sequence[Any]] = lambda module: ()) -> Causal:
    """The model in a folder that `save_pretrained` wrote, with its tokenizer, in evaluation mode.

    Guarantees: on a few random tokens its logits are those of PyTorch.

    Args:
        change: changes the module of PyTorch before it is traced, without changing its outputs, such as by adding
            parameters; those then stand among the weights. Returns the dropout layers that were added.
    """
    model = LanguageModel(folder, "float32")
    environment = torchax_of(model.name).default_env()
    torch, module = pytorch(), model.load_on_cpu(attn_implementation="eager")
    dropouts = change(module.eval())
    tokens = np.random.default_rng(1).integers(0, model.vocabulary, (RECORDS, min(TOKENS, model.positions or TOKENS)))
    with torch.no_grad():
        torch_outputs, of_few = (
            module(input_ids=torch.from_numpy(some), use_cache=False).logits.numpy()
            for some in (tokens, tokens[:, : TOKENS // 2])
        )
    # Copies: JAX may otherwise share memory with a tensor of PyTorch.
    tensor_kinds = module.named_parameters(), module.named_buffers()
    weights, rest = ({name: jnp.array(tensor.detach().numpy()) for name, tensor in of} for of in tensor_kinds)
    module.to("meta")
    module.tie_weights()

    def apply(tensors: Any, tokens: Int[Array, "n length"], key: Any = None) -> Float[Array, "n length tokens"]:
        held, arguments = environment.j2t_iso((dict(tensors), {"input_ids": tokens}))
        with translated(environment, key):
            for part in dropouts:
                part.train(key is not None)
            outputs = torch.func.functional_call(module, held, (), {**arguments, "use_cache": False})
        return environment.t2j_iso(outputs.logits)

    try:
        with jax.default_matmul_precision("highest"):
            ours = np.asarray(jax.jit(apply)({**weights, **rest}, tokens.astype(np.int32)))
    except Exception as error:
        raise InputError(
            f"{folder}: runs in PyTorch, but torchax cannot make a JAX function of {type(module).__name__}: "
            f"{first_line(error)}. Score its texts instead (jaxaudit scores lm)."
        ) from error
    if not _agree(ours, torch_outputs):
        raise InputError(
            f"{folder}: {type(module).__name__} does not compute the same in JAX as in PyTorch, or its numbers are not "
            "finite. Score its texts instead (jaxaudit scores lm)."
        )
    return Causal(model, weights, rest, apply, _agree(of_few, torch_outputs[:, : TOKENS // 2]))


def _agree(outputs: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.linalg.norm(outputs - expected) <= AGREE * np.linalg.norm(expected))
