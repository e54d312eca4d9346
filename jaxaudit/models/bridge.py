"""From a Flax NNX module to two pure functions, with everything that is not a parameter carried in the open."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Key

from jaxaudit.errors import InputError

ModuleFactory = Callable[..., nnx.Module]
"""`factory(input_shape, classes, *, rngs) -> module`, which maps `[n, *input_shape]` to logits `[n, classes]`."""


UNFIT = (
    *(TypeError, ValueError, LookupError, ArithmeticError),
    *(AttributeError, AssertionError, NotImplementedError),
)
"""What a network raises that was written for other records, or not for being called as one."""


class PureModule(NamedTuple):
    """A network as two pure functions.

    Attributes:
        init: `key -> (params, state)`. `params` are the trained arrays; `state` is all the rest the module keeps
            (running statistics of batch normalisation, counters and keys of random layers). Both are pytrees.
        apply: `(params, state, inputs, training) -> (logits, new_state)`. With `training=False` the module is in
            evaluation mode, and neither draws random numbers nor changes its state.
        batch_coupled: whether in training one record's output depends on the other records of its batch, as with
            batch normalisation: then a record of weight zero must not be in the batch at all.
    """

    init: Callable[[Key[Array, ""]], tuple[Any, Any]]
    apply: Callable[[Any, Any, Float[Array, "n ..."], bool], tuple[Float[Array, "n classes"], Any]]
    batch_coupled: bool


def pure_module(factory: ModuleFactory, input_shape: tuple[int, ...], classes: int) -> PureModule:
    """The pure functions of the module that `factory(input_shape, classes, rngs=...)` builds.

    The module is defined once and split once (`nnx.split`); after that only pytrees travel, so `init` and `apply`
    can be jitted, vmapped and differentiated like any function of arrays.

    Raises:
        InputError: where the factory cannot be called so, builds something else, or its outputs are not
            `[n, classes]` logits.

    >>> import jax, jax.numpy as jnp
    >>> from jaxaudit.models import MLP
    >>> net = pure_module(MLP, (4,), 3)
    >>> params, state = net.init(jax.random.key(1))
    >>> net.apply(params, state, jnp.ones((2, 4)), False)[0].shape
    (2, 3)
    """

    name = getattr(factory, "__qualname__", repr(factory))

    def build(key: Key[Array, ""]) -> nnx.Module:
        module = factory(input_shape, classes, rngs=nnx.Rngs(key))
        if not isinstance(module, nnx.Module):
            raise InputError(
                f"the model factory {name} returned a {type(module).__name__}, not a flax.nnx.Module; wrap a Linen "
                "module in flax.nnx.bridge.ToNNX."
            )
        return module

    abstract_key = jax.eval_shape(jax.random.key, 1)
    try:
        module = nnx.eval_shape(build, abstract_key)
    except InputError:
        raise
    except UNFIT as error:
        raise InputError(
            f"the model factory {name} could not build a network: {_first_line(error)}. It is called as "
            f"{name}(input_shape={input_shape}, classes={classes}, rngs=...); does it suit records of that shape?"
        ) from error
    module.train()
    train_graph, _, _ = nnx.split(module, nnx.Param, ...)
    module.eval()
    eval_graph, _, rest = nnx.split(module, nnx.Param, ...)
    _, coupling = nnx.split_state(rest, nnx.RngState, ...)

    def init(key: Key[Array, ""]) -> tuple[Any, Any]:
        _, params, state = nnx.split(build(key), nnx.Param, ...)
        return params, state

    def apply(params: Any, state: Any, inputs: Array, training: bool) -> tuple[Any, Any]:
        net: Any = nnx.merge(train_graph if training else eval_graph, params, state, copy=True)
        logits = net(inputs)
        return (logits, nnx.state(net, nnx.Not(nnx.Param))) if training else (logits, state)

    net = PureModule(init, apply, batch_coupled=bool(jax.tree.leaves(coupling)))
    _check_outputs(net, name, input_shape, classes)
    return net


def _check_outputs(net: PureModule, name: str, input_shape: tuple[int, ...], classes: int) -> None:
    inputs = jax.ShapeDtypeStruct((2, *input_shape), np.float32)

    def forward(key: Any, x: Any) -> Any:
        params, state = net.init(key)
        return net.apply(params, state, x, False)[0]

    try:
        outputs = jax.eval_shape(forward, jax.eval_shape(jax.random.key, 1), inputs)
    except UNFIT as error:
        raise InputError(
            f"the model {name} does not accept records of shape {input_shape}: {_first_line(error)}"
        ) from error
    shape = getattr(outputs, "shape", None)
    if shape != (2, classes):
        found = f"a {type(outputs).__name__}" if shape is None else f"outputs of shape {shape}"
        raise InputError(
            f"the model {name} maps 2 records to {found}; it must return logits of shape "
            f"(2, {classes}), one column a class."
        )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
