"""Finds a PyTorch module's properties by calling it in PyTorch on a few random records."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from jaxaudit.data.records import LARGEST_WHOLE
from jaxaudit.errors import InputError, first_line
from jaxaudit.models.pretrained import pytorch

RECORDS = 6
SEED = 1
WANTED = {1: "(channels, length)", 2: "(channels, height, width)", 3: "(channels, depth, height, width)"}
Channels = Literal["last", "first", "one"]
GENERATOR = Lock()
"""Held while PyTorch's global random generator is in use here."""


class Form(NamedTuple):
    """The form of the records that a module accepts.

    Attributes:
        channels: `last` leaves records as they are; `first` moves their last axis to the front; `one` adds an axis of
            one channel there, for gray images without channels.
        whole: whether numbers are passed as int32, such as indices of tokens.
    """

    channels: Channels
    whole: bool

    def placed(self, inputs: Any, numbers: Any) -> Any:
        """The records in this form; `numbers` is the module `numpy` or `jax.numpy`."""
        moved = numbers.moveaxis(inputs, -1, 1) if self.channels == "first" else inputs
        moved = moved[:, None] if self.channels == "one" else moved
        return moved.astype(numbers.int32) if self.whole else moved


class ModuleTrial(NamedTuple):
    """A module's properties, and its outputs on random records.

    Attributes:
        another: builds the module again.
        saved_as: for each tensor in `state_dict`, its name in `tensors`, which are all of the module's.
        trained: the names of parameters that require a gradient.
        draws: whether the module draws random numbers in training.
        batch_coupled: whether in training one record's output depends on the other records.
        seeded: whether the initial weights depend on the seed.
        inputs: the random records, in the audit's form.
        directions: the factors of the outputs in the loss, which is the mean of their products.
        outputs: in training mode, or in evaluation mode if the module draws random numbers.
        after: all tensors after these calls.
    """

    another: Callable[[], Any]
    tensors: dict[str, np.ndarray]
    saved_as: dict[str, str]
    trained: tuple[str, ...]
    form: Form
    draws: bool
    batch_coupled: bool
    seeded: bool
    inputs: np.ndarray
    directions: np.ndarray
    outputs: np.ndarray
    gradient: dict[str, np.ndarray]
    after: dict[str, np.ndarray]

    def split(self, tensors: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Splits tensors into the trained ones, and the rest."""
        trained = {name: tensors[name] for name in self.trained}
        return trained, {name: tensor for name, tensor in tensors.items() if name not in trained}


@contextmanager
def own_generator(seed: int) -> Iterator[None]:
    """A context in which PyTorch's CPU generator has this seed; its state is restored at the end."""
    torch = pytorch()
    with GENERATOR:
        before = torch.get_rng_state()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(before)


def tensors_of(module: Any) -> dict[str, np.ndarray]:
    """The module's parameters, buffers and plain tensors by name, as arrays; a tensor with two names occurs once."""
    return {
        name: np.array(values := tensor.detach().numpy(), jax.dtypes.canonicalize_dtype(values.dtype))
        for name, tensor in _named(module).items()
    }


def in_pytorch(trial: ModuleTrial, tensors: Mapping[str, Any], inputs: np.ndarray) -> np.ndarray:
    """The outputs of the module with these tensors in evaluation mode, computed by PyTorch."""
    torch = pytorch()
    module = trial.another().eval()
    with torch.no_grad():
        for name, tensor in _named(module).items():
            tensor.copy_(torch.from_numpy(np.array(tensors[name])))
        if trial.form.whole and ((inputs != np.floor(inputs)) | (np.abs(inputs) >= LARGEST_WHOLE)).any():
            raise InputError(
                "the network takes whole numbers, such as the indices of tokens, and the records are none: give the "
                f"numbers that it was trained on, smaller than {LARGEST_WHOLE:,}."
            )
        placed = _placed(np.array(inputs, np.float32), trial.form)
        try:
            return np.asarray(logits_of(module(torch.from_numpy(placed))).numpy())
        except (IndexError, RuntimeError) as error:
            raise InputError(
                f"the network does not accept these records in PyTorch: {first_line(error)}; is a token outside its "
                "vocabulary?"
            ) from error


def _saved_as(module: Any) -> dict[str, str]:
    names = {id(tensor): name for name, tensor in _named(module).items()}
    return {
        name: names[id(tensor)] for name, tensor in module.state_dict(keep_vars=True).items() if id(tensor) in names
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


def try_module(
    build: Callable[[], Any], name: str, input_shape: tuple[int, ...], sample: np.ndarray | None
) -> ModuleTrial:
    """Tries the module that `build` returns on `sample`, or on random numbers; refuses as
    `torch_module.torch_functions`.
    """

    def another(seed: int = SEED) -> Any:
        with own_generator(seed):
            return build()

    module = another()
    _check_module(module, another, name)
    tensors = tensors_of(module)
    again, other = tensors_of(another()), tensors_of(another(SEED + 1))
    if any(not np.array_equal(array, again[place], equal_nan=True) for place, array in tensors.items()):
        raise InputError(
            f"the initial weights of the model {name} are not determined by PyTorch's seed, so no run can be repeated; "
            "draw them with torch, not with numpy or random, and leave no torch.empty unfilled."
        )
    seeded = any(not np.array_equal(array, other[place]) for place, array in tensors.items())
    random = np.random.default_rng(SEED).random((RECORDS, *input_shape), dtype=np.float32)
    inputs = random if sample is None else sample
    form = _form(another, inputs, name)
    inputs = np.floor(2 * inputs) if form.whole else inputs
    placed = _placed(inputs, form)
    draws = _draws(another().train(), placed)
    if _draws(another().eval(), placed):
        raise InputError(
            f"the model {name} draws random numbers in evaluation, so its outputs are not determined; switch them off "
            "there, such as by training=self.training in torch.nn.functional.dropout."
        )
    if _couples(another, False, placed):
        raise InputError(
            f"in evaluation an output of the model {name} depends on the other records of its batch, so a record has "
            "no output of its own; let batch normalisation keep running statistics (track_running_stats=True)."
        )
    outputs, directions, gradient, after = _answers(module.train(not draws), placed, name)
    if not np.isfinite(outputs).all():
        raise InputError(
            f"the outputs of the model {name} are not finite for its initial weights and records in [0, 1]; is a "
            "division by zero, a logarithm or an unfilled tensor in it?"
        )
    changed = any(not np.array_equal(array, after[place]) for place, array in tensors.items())
    batch_norm = pytorch().nn.modules.batchnorm._BatchNorm
    running = any(isinstance(part, batch_norm) for part in module.modules())
    coupled = running or changed or (not draws and _couples(another, True, placed))
    return ModuleTrial(
        another,
        tensors,
        _saved_as(another()),
        tuple(gradient),
        form,
        draws,
        coupled,
        seeded,
        inputs,
        directions,
        outputs,
        gradient,
        after,
    )


def _check_module(module: Any, another: Callable[[], Any], name: str) -> None:
    lazy = [place for place, parameter in module.named_parameters() if pytorch().nn.parameter.is_lazy(parameter)]
    if lazy:
        raise InputError(
            f"the model {name} has lazy layers ({lazy[0]}), whose shapes are unknown before the first batch; give the "
            "number of inputs, such as Linear(in_features, ...) in place of LazyLinear."
        )
    if another() is module:
        raise InputError(f"the model factory {name} returns the same module at every call; build a new one in it.")
    other = {str(parameter.dtype) for parameter in module.parameters() if str(parameter.dtype) != "torch.float32"}
    if other:
        raise InputError(
            f"the model {name} has parameters of type {', '.join(sorted(other))}; models are trained in torch.float32 "
            "here: call .float() where it is built."
        )
    away = {str(parameter.device) for parameter in module.parameters() if parameter.device.type != "cpu"}
    if away:
        raise InputError(f"the model {name} puts parameters on {', '.join(sorted(away))}; build it on the CPU.")


def _form(another: Callable[[], Any], inputs: np.ndarray, name: str) -> Form:
    """Finds the form of records that a module accepts.

    Channels of images are moved first, and those of series if there are convolutions, unless the module needs records
    as they are. Gray images without channels get an axis of one if there are convolutions of images. A module that
    accepts only integers gets integers.
    """
    convolutions = pytorch().nn.modules.conv._ConvNd
    kinds = [len(part.kernel_size) for part in another().modules() if isinstance(part, convolutions)]
    usual = inputs.ndim == 4 or inputs.ndim - 2 in kinds
    faults: list[str] = []
    places: tuple[Channels, ...] = ("first", "last") if usual else ("last", "first")
    places = places if inputs.ndim > 2 else ("last",)
    if inputs.ndim - 1 in kinds:
        # Tried first, because PyTorch would treat a batch of records without channels as one record with channels.
        places = "one", *places
    for form in [Form(place_of_batch, whole) for whole in (False, True) for place_of_batch in places]:
        try:
            outputs = _outputs(another().eval(), _placed(np.floor(2 * inputs) if form.whole else inputs, form))
        except Exception as error:  # whatever a network raises at records of another shape
            faults.append(first_line(error))
            continue
        if not isinstance(outputs, pytorch().Tensor):
            raise InputError(f"the model {name} returns a {type(outputs).__name__}; it must return the logits alone.")
        return form
    needed_shapes = sorted(WANTED[axes] for axes in set(kinds) & WANTED.keys())
    how = (
        f"; its convolutions take records of shape {' or '.join(needed_shapes)}: reshape yours" if needed_shapes else ""
    )
    raise InputError(f"the model {name} does not accept records of shape {inputs.shape[1:]}: {faults[0]}{how}")


def _placed(inputs: np.ndarray, form: Form) -> np.ndarray:
    return np.ascontiguousarray(form.placed(inputs, np))


def _outputs(module: Any, inputs: np.ndarray) -> Any:
    torch = pytorch()
    with torch.no_grad(), own_generator(SEED):
        return logits_of(module(torch.from_numpy(inputs)))


def logits_of(outputs: Any) -> Any:
    """The logits in a module's output: the output itself, or its attribute `logits`, as in `transformers`."""
    return getattr(outputs, "logits", outputs)


def _draws(module: Any, inputs: np.ndarray) -> bool:
    torch = pytorch()
    with torch.no_grad(), own_generator(SEED):
        before = torch.get_rng_state()
        module(torch.from_numpy(inputs))
        return not torch.equal(before, torch.get_rng_state())


def _couples(another: Callable[[], Any], training: bool, inputs: np.ndarray) -> bool:
    half = len(inputs) // 2
    whole, part = (_outputs(another().train(training), some) for some in (inputs, inputs[:half]))
    return not np.allclose(whole[:half].numpy(), part.numpy(), rtol=1e-3, atol=1e-4, equal_nan=True)


def _answers(
    module: Any, inputs: np.ndarray, name: str
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    torch = pytorch()
    names = {place: tensor for place, tensor in _named(module).items() if tensor.requires_grad}
    with own_generator(SEED):
        outputs = logits_of(module(torch.from_numpy(inputs)))
        if not outputs.requires_grad:
            raise InputError(
                f"the outputs of the model {name} depend on no parameter that requires a gradient, so it cannot be "
                "trained; is all of it frozen, or below torch.no_grad?"
            )
        directions = np.random.default_rng(SEED).standard_normal(outputs.shape).astype(np.float32)
        (outputs * torch.from_numpy(directions)).mean().backward()
    gradient = {
        place: np.zeros(tensor.shape, np.float32) if tensor.grad is None else tensor.grad.numpy()
        for place, tensor in names.items()
    }
    return outputs.detach().numpy(), directions, gradient, tensors_of(module)
