"""Input errors of the `unlearn` audit."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxaudit.audits.unlearn.result import RESERVED
from jaxaudit.data.examples import Examples
from jaxaudit.data.sequences import are_texts
from jaxaudit.errors import InputError
from jaxaudit.learners import NetworkLearner, NetworkParams
from jaxaudit.unlearning import Unlearn


def check_unlearn(
    train: Examples,
    test: Examples,
    learner: NetworkLearner,
    forget: np.ndarray,
    methods: Mapping[str, Unlearn],
    seeds: int,
    nonmembers: int | None,
    attack_epochs: int,
    level: float,
    other_answers: Sequence[np.ndarray] | None,
) -> None:
    if forget.shape[1:] != (len(train),) or not len(forget):
        raise InputError(
            f"`forget` has shape {forget.shape}, but {train.name} has {len(train)} records: give at least one row, "
            "with one boolean per training record."
        )
    for index, row in enumerate(forget):
        if not row.any() or row.all():
            trouble = "is empty: there is nothing to forget" if not row.any() else "is everything: nothing remains"
            raise InputError(f"set {index} to forget {trouble}. Are the class and the fraction right?")
    if seeds < 2 or attack_epochs < 1 or not 0 < level < 1:
        raise InputError(
            f"seeds must be at least 2 (got {seeds}), attack epochs at least 1 (got {attack_epochs}), level between 0 "
            f"and 1 (got {level:g})."
        )
    if nonmembers is not None and not 0 <= nonmembers <= len(test):
        raise InputError(
            f"{nonmembers} non-members cannot be drawn: {test.name} has {len(test)} records; give at most that many."
        )
    for name in methods:
        if name in RESERVED:
            raise InputError(f"a method cannot be named `{name}`, because the audit uses that name; give it another.")
    of_texts = are_texts(train)
    if of_texts and nonmembers:
        raise InputError(
            f"{train.name} has texts, and attack networks learn from outputs of classes, which texts do not have: "
            "leave `nonmembers` out."
        )
    if of_texts is not are_texts(test):
        raise InputError(f"only one of {train.name} and {test.name} has texts: give test records of the same kind.")
    shapes = None if other_answers is None else [(len(answers), answers.ndim) for answers in other_answers]
    if shapes not in (None, [(int(row.sum()), 3) for row in forget]) or (shapes and not of_texts):
        raise InputError(
            "`other_answers` has an array for each set of texts to forget, `[forgotten, answers, length]`: give one "
            "row per record of the set."
        )
    for part in (train, test):
        _check_outputs(part, learner)


def _check_outputs(part: Examples, learner: NetworkLearner) -> None:
    def outputs(key: Any, inputs: Any) -> Any:
        return learner.log_probs(NetworkParams(*learner.net.init(key)), inputs)

    of_texts = are_texts(part)
    inputs = jax.ShapeDtypeStruct((1, *part.inputs.shape[1:]), jnp.int32 if of_texts else jnp.float32)
    try:
        classes = jax.eval_shape(outputs, jax.eval_shape(jax.random.key, 1), inputs).shape[1]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{part.name} has records of shape {part.inputs.shape[1:]}, which the network does not accept: "
            f"{str(error).strip().splitlines()[0]}"
        ) from error
    if of_texts and classes != 1:
        raise InputError(f"{part.name} has texts, and the network is of classes: make it with `language_model`.")
    if part.labels.max() >= classes:
        raise InputError(
            f"{part.name} has label {int(part.labels.max())}, but the network has only {classes} outputs, from 0: make "
            "it with as many outputs as the data have classes."
        )
