"""Converts a Flax or PyTorch module to two pure functions; all arrays but the parameters are explicit state."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from flax.errors import InvalidRngError
from jaxtyping import Array

from jaxaudit.data.records import Field, unpack_records
from jaxaudit.errors import InputError, first_line
from jaxaudit.models.causal import Adapters
from jaxaudit.models.module import (
    WAYS_ON,
    Head,
    ModuleFactory,
    Origin,
    PureModule,
    WithState,
    abstract_key,
    needed_inputs,
)
from jaxaudit.models.networks import GPT
from jaxaudit.models.torch_module import is_torch_module, torch_functions
from jaxaudit.randomness import OneKey

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

    `init` and `apply` can be jitted, vmapped and differentiated. A Linen module may be built by the factory, or given
    in its place. A PyTorch module is built by its class or the factory.

    Args:
        factory: see `ModuleFactory`.
        fields: the arrays of a record, if it consists of several (`Records.inputs`): the module gets them by name, as
            `module(input_ids=..., attention_mask=...)`. For NNX and PyTorch only.
        of_tokens: whether a record is a sequence of tokens, `int32[length]`, and the logits are `[n, length, classes]`,
            of the next token at each position. For NNX only.

    Raises:
        InputError: the factory cannot be called, builds something else, draws random numbers in evaluation, its outputs
            are not `[n, classes]` logits, or a PyTorch module cannot be a JAX function.

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
        return net._replace(made_by=pure_module, arguments=(factory, input_shape, classes, None, True))
    whole = isinstance(factory, linen.Module)
    name = getattr(factory, "__qualname__", type(factory).__name__ if whole else repr(factory))
    if isinstance(factory, nnx.Module) or is_torch_module(factory):
        raise InputError(
            f"the model {type(factory).__name__} is already built, so every model would start from its weights; name "
            "its class, or a function that builds it."
        )
    call = None

    def build(key: OneKey) -> Any:
        return _called(factory, name, call, key) if call else factory

    try:
        call = None if whole else plan_call(factory, name, input_shape, classes)
        built = factory if whole else _seen_from(build) or nnx.eval_shape(build, abstract_key())
    except InputError:
        raise
    except UNFIT as error:
        raise InputError(
            f"the model factory {name} could not build a network: {first_line(error)}. It was called as "
            f"{call.text if call else name}; does it fit records of shape {input_shape}? ({FORMS})"
        ) from error
    try:
        by_name = fields is not None and not is_torch_module(built)
        if (of_tokens or by_name) and not isinstance(built, nnx.Module):
            names = ", ".join(field.name for field in fields or ())
            raise InputError(
                f"the model {name} is a {type(built).__name__}, but models of tokens are flax.nnx.Modules here, and "
                f"those of records of several arrays ({names or 'none'}), which they get by name, these or PyTorch "
                "modules: write it as one, or give one array named x."
            )
        if isinstance(built, linen.Module):
            net = linen_functions(built, input_shape)
        elif call is None or isinstance(built, nnx.Module):
            net = _nnx_functions(built, build, fields)._replace(seeded=call is None or call.seeded)
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
    return net._replace(made_by=pure_module, arguments=(factory, input_shape, classes, fields, of_tokens))


def _seen_from(build: Callable[[OneKey], Any]) -> Any:
    """The module that the factory builds, found by a trial call, if it is not an NNX module; otherwise None."""
    built = []
    jax.eval_shape(lambda key: built.append(build(key)), abstract_key())
    return None if isinstance(built[0], nnx.Module) else built[0]


def _called(factory: Any, name: str, call: "FactoryCall", key: OneKey) -> Any:
    module = call.build(factory, nnx.Rngs(key))
    if not isinstance(module, nnx.Module | linen.Module) and not is_torch_module(module):
        raise InputError(
            f"the model factory {name} returned a {type(module).__name__}, not a flax.nnx.Module, flax.linen.Module "
            f"or torch.nn.Module; {WAYS_ON}."
        )
    return module


def _nnx_functions(
    module: nnx.Module, build: Callable[[OneKey], nnx.Module], fields: tuple[Field, ...] | None
) -> PureModule:
    module.train()
    train_graph, _, _ = nnx.split(module, nnx.Param, ...)
    module.eval()
    eval_graph, _, rest = nnx.split(module, nnx.Param, ...)
    random, coupling = nnx.split_state(rest, nnx.RngState, ...)

    def init(key: OneKey) -> tuple[Any, Any]:
        _, params, state = nnx.split(build(key), nnx.Param, ...)
        return params, state

    def call(method: str, params: Any, state: Any, inputs: Array, training: bool) -> WithState:
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
    params, state = jax.eval_shape(net.init, abstract_key())
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
        is_needed = needed_inputs(program(state, params, inputs).jaxpr)
        variables = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, nnx.Variable))
        places = [place for place, leaf in enumerate(variables) if isinstance(leaf, nnx.RngState)]
        if any(is_needed[place] for place in places):
            raise InputError(evaluation_draws(name))


SHAPE, CLASSES, RNGS = "input_shape", ("classes", "num_classes"), "rngs"
"""The parameters of a factory. Others keep their default."""
FORMS = (
    "it is called by name, as factory(input_shape, classes, rngs=...), with those of these parameters that it has; "
    "num_classes is another name of classes"
)


class FactoryCall(NamedTuple):
    """A call of a factory: its arguments by name; whether it takes random numbers; and the call as text."""

    keywords: dict[str, Any]
    seeded: bool
    text: str

    def build(self, factory: Any, rngs: Any) -> Any:
        return factory(**self.keywords, **({RNGS: rngs} if self.seeded else {}))


def plan_call(factory: Any, name: str, input_shape: tuple[int, ...], classes: int) -> FactoryCall:
    """The call of `factory` (a function, a class of modules, or a `functools.partial`) for records of this shape, by
    the names of its parameters; an unknown one without a default is refused.

    >>> def net(num_classes, width=64, *, rngs): ...
    >>> plan_call(net, "net", (28, 28, 1), 10).text
    'net(num_classes=10, rngs=...)'
    """
    values_by_name = {RNGS: None, SHAPE: input_shape, **dict.fromkeys(CLASSES, classes)}
    parameters = _parameters(factory)
    open_kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    named_parameters = [parameter for parameter in parameters if parameter.kind not in open_kinds]
    needed_parameters = [parameter for parameter in named_parameters if parameter.default is parameter.empty]
    unknown = [
        parameter.name
        for parameter in needed_parameters
        if parameter.name not in values_by_name or parameter.kind is parameter.POSITIONAL_ONLY
    ]
    if unknown:
        raise InputError(
            f"the model factory {name} has the parameters "
            f"({', '.join(parameter.name for parameter in named_parameters)}), of which "
            f"{', '.join(unknown)} are unknown or cannot be given by name: {FORMS}. Give the others defaults, or write "
            "a function that does."
        )
    filled_names = {parameter.name for parameter in named_parameters} & values_by_name.keys()
    keywords = {key: value for key, value in values_by_name.items() if key in filled_names - {RNGS}}
    seeded = RNGS in filled_names
    words = [f"{key}={value}" for key, value in keywords.items()] + [f"{RNGS}=..."] * seeded
    return FactoryCall(keywords, seeded, f"{name}({', '.join(words)})")


def _parameters(factory: Any) -> list[inspect.Parameter]:
    if isinstance(factory, partial):
        left = _parameters(factory.func)[len(factory.args) :]
        return [part.replace(default=None) if part.name in factory.keywords else part for part in left]
    if not isinstance(factory, type):
        return list(inspect.signature(factory).parameters.values())
    # Not of the class itself: NNX makes instances by a function of the metaclass, which takes anything.
    if factory.__init__ is object.__init__:
        return []
    hidden = ("parent", "name") if issubclass(factory, linen.Module) else ()
    init_parameters = list(inspect.signature(factory.__init__).parameters.values())[1:]
    return [parameter for parameter in init_parameters if parameter.name not in hidden]


PARAMS = "params"
TRAINING, EVALUATION = ("train", "training", "is_training"), ("deterministic", "use_running_average")


class LinenState(NamedTuple):
    """A Linen module's variables but the parameters, and the key of its random layers in training, if any."""

    collections: dict[str, Any]
    key: Any


def linen_functions(module: Any, input_shape: tuple[int, ...]) -> PureModule:
    """The pure functions of a Linen module, whose random streams in training follow from the state's key. What says the
    mode (`TRAINING`, `EVALUATION`) is set; any other argument of `__call__` must have a default.
    """
    name = type(module).__name__
    modes = _modes(module, name)
    blank = jnp.zeros((1, *input_shape), jnp.float32)

    def start(key: OneKey) -> tuple[Any, dict[str, Any]]:
        collections = dict(linen.meta.unbox(module.init({PARAMS: key}, blank, **modes(False))))
        return collections.pop(PARAMS, {}), collections

    def evaluate(params: Any, collections: dict[str, Any], inputs: Array) -> Any:
        return module.apply({PARAMS: params, **collections}, inputs, **modes(False))

    params, collections = jax.eval_shape(start, abstract_key())
    inputs = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
    try:
        jax.eval_shape(evaluate, params, collections, inputs)
    except InvalidRngError as error:
        raise InputError(evaluation_draws(name)) from error
    kept = list(collections)

    def train(params: Any, collections: dict[str, Any], key: Any, inputs: Array) -> tuple[Any, dict[str, Any]]:
        rngs = None if key is None else {PARAMS: key}
        return module.apply({PARAMS: params, **collections}, inputs, rngs=rngs, mutable=kept, **modes(True))

    try:
        jax.eval_shape(lambda params, kept, inputs: train(params, kept, None, inputs), params, collections, inputs)
        draws = False
    except InvalidRngError:
        draws = True

    def init(key: OneKey) -> tuple[Any, LinenState]:
        params, collections = start(key)
        return params, LinenState(collections, jax.random.fold_in(key, 1) if draws else None)

    def apply(params: Any, state: LinenState, inputs: Array, training: bool) -> tuple[Any, LinenState]:
        if not training:
            return evaluate(params, state.collections, inputs), state
        key, now = (None, None) if state.key is None else jax.random.split(state.key)
        logits, changed = train(params, state.collections, now, inputs)
        return logits, LinenState({**state.collections, **changed}, key)

    return PureModule(init, apply, bool(jax.tree.leaves(collections)), draws, origin=Origin("flax.linen"))


def evaluation_draws(name: str) -> str:
    """The error message for a model that draws random numbers in evaluation mode."""
    return (
        f"the model {name} draws random numbers in evaluation, so its outputs are not determined; switch them off "
        "there, such as by deterministic=True for flax.nnx.Dropout and flax.linen.Dropout."
    )


def _modes(module: Any, name: str) -> Callable[[bool], dict[str, Any]]:
    parameters = list(inspect.signature(type(module).__call__).parameters.values())[2:]
    names = [parameter.name for parameter in parameters]
    for parameter in parameters:
        is_keyword = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if is_keyword and parameter.default is parameter.empty and parameter.name not in TRAINING + EVALUATION:
            raise InputError(
                f"the model {name} needs an unknown argument {parameter.name!r}; known ones are "
                f"{', '.join(TRAINING + EVALUATION)}. Give it a default."
            )
    return lambda training: {
        mode_name: training == (mode_name in TRAINING) for mode_name in TRAINING + EVALUATION if mode_name in names
    }
