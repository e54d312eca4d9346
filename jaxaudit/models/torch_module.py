"""Converts a PyTorch module to pure functions by torchax: parameters with a gradient are trained, others are state.

The place of channels follows from the module's layers, and nothing else is tried. torchax knows no `torch.no_grad`,
leaves running statistics as they are, and lacks some operations. So outputs, gradient and state on six random records
are compared with PyTorch's, and what differs is refused, as are recurrent layers, which torchax would unroll. torchax
and PyTorch are imported only here; the import's changes of JAX's global settings are undone.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import prod
from threading import Lock
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxaudit.data.records import Field, unpack_records
from jaxaudit.errors import InputError, first_line
from jaxaudit.models.module import WAYS_ON, Origin, PureModule
from jaxaudit.models.pretrained import pytorch
from jaxaudit.randomness import OneKey

INSTALL = "pip install 'jaxaudit[torch]' (torchax 0.0.13, which needs torch below 2.13)"
TRACING = Lock()
"""Held while a module is traced, since its tensors are JAX arrays meanwhile."""
GENERATOR = Lock()
"""Held while PyTorch's global random generator is in use here."""
RECORDS = 6
SEED = 1
AGREE = 1e-3
"""The largest difference of JAX's outputs and gradients from PyTorch's, relative to their norms."""


class TorchState(NamedTuple):
    """A PyTorch module's tensors but the trained ones, and the key of its random layers in training, if any."""

    tensors: dict[str, Any]
    key: Any


Channels = Literal["last", "first", "one"]
"""Where a module gets channels: `first` moves the last axis of records to the front, `one` adds an axis of one channel
there, for gray images."""


def placed(inputs: Any, channels: Channels, library: Any) -> Any:
    """The records with their channels so; `library` is the module `numpy` or `jax.numpy`."""
    moved = library.moveaxis(inputs, -1, 1) if channels == "first" else inputs
    return moved[:, None] if channels == "one" else moved


def is_torch_module(value: Any) -> bool:
    """Whether `value` is a PyTorch module, decided without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


Tensors = dict[str, np.ndarray]
"""Those of a PyTorch module as NumPy arrays, by name."""
Build = Callable[[], Any]
"""Builds a PyTorch module, a new one at every call."""


def torch_functions(
    build: Build, name: str, input_shape: tuple[int, ...], fields: tuple[Field, ...] | None
) -> PureModule:
    """The pure functions of the PyTorch module that `build` returns, a new one at every call.

    Weights are drawn with PyTorch's generator, seeded with the model's key; dropout draws from the state's key.
    Channels of images (and of series, for convolutions) are moved to the front; images without channels get one. With
    `fields` it gets the arrays of a record by name, whole numbers as integers; else it gets floats.
    """
    environment = torchax_of(name).default_env()
    try:
        return _translation(environment, build, name, input_shape, fields)
    except InputError:
        raise
    except Exception as error:  # whatever PyTorch, torchax or the module raises
        raise InputError(
            f"the model {name} cannot be translated from PyTorch to JAX for records of shape {input_shape}: "
            f"{first_line(error)}. It gets floats: of tokens take inputs.long(), or name their array as its argument, "
            f"such as input_ids; or {WAYS_ON}."
        ) from error


def _translation(
    environment: Any,
    build: Build,
    name: str,
    input_shape: tuple[int, ...],
    fields: tuple[Field, ...] | None,
) -> PureModule:
    build = build if fields is None else partial(_by_name, build, fields)
    training, evaluation = _built(build, SEED).train(), _built(build, SEED).eval()
    if training is evaluation:
        raise InputError(f"the model factory {name} returns the same module at every call; build a new one in it.")
    _refuse_layers(evaluation, name)
    tensors, names = _tensors_of(training), _named(training)
    again, other = _tensors_of(evaluation), _tensors_of(_built(build, SEED + 1))
    if any(not np.array_equal(array, again[place], equal_nan=True) for place, array in tensors.items()):
        raise InputError(
            f"the initial weights of the model {name} are not determined by PyTorch's seed, so no run can be repeated; "
            "draw them with torch, not with numpy or random, and leave no torch.empty unfilled."
        )
    seeded = any(not np.array_equal(array, other[place]) for place, array in tensors.items())
    trained = [place for place, tensor in names.items() if tensor.requires_grad]
    channels: Channels = "last" if fields else _channels(evaluation, input_shape)
    for module in (training, evaluation):
        _padded_by_hook(module)
    for part in training.modules():
        if isinstance(part, _batch_norm()):
            part.register_forward_pre_hook(_update_running_statistics)

    def split(tensors: Mapping[str, np.ndarray]) -> tuple[Tensors, Tensors]:
        params = {place: tensors[place] for place in trained}
        return params, {place: tensor for place, tensor in tensors.items() if place not in params}

    def draw(number: Any) -> tuple[Tensors, Tensors]:
        return split(_tensors_of(_built(build, int(number))))

    shapes = jax.tree.map(lambda tensor: jax.ShapeDtypeStruct(tensor.shape, tensor.dtype), split(tensors))

    def called(module: Any, tensors: Mapping[str, Any], inputs: Any, key: Any) -> tuple[Any, dict[str, Any]]:
        held = environment.j2t_iso(jax.tree.map(jnp.asarray, dict(tensors)))
        records = environment.j2t_iso(placed(inputs, channels, jnp))
        with translated(environment, key):
            outputs = pytorch().func.functional_call(module, held, (records,))
        return environment.t2j_iso(_logits_of(outputs)), environment.t2j_iso(held)

    def apply(params: Any, state: TorchState, inputs: Array, mode: bool) -> tuple[Any, TorchState]:
        if not mode:
            return called(evaluation, {**params, **state.tensors}, inputs, None)[0], state
        key, now = (None, None) if state.key is None else jax.random.split(state.key)
        outputs, held = called(training, {**params, **state.tensors}, inputs, now)
        return outputs, TorchState({place: held[place] for place in state.tensors}, key)

    inputs = np.random.default_rng(SEED).random((RECORDS, *input_shape), dtype=np.float32)
    inputs = 2 * inputs if fields is None else _with_masks(inputs, fields)
    params, rest = split(tensors)
    try:
        jax.eval_shape(apply, params, TorchState(rest, None), inputs, True)
        draws = False
    except Exception:  # without a key, whatever torchax raises for random numbers
        draws = True
    start = TorchState(rest, jax.random.key(SEED) if draws else None)
    coupled = _compare(apply, build, channels, params, start, inputs, name)

    def init(key: OneKey) -> tuple[Any, TorchState]:
        number = jax.random.bits(key, (), jnp.uint32)
        params, rest = jax.pure_callback(draw, shapes, number, vmap_method="sequential")
        return params, TorchState(rest, jax.random.fold_in(key, 1) if draws else None)

    def outputs(params: Any, state: TorchState, inputs: np.ndarray) -> np.ndarray:
        return _in_pytorch(build, channels, {**params, **state.tensors}, inputs)

    # Each tensor in `state_dict`, by its name among all of the module's.
    places = {id(tensor): place for place, tensor in names.items()}
    state_dict = training.state_dict(keep_vars=True)
    saved = {place: places[id(tensor)] for place, tensor in state_dict.items() if id(tensor) in places}
    unsaved = {place: values for place, values in tensors.items() if place not in saved.values()}
    second = {again: first for again, first in saved.items() if again != first}
    return PureModule(init, apply, coupled, draws, seeded, Origin("torch", outputs, unsaved, second))


@contextmanager
def _own_generator(seed: int) -> Iterator[None]:
    """A context in which PyTorch's CPU generator has this seed; its state is restored at the end."""
    torch = pytorch()
    with GENERATOR:
        before = torch.get_rng_state()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(before)


def _built(build: Build, seed: int) -> Any:
    with _own_generator(seed):
        return build()


def _batch_norm() -> Any:
    return pytorch().nn.modules.batchnorm._BatchNorm


def _refuse_layers(module: Any, name: str) -> None:
    """Refuses layers that have no translation: recurrent ones, and statistics that follow no fixed momentum."""
    nn = pytorch().nn
    for place, part in module.named_modules():
        normalises = isinstance(part, nn.modules.batchnorm._NormBase)
        batch = isinstance(part, _batch_norm())
        running = normalises and part.running_mean is not None
        wrong = normalises and (batch != running or (batch and part.momentum is None))
        if isinstance(part, nn.RNNBase) or wrong:
            text = f"{type(part).__name__} ({place or 'the model itself'})"
            why = " (batch normalisation needs running statistics and a momentum)" if batch else ""
            raise InputError(f"the model {name} has a layer that has no translation to JAX: {text}{why}; {WAYS_ON}.")


def _channels(module: Any, input_shape: tuple[int, ...]) -> Channels:
    axes, convolutions = len(input_shape), pytorch().nn.modules.conv._ConvNd
    kinds = [len(part.kernel_size) for part in module.modules() if isinstance(part, convolutions)]
    # PyTorch would treat a batch of records without channels as one record with channels.
    return "one" if axes in kinds else "first" if axes == 3 or axes - 1 in kinds else "last"


def _tensors_of(module: Any) -> Tensors:
    """The module's parameters, buffers and plain tensors by name, as arrays; a tensor with two names occurs once."""
    return {
        name: np.array(values := tensor.detach().numpy(), jax.dtypes.canonicalize_dtype(values.dtype))
        for name, tensor in _named(module).items()
    }


def _named(module: Any) -> dict[str, Any]:
    torch = pytorch()
    tensors_by_id: dict[int, tuple[str, Any]] = {}
    for prefix, part in module.named_modules():
        held = {**vars(part), **dict(part.named_parameters(recurse=False)), **dict(part.named_buffers(recurse=False))}
        for name, held_value in held.items():
            if isinstance(held_value, torch.Tensor):
                tensors_by_id.setdefault(id(held_value), (f"{prefix}.{name}" if prefix else name, held_value))
    return dict(tensors_by_id.values())


def _logits_of(outputs: Any) -> Any:
    """The logits in a module's output: the output itself, or its attribute `logits`, as in `transformers`."""
    return getattr(outputs, "logits", outputs)


def _in_pytorch(build: Build, channels: Channels, tensors: Mapping[str, Any], inputs: np.ndarray) -> np.ndarray:
    """The outputs of the module with these tensors in evaluation mode, computed by PyTorch."""
    torch = pytorch()
    module = _built(build, SEED).eval()
    with torch.no_grad():
        for name, tensor in _named(module).items():
            tensor.copy_(torch.from_numpy(np.array(tensors[name])))
        records = np.ascontiguousarray(placed(np.array(inputs, np.float32), channels, np))
        try:
            return np.asarray(_logits_of(module(torch.from_numpy(records))).numpy())
        except (IndexError, RuntimeError) as error:
            raise InputError(
                f"the network does not accept these records in PyTorch: {first_line(error)}; is a token outside its "
                "vocabulary?"
            ) from error


def _by_name(build: Build, fields: tuple[Field, ...]) -> Any:
    """Wraps the module that `build` returns, so that the arrays of a record are passed to it by name."""
    module = build()
    forward = module.forward

    def called(packed: Any) -> Any:
        return forward(**unpack_records(fields, packed, lambda part: part.to(pytorch().int32)))

    module.forward = called
    return module


def _with_masks(records: np.ndarray, fields: tuple[Field, ...]) -> np.ndarray:
    """Random records: where numbers are whole, 0 and 1, the first one 1, since a mask should let something through."""
    start = 0
    for field in fields:
        end = start + prod(field.shape)
        if field.whole:
            records[:, start:end] = np.floor(2 * records[:, start:end])
            records[:, start : start + 1] = 1
        start = end
    return records


def torchax_of(name: str) -> Any:
    """Imports torchax, for the PyTorch module of this name, beside the installed PyTorch."""
    try:
        with _settings_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torchax = importlib.import_module("torchax")
    except Exception as error:
        raise InputError(
            f"the model {name} is a PyTorch module, and torchax, which makes a JAX function of it, could not be "
            f"imported beside torch {pytorch().__version__}: {first_line(error)}. {INSTALL}; {WAYS_ON}."
        ) from error
    return torchax


@contextmanager
def _settings_kept() -> Iterator[None]:
    options, environment = dict(jax.config.values), dict(os.environ)
    try:
        yield
    finally:
        for name, value in options.items():
            if jax.config.values[name] != value:
                jax.config.update(name, value)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]


@contextmanager
def translated(environment: Any, key: Any) -> Iterator[None]:
    """A context in which JAX executes PyTorch's operations and draws random numbers from the key."""
    with TRACING, warnings.catch_warnings(), environment.override_property(prng=key):
        # PyTorch's indices are int64, which JAX lacks unless x64 is enabled.
        warnings.filterwarnings("ignore", "Explicitly requested dtype")
        with environment, pytorch().device("jax"):
            yield


def _update_running_statistics(part: Any, inputs: tuple[Any, ...]) -> None:
    """Updates running statistics like PyTorch's batch normalisation, which torchax does not."""
    values = inputs[0].detach()
    axes = [axis for axis in range(values.ndim) if axis != 1]
    mean, variance = values.mean(axes), values.var(axes, unbiased=True)
    part.running_mean.mul_(1 - part.momentum).add_(part.momentum * mean)
    part.running_var.mul_(1 - part.momentum).add_(part.momentum * variance)


def _padded_by_hook(module: Any) -> None:
    """Blocks the gradient of an embedding's padding row by a hook, so that the look-up stays visible as a gather."""
    for part in module.modules():
        if isinstance(part, pytorch().nn.Embedding) and part.padding_idx is not None:
            part.register_forward_hook(partial(_without_gradient_at, part.padding_idx))
            part.padding_idx = None


def _without_gradient_at(padding: int, part: Any, inputs: tuple[Any, ...], rows: Any) -> Any:
    return pytorch().where((inputs[0] == padding)[..., None], rows.detach(), rows)


def _compare(
    apply: Callable[..., tuple[Any, TorchState]],
    build: Build,
    channels: Channels,
    params: Tensors,
    start: TorchState,
    inputs: np.ndarray,
    name: str,
) -> bool:
    """Refuses a function that differs from PyTorch's; returns whether records are coupled in training."""
    torch, mode = pytorch(), start.key is None
    records = np.ascontiguousarray(placed(inputs, channels, np))
    module = _built(build, SEED).train(mode)
    with _own_generator(SEED):
        torch_outputs = _logits_of(module(torch.from_numpy(records)))
    directions = np.random.default_rng(SEED).standard_normal(torch_outputs.shape).astype(np.float32)
    (torch_outputs * torch.from_numpy(directions)).mean().backward()
    gradients = {place: tensor.grad for place, tensor in _named(module).items()}
    after = _tensors_of(module)

    def loss(params: Any, inputs: Array) -> tuple[Array, Any]:
        outputs, state = apply(params, start, inputs, mode)
        return jnp.mean(outputs * directions), (outputs, state.tensors)

    jax.eval_shape(lambda params, inputs: apply(params, start, inputs, not mode), params, inputs)
    with jax.default_matmul_precision("highest"):
        gradient, (outputs, tensors) = jax.jit(jax.grad(loss, has_aux=True))(params, inputs)
    kinds = {
        "outputs": ({"outputs": outputs}, {"outputs": torch_outputs.detach().numpy()}),
        "gradient": (
            gradient,
            {p: np.zeros_like(params[p]) if gradients[p] is None else gradients[p].numpy() for p in params},
        ),
        "state after training": (tensors, {place: after[place] for place in tensors}),
    }
    for kind, (ours, torch_values) in kinds.items():
        worst = _farthest(ours, torch_values)
        if worst:
            raise InputError(
                f"the model {name} does not do the same in JAX as in PyTorch: not the same {kind} ({worst}). torchax "
                "does not know torch.no_grad and some operations that change tensors in place: use .detach() and new "
                f"tensors there, or {WAYS_ON}."
            )
    if _couples(build, records, False):
        raise InputError(
            f"in evaluation an output of the model {name} depends on the other records of its batch, so a record has "
            "no output of its own; let batch normalisation keep running statistics (track_running_stats=True)."
        )
    changed = any(not np.array_equal(start.tensors[place], after[place]) for place in start.tensors)
    running = any(isinstance(part, _batch_norm()) for part in module.modules())
    return running or changed or (mode and _couples(build, records, True))


def _couples(build: Build, records: np.ndarray, mode: bool) -> bool:
    half = len(records) // 2
    with pytorch().no_grad():
        whole, part = (
            _logits_of(_built(build, SEED).train(mode)(pytorch().from_numpy(some))).numpy()
            for some in (records, records[:half])
        )
    return not np.allclose(whole[:half], part, rtol=1e-3, atol=1e-4, equal_nan=True)


def _farthest(ours: Mapping[str, Any], torch_values: Mapping[str, np.ndarray]) -> str | None:
    """The array that differs most, if any differs by more than rounding."""
    whole = np.sqrt(sum(float(np.sum(np.square(array, dtype=np.float64))) for array in torch_values.values()))
    allowed = {name: AGREE * (np.linalg.norm(array) + whole) + 1e-6 for name, array in torch_values.items()}
    with np.errstate(invalid="ignore"):
        gaps = {name: float(np.linalg.norm(np.asarray(ours[name]) - array)) for name, array in torch_values.items()}
    wrong = [name for name, gap in gaps.items() if not gap <= allowed[name]]
    return max(wrong, key=lambda name: gaps[name] / allowed[name]) if wrong else None
