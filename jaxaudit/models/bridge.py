"""Converts a Flax, PyTorch or Keras module to two pure functions; all arrays but the parameters are explicit state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from jaxtyping import Array, Float, Key

from jaxaudit.data.records import Field, unpacked
from jaxaudit.errors import InputError
from jaxaudit.models.factory import FORMS, Call, plan_call
from jaxaudit.models.keras_model import built_by_keras, is_keras_model, keras_functions
from jaxaudit.models.linen import evaluation_draws, linen_functions
from jaxaudit.models.torch_module import is_torch_module, torch_functions

ModuleFactory = Callable[..., Any]
"""`factory(input_shape, classes, *, rngs)`, which returns a Flax, PyTorch or Keras module that maps `[n, *input_shape]`
to logits `[n, classes]`. Other parameters are matched by their names: see `plan_call`."""


UNFIT = (
    *(TypeError, ValueError, LookupError, ArithmeticError),
    *(AttributeError, AssertionError, NotImplementedError),
)
"""Exceptions that are raised by a network for other records, or by an object that cannot be called like a network."""


@dataclass(frozen=True, eq=False)
class Origin:
    """The framework in which a network is written.

    Attributes:
        framework: the framework's name: `flax.nnx`, `flax.linen`, `torch` or `keras`.
        outputs: `(params, state, inputs) -> outputs`, computed by the framework itself in evaluation mode; None if
            `PureModule.apply` does that.
        unsaved: arrays of the state that the framework does not save, by name.
        second_names: for arrays that the framework saves under several names: from each further name to the name used
            in `unsaved` and in the parameters.
        read: reads a file in a format that only this framework can read; None without such a format.
    """

    framework: str
    outputs: Callable[[Any, Any, np.ndarray], np.ndarray] | None = None
    unsaved: Mapping[str, np.ndarray] = field(default_factory=dict)
    second_names: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[Path], dict[str, np.ndarray]] | None = None


@dataclass(frozen=True, eq=False)
class Arguments:
    """The arguments of `pure_module`."""

    factory: ModuleFactory
    input_shape: tuple[int, ...]
    classes: int
    fields: tuple[Field, ...] | None = None
    of_tokens: bool = False


class PureModule(NamedTuple):
    """A network as two pure functions.

    Attributes:
        init: `key -> (params, state)`. `params` are the trained arrays; `state` is everything else in the
            module (running statistics of batch normalisation, counters and keys of random layers). Both are pytrees.
        apply: `(params, state, inputs, training) -> (logits, new_state)`. With `training=False` the module is in
            evaluation mode, and neither draws random numbers nor changes its state.
        batch_coupled: whether in training one record's output depends on the other records of its batch, as with
            batch normalisation; a record of weight zero must then not be in the batch.
        draws: whether the module draws random numbers in training.
        seeded: whether the initial parameters depend on the key. They do not for an NNX module whose factory takes no
            `rngs`: every model then starts from the same weights.
        origin: the framework in which the network is written.
        arguments: the arguments of `pure_module`, from which another process makes it again: its functions cannot be
            pickled.
    """

    init: Callable[[Key[Array, ""]], tuple[Any, Any]]
    apply: Callable[[Any, Any, Float[Array, "n ..."], bool], tuple[Float[Array, "n classes"], Any]]
    batch_coupled: bool
    draws: bool = False
    seeded: bool = True
    origin: Origin = Origin("jax")
    arguments: Arguments | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.arguments is None:
            return PureModule, tuple(self)
        made_of = self.arguments
        return pure_module, tuple(getattr(made_of, each.name) for each in dataclass_fields(made_of))


def pure_module(
    factory: ModuleFactory,
    input_shape: tuple[int, ...],
    classes: int,
    fields: tuple[Field, ...] | None = None,
    of_tokens: bool = False,
) -> PureModule:
    """The pure functions of the module that `factory(input_shape, classes, rngs=...)` builds.

    An NNX module is split once (`nnx.split`); after that, `init` and `apply` use only pytrees, so they can be jitted,
    vmapped and differentiated like any function of arrays. A Linen module may be built by the factory, or given in its
    place; see `linen_functions`. A PyTorch module is built by its class or the factory; see `torch_functions`.

    Args:
        factory: see `ModuleFactory`.
        input_shape: the shape of one record.
        classes: the number of the network's outputs.
        fields: the arrays of a record, if it consists of several (`Records.inputs`): the module gets them by name, as
            `module(input_ids=..., attention_mask=...)`. For NNX and PyTorch only.
        of_tokens: whether a record is a sequence of tokens, `int32[length]`, and the logits are
            `[n, length, classes]`, of the next token at each position. For NNX only.

    Raises:
        InputError: the factory cannot be called, builds something else, draws random numbers in evaluation, its
            outputs are not `[n, classes]` logits, or a PyTorch module cannot be a JAX function.

    >>> import jax, jax.numpy as jnp
    >>> from jaxaudit.models import MLP
    >>> net = pure_module(MLP, (4,), 3)
    >>> params, state = net.init(jax.random.key(1))
    >>> net.apply(params, state, jnp.ones((2, 4)), False)[0].shape
    (2, 3)
    """

    whole = isinstance(factory, linen.Module)
    name = getattr(factory, "__qualname__", type(factory).__name__ if whole else repr(factory))
    if isinstance(factory, nnx.Module) or is_torch_module(factory) or is_keras_model(factory):
        raise InputError(
            f"the model {type(factory).__name__} is already built, so every model would start from its weights; name "
            "its class, or a function that builds it."
        )
    call = None if whole else plan_call(factory, name, input_shape, classes)

    def build(key: Key[Array, ""]) -> Any:
        return _called(factory, name, call, key) if call else factory

    try:
        built = factory if whole else _seen_from(build) or nnx.eval_shape(build, _abstract_key())
    except InputError:
        raise
    except UNFIT as error:
        raise InputError(
            f"the model factory {name} could not build a network: {_first_line(error)}. It was called as "
            f"{call.text if call else name}; does it fit records of shape {input_shape}? ({FORMS})"
        ) from error
    try:
        if isinstance(built, linen.Module):
            _refuse_fields(fields, name)
            net = PureModule(*linen_functions(built, input_shape), origin=Origin("flax.linen"))
        elif of_tokens and not isinstance(built, nnx.Module):
            raise InputError(f"the model {name} is no flax.nnx.Module, as models of tokens are here; write it as one.")
        elif call is None or isinstance(built, nnx.Module):
            net = _nnx_functions(built, build, fields)._replace(seeded=call is None or call.seeded)
        elif is_keras_model(built):
            _refuse_fields(fields, name)
            net = _keras_functions(built, name, input_shape)
        else:
            net = _torch_functions(partial(call.made, factory, None), name, input_shape, fields)
        _check_outputs(net, name, input_shape, classes, of_tokens)
    except InputError:
        raise
    except UNFIT as error:
        raise InputError(
            f"the model {name} does not accept records of shape {input_shape}: {_first_line(error)}"
            + (f" (it was called as {call.text})" if call else "")
        ) from error
    return net._replace(arguments=Arguments(factory, input_shape, classes, fields, of_tokens))


def _refuse_fields(fields: tuple[Field, ...] | None, name: str) -> None:
    if fields is not None:
        raise InputError(
            f"the records consist of {len(fields)} arrays ({', '.join(field.name for field in fields)}), which Flax "
            f"NNX and PyTorch modules get by name, and the model {name} is neither; give one array named x."
        )


def _seen_from(build: Callable[[Key[Array, ""]], Any]) -> Any:
    """The module that the factory builds, found by a trial call, if it is not an NNX module; otherwise None."""
    built = []
    jax.eval_shape(lambda key: built.append(build(key)), _abstract_key())
    return None if isinstance(built[0], nnx.Module) else built[0]


def _abstract_key() -> Any:
    return jax.eval_shape(jax.random.key, 1)


def _called(factory: Any, name: str, call: Call, key: Key[Array, ""]) -> Any:
    with built_by_keras():
        module = call.made(factory, nnx.Rngs(key))
    if not isinstance(module, nnx.Module | linen.Module) and not is_torch_module(module) and not is_keras_model(module):
        raise InputError(
            f"the model factory {name} returned a {type(module).__name__}, not a flax.nnx.Module or flax.linen.Module, "
            "nor a torch.nn.Module or keras.Model."
        )
    return module


def _nnx_functions(
    module: nnx.Module, build: Callable[[Key[Array, ""]], nnx.Module], fields: tuple[Field, ...] | None
) -> PureModule:
    module.train()
    train_graph, _, _ = nnx.split(module, nnx.Param, ...)
    module.eval()
    eval_graph, _, rest = nnx.split(module, nnx.Param, ...)
    random, coupling = nnx.split_state(rest, nnx.RngState, ...)

    def init(key: Key[Array, ""]) -> tuple[Any, Any]:
        _, params, state = nnx.split(build(key), nnx.Param, ...)
        return params, state

    def apply(params: Any, state: Any, inputs: Array, training: bool) -> tuple[Any, Any]:
        net: Any = nnx.merge(train_graph if training else eval_graph, params, state, copy=True)
        by_name = unpacked(fields, inputs, lambda part: part.astype(jnp.int32)) if fields else {}
        logits = net(**by_name) if fields else net(inputs)
        return (logits, nnx.state(net, nnx.Not(nnx.Param))) if training else (logits, state)

    coupled, draws = (bool(jax.tree.leaves(each)) for each in (coupling, random))
    return PureModule(init, apply, coupled, draws, origin=Origin("flax.nnx"))


def _keras_functions(model: Any, name: str, input_shape: tuple[int, ...]) -> PureModule:
    found = keras_functions(model, name, input_shape)
    origin = Origin("keras", found.outputs, read=found.read)
    return PureModule(found.init, found.apply, False, found.draws, False, origin)


def _torch_functions(
    build: Callable[[], Any], name: str, input_shape: tuple[int, ...], fields: tuple[Field, ...] | None
) -> PureModule:
    found = torch_functions(build, name, input_shape, fields)
    origin = Origin("torch", found.outputs, found.unsaved, found.second_names)
    return PureModule(found.init, found.apply, found.batch_coupled, found.draws, found.seeded, origin)


def _check_outputs(net: PureModule, name: str, input_shape: tuple[int, ...], classes: int, of_tokens: bool) -> None:
    params, state = jax.eval_shape(net.init, _abstract_key())
    inputs = jax.ShapeDtypeStruct((2, *input_shape), np.int32 if of_tokens else np.float32)
    outputs = jax.eval_shape(lambda params, state, x: net.apply(params, state, x, False)[0], params, state, inputs)
    shape = getattr(outputs, "shape", None)
    expected = (2, *input_shape, classes) if of_tokens else (2, classes)
    if shape != expected:
        found = f"a {type(outputs).__name__}" if shape is None else f"outputs of shape {shape}"
        raise InputError(
            f"the model {name} maps 2 records to {found}; it must return logits of shape "
            f"{expected}, one column per {'token' if of_tokens else 'class'}."
        )
    if net.draws and isinstance(state, nnx.State):
        program = jax.make_jaxpr(lambda state, params, x: net.apply(params, state, x, False)[0])
        wanted = _needed(program(state, params, inputs).jaxpr)
        places = [place for place, leaf in enumerate(_variables(state)) if isinstance(leaf, nnx.RngState)]
        if any(wanted[place] for place in places):
            raise InputError(evaluation_draws(name))


def _variables(state: Any) -> list[Any]:
    """The variables that hold the leaves, in the order of the leaves."""
    return jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, nnx.Variable))


def _needed(jaxpr: Any) -> list[bool]:
    """Which inputs of a program its outputs depend on."""
    # By identity: a literal has no hash.
    needed = {id(variable) for variable in jaxpr.outvars}
    for equation in reversed(jaxpr.eqns):
        if any(id(variable) in needed for variable in equation.outvars):
            needed |= {id(variable) for variable in equation.invars}
    return [id(variable) in needed for variable in jaxpr.invars]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
