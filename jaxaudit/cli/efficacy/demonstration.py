"""The example of `jaxaudit efficacy` without options: a model trained with, and one without, some digits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxaudit.audits.efficacy.audit import NamedWeights
from jaxaudit.cli.efficacy.run import EfficacyInputs
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.data import load, prepare_images
from jaxaudit.ensemble import Execution, fit_many
from jaxaudit.learners import network
from jaxaudit.learners.batch_order import init_key
from jaxaudit.models import MLP, RUN_ONCE

RECORDS, CLASS = 1000, 3
EPOCHS, BATCH_SIZE, LEARNING_RATE = 50, 32, 0.1


def demonstration(key: Any) -> EfficacyInputs:
    """The first half of one class of the digits; the recipe is that of Becker & Liebig (2022) for MNIST."""
    digits = prepare_images(load("digits"), (8, 8)).take(slice(RECORDS), f"digits@train[:{RECORDS}]")
    of_class = np.flatnonzero(digits.labels == CLASS)
    forget = of_class[: len(of_class) // 2]
    rows = np.ones((2, len(digits)), bool)
    rows[1, forget] = False
    shape, classes = digits.inputs.shape[1:], len(digits.class_names)
    learner = network(MLP, shape, classes, optimizer=optax.sgd(LEARNING_RATE), epochs=EPOCHS, batch_size=BATCH_SIZE)
    say(f"training 2 mlp models on {jax.default_backend()}, {EPOCHS} epochs each: with {len(forget)} digits, without")
    with progress_on_stderr("training") as progress:
        execution = Execution(models_per_batch=1, progress=progress)
        trained = fit_many(jnp.stack([key, key]), rows, digits.inputs, digits.labels, learner, execution=execution)
    original, retrained = (jax.tree.map(lambda leaf, m=m: jnp.asarray(leaf[m]), trained) for m in (0, 1))
    return EfficacyInputs(
        learner.net,
        NamedWeights("original", *original),
        (
            NamedWeights("retrained", *retrained),
            NamedWeights("untrained", *jax.jit(learner.net.init, compiler_options=RUN_ONCE)(init_key(key))),
        ),
        digits.take(forget, f"{len(forget)} of the digits {CLASS}"),
        ("original was trained on all records, retrained without these. All three started from the same weights.",),
    )
