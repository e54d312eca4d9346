"""Forms of convolutions: each equals the plain one but for rounding, for outputs and both gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax import lax
from support.tiny_learners import CLASSES, Convolved, records

from jaxaudit.errors import InputError
from jaxaudit.kernels.convolutions import UNROLLED, convolutions_of, loop_body, parsed_form, with_form
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
    arrays = [random.normal(size=(3, *shape)).astype(np.float32) for shape in (inputs, kernel)]
    return partial(lax.conv_general_dilated, **options, dimension_numbers=numbers), arrays


def _with_gradients(function):
    """Outputs and both gradients of one model."""

    def one(inputs, kernel):
        outputs, back = jax.vjp(function, inputs, kernel)
        return outputs, *back(jnp.cos(outputs))

    return one


def _all_parts(functions, inputs, kernel):
    """Outputs and gradients of every model, by each function: one program."""
    return jax.jit(jax.vmap(lambda *model: [_with_gradients(each)(*model) for each in functions]))(inputs, kernel)


def _close(parts, plain, said=""):
    for mine, other in zip(parts, plain, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-5, err_msg=said)


# A letter each for outputs, the gradient of the inputs and that of the kernel.
@pytest.mark.parametrize("case", SHAPES)
def test_each_part_in_each_form_is_the_plain_convolution(case):
    function, arrays = _convolution(case)
    forms = ["ggg", "ttt", "ppp", "gtp"]
    plain, *others = _all_parts([function, *(with_form(function, form) for form in forms)], *arrays)
    for form, parts in zip(forms, others, strict=True):
        _close(parts, plain, form)


@pytest.mark.parametrize("case", SHAPES)
def test_the_body_of_a_loop_computes_the_same_with_channels_last(case):
    """One model's, and several models', whose convolutions are grouped; checked is also that XLA is given no other
    order of axes: in a loop on a CPU that would be slow."""
    function, (inputs, kernel) = _convolution(case)
    one, many = _with_gradients(function), jax.vmap(_with_gradients(function))

    @jax.jit
    def both(inputs, kernel):
        return many(inputs, kernel), loop_body(many)(inputs, kernel), loop_body(one)(inputs[0], kernel[0])

    plain, of_many, of_one = both(inputs, kernel)
    _close(of_many, plain)
    _close(of_one, [part[0] for part in plain])
    rank = kernel.ndim - 1
    last, of_kernel = (0, rank - 1, *range(1, rank - 1)), (rank - 1, rank - 2, *range(rank - 2))
    for body, given in ((loop_body(many), (inputs, kernel)), (loop_body(one), (inputs[0], kernel[0]))):
        found = {tuple(dict(each.params)["dimension_numbers"]) for each in convolutions_of(body, *given)}
        assert found == {(last, of_kernel, last)}


def test_the_body_of_a_loop_without_convolutions_is_the_function():
    def step(index, state):
        return {"sum": state["sum"] + index * jnp.ones(3)}

    start = {"sum": jnp.zeros(3)}
    plain = jax.make_jaxpr(lambda state: step(2, state))(start)
    assert str(jax.make_jaxpr(lambda state: loop_body(step)(2, state))(start)) == str(plain)


def test_more_models_than_are_unrolled_are_looped_over():
    function, (inputs, kernel) = _convolution("same size")
    many = [np.concatenate([array] * (UNROLLED // 3 + 1)) * 1.5 for array in (inputs, kernel)]
    plain, ours = _all_parts([function, with_form(function, "ttt")], *many)
    _close(ours, plain)


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
        with_form(grouped, "ppp")(inputs, kernel)
    np.testing.assert_allclose(with_form(grouped, "ttt")(inputs, kernel), grouped(inputs, kernel))


class Two(Convolved):
    """Of two convolutions that differ."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        super().__init__(input_shape, classes, rngs=rngs)
        self.second = nnx.Conv(2, 2, (3, 3), rngs=rngs)

    def __call__(self, inputs):
        return self.output(self.second(jnp.tanh(self.conv(inputs))).reshape(len(inputs), -1))


def test_a_learner_in_another_form_has_the_same_gradient_but_for_rounding():
    learner = network(Two, (5, 5, 1), CLASSES, optimizer=optax.sgd(0.05), epochs=1, batch_size=8)
    assert len(learner.convolutions()) == 2
    inputs, labels = records(8, 5, 5, 1)

    @jax.jit
    def gradients(key, inputs, labels):
        state, forms = learner.init(key), (learner, learner.with_form("ptg gpt"))
        return [each.gradient(state, inputs, labels, jnp.ones(8))[0] for each in forms]

    plain, ours = gradients(jax.random.key(1), inputs, labels)
    _close(jax.tree.leaves(ours), jax.tree.leaves(plain))
