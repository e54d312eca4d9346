"""How a network's convolutions are computed: by many models that take a step together, and in loops on a CPU.

`vmap` of a convolution over its kernel is a grouped convolution, whose gradients are slow on many devices (jax issue
13800). So its outputs, the gradient of its inputs and that of its kernel each have another form, equal up to rounding:
`g`, grouped, as `vmap` has it; `t`, in turn, one model after another; or `p`, patches of the input written out, and one
batched product of matrices. A network's form is three letters for each of its different convolutions, in the order of
their first use: `ppp gtt` has two. `ensemble.batches` chooses it by measurement.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core
from jaxtyping import Array

from jaxaudit.errors import InputError

GROUPED, IN_TURN, PATCHES = "gtp"
LETTERS = (GROUPED, IN_TURN, PATCHES)
PARTS = 3
"""Of a convolution: outputs, gradient of the inputs, gradient of the kernel."""
PRIMITIVE = "conv_general_dilated"
UNROLLED = 16
"""The most models whose convolutions stand one after another in the program; more are looped over."""


class Convolution(NamedTuple):
    """What is the same for all models of one convolution: shapes of one model's arrays, and JAX's parameters."""

    inputs: tuple[int, ...]
    kernel: tuple[int, ...]
    dtype: Any
    params: tuple[tuple[str, Any], ...]

    @property
    def has_patches(self) -> bool:
        """Whether the form of patches is defined: neither dilated nor of several groups."""
        params = dict(self.params)
        dilation = {*params["lhs_dilation"], *params["rhs_dilation"]}
        return dilation <= {1} and params["feature_group_count"] == params["batch_group_count"] == 1

    @property
    def outputs(self) -> Any:
        """Shape and type of one model's outputs."""
        arrays = (jax.ShapeDtypeStruct(shape, self.dtype) for shape in (self.inputs, self.kernel))
        return jax.eval_shape(partial(_plain, self.params), *arrays)

    def patch_bytes(self) -> int:
        """The bytes of all patches of one model's minibatch."""
        features = self.kernel[dict(self.params)["dimension_numbers"].rhs_spec[0]]
        return self.outputs.size // features * (prod(self.kernel) // features) * jnp.dtype(self.dtype).itemsize


def convolutions_of(function: Callable[..., Any], *args: Any) -> list[Convolution]:
    """The different convolutions of a function at arguments of these shapes, in the order of their first use."""
    convolutions: dict[Convolution, None] = {}

    def visit(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            if equation.primitive.name == PRIMITIVE:
                convolutions[_described(equation, [variable.aval for variable in equation.invars])] = None
            elif inner := _inner(equation):
                visit(inner.jaxpr)

    visit(jax.make_jaxpr(function)(*args).jaxpr)
    return list(convolutions)


def parsed_form(form: str, convolutions: Sequence[Convolution]) -> dict[Convolution, str]:
    """The letters of each convolution: three a convolution, separated by blanks, or three for all."""
    words = form.split()
    if len(words) == 1:
        words *= len(convolutions)
    if not is_form(form) or len(words) != len(convolutions):
        raise InputError(
            f"the form of convolutions is three letters of {', '.join(LETTERS)} (its outputs, the gradient of its "
            f"inputs, that of its kernel) for each of {len(convolutions)} different ones, such as 'ppp gtt', or three "
            "for all."
        )
    letters = dict(zip(convolutions, words, strict=True))
    if any(PATCHES in word and not convolution.has_patches for convolution, word in letters.items()):
        raise InputError("a dilated convolution, or one of several groups, has no form by patches; give g or t for it.")
    return letters


def is_form(text: str) -> bool:
    """Whether a text is words of three letters of forms each.

    >>> is_form("ppp gtt"), is_form("ppx"), is_form("")
    (True, False, True)
    """
    return all(len(word) == PARTS and set(word) <= set(LETTERS) for word in text.split())


def with_form(function: Callable[..., Any], form: str) -> Callable[..., Any]:
    """The function with its convolutions computed in this form (`parsed_form`); it can be transformed like before."""

    def computed(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        flat = lambda *leaves: function(*jax.tree.unflatten(tree, leaves))  # noqa: E731
        letters_of = parsed_form(form, convolutions_of(flat, *leaves))
        closed, shapes = jax.make_jaxpr(flat, return_shape=True)(*leaves)

        def convolution_in_form(equation: Any, inputs: Array, kernel: Array) -> Array:
            convolution = _described(equation, [inputs, kernel])
            return convolve(letters_of[convolution], convolution.params, inputs, kernel)

        return jax.tree.unflatten(jax.tree.structure(shapes), _evaluated(closed, leaves, convolution_in_form))

    return computed


def loop_body(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as the body of a loop: on a CPU with every convolution's axes in the order batch, space, channels.

    XLA's CPU backend brings convolutions into this order outside of loops alone (jax issue 12868). In the body of one,
    another order, such as that of a kernel's gradient, takes 10 to 40 times as long. The results are equal up to
    rounding; without convolutions, or on another device, they are the function's own. Differentiate before, not after:
    a gradient has convolutions of its own. What `jax.checkpoint`, an inner loop or a branch computes stays as it is.
    """
    if jax.default_backend() != "cpu":
        return function

    def computed(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        flat = lambda *leaves: function(*jax.tree.unflatten(tree, leaves))  # noqa: E731
        closed, shapes = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        if _convolves(closed.jaxpr):
            outputs = _evaluated(closed, leaves, _channels_last)
        else:
            outputs = core.jaxpr_as_fun(closed)(*leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    return computed


def _convolves(jaxpr: Any) -> bool:
    inner_programs = filter(None, map(_inner, jaxpr.eqns))
    return any(equation.primitive.name == PRIMITIVE for equation in jaxpr.eqns) or any(
        _convolves(program.jaxpr) for program in inner_programs
    )


def _channels_last(equation: Any, inputs: Array, kernel: Array) -> Array:
    numbers, rank = equation.params["dimension_numbers"], inputs.ndim
    last = lax.ConvDimensionNumbers(
        (0, rank - 1, *range(1, rank - 1)), (rank - 1, rank - 2, *range(rank - 2)), (0, rank - 1, *range(1, rank - 1))
    )
    outputs = lax.conv_general_dilated_p.bind(
        inputs.transpose(_batch_space_channels(numbers.lhs_spec)),
        kernel.transpose(_space_channels(numbers.rhs_spec)),
        **{**equation.params, "dimension_numbers": last},
    )
    return outputs.transpose(np.argsort(_batch_space_channels(numbers.out_spec)))


def _batch_space_channels(spec: Sequence[int]) -> tuple[int, ...]:
    """The axes of inputs or outputs, of which JAX names batch and channels first."""
    batch, channels, *space = spec
    return batch, *space, channels


def _space_channels(spec: Sequence[int]) -> tuple[int, ...]:
    """The axes of a kernel: space, channels in, channels out."""
    channels_out, channels_in, *space = spec
    return *space, channels_in, channels_out


def convolve(letters: str, params: tuple[tuple[str, Any], ...], inputs: Array, kernel: Array) -> Array:
    """A convolution whose three parts are computed as these letters say."""
    return _convolution(letters, params)(inputs, kernel)


@lru_cache(maxsize=256)
def _convolution(letters: str, params: tuple[tuple[str, Any], ...]) -> Callable[[Array, Array], Array]:
    """One object for each form: JAX compiles a program for each."""

    def outputs(of: str, inputs: Array, kernel: Array) -> Array:
        return (_by_patches if of == PATCHES else _plain)(params, inputs, kernel)

    def inputs_gradient(of: str, inputs: Array, kernel: Array, gradient: Array) -> Array:
        return jax.vjp(lambda inputs: outputs(of, inputs, kernel), inputs)[1](gradient)[0]

    def kernel_gradient(of: str, inputs: Array, kernel: Array, gradient: Array) -> Array:
        return jax.vjp(lambda kernel: outputs(of, inputs, kernel), kernel)[1](gradient)[0]

    forward, to_inputs, to_kernel = (
        _in_turn(partial(part, of)) if of == IN_TURN else partial(part, of)
        for part, of in zip((outputs, inputs_gradient, kernel_gradient), letters, strict=True)
    )

    @jax.custom_vjp
    def convolution(inputs: Array, kernel: Array) -> Array:
        return forward(inputs, kernel)

    convolution.defvjp(
        lambda inputs, kernel: (forward(inputs, kernel), (inputs, kernel)),
        lambda operands, gradient: (to_inputs(*operands, gradient), to_kernel(*operands, gradient)),
    )
    return convolution


def _plain(params: tuple[tuple[str, Any], ...], inputs: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated_p.bind(inputs, kernel, **dict(params))


def _by_patches(items: tuple[tuple[str, Any], ...], inputs: Array, kernel: Array) -> Array:
    params = dict(items)
    numbers = params["dimension_numbers"]
    inputs = inputs.transpose(_batch_space_channels(numbers.lhs_spec))
    kernel = kernel.transpose(_space_channels(numbers.rhs_spec))
    strides, window = params["window_strides"], kernel.shape[:-2]
    inputs = lax.pad(
        inputs, jnp.zeros((), inputs.dtype), [(0, 0, 0), *((a, b, 0) for a, b in params["padding"]), (0, 0, 0)]
    )
    sizes = [
        (size - width) // stride + 1 for size, width, stride in zip(inputs.shape[1:-1], window, strides, strict=True)
    ]
    batch, channels = inputs.shape[0], inputs.shape[-1]

    def shifted(shift: Sequence[int]) -> Array:
        ends = [start + stride * (size - 1) + 1 for start, stride, size in zip(shift, strides, sizes, strict=True)]
        return lax.slice(inputs, (0, *shift, 0), (batch, *ends, channels), (1, *strides, 1))

    patches = jnp.concatenate([shifted(shift) for shift in product(*map(range, window))], axis=-1)
    rows = patches.reshape(-1, patches.shape[-1])
    out = lax.dot_general(
        rows,
        kernel.reshape(-1, kernel.shape[-1]),
        (((1,), (0,)), ((), ())),
        precision=params["precision"],
        preferred_element_type=params["preferred_element_type"],
    ).reshape(batch, *sizes, kernel.shape[-1])
    return out.transpose(np.argsort(_batch_space_channels(numbers.out_spec)))


def _in_turn(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function, which `vmap` calls once for each model."""
    alone = jax.custom_batching.custom_vmap(function)

    @alone.def_vmap
    def _(size: int, batched: Sequence[bool], *args: Array) -> tuple[Array, bool]:
        args = tuple(
            array if has else jnp.broadcast_to(array, (size, *array.shape))
            for array, has in zip(args, batched, strict=True)
        )
        if size <= UNROLLED:
            return jnp.stack([function(*(array[model] for array in args)) for model in range(size)]), True
        return lax.scan(lambda _, arrays: (None, function(*arrays)), None, args, unroll=UNROLLED)[1], True

    return alone


def _described(equation: Any, values: Sequence[Any]) -> Convolution:
    inputs, kernel = values
    return Convolution(inputs.shape, kernel.shape, inputs.dtype, tuple(sorted(equation.params.items())))


def _inner(equation: Any) -> Any:
    """The program within an operation that is only a call of one; None of any other."""
    names = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}
    return equation.params.get(names.get(equation.primitive.name))


def _evaluated(closed: Any, args: Sequence[Any], convolution: Callable[[Any, Array, Array], Array]) -> list[Any]:
    """The outputs of a program whose convolutions are computed by `convolution(equation, inputs, kernel)`."""
    values = dict(zip(map(id, closed.jaxpr.constvars), closed.consts, strict=True))
    values |= dict(zip(map(id, closed.jaxpr.invars), args, strict=True))

    def value_of(variable: Any) -> Any:
        return variable.val if isinstance(variable, core.Literal) else values[id(variable)]

    for equation in closed.jaxpr.eqns:
        inputs, inner = [value_of(variable) for variable in equation.invars], _inner(equation)
        if equation.primitive.name == PRIMITIVE:
            outputs: Any = [convolution(equation, *inputs)]
        elif inner:
            outputs = _evaluated(inner, inputs, convolution)
        else:
            with equation.ctx.manager:
                outputs = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(equation.params))
            outputs = outputs if equation.primitive.multiple_results else [outputs]
        values |= dict(zip(map(id, equation.outvars), outputs, strict=True))
    return [value_of(variable) for variable in closed.jaxpr.outvars]
