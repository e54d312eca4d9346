"""Chooses by measurement how a network's convolutions are computed; see `kernels.convolutions` for the forms."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxaudit.ensemble.concurrency import accelerated
from jaxaudit.kernels.convolutions import GROUPED, LETTERS, PARTS, PATCHES, Convolution, convolve
from jaxaudit.learners.learner import FormedLearner, Learner

MODELS = 8
"""So many models are measured together, or fewer if memory is short."""
MEMORY_SHARE = 1 / 16
"""The part of a device's memory that a measurement may take."""
CALLS, ROUNDS = 5, 3
COMPILED_AT_ONCE = 8


def with_decided_form(learner: Learner, letters_of: "Callable[[Convolution], str] | None" = None) -> Any:
    """The learner with the form of its convolutions decided: the learner itself if there is nothing to decide.

    Nothing is measured on a CPU, where one model is trained at a time if it convolves, or if the learner has a form.
    Measuring takes some seconds, once in a process for equal convolutions; two measurements may choose differently, and
    forms differ by rounding: to repeat a run exactly, train `learner.in_form(form)` with the form that it reported.

    Args:
        learner: any learner.
        letters_of: the letters of a convolution, such as those that were measured before; by default
            `fastest_letters`.
    """
    if not isinstance(learner, FormedLearner) or learner.form is not None or not accelerated():
        return learner
    letters = [(letters_of or fastest_letters)(convolution) for convolution in learner.convolutions()]
    return learner.in_form(" ".join(letters)) if letters else learner


def form_of(learner: Learner) -> str | None:
    """The form in which `fit_many` trains a learner; None: as JAX has convolutions, or there are none."""
    return getattr(with_decided_form(learner), "form", None)


@lru_cache(maxsize=1024)
def fastest_letters(convolution: Convolution, models: int = MODELS) -> str:
    """The letter of each part that takes the least time on this process's first device, for so many models."""
    return "".join(_fastest(convolution, part, models) for part in range(PARTS))


def _fastest(convolution: Convolution, part: int, models: int) -> str:
    room = MEMORY_SHARE * _device_bytes()
    models = max(1, min(models, int(room // max(convolution.patch_bytes(), 1))))
    letters = [letter for letter in LETTERS if letter != PATCHES or _has_patches(convolution, room)]
    # Products of zeros can be faster than others.
    arrays = [
        jnp.sin(jnp.arange(models * prod(shape), dtype=jnp.float32)).reshape(models, *shape).astype(convolution.dtype)
        for shape in (convolution.inputs, convolution.kernel, convolution.outputs.shape)
    ]

    def compiled(letter: str) -> Callable[[], Array]:
        program = jax.jit(jax.vmap(partial(_part, convolution, part, letter))).lower(*arrays).compile()
        return lambda: program(*arrays)

    # Compiling takes most of the time, and does not hold Python's lock.
    with ThreadPoolExecutor(COMPILED_AT_ONCE) as threads:
        programs = dict(zip(letters, threads.map(compiled, letters), strict=True))
    seconds = {letter: _seconds(program) for letter, program in programs.items()}
    return min(letters, key=lambda letter: seconds[letter])


def _has_patches(convolution: Convolution, room: float) -> bool:
    return convolution.has_patches and convolution.patch_bytes() <= room


def _part(convolution: Convolution, part: int, letter: str, inputs: Array, kernel: Array, gradient: Array) -> Array:
    """The outputs, or one of the two gradients, with this part in the form of the letter."""
    letters = GROUPED * part + letter + GROUPED * (PARTS - 1 - part)
    outputs, back = jax.vjp(partial(convolve, letters, convolution.params), inputs, kernel)
    return outputs if part == 0 else back(gradient.astype(outputs.dtype))[part - 1]


def _seconds(program: Callable[[], Array]) -> float:
    """The least time of a call, of some that follow one another without waiting."""
    jax.block_until_ready(program())
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        jax.block_until_ready([program() for _ in range(CALLS)])
        times.append((time.perf_counter() - started) / CALLS)
    return min(times)


def _device_bytes() -> int:
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit", 16 << 30)
