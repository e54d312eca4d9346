"""Low-rank adapters on disk, as `peft` writes them, and how they change a model.

W + s B A are the weights of the adapted layer; the scale s is alpha / r (see `causal.py`), and alpha / sqrt(r) in
rank-stabilised LoRA (Kalajdzievski 2023, arXiv 2312.03732). What is more than that, such as the magnitudes of DoRA,
layers that were trained whole, or a start that changed W, is refused: without it the model would be another one.
`target_modules` is not read, since the file has a pair of matrices for each layer.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxaudit.data.paths import exists
from jaxaudit.data.weights import read_weights
from jaxaudit.errors import InputError
from jaxaudit.models import pretrained

A, B = ".lora_A.weight", ".lora_B.weight"
PREFIX = "base_model.model."
"""What `peft` puts before the name of a layer in files."""
WEIGHTS = "adapter_model.safetensors"
STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
"""`init_lora_weights` that leave the weights of the base model as they are."""
NO_PLAIN = (
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "modules_to_save",
    "trainable_token_indices",
    "target_parameters",
    "layer_replication",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "velora_config",
    "megatron_config",
)
"""Entries of a configuration of more than low-rank matrices beside linear layers."""
_PATTERN = re.compile(r"\^?[\w.]+")


class Lora(NamedTuple):
    """An adapter: what its configuration calls the base model, and A and s B by the name of each changed layer."""

    folder: Path
    base: str
    matrices: dict[str, tuple[Float[np.ndarray, "rank inputs"], Float[np.ndarray, "outputs rank"]]]

    def merge(self, module: Any) -> None:
        """Adds the changes to the weights of a PyTorch module, computed in float32. A layer that shares its weights
        with another one, such as an output layer with the embedding, has its own afterwards.
        """
        torch, parts = pretrained.pytorch(), dict(module.named_modules())
        for name, (a, b) in self.matrices.items():
            part = parts.get(name)
            sizes = None if part is None else layer_sizes(part)
            if part is None or sizes is None:
                raise self._no_base(f"there is no linear layer {name[:80]!r}")
            if sizes != (a.shape[1], b.shape[0]):
                inputs, outputs = sizes
                raise self._no_base(
                    f"{name[:80]} has {inputs:,} inputs and {outputs:,} outputs, and the adapter is of "
                    f"{a.shape[1]:,} and {b.shape[0]:,}"
                )
            weight, change = part.weight.detach(), b @ a
            # GPT-2's own linear layer has its weights transposed.
            added = torch.from_numpy(change if isinstance(part, torch.nn.Linear) else change.T.copy())
            merged = (weight.float() + added.to(weight.device)).to(weight.dtype)
            part.weight = torch.nn.Parameter(merged, requires_grad=False)

    def _no_base(self, trouble: str) -> InputError:
        return InputError(f"{self.folder}: is no adapter of this model: {trouble}. Is the base model the right one?")


def read_lora(folder: Path) -> Lora:
    """The adapter in a folder that `peft`'s `save_pretrained` wrote."""
    file = folder / pretrained.ADAPTER
    if not exists(file) or not exists(folder / WEIGHTS):
        raise InputError(
            f"{folder}: has no {file.name} or no {WEIGHTS}; name the folder of an adapter that peft wrote, by "
            "save_pretrained(FOLDER, safe_serialization=True): other files of weights are pickles."
        )
    entries = pretrained.entries_of(file)
    _refuse_more(entries, file)
    weights, matrices = read_weights(folder / WEIGHTS), dict[str, tuple[np.ndarray, np.ndarray]]()
    strange = [name for name in weights if not (name.startswith(PREFIX) and name.endswith((A, B)))]
    if strange or not weights:
        trouble = f"{strange[0][:80]!r} is no matrix" if strange else "there is no matrix"
        raise InputError(f"{folder / WEIGHTS}: {trouble} of a linear layer; {_MERGE}.")
    for layer in sorted({name.removesuffix(A).removesuffix(B) for name in weights}):
        a, b = (weights.get(layer + end) for end in (A, B))
        name = layer.removeprefix(PREFIX)
        rank, alpha = (_of_layer(entries, key, name, file) for key in ("r", "lora_alpha"))
        if a is None or b is None or a.ndim != 2 or b.ndim != 2 or not a.size * b.size:
            raise InputError(f"{folder / WEIGHTS}: {name[:80]} has no two matrices; was the file cut?")
        if (a.shape[0], b.shape[1]) != (rank, rank) or a.dtype.kind in "iub" or b.dtype.kind in "iub":
            raise InputError(
                f"{folder / WEIGHTS}: {name[:80]} has matrices {a.dtype} {a.shape} and {b.dtype} {b.shape}, which must "
                f"be floats and fit each other at the rank that {pretrained.ADAPTER} states ({rank:g}): is it "
                f"quantised, or of another adapter? {_MERGE}."
            )
        scale = alpha / (rank**0.5 if entries.get("use_rslora") else rank)
        matrices[name] = a.astype(np.float32), np.float32(scale) * b.astype(np.float32)
    return Lora(folder, str(entries.get("base_model_name_or_path") or "")[:200], matrices)


def layer_sizes(part: Any) -> tuple[int, int] | None:
    """The inputs and outputs of a linear layer of PyTorch, or of GPT-2's; None of any other part."""
    if isinstance(part, pretrained.pytorch().nn.Linear):
        return part.in_features, part.out_features
    return tuple(part.weight.shape) if type(part).__name__ == "Conv1D" else None


_MERGE = (
    "only plain LoRA is read; merge the adapter with its base model instead: "
    "peft.PeftModel.from_pretrained(base, ADAPTER).merge_and_unload().save_pretrained(FOLDER)"
)


def _refuse_more(entries: Mapping[str, Any], file: Path) -> None:
    more = [name for name in NO_PLAIN if entries.get(name)]
    if entries.get("peft_type") != "LORA":
        more.append("peft_type")
    if entries.get("bias") not in (None, "none"):
        more.append("bias")
    if entries.get("init_lora_weights") not in STARTS:
        more.append("init_lora_weights")
    if more:
        raise InputError(f"{file}: has {', '.join(more)} of another kind, or of more than low-rank matrices; {_MERGE}.")


def _of_layer(entries: Mapping[str, Any], key: str, layer: str, file: Path) -> float:
    """The rank or alpha of a layer: the first pattern of `rank_pattern` or `alpha_pattern` that fits, or the usual."""
    value = entries.get(key)
    patterns = entries.get({"r": "rank_pattern", "lora_alpha": "alpha_pattern"}[key]) or {}
    if not isinstance(patterns, dict) or not all(map(_PATTERN.fullmatch, patterns)):
        raise InputError(f"{file}: its patterns of layers are no plain names of layers; {_MERGE}.")
    for pattern, of_pattern in patterns.items():
        whole = pattern.startswith("^")
        if layer == pattern.removeprefix("^") or (not whole and layer.endswith(f".{pattern}")):
            value = of_pattern
            break
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 2**31:
        raise InputError(f"{file}: {key} is no number above 0; is it the adapter_config.json that peft wrote?")
    return float(value)
