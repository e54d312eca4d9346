"""Activations within a network, by the names that it gives them with `jax.ad_checkpoint.checkpoint_name`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jaxtyping import Array, Float, Real

from jaxaudit.errors import InputError, visible
from jaxaudit.models.module import PureModule

HiddenStates = Callable[[Any, Any], Any]
"""`hidden(params, inputs [n, length]) -> Float["n length width"]`: what a layer says of each token of each record."""


def hidden_states(net: PureModule, name: str | None = None) -> HiddenStates:
    """A function from parameters and records to the activations of this name, in evaluation mode.

    A network offers an activation by naming it, `hidden = checkpoint_name(hidden, "block 1")`, which changes nothing
    that it computes. `GPT` names what each of its blocks gives: `block 1`, `block 2`. The function computes what the
    activation needs and nothing behind it; it can be jitted, vmapped and differentiated.

    Args:
        net: a network of tokens, without running statistics, such as `LanguageModelLearner.net`.
        name: of the activation; by default the middle one of those that the network names, the earlier of two.

    Raises:
        InputError: from the function: the network names no activation so, or has running statistics.

    >>> from jaxaudit.models import GPT, pure_module
    >>> net = pure_module(GPT, (4,), 8, of_tokens=True)
    >>> params, _ = net.init(jax.random.key(1))
    >>> hidden_states(net)(params, jnp.zeros((3, 4), int)).shape
    (3, 4, 64)
    """

    def outputs(params: Any, inputs: Any) -> Any:
        # What the state holds of a network without running statistics is not used in evaluation mode, nor is this key.
        _, state = net.init(jax.random.key(0))
        if jnp.issubdtype(inputs.dtype, jnp.integer):
            inputs = jnp.where(inputs < 0, ~inputs, inputs)
        return net.apply(params, state, inputs, False)[0]

    def hidden(params: Any, inputs: Real[Array, "n length"]) -> Float[Array, "n length width"]:
        closed = jax.make_jaxpr(outputs)(params, inputs)
        equations = closed.jaxpr.eqns
        named = [at for at, each in enumerate(equations) if each.primitive.name == "name"]
        found = {equations[at].params["name"]: at for at in named}
        wanted = [*found][(len(found) - 1) // 2] if name is None and found else name
        if net.batch_coupled or wanted not in found:
            has = ", ".join(map(visible, found)) or "none"
            raise InputError(
                f"the network has no activation {visible(str(name))!r} to unlearn by (named ones: {has}); name one of "
                "these, or in a network of your own, without batch normalisation, call "
                "`jax.ad_checkpoint.checkpoint_name(hidden, NAME)` on it."
            )
        at = found[wanted]
        debug = closed.jaxpr.debug_info._replace(result_paths=("hidden",))
        until = closed.jaxpr.replace(eqns=equations[: at + 1], outvars=equations[at].outvars, debug_info=debug)
        return eval_jaxpr(until, closed.consts, *jax.tree.leaves((params, inputs)))[0]

    return hidden
