"""Banks of shadow models for the tests of `ks`: their training sets, their training, and outputs that are added."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Real, Shaped, UInt32

from jaxaudit.audits.bank_odds import model_outputs
from jaxaudit.audits.ks.models import refuse_diverged
from jaxaudit.audits.ks.tests_of_use import HoldoutTest, ShadowTest
from jaxaudit.audits.open_bank import kinds_of, pool_of
from jaxaudit.data import Examples
from jaxaudit.data.bank.bank import Bank, write_outputs
from jaxaudit.data.bank.description import Description, outputs_path
from jaxaudit.data.examples import Sets
from jaxaudit.data.groups import number_sets
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.errors import InputError, writing
from jaxaudit.learners import Learner
from jaxaudit.metrics.arrays import Mask, Members, Numbers, OneKey
from jaxaudit.metrics.deal import RATE, Dealt, dealt_records, limit, other_row, row_fits
from jaxaudit.metrics.scores import rank_scale
from jaxaudit.randomness import ModelKeys, generator_of, join_keys, keys_at, several, stream
from jaxaudit.shadow_models import OF_QUERY, Kind, pool_of_sets

TURNS = (Kind.NEVER, Kind.FULLY, Kind.NEVER, Kind.HALF)
"""Without a holdout, the kinds of successive models: in the proportions of `ShadowTest` for any number of models."""
HOLDOUT_MODELS, SHADOW_MODELS = 40, 77
"""The default numbers of models of `HoldoutTest`, and of `ShadowTest` in all."""


class BankPlan(NamedTuple):
    """The training sets of a bank (columns are query set, holdout, calibration set), and the seed of each training."""

    membership: Members
    seeds: UInt32[np.ndarray, " models"]


def plan_bank(
    key: OneKey,
    models: int,
    query: int,
    *,
    holdout: int = 0,
    calibration: int = 0,
    groups: Shaped[np.ndarray, " dealt"] | None = None,
    dropped: Mask | None = None,
    coins: bool = False,
) -> BankPlan:
    """Draws the training sets of a bank of shadow models.

    - With a holdout: each model is trained on as many records as the query set has, drawn from query set and holdout
      together; with groups, on as many whole groups.
    - Without a holdout: of every four models, the first and the third are trained on none of the query set, the second
      on all of it, the fourth on half of it.
    - Each model is also trained on a random two thirds of the calibration set, if there is one.
    - With `coins`: each model is trained on each record of any set with probability 1/2, independently; with groups, on
      each whole group of query and holdout records.

    Guarantee: the mask and the seed of a model depend only on the key and its number, so a larger plan begins with the
    same models. Without `coins`, the masks are those that `train_shadows` draws with this key and these sets.

    Args:
        query, holdout, calibration: numbers of records.
        groups: of each query and holdout record, if groups are kept whole; without a holdout, with `coins` alone.
        dropped: records that no model is trained on.

    >>> plan = plan_bank(jax.random.key(7), 3, 4, holdout=4, calibration=6)
    >>> plan.membership[:, :8].sum(axis=1), plan.membership[:, 8:].sum(axis=1)
    (array([4, 4, 4]), array([4, 4, 4]))
    """
    if not holdout and not calibration and not coins:
        raise InputError(
            "shadow models are trained on random records, but there is only the query set: give a holdout (`holdout`), "
            "a calibration set (`calibration`), or both."
        )
    if groups is not None:
        groups = np.concatenate([*number_sets(Sets(query=groups[:query], holdout=groups[query:])).values()])
    ends = np.cumsum([query, holdout, calibration])
    left = np.ones(ends[-1], bool) if dropped is None else ~dropped
    columns = [
        np.flatnonzero(part) + end - len(part) for part, end in zip(np.split(left, ends[:-1]), ends, strict=True)
    ]
    sizes_by_name = {"query set": query, "holdout": holdout, "calibration set": calibration}
    for (name, size), kept in zip(sizes_by_name.items(), columns, strict=True):
        if size and not len(kept):
            raise InputError(f"all {size} records of the {name} are copies: is it the same data set as another?")
    keys = jax.vmap(jax.random.fold_in, (None, 0))(stream(key, "seeds"), jnp.arange(models))
    seeds = np.asarray(jax.vmap(lambda one: jax.random.bits(one, dtype=jnp.uint32))(keys))
    if coins:
        draw, units = stream(key, "draw", "coins"), np.arange(len(left))
        if groups is not None:
            # A coin for each group, and for each record of the calibration set.
            units = np.concatenate([groups, groups.max() + 1 + np.arange(len(left) - len(groups))])
        tossed = [generator_of(stream(draw, model)).random(units.max() + 1) < 0.5 for model in range(models)]
        return BankPlan(np.stack(tossed)[:, units] & left, seeds)
    if groups is not None:
        if not holdout:
            raise InputError("groups are of query set and holdout, but there is no holdout (`holdout`).")
        groups = np.r_[groups, query + holdout + np.arange(calibration)][left]
    sizes = [len(column) for column in columns]
    # Masks depend only on the sizes of the sets, and on groups.
    nothing = np.zeros((sum(sizes), 0), np.float32)
    pool = pool_of_sets(Examples(nothing, np.zeros(len(nothing), int), ("",), "records", groups=groups), sizes)
    kinds = np.array([Kind.MIXED if holdout else TURNS[model % len(TURNS)] for model in range(models)])
    never, half, fully = (int((kinds == kind).sum()) for kind in OF_QUERY)
    test = HoldoutTest(mixed=models) if holdout else ShadowTest(never=never, half=half, fully=fully)
    membership = np.zeros((models, len(left)), bool)
    for kind, rows in test.draw(stream(key, "draw"), pool).items():
        membership[np.ix_(kinds == kind, left)] = rows
    return BankPlan(membership, seeds)


GOES_ON = "make room there and repeat the command, which goes on with what is missing: no trained model is lost."
MOST_BYTES = 1 << 28
"""The most bytes of outputs on the host at a time, unless those of one model need more."""


def train_bank(
    key: OneKey,
    bank: Bank,
    inputs: Real[np.ndarray, "n ..."],
    learner: Learner,
    models: Sequence[int],
    *,
    execution: Execution,
) -> None:
    """Trains these models of a bank and writes their outputs into it, when each batch is done; existing outputs stay.
    `inputs` are of all records, dropped ones included.

    A model's outputs depend only on the key, its number, its membership mask, its learner and `models_per_batch` (on a
    CPU to the last bit), so training may be stopped and resumed, and the bank enlarged. They equal those of
    `train_shadows` with this key and these sets.
    """
    description = bank.description
    readable = description.outputs in ("logits", "probabilities") or (
        description.outputs == "log_likelihood" and description.direction == "higher"
    )
    if not readable or description.queries != 1:
        raise InputError(
            "models are trained here for banks of logits, of probabilities, or of log-likelihoods that are higher for "
            "records that were used, with one view of each record."
        )
    if len(inputs) != description.records:
        raise InputError(f"the bank has {description.records} records; got {len(inputs)}.")
    chosen = np.asarray(models, int)
    pool, columns = pool_of(bank)
    columns = columns[pool.training_order]
    keys = training_keys(key, bank)
    labels = np.asarray(bank.labels[columns])
    if not len(chosen):
        return
    fit_many(
        keys_at(keys, chosen),
        bank.membership[chosen][:, columns],
        inputs[columns],
        labels,
        learner,
        execution=execution,
        # A worker may have another working directory.
        summarize=partial(_keep, bank.directory.absolute(), description, inputs, learner, chosen),
        members_only=True,
    )


def _keep(
    directory: Path,
    description: Description,
    inputs: np.ndarray,
    learner: Learner,
    own_rows: Int[np.ndarray, " own"],
    params: Any,
    rows: Int[np.ndarray, " rows"],
) -> np.ndarray:
    """Writes the missing outputs of a chunk's models; returns their rows."""
    models = len(rows)
    # As many models at a time as memory allows.
    size = models if 4 * models * len(inputs) * description.classes <= MOST_BYTES else 1
    for start in range(0, models, size):
        part = slice(start, start + size)
        some = jax.tree.map(lambda leaf, part=part: leaf[part], params)
        for model, log_probs in zip(own_rows[rows][part].tolist(), log_probs_many(learner, some, inputs), strict=True):
            if outputs_path(directory, model).exists():
                continue
            values = np.exp(log_probs) if description.outputs == "probabilities" else log_probs
            outputs = values[:, None].astype(np.float32)
            refuse_diverged(~np.isfinite(outputs).all(axis=(1, 2))[None], np.array([model]))
            with writing(f"{directory}: model {model} of {description.models}", GOES_ON):
                write_outputs(directory, model, outputs, description)
    return np.asarray(rows)


def training_keys(key: OneKey, bank: Bank) -> ModelKeys:
    """The random key of each model's training: that of the model with the same kind and number in `train_shadows`."""
    kinds = kinds_of(bank)
    counts = Counter(kinds)
    training = stream(key, "train")
    by_kind = join_keys(several(stream(training, kind), count) for kind, count in counts.items())
    indices = {kind: index for index, kind in enumerate(counts)}
    order = np.argsort([indices[kind] for kind in kinds], kind="stable")
    return keys_at(by_kind, np.argsort(order))


COMPARED = 8
"""Number of models whose outputs show how difficult a record is; more hardly help."""
LOOK = RATE / COMPARED
"""The largest probability that one check rejects right outputs. The outputs of the first models are checked again when
there are further models to compare them with."""


class RowMatch(NamedTuple):
    """How well outputs fit membership masks of a bank: that of their own model (`own_fit`), and the best other one
    (`fit`), in standard deviations. `other` is a model whose outputs they must be, or None; `shown` is whether they
    demonstrably belong to their own model, which one that hardly memorises cannot show.
    """

    own_fit: float
    fit: float
    other: int | None
    shown: bool


def first_models(bank: Bank) -> dict[int, Numbers]:
    """Log-odds of the first finished models of a bank with usable outputs."""
    log_odds = {}
    for model in bank.finished().tolist():
        if len(log_odds) == COMPARED:
            break
        with suppress(InputError):
            log_odds[model] = model_outputs(bank, bank.outputs(model), model).log_odds
    return log_odds


def match_row(bank: Bank, model: int, log_odds: Numbers, odds_by_model: dict[int, Numbers]) -> RowMatch | None:
    """How well log-odds fit the membership masks of a bank; None with one model, or where somebody else drew them. Over
    all checks together, right outputs are attributed to another model with a probability of at most 1%.
    """
    if bank.description.seed is None or len(bank) < 2:
        return None
    other_odds = {number: odds for number, odds in odds_by_model.items() if number != model}
    log_odds, *of_others = (
        rank_scale(odds[None, None])(odds) if bank.description.outputs == "score" else odds
        for odds in (log_odds, *other_odds.values())
    )
    stacked = np.array(of_others) if other_odds else None
    fits = row_fits(log_odds, bank.membership, _dealt(bank), stacked, [*other_odds])
    own_fit, fit = float(fits[model]), float(np.delete(fits, model).max())
    shown = own_fit > max(limit(len(fits), LOOK), fit)
    return RowMatch(own_fit, fit, other_row(fits, model, LOOK), shown)


def _dealt(bank: Bank) -> list[Dealt]:
    """The sets that were randomised separately: query set with holdout, and the calibration set."""
    compared = np.flatnonzero(~bank.dropped[: bank.holdout.stop])
    sets = [dealt_records(compared)]
    if bank.groups is not None:
        sets = [Dealt(compared, np.unique(bank.groups[compared], return_inverse=True)[1])]
    calibration = bank.holdout.stop + np.flatnonzero(~bank.dropped[bank.calibration])
    return [*sets, dealt_records(calibration)] if len(calibration) else sets
