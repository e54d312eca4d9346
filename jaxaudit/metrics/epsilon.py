"""A lower bound on the epsilon of a training recipe, from models with independent Bernoulli(1/2) inclusion.

For each pair of a model and a record, an independent fair coin decided whether the model was trained on the record. A
model's outputs are (epsilon, delta)-differentially private if adding or removing one record changes the probability of
any event by a factor of at most e^epsilon, plus delta. If the attack is weak, the bound is far below the true epsilon:
it can refute a claim of differential privacy, but never prove one. Where a coin decides about a whole group of records,
the bound is on adding or removing one group.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from jaxaudit.errors import InputError, check_ranges, imported
from jaxaudit.json_types import Count, StrictStruct
from jaxaudit.metrics.arrays import Members

SOURCE = "Steinke, Nasr & Jagielski 2023"
INSTALL = "pip install 'jaxaudit[dp]'"
LEAST_MODELS = 8
"""Half of the models are references."""
FALSE_ALARM = 1e-6
"""Probability that each of three checks refuses masks that are independent fair coins."""
LEAST_GUESSES = 8
"""If all of so few guesses are right, an epsilon below 0.8 is refuted at a level of 95%."""
SHARES = tuple(0.45 * 0.5 ** (power / 2) for power in range(60))
"""Candidate shares of the pairs of a model and a record to guess to be members; about half of the pairs are."""
METHOD = "one run (Steinke, Nasr & Jagielski 2023), over all audited models"


class EpsilonBound(StrictStruct, frozen=True):
    """A lower bound on epsilon, in nats; 0 if no epsilon is refuted.

    `guesses` pairs of an audited model and a record (or group) were guessed to be members, and `right` of them are.
    """

    bound: float
    level: float
    delta: float
    guesses: Count
    right: Count
    references: Count
    audited: Count
    members: Count
    non_members: Count


class Coins(NamedTuple):
    """Two-sided p-values of "the membership masks are independent fair coins", from three statistics; see `coins`."""

    models: float
    records: float
    alike: float


def coins(membership: Members) -> Coins:
    """Two-sided p-values of "every entry is an independent fair coin", by counts that vary too much or too little: of
    records a model, of models a record, and of records on which two models agree.
    """
    models, records = membership.shape
    of_models = _spread(membership.sum(axis=1), records)
    of_records = _spread(membership.sum(axis=0), models)
    signs = np.where(membership, 1.0, -1.0)
    common = (signs @ signs.T)[np.triu_indices(models, 1)] / np.sqrt(records)
    pairs = 2 * special.ndtr(-np.abs(common).max(initial=0.0)) * len(common)
    return Coins(of_models, of_records, float(min(pairs, 1.0)))


def _spread(counts: np.ndarray, of: int) -> float:
    """The two-sided p-value of a chi-squared test of the spread of counts that should be Binomial(`of`, 1/2)."""
    squares = float(((counts - of / 2) ** 2).sum() / (of / 4))
    return float(2 * min(special.chdtr(len(counts), squares), special.chdtrc(len(counts), squares)))


def refuse_unless_coins(membership: Members, unit: str = "record") -> None:
    """Refuses (`InputError`) masks of fewer than `LEAST_MODELS` models, or that a test of `coins` rejects.

    About 1 in 300,000 sets of fair masks is refused wrongly. `unit` names what a coin decides about, in messages.
    """
    models, records = membership.shape
    if models < LEAST_MODELS:
        raise InputError(
            f"`delta`: the bank has {models} finished models, and half of them are references for the others; finish "
            f"at least {LEAST_MODELS}, preferably 32."
        )
    coin_tests, sizes = coins(membership), membership.sum(axis=1)
    if coin_tests.models < FALSE_ALARM:
        span = f"{sizes.min():,}" if np.ptp(sizes) == 0 else f"{sizes.min():,} to {sizes.max():,}"
        deviation = f"its models were trained on {span} of {records:,} {unit}s"
        usual = f"about {records / 2:,.0f}, give or take {records**0.5:,.0f}"
    elif coin_tests.records < FALSE_ALARM:
        count = membership.sum(axis=0)
        deviation = f"its {unit}s are in {count.min()} to {count.max()} of {models} models"
        usual = f"counts with a variance of {models / 4:g}; theirs is {count.var():.3g}"
    elif coin_tests.alike < FALSE_ALARM:
        deviation = f"two of its models have far too many, or too few, {unit}s in common"
        usual = f"a quarter of all {unit}s in common"
    else:
        return
    raise InputError(
        f"`delta`: a bound on epsilon needs a fair coin for each model and {unit}, but {deviation}; independent fair "
        f"coins would give {usual}. Deal a new bank with `coins`."
    )


def epsilon_bound(
    scores: Float[np.ndarray, "audited n"],
    membership: Bool[np.ndarray, "audited n"],
    reference_scores: Float[np.ndarray, "references n"],
    reference_membership: Bool[np.ndarray, "references n"],
    *,
    delta: float,
    level: float = 0.95,
) -> EpsilonBound:
    """A lower bound on the epsilon of a recipe, at a one-sided `level` (Steinke, Nasr & Jagielski 2023, theorem 3.1).

    All audited models are one mechanism whose input is the coins. A coin decides about one record of one model, so each
    pair is a canary. If the k pairs with the highest scores are guessed to be members, the number of right guesses
    exceeds a binomial variable of k trials and probability e^epsilon / (1 + e^epsilon) by no more than a term in delta.
    References alone choose the attack and k, ties are broken by position, and no audited model's mask enters a score:
    nothing has to be corrected for. Of `jax_privacy` 2.0.0, `epsilon_from_gdp` bounds epsilon by 3 and more for scores
    without any signal, and `epsilon_one_run_fdp` holds for Gaussian noise only.
    """
    check_ranges("(0, 1)", delta=delta)
    check_ranges("(0.5, 1)", level=level)
    shares = [share for share in SHARES if share * scores.size >= LEAST_GUESSES] or [SHARES[0]]
    reference_bounds = [_bound(reference_scores, reference_membership, share, delta, level)[0] for share in shares]
    bound, guesses, right = _bound(scores, membership, shares[int(np.argmax(reference_bounds))], delta, level)
    inside, models = int(membership.sum()), (len(reference_scores), len(scores))
    return EpsilonBound(bound, level, delta, guesses, right, *models, inside, membership.size - inside)


def _bound(
    scores: np.ndarray, membership: np.ndarray, share: float, delta: float, level: float
) -> tuple[float, int, int]:
    """The bound if this share of the pairs is guessed to be members, the number of guesses, and that of right ones."""
    flat, truth = np.nan_to_num(scores, nan=-np.inf, posinf=np.inf, neginf=-np.inf).ravel(), membership.ravel()
    guesses = max(1, int(share * len(flat)))
    guessed = np.zeros(len(flat))
    # A stable sort breaks ties by position, which does not depend on the coins.
    guessed[np.argsort(-flat, kind="stable")[:guesses]] = 1.0
    right = int(guessed[truth].sum())
    if truth.all() or not truth.any():
        return 0.0, guesses, right
    library = auditing()
    bound = library.CanaryScoreAuditor(guessed[truth], guessed[~truth]).epsilon_one_run(
        1 - level, delta, threshold_strategy=library.Explicit(0.5)
    )
    return float(bound), guesses, right


def auditing() -> Any:
    """Imports `jax_privacy.auditing`; an `InputError` if the extra `dp` is not installed."""
    return imported("jax_privacy.auditing", "`delta`: a bound on epsilon", INSTALL)
