"""Data augmentation: random changes of the images in a minibatch, drawn anew in every step and for each image."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxaudit.errors import InputError, first_line

Augmentation = Callable[[Key[Array, ""], Float[Array, "batch ..."]], Float[Array, "batch ..."]]
"""`augmentation(key, inputs) -> inputs` of the same shape: a pure function that changes each record independently."""

PADDING = 1 / 8
"""Padding of `crop` as a share of the side: 4 pixels of 32, as for CIFAR (He et al. 2016, section 4.2)."""
HOLE = 1 / 2
"""Side of `cutout`'s square as a share of the image's: 16 pixels of 32, as for CIFAR-10 (DeVries & Taylor 2017)."""
NOISE = 0.05
"""Standard deviation of `noise`, for pixels in [0, 1]."""


def flip(key: Key[Array, ""], inputs: Float[Array, "n h w c"]) -> Float[Array, "n h w c"]:
    """Mirrors each image with probability 1/2, exchanging left and right."""
    mirrored = jax.random.bernoulli(key, 0.5, (len(inputs),))
    return jnp.where(mirrored[:, None, None, None], inputs[:, :, ::-1], inputs)


def crop(key: Key[Array, ""], inputs: Float[Array, "n h w c"]) -> Float[Array, "n h w c"]:
    """Pads each image with zeros by an eighth of its side (at least 1) and cuts out a random window of its old size."""
    sides = inputs.shape[1:3]
    high, wide = (max(1, round(PADDING * side)) for side in sides)
    padded = jnp.pad(inputs, ((0, 0), (high, high), (wide, wide), (0, 0)))
    corners = jax.random.randint(key, (len(inputs), 2), 0, 2 * jnp.array([high, wide]) + 1)

    def window(image: Array, corner: Array) -> Array:
        return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), (*sides, image.shape[2]))

    return jax.vmap(window)(padded, corners)


def cutout(key: Key[Array, ""], inputs: Float[Array, "n h w c"]) -> Float[Array, "n h w c"]:
    """Sets a square of half the side around a random pixel of each image to 0; it may reach beyond the image."""
    centres = jax.random.randint(key, (len(inputs), 2), 0, jnp.array(inputs.shape[1:3]))

    def inside(axis: int) -> Array:
        side = inputs.shape[1 + axis]
        size = max(1, round(HOLE * side))
        away = jnp.arange(side) - (centres[:, axis, None] - size // 2)
        return (away >= 0) & (away < size)

    hole = inside(0)[:, :, None] & inside(1)[:, None, :]
    return jnp.where(hole[..., None], 0, inputs)


def noise(key: Key[Array, ""], inputs: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """Adds independent normal noise of standard deviation 0.05 to each number."""
    return inputs + NOISE * jax.random.normal(key, inputs.shape, inputs.dtype)


AUGMENTATIONS: dict[str, Augmentation] = {"flip": flip, "crop": crop, "cutout": cutout, "noise": noise}
"""The augmentations by name, for images `[n, height, width, channels]` with pixels in [0, 1]."""


def augmented(augment: tuple[Augmentation, ...], key: Key[Array, ""], inputs: Any) -> Any:
    """Applies all augmentations in order, each with a random key of its own."""
    for number, one in enumerate(augment):
        inputs = one(jax.random.fold_in(key, number), inputs)
    return inputs


def check_augmentations(augment: tuple[Augmentation, ...], input_shape: tuple[int, ...]) -> None:
    """Refuses augmentations that do not fit records of this shape.

    Raises:
        InputError: an augmentation needs images and the records are not, or one changes the shape or the type.
    """
    images = set(AUGMENTATIONS.values())
    batch = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
    key = jax.eval_shape(jax.random.key, 1)
    for one in augment:
        name = getattr(one, "__name__", repr(one))
        if one in images and len(input_shape) != 3:
            raise InputError(
                f"the augmentation {name} changes images, but the records are of shape {input_shape}, not height x "
                "width x channels; leave `augment` out, or name a function of your own."
            )
        try:
            augmented = jax.eval_shape(one, key, batch)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise InputError(
                f"the augmentation {name} failed on 2 records of shape {input_shape}: {first_line(error)}; it is "
                f"called as {name}(key, inputs)."
            ) from error
        if (getattr(augmented, "shape", None), getattr(augmented, "dtype", None)) != (batch.shape, batch.dtype):
            raise InputError(
                f"the augmentation {name} makes {_said(augmented)} of {_said(batch)}; it must return inputs of the "
                "same shape and type."
            )


def _said(shape_struct: Any) -> str:
    shape, dtype = getattr(shape_struct, "shape", None), getattr(shape_struct, "dtype", None)
    return f"a {type(shape_struct).__name__}" if shape is None else f"{dtype} of shape {shape}"
