"""Low-rank adapters (LoRA) on a frozen causal language model of `transformers`, as a network of its own.

Hu et al. (2022), "LoRA: Low-rank adaptation of large language models", ICLR: a linear layer of weights W computes
W x + (alpha / r) B A x, and only A `[r, in]` and B `[out, r]` are trained. Models that are trained side by side share
W, so one base model is in memory, and its products are those of one batch of all models' records.

What models share is an argument. Adapters are the parameters of a network whose base model is frozen. A base model in
the training state would be copied for every model, and in a closure it would be a constant, copied into every compiled
program. So a network names what its models share (`PureModule.shared`), `compiled` (`learners/stepped.py`) makes that
an argument of each program, and `vmap` gives it no models axis: the frozen products of a small minibatch, or on a
device, are those of one batch of all models' records. The base model is traced from PyTorch once (`models/causal.py`),
which also serves `efficacy`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.data.paths import whole_file
from jaxaudit.data.weights.weights import safetensors_bytes
from jaxaudit.errors import InputError
from jaxaudit.models.causal import causal_model
from jaxaudit.models.language_model import LanguageModel
from jaxaudit.models.lora import PREFIX, WEIGHTS, A, B, layer_sizes
from jaxaudit.models.module import Origin, PureModule, Shared
from jaxaudit.models.pretrained import ADAPTER, pytorch

MOST_RANK = 4096


@dataclass(frozen=True)
class Adapters:
    """A factory for `pure_module`: the adapters are the parameters, and the model in the folder is frozen.

    A starts from uniform numbers between -1 and 1 over the root of its inputs, as in `peft`, and B from zero, so that a
    model starts from the outputs of the base model. Dropout within the base model is off.

    Attributes:
        folder: of the base model and its tokenizer, as `save_pretrained` writes them.
        rank: r, the rows of A.
        alpha: the scale of an adapter times r.
        dropout: the share of the inputs of A that is dropped in training.
        layers: the linear layers that are adapted, each by its name or the end of its name after a dot, such as
            `c_attn`; empty for all but the output layer.
    """

    folder: str
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    layers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{Path(self.folder).name} with adapters of rank {self.rank}"

    @property
    def vocabulary(self) -> int:
        """The number of tokens of the base model."""
        return LanguageModel(Path(self.folder)).vocabulary

    def __call__(self) -> PureModule:
        """The functions of the network, with the base model's tensors as `PureModule.shared`."""
        if not 1 <= self.rank <= MOST_RANK:
            raise InputError(f"the rank of adapters (`lora`) is 1 to {MOST_RANK:,}, got {self.rank:,}.")
        model = causal_model(Path(self.folder), self._added)
        shapes = {name: array.shape for name, array in model.weights.items() if name.endswith((A, B))}
        base = {name: array for name, array in model.weights.items() if name not in shapes}, model.rest

        def init(key: Key[Array, ""]) -> tuple[dict[str, Array], Any]:
            params = {name: jnp.zeros(shape) for name, shape in shapes.items()}
            for place, name in enumerate(sorted(name for name in shapes if name.endswith(A))):
                most = shapes[name][1] ** -0.5
                layer_key = jax.random.fold_in(key, place)
                params[name] = jax.random.uniform(layer_key, shapes[name], minval=-most, maxval=most)
            return params, jax.random.fold_in(key, len(shapes)) if self.dropout else None

        def apply(base: Any, params: Any, state: Any, tokens: Array, training: bool) -> tuple[Array, Any]:
            dropout_key, after = jax.random.split(state) if training and self.dropout else (None, state)
            precision = next(iter(params.values())).dtype
            # With adapters in bfloat16 the frozen products are, too; other tensors, such as frequencies of positions,
            # keep their precision.
            frozen, rest = base
            frozen = {name: array.astype(precision) for name, array in frozen.items()}
            return model.apply({**frozen, **rest, **params}, tokens, dropout_key), after

        net = PureModule(init, partial(apply, base), False, bool(self.dropout), origin=Origin("torch"))
        return net._replace(shared=Shared(base, apply), causal=model.causal)

    def _added(self, module: Any) -> list[Any]:
        """Adds adapters to the layers of a PyTorch module; returns their dropout layers."""
        torch: Any = pytorch()
        output, dropouts = module.get_output_embeddings(), []
        for name, part in list(module.named_modules()):
            sizes = layer_sizes(part)
            is_listed = any(f".{name}".endswith(f".{layer}") for layer in self.layers)
            if part is output or sizes is None or (self.layers and not is_listed):
                continue
            inputs, outputs = sizes
            part.lora_A = torch.nn.Linear(inputs, self.rank, bias=False)
            part.lora_B = torch.nn.Linear(self.rank, outputs, bias=False)
            torch.nn.init.zeros_(part.lora_B.weight)
            part.lora_dropout = torch.nn.Dropout(self.dropout)
            part.forward = partial(_adapted, part, part.forward, self.alpha / self.rank)
            dropouts.append(part.lora_dropout.eval())
        if not dropouts:
            linear = sorted({name.rpartition(".")[2] for name, part in module.named_modules() if layer_sizes(part)})
            raise InputError(
                f"`lora_layers` {', '.join(self.layers)[:80]}: there is no such linear layer in "
                f"{Path(self.folder).name}; it has {', '.join(linear)[:200]}."
            )
        return dropouts


def write_adapter(folder: Path, adapters: Adapters, params: Mapping[str, Array | np.ndarray]) -> None:
    """Writes trained adapters, `params` of one model without a models axis, into a new folder, as `peft` saves and
    reads them.

    Raises:
        InputError: there is such a folder, or it cannot be written.
    """
    arrays = {f"{PREFIX}{name}": np.asarray(array, np.float32) for name, array in params.items()}
    layers = sorted({name.removesuffix(A) for name in params if name.endswith(A)})
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": Path(adapters.folder).name,
        "inference_mode": True,
        "r": adapters.rank,
        "lora_alpha": adapters.alpha,
        "lora_dropout": adapters.dropout,
        "target_modules": layers,
        "bias": "none",
    }
    files = {
        WEIGHTS: safetensors_bytes(arrays),
        ADAPTER: f"{json.dumps(described, indent=2)}\n".encode(),
    }
    try:
        folder.mkdir()
        for name, content in files.items():
            with whole_file(folder / name, private=False) as file:
                file.write(content)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror or error}); give a new folder.") from error


def _adapted(part: Any, layer_outputs: Any, scale: float, inputs: Any) -> Any:
    return layer_outputs(inputs) + scale * part.lora_B(part.lora_A(part.lora_dropout(inputs)))
