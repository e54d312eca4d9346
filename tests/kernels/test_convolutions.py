"""Forms of convolutions: each equals the plain one but for rounding, for outputs and both gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax import lax

from jaxaudit.ensemble import Execution, fit_many
from jaxaudit.errors import InputError
from jaxaudit.kernels.convolutions import UNROLLED, convolutions_of, in_form, loop_body, parsed_form
from jaxaudit.learners import network

SHAPES = {
    "same size": ((2, 6, 5, 3), (3, 3, 3, 4), {"padding": "SAME"}, ("NHWC", "HWIO", "NHWC")),
    "stride, padded unevenly": (
        (2, 7, 6, 3),
        (3, 2, 3, 4),
        {"padding": ((1, 2), (0, 1)), "window_strides": (2, 3)},
        ("NHWC", "HWIO", "NHWC"),
    ),
    "channels first": ((2, 3, 6, 5), (4, 3, 3, 3), {"padding": "VALID"}, ("NCHW", "OIHW", "NCHW")),
    "one pixel": ((2, 6, 5, 3), (1, 1, 3, 4), {"padding": "VALID", "window_strides": (2, 2)}, ("NHWC", "HWIO", "NHWC")),
    "a sequence": ((2, 9, 3), (4, 3, 5), {"padding": "SAME"}, ("NHC", "HIO", "NHC")),
}


def _convolution(case: str):
    inputs, kernel, options, numbers = SHAPES[case]
    rank = len(inputs) - 2
    options = {"window_strides": (1,) * rank, **options}
    random = np.random.default_rng(0)
    arrays = [jnp.asarray(random.normal(size=(3, *shape)), jnp.float32) for shape in (inputs, kernel)]
    return partial(lax.conv_general_dilated, **options, dimension_numbers=numbers), arrays


def _all_parts(functions, inputs, kernel):
    """Outputs and gradients of every model, by each function: one program."""

    def one(inputs, kernel):
        forms = [jax.vjp(function, inputs, kernel) for function in functions]
        return [(outputs, *back(jnp.cos(outputs))) for outputs, back in forms]

    return jax.jit(jax.vmap(one))(inputs, kernel)


# A letter each for outputs, the gradient of the inputs and that of the kernel.
@pytest.mark.parametrize("case", SHAPES)
def test_each_part_in_each_form_is_the_plain_convolution(case):
    function, arrays = _convolution(case)
    forms = ["ggg", "ttt", "ppp", "gtp"]
    plain, *others = _all_parts([function, *(in_form(function, form) for form in forms)], *arrays)
    for form, parts in zip(forms, others, strict=True):
        for mine, other in zip(parts, plain, strict=True):
            np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-5, err_msg=form)


@pytest.mark.parametrize("models", [1, 3])
@pytest.mark.parametrize("case", SHAPES)
def test_the_body_of_a_loop_computes_the_same_with_channels_last(case, models):
    """Outputs and both gradients, of one model or of several, whose convolutions are grouped; checked is also that XLA
    is given no other order of axes: in a loop on a CPU that would be slow."""
    function, arrays = _convolution(case)
    inputs, kernel = (array[:models] for array in arrays)

    def one(inputs, kernel):
        outputs, back = jax.vjp(function, inputs, kernel)
        return outputs, *back(jnp.cos(outputs))

    whole = jax.vmap(one) if models > 1 else lambda inputs, kernel: one(inputs[0], kernel[0])
    body = loop_body(whole)
    for mine, other in zip(body(inputs, kernel), whole(inputs, kernel), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-5)
    rank = kernel.ndim - 1
    last, of_kernel = (0, rank - 1, *range(1, rank - 1)), (rank - 1, rank - 2, *range(rank - 2))
    found = {tuple(dict(each.params)["dimension_numbers"]) for each in convolutions_of(body, inputs, kernel)}
    assert found == {(last, of_kernel, last)}


def test_the_body_of_a_loop_without_convolutions_is_the_function():
    def step(index, state):
        return {"sum": state["sum"] + index * jnp.ones(3)}

    start = {"sum": jnp.zeros(3)}
    plain = jax.make_jaxpr(lambda state: step(2, state))(start)
    assert str(jax.make_jaxpr(lambda state: loop_body(step)(2, state))(start)) == str(plain)


def test_more_models_than_are_unrolled_are_looped_over():
    function, (inputs, kernel) = _convolution("same size")
    many = [jnp.concatenate([array] * (UNROLLED // 3 + 1)) * 1.5 for array in (inputs, kernel)]
    plain, ours = _all_parts([function, in_form(function, "ttt")], *many)
    for mine, other in zip(ours, plain, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-5)


def test_a_form_has_three_letters_for_each_different_convolution():
    function, (inputs, kernel) = _convolution("same size")
    (convolution,) = convolutions_of(lambda x, w: function(function(x, w)[..., :3], w), inputs[0], kernel[0])
    assert parsed_form("gtp", [convolution]) == {convolution: "gtp"}
    for wrong in ("gt", "gtx", "ggg ppp", ""):
        with pytest.raises(InputError):
            parsed_form(wrong, [convolution])


def test_a_dilated_or_grouped_convolution_has_no_patches():
    inputs, kernel = jnp.ones((2, 9, 9, 4)), jnp.ones((3, 3, 2, 4))
    grouped = partial(
        lax.conv_general_dilated,
        window_strides=(1, 1),
        padding="SAME",
        rhs_dilation=(2, 2),
        feature_group_count=2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    with pytest.raises(InputError):
        in_form(grouped, "ppp")(inputs, kernel)
    np.testing.assert_allclose(in_form(grouped, "ttt")(inputs, kernel), grouped(inputs, kernel))


class Two(nnx.Module):
    """Of two convolutions that differ."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.first, self.norm = nnx.Conv(3, 4, (3, 3), rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.second, self.output = nnx.Conv(4, 4, (3, 3), strides=2, rngs=rngs), nnx.Linear(4, classes, rngs=rngs)

    def __call__(self, inputs):
        return self.output(self.second(nnx.relu(self.norm(self.first(inputs)))).mean(axis=(1, 2)))


def test_models_trained_in_another_form_differ_by_rounding():
    random = np.random.default_rng(1)
    inputs, labels = random.normal(size=(24, 8, 8, 3)).astype(np.float32), np.arange(24, dtype=np.int32) % 3
    learner = network(Two, (8, 8, 3), 3, optimizer=optax.sgd(0.05), epochs=1, batch_size=8)
    keys, rows = jax.random.split(jax.random.key(1), 2), np.arange(24) < np.array([[16], [20]])
    plain = fit_many(keys, rows, inputs, labels, learner, execution=Execution(models_per_batch=1))
    assert len(learner.convolutions()) == 2
    other = fit_many(keys, rows, inputs, labels, learner.in_form("ptg gpt"), execution=Execution(models_per_batch=1))
    for mine, theirs in zip(jax.tree.leaves(other), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
