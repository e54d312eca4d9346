"""A causal language model of `transformers` as a function of its weights and tokens; low-rank adapters; scores.

Hu et al. (2022), "LoRA: Low-rank adaptation of large language models", ICLR: a linear layer of weights W computes W x +
(alpha / r) B A x, and only A `[r, in]` and B `[out, r]` are trained. Models that are trained side by side share W
(`PureModule.shared`), an argument of each compiled program. Scores are open-unlearning's `mia_loss`, `mia_min_k`,
`mia_min_k_plus_plus` and `mia_zlib`, signs included, up to rounding, if `LanguageModel.encode` starts at
`prompt-tokens`: a table made here can stand beside its logs.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxaudit.data.cache import cached_rows
from jaxaudit.data.paths import whole_file
from jaxaudit.data.weights import safetensors_bytes
from jaxaudit.errors import InputError, check_ranges, first_line, writing
from jaxaudit.models.language_model import PREFIX, WEIGHTS, A, B, Encoded, LanguageModel, layer_sizes
from jaxaudit.models.module import Origin, PureModule, Shared
from jaxaudit.models.pretrained import ADAPTER, pytorch
from jaxaudit.models.torch_module import AGREE, torchax_of, translated
from jaxaudit.randomness import OneKey


class Causal(NamedTuple):
    """A causal language model in JAX: its parameters in float32, each once; its other tensors; and `apply(tensors,
    tokens, key)`, with both by name and the key of added dropout: the logits of the next tokens.
    """

    model: LanguageModel
    weights: dict[str, Array]
    rest: dict[str, Array]
    apply: Callable[..., Float[Array, "n length tokens"]]


def causal_model(folder: Path, change: Callable[[Any], Sequence[Any]] = lambda module: ()) -> Causal:
    """The model in a folder of `save_pretrained`, in evaluation mode, compared with PyTorch's on a few random tokens.
    `change` changes the module before, but not its outputs, and returns the dropout layers that it added.
    """
    model = LanguageModel(folder, "float32")
    environment = torchax_of(model.name).default_env()
    torch, module = pytorch(), model.load_on_cpu(attn_implementation="eager")
    dropouts = change(module.eval())
    tokens, torch_outputs = (tensor.numpy() for tensor in model.try_out(module))
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
    if not np.linalg.norm(ours - torch_outputs) <= AGREE * np.linalg.norm(torch_outputs):
        raise InputError(
            f"{folder}: {type(module).__name__} does not compute the same in JAX as in PyTorch, or its numbers are not "
            "finite. Score its texts instead (jaxaudit scores lm)."
        )
    return Causal(model, weights, rest, apply)


MOST_RANK = 4096


@dataclass(frozen=True)
class Adapters:
    """A factory for `pure_module`: the adapters are the parameters, and the model in the folder is frozen.

    A starts from uniform numbers between -1 and 1 over the root of its inputs, as in `peft`, and B from zero, so that a
    model starts from the outputs of the base model. Dropout within the base model is off.

    Attributes:
        folder: of the base model and its tokenizer, as `save_pretrained` writes them. `rank`: r, the rows of A.
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
        check_ranges(f"[1, {MOST_RANK}]", rank=self.rank)
        model = causal_model(Path(self.folder), self._added)
        shapes = {name: array.shape for name, array in model.weights.items() if name.endswith((A, B))}
        base = {name: array for name, array in model.weights.items() if name not in shapes}, model.rest

        def init(key: OneKey) -> tuple[dict[str, Array], Any]:
            params = {name: jnp.zeros(shape) for name, shape in shapes.items()}
            for place, name in enumerate(sorted(name for name in shapes if name.endswith(A))):
                most = shapes[name][1] ** -0.5
                layer_key = jax.random.fold_in(key, place)
                params[name] = jax.random.uniform(layer_key, shapes[name], minval=-most, maxval=most)
            return params, jax.random.fold_in(key, len(shapes)) if self.dropout else None

        def apply(base: Any, params: Any, state: Any, tokens: Array, training: bool) -> tuple[Array, Any]:
            dropout_key, after = jax.random.split(state) if training and self.dropout else (None, state)
            precision = next(iter(params.values())).dtype
            # With adapters in bfloat16 the frozen products are, too; other tensors keep their precision.
            frozen, rest = base
            frozen = {name: array.astype(precision) for name, array in frozen.items()}
            return model.apply({**frozen, **rest, **params}, tokens, dropout_key), after

        net = PureModule(init, partial(apply, base), False, bool(self.dropout), origin=Origin("torch"))
        return net._replace(shared=Shared(base, apply), causal=True)

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
                f"`layers` {', '.join(self.layers)[:80]}: there is no such linear layer in "
                f"{Path(self.folder).name}; it has {', '.join(linear)[:200]}."
            )
        return dropouts


def write_adapter(folder: Path, adapters: Adapters, params: Mapping[str, Array | np.ndarray]) -> None:
    """Writes adapters, `params` of one model without a models axis, into a new folder, as `peft` saves them."""
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
    with writing(folder, "give a new folder."):
        folder.mkdir()
        for name, content in files.items():
            with whole_file(folder / name, private=False) as file:
                file.write(content)


def _adapted(part: Any, layer_outputs: Any, scale: float, inputs: Any) -> Any:
    return layer_outputs(inputs) + scale * part.lora_B(part.lora_A(part.lora_dropout(inputs)))


SCORES = ("loss", "min_k", "min_k_plus_plus", "zlib")
LOWEST = 0.2
"""The share of tokens that Min-K% averages: those that the model found least likely."""
LEAST_VARIANCE = 1e-6
OUT_OF_MEMORY = ("out of memory", "can't allocate memory")
"""What PyTorch's errors say of a device, and of the CPU."""
TokenNumbers = tuple[Float[np.ndarray, " tokens"], Float[np.ndarray, " tokens"]]
MOST_TOKENS, MOST_LOGITS, MOST_AT_ONCE = 2**13, 2**27, 2**25


def token_scores(
    model: LanguageModel, records: Sequence[Encoded], progress: Callable[[int], object] = lambda tokens: None
) -> dict[str, Float[np.ndarray, " records"]]:
    """The scores of records, each lower for what was more likely trained on; NaN without a scored token.

    With log p(t), the log-probability of token t given those before it:

    - `loss`: the mean of -log p(t) over the scored tokens.
    - `min_k`: the same over the fifth of tokens with the lowest log p(t) (Min-K%, arXiv 2310.16789).
    - `min_k_plus_plus`: as `min_k`, of (log p(t) - m) / s, with mean m and standard deviation s of the log-probability
      under the model's own distribution at t (Min-K%++, arXiv 2404.02936).
    - `zlib`: `loss` by the bytes that zlib packs the scored text into (arXiv 2012.07805).

    The two Min-K% leave out the last scored token, which ends an answer. Scores are kept in the cache folder, under
    digests of model and record: a text is scored once by a model. Texts in other batches get the same numbers up to
    rounding; a batch that does not fit into memory is halved. `records` are no longer than `model.positions`.
    `progress` is told the tokens of the records that were scored before, then those of each batch that is done.
    """
    module, digests = model.load(), [_digest(model, record) for record in records]
    left = sum(len(record.tokens) for record in records)

    def report_progress(tokens: int) -> None:
        nonlocal left
        if tokens:
            left -= tokens
            progress(tokens)

    def build(indices: Int[np.ndarray, " new"]) -> Iterator[dict[int, Float[np.ndarray, " scores"]]]:
        new = {int(index): records[index] for index in indices}
        report_progress(left - sum(len(record.tokens) for record in new.values()))
        return _scores(model, module, new, report_progress)

    rows = cached_rows(f"token scores {_module_digest(module)}", digests, len(SCORES), build)
    report_progress(left)
    return dict(zip(SCORES, rows.T, strict=True))


def _digest(model: LanguageModel, record: Encoded) -> bytes:
    """Of all that a record's scores are of: its tokens, which of them are scored, and these as text."""
    digest = hashlib.blake2b(np.array([record.start, *record.tokens], np.int64).tobytes(), digest_size=16)
    digest.update(_scored_text(model, record))
    return digest.digest()


def _module_digest(module: Any) -> str:
    """Of all that a model's scores are of: its network, its weights as they are computed with, device and library."""
    torch = pytorch()
    network = {name: entry for name, entry in module.config.to_dict().items() if not name.startswith("_")}
    parts = (type(module).__name__, sorted(network.items(), key=str), str(module.device.type), torch.__version__)
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=16)
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _scored_text(model: LanguageModel, record: Encoded) -> bytes:
    return model.decode(record.tokens[record.start :]).encode("utf-8", "surrogatepass")


def _scores(
    model: LanguageModel, module: Any, records: Mapping[int, Encoded], progress: Callable[[int], object]
) -> Iterator[dict[int, Float[np.ndarray, " scores"]]]:
    """The scores of records under their keys, batch by batch."""
    lengths = {key: len(record.tokens) for key, record in records.items()}
    yield {key: np.full(len(SCORES), np.nan) for key, length in lengths.items() if not length}
    # Records of similar lengths, the longest first: what does not fit into memory fails at once.
    order = sorted((key for key, length in lengths.items() if length), key=lambda key: -lengths[key])
    most = min(MOST_TOKENS, MOST_LOGITS // model.vocabulary)
    while order:
        longest = lengths[order[0]]
        batch = order[: max(1, most // longest)]
        numbers_of_tokens = _scored_or_none(module, [records[key] for key in batch])
        if numbers_of_tokens is None:
            if len(batch) == 1:
                raise InputError(
                    f"{model.name}: a record of {longest:,} tokens does not fit into memory; shorten the longest "
                    "records, give `precision` bfloat16, or use a machine with more memory."
                )
            most = len(batch) // 2 * longest
            continue
        scores = {}
        for key, (token_log_probs, normal) in zip(batch, numbers_of_tokens, strict=True):
            loss = -token_log_probs.mean() if len(token_log_probs) else np.nan
            packed = loss / len(zlib.compress(_scored_text(model, records[key])))
            scores[key] = np.array([loss, _of_lowest(token_log_probs[:-1]), _of_lowest(normal[:-1]), packed])
        yield scores
        progress(sum(lengths[key] for key in batch))
        order = order[len(batch) :]


def _scored_or_none(module: Any, batch: Sequence[Encoded]) -> list[TokenNumbers] | None:
    """As `_scored`; None if it does not fit into memory."""
    try:
        return _scored(module, batch)
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)):
            raise
    # Only here, behind the error, are its tensors let go.
    # Once imported, torchax states an accelerator of its own, which has no memory to be emptied.
    if module.device.type != "cpu" and hasattr(accelerator := pytorch().accelerator, "empty_cache"):
        accelerator.empty_cache()
    return None


def _scored(module: Any, batch: Sequence[Encoded]) -> list[TokenNumbers]:
    """For each record, log p of its scored tokens, and the same normalised by the model's own distribution."""
    torch = pytorch()
    tokens, mask = np.zeros((2, len(batch), max(len(record.tokens) for record in batch)), np.int64)
    for row, record in enumerate(batch):
        tokens[row, : len(record.tokens)], mask[row, : len(record.tokens)] = record.tokens, 1
    counts = [len(record.tokens) - record.start for record in batch]
    rows = np.repeat(np.arange(len(batch)), counts)
    places = np.concatenate([np.arange(record.start, len(record.tokens)) for record in batch])
    with torch.inference_mode():
        on_device = [torch.from_numpy(array).to(module.device) for array in (tokens, mask, rows, places)]
        ids, mask, rows, places = on_device
        logits = module(input_ids=ids, attention_mask=mask, use_cache=False).logits
        token_parts, normal, size = [], [], max(1, MOST_AT_ONCE // logits.shape[-1])
        for row, place in zip(rows.split(size), places.split(size), strict=True):
            log_p = torch.log_softmax(logits[row, place - 1].float(), -1)
            token_log_p, p = log_p.gather(-1, ids[row, place, None])[:, 0], log_p.exp()
            mean = (p * log_p).sum(-1)
            variance = (p * log_p.square()).sum(-1) - mean.square()
            token_parts.append(token_log_p)
            normal.append((token_log_p - mean) / variance.clamp(min=LEAST_VARIANCE).sqrt())
        joined_parts = [torch.cat(parts).cpu().numpy().astype(np.float64) for parts in (token_parts, normal)]
    cuts = np.cumsum(counts)[:-1]
    return list(zip(*(np.split(part, cuts) for part in joined_parts), strict=True))


def _of_lowest(values: Float[np.ndarray, " tokens"]) -> float:
    """Minus the mean of the lowest fifth of the values, at least one; NaN if there are none."""
    if not len(values):
        return np.nan
    return -float(np.sort(values)[: max(1, int(LOWEST * len(values)))].mean())
