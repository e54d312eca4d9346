"""Random changes of a minibatch's images, made anew in every step; each image is changed by itself."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxaudit.errors import InputError

Augmentation = Callable[[Key[Array, ""], Float[Array, "batch ..."]], Float[Array, "batch ..."]]
"""`augmentation(key, inputs) -> inputs` of the same shape; a pure function that treats every record by itself."""

PADDING = 1 / 8
"""Of the side: 4 pixels of 32, as for CIFAR (He et al. 2016, section 4.2)."""
HOLE = 1 / 2
"""Of the side: 16 pixels of 32, as for CIFAR-10 (DeVries & Taylor 2017)."""
NOISE = 0.05
"""Standard deviation, for pixels in [0, 1]."""


def flip(key: Key[Array, ""], inputs: Float[Array, "n h w c"]) -> Float[Array, "n h w c"]:
    """Every image, or with probability 1/2 its mirror image, left and right exchanged."""
    mirrored = jax.random.bernoulli(key, 0.5, (len(inputs),))
    return jnp.where(mirrored[:, None, None, None], inputs[:, :, ::-1], inputs)


def crop(key: Key[Array, ""], inputs: Float[Array, "n h w c"]) -> Float[Array, "n h w c"]:
    """A random window of every image's own size, after zeros were put around it: an eighth of the side, at least 1."""
    sides = inputs.shape[1:3]
    high, wide = (max(1, round(PADDING * side)) for side in sides)
    padded = jnp.pad(inputs, ((0, 0), (high, high), (wide, wide), (0, 0)))
    corners = jax.random.randint(key, (len(inputs), 2), 0, 2 * jnp.array([high, wide]) + 1)

    def window(image: Array, corner: Array) -> Array:
        return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), (*sides, image.shape[2]))

    return jax.vmap(window)(padded, corners)


def cutout(key: Key[Array, ""], inputs: Float[Array, "n h w c"]) -> Float[Array, "n h w c"]:
    """Every image with zeros in a square of half its side around a random pixel, which may reach beyond the image."""
    centres = jax.random.randint(key, (len(inputs), 2), 0, jnp.array(inputs.shape[1:3]))

    def inside(axis: int) -> Array:
        side = inputs.shape[1 + axis]
        size = max(1, round(HOLE * side))
        away = jnp.arange(side) - (centres[:, axis, None] - size // 2)
        return (away >= 0) & (away < size)

    hole = inside(0)[:, :, None] & inside(1)[:, None, :]
    return jnp.where(hole[..., None], 0, inputs)


def noise(key: Key[Array, ""], inputs: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """Every image plus normal noise of standard deviation 0.05 on each number."""
    return inputs + NOISE * jax.random.normal(key, inputs.shape, inputs.dtype)


AUGMENTATIONS: dict[str, Augmentation] = {"flip": flip, "crop": crop, "cutout": cutout, "noise": noise}
"""By name, for images `[n, height, width, channels]` with pixels in [0, 1]."""


def augmented(augment: tuple[Augmentation, ...], key: Key[Array, ""], inputs: Any) -> Any:
    """The inputs after every augmentation in turn, each with a key of its own."""
    for number, one in enumerate(augment):
        inputs = one(jax.random.fold_in(key, number), inputs)
    return inputs


def check_augmentations(augment: tuple[Augmentation, ...], input_shape: tuple[int, ...]) -> None:
    """Refuses what does not fit records of this shape.

    Raises:
        InputError: an augmentation is for images and the records are none, or one changes the shape or the type.
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
            found = jax.eval_shape(one, key, batch)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise InputError(
                f"the augmentation {name} failed on 2 records of shape {input_shape}: {type(error).__name__}: "
                f"{str(error).strip().splitlines()[:1]}; it is called as {name}(key, inputs)."
            ) from error
        if (getattr(found, "shape", None), getattr(found, "dtype", None)) != (batch.shape, batch.dtype):
            raise InputError(
                f"the augmentation {name} makes {_said(found)} of {_said(batch)}; it must return inputs of the same "
                "shape and type."
            )


def _said(found: Any) -> str:
    shape, dtype = getattr(found, "shape", None), getattr(found, "dtype", None)
    return f"a {type(found).__name__}" if shape is None else f"{dtype} of shape {shape}"
