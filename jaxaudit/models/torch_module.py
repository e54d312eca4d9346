"""Converts a PyTorch module to pure functions by torchax: parameters with a gradient are trained, others are state.

torchax and PyTorch are imported only in this module, and only for a PyTorch module. Global settings of JAX that the
import changes are restored.

A PyTorch module is compared with itself. torchax makes a JAX function of an unchanged module, but knows no
`torch.no_grad`, leaves running statistics as they are, and has no word for some operations. So the module first answers
six random records in PyTorch: what its outputs and gradient are, which tensors it changes, whether it draws random
numbers, whether records touch one another. The JAX function must give the same; what it cannot give is refused by name,
whichever operation it was. Initial weights come from the module's own initialisers: a callback seeds PyTorch's
generator with a number from the model's key, builds the module, and puts the generator back. Recurrent layers are
handed to JAX as loops, which torchax would unroll. A classifier of `transformers` is built from its configuration
alone: nothing is downloaded, no code that the folder names is run, and its weights are read here; `transformers` only
translates their names.
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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.data.records import Field, unpack_records
from jaxaudit.errors import InputError, first_line
from jaxaudit.models import torch_trial
from jaxaudit.models.module import Origin, PureModule
from jaxaudit.models.pretrained import pytorch
from jaxaudit.models.torch_recurrent import loops_stay_loops

INSTALL = "pip install 'jaxaudit[torch]' (torchax 0.0.13, which needs torch below 2.13)"
ELSEWHERE = "or train such models with your own script: jaxaudit shadows plan"
TRACING = Lock()
"""Held while a module is traced, since its tensors are JAX arrays meanwhile."""
VALUES_DECIDE = (
    *(jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError),
    *(jax.errors.TracerIntegerConversionError, jax.errors.NonConcreteBooleanIndexError),
)
AGREE = 1e-3
"""The largest difference of JAX's outputs and gradients from PyTorch's, relative to their norms."""


class TorchState(NamedTuple):
    """The state of a PyTorch module: its tensors but the trained parameters, by name, and the random key of its random
    layers in training; None without such layers.
    """

    tensors: dict[str, Any]
    key: Any


def is_torch_module(value: Any) -> bool:
    """Whether `value` is a PyTorch module, decided without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def torch_functions(
    build: Callable[[], Any], name: str, input_shape: tuple[int, ...], fields: tuple[Field, ...] | None
) -> PureModule:
    """The pure functions of the PyTorch module that `build` returns, a new one at every call.

    The module is not modified. A model starts from weights that `build` draws with PyTorch's generator, seeded with the
    model's key. Batch normalisation updates its running statistics, and dropout draws from the state's key. The last
    axis of images (and of series, for convolutions), the channels, is moved to the front; a module that does not accept
    that gets records as they are. A module that accepts only integers, such as an embedding, gets integers; with
    `fields` it gets the arrays of a record by name.

    As a check, outputs, gradient and state on some random records are compared with those of PyTorch itself.

    Raises:
        InputError: torchax is missing or does not work with the installed PyTorch; the module is lazy, of another type
            than float32, shared by all calls, not determined by PyTorch's seed or not finite; it draws random numbers
            or couples records in evaluation; or JAX does not do what PyTorch does.
    """
    environment = torchax_of(name).default_env()
    sample = None if fields is None else _sample(fields, *input_shape)
    build = build if fields is None else partial(_by_name, build, fields)
    trial = torch_trial.try_module(build, name, input_shape, sample)
    training, evaluation = trial.another().train(), trial.another().eval()
    for module in (training, evaluation):
        _padded_by_hook(module)
        loops_stay_loops(module)
    batch_norm = pytorch().nn.modules.batchnorm._BatchNorm
    for part in training.modules():
        if not isinstance(part, batch_norm) or part.running_mean is None:
            continue
        if part.momentum is None:
            raise InputError(
                f"the model {name} has batch normalisation with momentum=None, whose step depends on a counter and "
                f"cannot be traced; give it a momentum such as 0.1, {ELSEWHERE}."
            )
        part.register_forward_pre_hook(_update_running_statistics)

    def draw(number: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        with torch_trial.own_generator(int(number)):
            return trial.split(torch_trial.tensors_of(build()))

    shapes = jax.tree.map(lambda tensor: jax.ShapeDtypeStruct(tensor.shape, tensor.dtype), trial.split(trial.tensors))

    def init(key: Key[Array, ""]) -> tuple[Any, TorchState]:
        number = jax.random.bits(key, (), jnp.uint32)
        params, rest = jax.pure_callback(draw, shapes, number, vmap_method="sequential")
        return params, TorchState(rest, jax.random.fold_in(key, 1) if trial.draws else None)

    def called(module: Any, tensors: Mapping[str, Any], inputs: Array, key: Any) -> tuple[Any, dict[str, Any]]:
        placed = trial.form.placed(inputs, jnp)
        held = environment.j2t_iso(jax.tree.map(jnp.asarray, dict(tensors)))
        with translated(environment, key):
            outputs = pytorch().func.functional_call(module, held, (environment.j2t_iso(placed),))
        return environment.t2j_iso(torch_trial.logits_of(outputs)), environment.t2j_iso(held)

    def apply(params: Any, state: TorchState, inputs: Array, mode: bool) -> tuple[Any, TorchState]:
        if not mode:
            return called(evaluation, {**params, **state.tensors}, inputs, None)[0], state
        key, now = (None, None) if state.key is None else jax.random.split(state.key)
        outputs, held = called(training, {**params, **state.tensors}, inputs, now)
        return outputs, TorchState({name: held[name] for name in state.tensors}, key)

    try:
        _compare(apply, trial, name)
    except VALUES_DECIDE as error:
        raise InputError(
            f"the model {name} decides by the values of its records what to compute (if, a loop, .item(), "
            "an index), which cannot be traced; compute all cases and choose with torch.where, "
            f"{ELSEWHERE}."
        ) from error
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the model {name} runs in PyTorch, but torchax cannot make a JAX function of it: {first_line(error)}. "
            "Keep tensors that are made outside forward in the module (register_buffer), replace operations that "
            f"torchax does not have, {ELSEWHERE}."
        ) from error

    def outputs(params: Any, state: TorchState, inputs: np.ndarray) -> np.ndarray:
        return torch_trial.in_pytorch(trial, {**params, **state.tensors}, inputs)

    saved = trial.saved_as
    unsaved = {place: values for place, values in trial.tensors.items() if place not in saved.values()}
    second = {again: first for again, first in saved.items() if again != first}
    origin = Origin("torch", outputs, unsaved, second)
    return PureModule(init, apply, trial.batch_coupled, trial.draws, trial.seeded, origin)


def _by_name(build: Callable[[], Any], fields: tuple[Field, ...]) -> Any:
    """Wraps the module that `build` returns, so that the arrays of a record are passed to it by name."""
    module = build()
    forward = module.forward

    def called(packed: Any) -> Any:
        return forward(**unpack_records(fields, packed, lambda part: part.to(pytorch().int32)))

    module.forward = called
    return module


def _sample(fields: tuple[Field, ...], width: int) -> np.ndarray:
    """Random records: where numbers are whole, 0 and 1, the first one 1, since a mask should let something through."""
    records = np.random.default_rng(torch_trial.SEED).random((torch_trial.RECORDS, width), dtype=np.float32)
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
            f"imported beside torch {pytorch().__version__}: {first_line(error)}. {INSTALL}, {ELSEWHERE}."
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


def _compare(apply: Callable[..., tuple[Any, TorchState]], trial: torch_trial.ModuleTrial, name: str) -> None:
    """Refuses a function whose outputs or gradient differ from PyTorch's on the records of the trial."""
    params, rest = trial.split(trial.tensors)
    state = TorchState(rest, jax.random.key(1) if trial.draws else None)

    def loss(params: Any, inputs: Array) -> tuple[Array, Any]:
        outputs, after = apply(params, state, inputs, not trial.draws)
        return jnp.mean(outputs * trial.directions), (outputs, after.tensors)

    jax.eval_shape(lambda params, inputs: apply(params, state, inputs, True), params, trial.inputs)
    with jax.default_matmul_precision("highest"):
        gradient, (outputs, after) = jax.jit(jax.grad(loss, has_aux=True))(params, trial.inputs)
    kinds = {
        "outputs": ({"outputs": outputs}, {"outputs": trial.outputs}),
        "gradient": (gradient, trial.gradient),
        "state after training": (after, {place: trial.after[place] for place in after}),
    }
    for kind, (ours, torch_values) in kinds.items():
        worst = _farthest(ours, torch_values)
        if worst:
            raise InputError(
                f"the model {name} does not do the same in JAX as in PyTorch: not the same {kind} ({worst}). torchax "
                "does not know torch.no_grad and some operations that change tensors in place: use .detach() and new "
                f"tensors there, {ELSEWHERE}."
            )


def _farthest(ours: Mapping[str, Any], torch_values: Mapping[str, np.ndarray]) -> str | None:
    """The array that differs most, if any differs by more than rounding."""
    whole = np.sqrt(sum(float(np.sum(np.square(array, dtype=np.float64))) for array in torch_values.values()))
    allowed = {name: AGREE * (np.linalg.norm(array) + whole) + 1e-6 for name, array in torch_values.items()}
    gaps = {name: float(np.linalg.norm(np.asarray(ours[name]) - array)) for name, array in torch_values.items()}
    wrong = [name for name, gap in gaps.items() if not gap <= allowed[name]]
    return max(wrong, key=lambda name: gaps[name] / allowed[name]) if wrong else None
