"""What the tests of use and EMA say of one target, from what its outputs and the shadow models' are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from scipy import special

from jaxaudit.audits.ks.models import Roles, Shadows, Trained
from jaxaudit.audits.pool import Pool
from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs, confidence_of, match_logits, match_precision
from jaxaudit.data.outputs.precision import MOST_DECIMALS, step_near
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import HOLDOUT_MODELS, SHADOW_MODELS, Check, better_recipe, models_of_test
from jaxaudit.metrics.ema import EMA, Signals, ema_of_signals
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.scores import log_odds
from jaxaudit.metrics.shadow import SHARE, shadow_test
from jaxaudit.metrics.usage import Usage
from jaxaudit.randomness import stream

PLAIN = ("never", "half", "fully")
LEAST = 19
"""Fewer models of a kind give no p-value of 0.05."""


class ShadowOutputs(NamedTuple):
    """Log-odds (nats) of each record's own class that shadow models give, on the query set and then the holdout.

    Attributes:
        plain: of models trained without the query set, with half of it, or with all of it, and
        plain_members: on which records.
        mixed: of models trained on a part of the query set and of the holdout, and
        mixed_members: on which.
        queries: how many of the records are the query set's.
        fits: the checks that the models of the tests to be made fit their own training data.
        printed: whether all log-odds are of probabilities rounded as those in a target's file are.
    """

    plain: Float[np.ndarray, "plain asked"]
    plain_members: Bool[np.ndarray, "plain asked"]
    mixed: Float[np.ndarray, "mixed asked"]
    mixed_members: Bool[np.ndarray, "mixed asked"]
    queries: int
    fits: tuple[Check, ...] = ()
    printed: bool = False


class Lessons(NamedTuple):
    """What EMA learns from: each replicate's calibration model on the whole calibration set.

    Attributes:
        queries: the signals of the calibration models on the query set and then the calibration set.
        labels: the calibration set's labels.
        members: which of it each model was trained on.
    """

    signals: Signals
    labels: Int[np.ndarray, " m"]
    members: Bool[np.ndarray, "replicates m"]


def check_tests(
    query: Examples,
    holdout: Examples | None,
    outputs: Sequence[Outputs],
    holdout_outputs: Sequence[Outputs],
    shadows: Shadows,
    ema: bool,
    subsample: float,
) -> None:
    """Nothing where the tests asked for can be made.

    Raises:
        InputError: where they cannot, or outputs do not fit the set they are of.
    """
    for files, examples, name in ((outputs, query, "query set"), (holdout_outputs, holdout, "holdout")):
        for file in files:
            if examples is None:
                raise InputError(f"{file.name} holds outputs on a holdout, but there is no holdout: give its records.")
            if file.probabilities.shape != (len(examples), len(examples.class_names)):
                raise InputError(
                    f"{file.name} holds outputs of shape {file.probabilities.shape}, but the {name} has "
                    f"{len(examples)} records and {len(examples.class_names)} classes: give one row a record, in the "
                    f"{name}'s order."
                )
    if holdout is not None and len(holdout_outputs) != len(outputs):
        raise InputError(
            f"{len(outputs)} files of outputs on the query set but {len(holdout_outputs)} on the holdout: give one of "
            "each for every target, in the same order."
        )
    if min(shadows) < 0:
        raise InputError(f"numbers of shadow models must be at least 0, got {tuple(shadows)}.")
    if shadows.mixed and holdout is None:
        raise InputError(f"{shadows.mixed} mixed shadow models but no holdout: they are drawn from it.")
    if holdout is not None and shadows.mixed < LEAST:
        raise InputError(
            f"the holdout test takes at least {LEAST} mixed shadow models for a p-value of 0.05; got {shadows.mixed}."
        )
    if (shadows.never or shadows.half or shadows.fully) and (min(shadows.never, shadows.fully) < LEAST):
        raise InputError(
            f"the shadow test takes at least {LEAST} shadow models that never saw the query set and as many that saw "
            f"all of it, for a p-value of 0.05; got {shadows.never} and {shadows.fully}."
        )
    if ema and subsample == 1:
        raise InputError(
            "EMA learns from calibration records that a calibration model was not trained on, and with a subsample of "
            "1 there are none; use 0.9."
        )


def shadow_outputs(trained: dict[str, Trained], roles: Roles, pool: Pool, min_accuracy: float) -> ShadowOutputs:
    """The evidence of the tests of use; models fit their data where they get so much of them right."""
    asked = np.r_[pool.query, pool.holdout]

    def members(*names: str) -> np.ndarray:
        none = np.zeros((0, len(pool.examples)), bool)
        return np.concatenate([none, *(row for name in names for row in roles[name])])[:, asked]

    plain = np.concatenate([trained[role].log_odds for role in PLAIN])
    of_tests = {
        HOLDOUT_MODELS: trained["mixed"].own_accuracy,
        SHADOW_MODELS: np.concatenate([trained[role].own_accuracy for role in PLAIN]),
    }
    fits = tuple(models_of_test(name, own, min_accuracy) for name, own in of_tests.items() if len(own))
    queries = pool.query.stop - pool.query.start
    return ShadowOutputs(plain, members(*PLAIN), trained["mixed"].log_odds, members("mixed"), queries, fits)


def usages(
    key: Key[Array, ""], target: Float[np.ndarray, " asked"], shadows: ShadowOutputs, level: float
) -> tuple[Usage, ...]:
    """What the tests that have models say: the holdout test first."""
    n, found = shadows.queries, []
    recipes = {fit.name: better_recipe(fit) for fit in shadows.fits}
    if len(shadows.mixed):
        found.append(
            holdout_test(
                stream(key, "holdout test"),
                target[:n],
                target[n:],
                shadows.mixed,
                shadows.mixed_members,
                level=level,
                printed=shadows.printed,
                recipe=recipes.get(HOLDOUT_MODELS, ""),
            )
        )
    if len(shadows.plain):
        found.append(
            shadow_test(
                target[:n],
                shadows.plain[:, :n],
                shadows.plain_members[:, :n],
                share=SHARE,
                level=level,
                recipe=recipes.get(SHADOW_MODELS, ""),
            )
        )
    return tuple(found)


def of_files(
    shadows: ShadowOutputs,
    query_file: Outputs,
    query_labels: Int[np.ndarray, " n"],
    holdout_file: Outputs | None,
    holdout_labels: Int[np.ndarray, " m"] | None,
) -> tuple[Float[np.ndarray, " asked"], ShadowOutputs]:
    """A target's log-odds from its files, and the shadow models' at the files' resolution.

    Logits give log-odds as they are. Probabilities near 1 say little of log-odds: where a file holds them, those of all
    models go through probabilities rounded alike. Where one is rounded to 0 or 1 it counts as half a step away from it.
    """
    asked = [(query_file, query_labels)]
    if holdout_file is not None and holdout_labels is not None:
        asked.append((holdout_file, holdout_labels))
    files = [file for file, _ in asked]
    if all(file.kind == "logits" for file in files):
        target = np.concatenate([log_odds_of(file, labels) for file, labels in asked])
        plain, mixed = (match_logits(each, *files) for each in (shadows.plain, shadows.mixed))
        return match_logits(target, *files), shadows._replace(plain=plain, mixed=mixed)
    step = max(map(_step, files))

    def rounded(confidences: np.ndarray) -> np.ndarray:
        for file in files:
            confidences = match_precision(confidences, file)
        return special.logit(np.clip(confidences.astype(np.float64), step / 2, 1 - step / 2))

    plain, mixed = (
        rounded(special.expit(each.astype(np.float64)).astype(np.float32)) for each in (shadows.plain, shadows.mixed)
    )
    said = np.concatenate([confidence_of(file, labels) for file, labels in asked])
    return rounded(said), shadows._replace(plain=plain, mixed=mixed, printed=True)


def log_odds_of(file: Outputs, labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The log-odds (nats) of each record's own class that a file of logits gives, in float64.

    What was added to all logits of a record cancels, and nothing is lost near a probability of 1.
    """
    with np.errstate(over="ignore"):
        return log_odds(file.logits.astype(np.float64), labels)


def _step(file: Outputs) -> float:
    """Between two neighbouring probabilities of a file, near 1."""
    if file.kind == "logits":
        return 10.0**-MOST_DECIMALS
    return max(10.0**-MOST_DECIMALS, step_near(1.0, file.decimals, file.significant, file.dtype))


def emas(target: Signals, query: Examples, lessons: Lessons) -> tuple[EMA, ...]:
    """What EMA says with each replicate's calibration model."""
    n = len(query)
    return tuple(
        ema_of_signals(
            target,
            query.labels,
            Signals(*(each[index, n:] for each in lessons.signals)),
            lessons.labels,
            members,
            len(query.class_names),
        )
        for index, members in enumerate(lessons.members)
    )
