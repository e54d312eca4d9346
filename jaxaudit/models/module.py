"""The pure functions of a network, the framework that it is written in, and activations within it.

A network knows where it comes from (`PureModule.origin`), so `efficacy` can compare its outputs with those of its own
framework for the same records and weights: outputs further apart than rounding are refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jaxtyping import Array, Float, Real

from jaxaudit.errors import InputError, visible
from jaxaudit.randomness import OneKey

ModuleFactory = Callable[..., Any]
"""`factory(input_shape, classes, *, rngs)`, which returns a Flax or PyTorch module that maps `[n, *input_shape]`
to logits `[n, classes]`. Other parameters are matched by their names: see `plan_call`."""


WAYS_ON = (
    "judge such a model by a file of its outputs, or by a bank of shadow models that your own script trains (jaxaudit "
    "shadows plan)"
)
"""What is left for a network that has no pure functions here."""


TokenVectors = Float[Array, "n length width"]
"""What a layer says of each token of each record."""
WithState = tuple[Any, Any]
"""What was computed, and the module's state after it."""


@dataclass(frozen=True, eq=False)
class Origin:
    """The framework of a network: `flax.nnx`, `flax.linen` or `torch`.

    Attributes:
        outputs: `(params, state, inputs) -> outputs` by the framework in evaluation, unless that is `PureModule.apply`.
        unsaved: arrays of the state that the framework does not save, by name.
        second_names: of arrays that it saves under several names, from each further name to the one used here.
    """

    framework: str
    outputs: Callable[[Any, Any, np.ndarray], np.ndarray] | None = None
    unsaved: Mapping[str, np.ndarray] = field(default_factory=dict)
    second_names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Shared:
    """The arrays that all models of a network share and no training changes; `apply` takes them first."""

    arrays: Any
    apply: Callable[..., WithState]


@dataclass(frozen=True, eq=False)
class Head:
    """The two parts of a network of tokens: `vectors` `[n, length, width]` and the new state, as `PureModule.apply`;
    and `logits`, `(params, state, vectors [..., width]) -> [..., tokens]`, which may be computed of some positions.
    """

    vectors: Callable[[Any, Any, Any, bool], WithState]
    logits: Callable[[Any, Any, Any], Any]


class PureModule(NamedTuple):
    """A network as two pure functions.

    Attributes:
        init: `key -> (params, state)`. `params` are the trained arrays; `state` is everything else in the module
            (running statistics of batch normalisation, counters and keys of random layers). Both are pytrees.
        apply: `(params, state, inputs, training) -> (logits, new_state)`. With `training=False` the module is in
            evaluation mode, and neither draws random numbers nor changes its state.
        batch_coupled: whether in training one record's output depends on the other records of its batch, as with batch
            normalisation; a record of weight zero must then not be in the batch.
        draws: whether the module draws random numbers in training.
        seeded: whether the initial parameters depend on the key: not if the factory of an NNX module takes no `rngs`.
        arguments: of `made_by`, `pure_module`, for another process: its functions cannot be pickled.
        shared: the arrays that all models share. `apply` has them as constants, which a program that is compiled
            copies; of `having(arrays)` they are arguments.
        causal: whether the output at a position is of the tokens up to there alone, however long the record is.
        head: of a network of tokens, if known.
    """

    init: Callable[[OneKey], tuple[Any, Any]]
    apply: Callable[[Any, Any, Float[Array, "n ..."], bool], tuple[Float[Array, "n classes"], Any]]
    batch_coupled: bool
    draws: bool = False
    seeded: bool = True
    origin: Origin = Origin("jax")
    arguments: tuple[Any, ...] = ()
    shared: Shared | None = None
    causal: bool = False
    head: Head | None = None
    made_by: Callable[..., "PureModule"] | None = None

    def having(self, arrays: Any) -> "PureModule":
        """The same network with these arrays, which may be traced, in place of the shared ones."""
        return self if self.shared is None else self._replace(apply=partial(self.shared.apply, arrays))

    def __reduce__(self) -> tuple[Any, ...]:
        return (self.made_by, self.arguments) if self.made_by else (PureModule, tuple(self))


def abstract_key() -> Any:
    """A key without a value, of which the shapes of what it would make follow."""
    return jax.eval_shape(jax.random.key, 1)


def needed_inputs(jaxpr: Any) -> list[bool]:
    """Which inputs of a traced program its outputs depend on."""
    # By identity: a literal has no hash.
    needed = {id(variable) for variable in jaxpr.outvars}
    for equation in reversed(jaxpr.eqns):
        if any(id(variable) in needed for variable in equation.outvars):
            needed |= {id(variable) for variable in equation.invars}
    return [id(variable) in needed for variable in jaxpr.invars]


HiddenStates = Callable[[Any, Any], Any]
"""`hidden(params, inputs [n, length]) -> Float["n length width"]`: what a layer says of each token of each record."""


def hidden_states(net: PureModule, name: str | None = None) -> HiddenStates:
    """A function from parameters and records to the activations of this name, in evaluation mode.

    A network offers an activation by naming it, `hidden = checkpoint_name(hidden, "block 1")`, which changes nothing
    that it computes. The function computes nothing behind it; it can be jitted, vmapped and differentiated.

    Args:
        net: a network of tokens, without running statistics, such as `LanguageModelLearner.net`.
        name: of the activation; by default the middle one of those that the network names, the earlier of two.

    >>> from jaxaudit.models import GPT, pure_module
    >>> net = pure_module(partial(GPT, width=16), (4,), 8, of_tokens=True)
    >>> params, _ = jax.jit(net.init)(jax.random.key(1))
    >>> jax.jit(hidden_states(net))(params, np.zeros((3, 4), int)).shape
    (3, 4, 16)
    """

    def outputs(params: Any, inputs: Any) -> Any:
        # What the state holds of a network without running statistics is not used in evaluation mode, nor is this key.
        _, state = net.init(jax.random.key(0))
        if jnp.issubdtype(inputs.dtype, jnp.integer):
            inputs = jnp.where(inputs < 0, ~inputs, inputs)
        return net.apply(params, state, inputs, False)[0]

    def hidden(params: Any, inputs: Real[Array, "n length"]) -> TokenVectors:
        closed = jax.make_jaxpr(outputs)(params, inputs)
        equations = closed.jaxpr.eqns
        name_places = [at for at, equation in enumerate(equations) if equation.primitive.name == "name"]
        place_of_name = {equations[at].params["name"]: at for at in name_places}
        layer_name = [*place_of_name][(len(place_of_name) - 1) // 2] if name is None and place_of_name else name
        if net.batch_coupled or layer_name not in place_of_name:
            has = ", ".join(map(visible, place_of_name)) or "none"
            raise InputError(
                f"the network has no activation {visible(str(name))!r} to unlearn by (named ones: {has}); name one of "
                "these, or in a network of your own, without batch normalisation, call "
                "`jax.ad_checkpoint.checkpoint_name(hidden, NAME)` on it."
            )
        at = place_of_name[layer_name]
        debug = closed.jaxpr.debug_info._replace(result_paths=("hidden",))
        until = closed.jaxpr.replace(eqns=equations[: at + 1], outvars=equations[at].outvars, debug_info=debug)
        return eval_jaxpr(until, closed.consts, *jax.tree.leaves((params, inputs)))[0]

    return hidden
