"""Converts a Flax, PyTorch or Keras module to two pure functions; all arrays but the parameters are explicit state."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from jaxtyping import Array, Key

from jaxaudit.data.records import Field, unpack_records
from jaxaudit.errors import InputError, first_line
from jaxaudit.models.adapters import Adapters
from jaxaudit.models.factory import FORMS, FactoryCall, plan_call
from jaxaudit.models.gpt import GPT
from jaxaudit.models.keras_model import built_by_keras, is_keras_model, keras_functions
from jaxaudit.models.linen import evaluation_draws, linen_functions
from jaxaudit.models.module import Head, ModuleFactory, Origin, PureModule
from jaxaudit.models.torch_module import is_torch_module, torch_functions

UNFIT = (
    *(TypeError, ValueError, LookupError, ArithmeticError),
    *(AttributeError, AssertionError, NotImplementedError),
)
"""Exceptions that are raised by a network for other records, or by an object that cannot be called like a network."""


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

    if isinstance(factory, Adapters):
        net, name = factory(), str(factory)
        _check_outputs(net, name, input_shape, classes, True)
        return net._replace(arguments=(factory, input_shape, classes, None, True))
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
            f"the model factory {name} could not build a network: {first_line(error)}. It was called as "
            f"{call.text if call else name}; does it fit records of shape {input_shape}? ({FORMS})"
        ) from error
    try:
        if of_tokens and not isinstance(built, nnx.Module):
            raise InputError(f"the model {name} is no flax.nnx.Module, as models of tokens are here; write it as one.")
        if isinstance(built, linen.Module):
            _refuse_fields(fields, name)
            net = linen_functions(built, input_shape)
        elif call is None or isinstance(built, nnx.Module):
            net = _nnx_functions(built, build, fields)._replace(seeded=call is None or call.seeded)
        elif is_keras_model(built):
            _refuse_fields(fields, name)
            net = keras_functions(built, name, input_shape)
        else:
            net = torch_functions(partial(call.build, factory, None), name, input_shape, fields)
        _check_outputs(net, name, input_shape, classes, of_tokens)
    except InputError:
        raise
    except UNFIT as error:
        raise InputError(
            f"the model {name} does not accept records of shape {input_shape}: {first_line(error)}"
            + (f" (it was called as {call.text})" if call else "")
        ) from error
    return net._replace(arguments=(factory, input_shape, classes, fields, of_tokens))


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


def _called(factory: Any, name: str, call: FactoryCall, key: Key[Array, ""]) -> Any:
    with built_by_keras():
        module = call.build(factory, nnx.Rngs(key))
    if not isinstance(module, nnx.Module | linen.Module) and not is_torch_module(module) and not is_keras_model(module):
        raise InputError(
            f"the model factory {name} returned a {type(module).__name__}, not a flax.nnx.Module, flax.linen.Module, "
            "torch.nn.Module or keras.Model."
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

    def call(method: str, params: Any, state: Any, inputs: Array, training: bool) -> tuple[Any, Any]:
        net: Any = nnx.merge(train_graph if training else eval_graph, params, state, copy=True)
        by_name = unpack_records(fields, inputs, lambda part: part.astype(jnp.int32)) if fields else {}
        function = getattr(net, method)
        outputs = function(**by_name) if fields else function(inputs)
        return (outputs, nnx.state(net, nnx.Not(nnx.Param))) if training else (outputs, state)

    def logits(params: Any, state: Any, vectors: Array) -> Any:
        return call("logits", params, state, vectors, False)[0]

    coupled, draws = (bool(jax.tree.leaves(leaves)) for leaves in (coupling, random))
    # A class of GPTs with a call of its own may compute anything.
    ours = isinstance(module, GPT) and type(module).__call__ is GPT.__call__
    head = Head(partial(call, "vectors"), logits) if ours else None
    apply = partial(call, "__call__")
    return PureModule(init, apply, coupled, draws, origin=Origin("flax.nnx"), causal=ours, head=head)


def _check_outputs(net: PureModule, name: str, input_shape: tuple[int, ...], classes: int, of_tokens: bool) -> None:
    params, state = jax.eval_shape(net.init, _abstract_key())
    inputs = jax.ShapeDtypeStruct((2, *input_shape), np.int32 if of_tokens else np.float32)
    outputs = jax.eval_shape(lambda params, state, x: net.apply(params, state, x, False)[0], params, state, inputs)
    shape = getattr(outputs, "shape", None)
    expected = (2, *input_shape, classes) if of_tokens else (2, classes)
    if shape != expected:
        outputs_text = f"a {type(outputs).__name__}" if shape is None else f"outputs of shape {shape}"
        raise InputError(
            f"the model {name} maps 2 records to {outputs_text}; it must return logits of shape "
            f"{expected}, one column per {'token' if of_tokens else 'class'}."
        )
    if net.draws and isinstance(state, nnx.State):
        program = jax.make_jaxpr(lambda state, params, x: net.apply(params, state, x, False)[0])
        is_needed = _needed(program(state, params, inputs).jaxpr)
        variables = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, nnx.Variable))
        places = [place for place, leaf in enumerate(variables) if isinstance(leaf, nnx.RngState)]
        if any(is_needed[place] for place in places):
            raise InputError(evaluation_draws(name))


def _needed(jaxpr: Any) -> list[bool]:
    """Which inputs of a program its outputs depend on."""
    # By identity: a literal has no hash.
    needed = {id(variable) for variable in jaxpr.outvars}
    for equation in reversed(jaxpr.eqns):
        if any(id(variable) in needed for variable in equation.outvars):
            needed |= {id(variable) for variable in equation.invars}
    return [id(variable) in needed for variable in jaxpr.invars]
