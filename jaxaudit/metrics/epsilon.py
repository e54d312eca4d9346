"""A lower bound on the epsilon of a training recipe, from models with independent Bernoulli(1/2) inclusion.

Inclusion means: for each pair of a model and a record, an independent fair coin decided whether the model was trained
on the record. A model's outputs are (epsilon, delta)-differentially private if adding or removing one record changes
the probability of any event by a factor of at most e^epsilon, plus delta. Why the bound is valid:

1. The first shadow models are *references*: the attack knows their outputs and membership masks. The other models are
   *audited*, and their coins are fair given the references, with which alone the attack and its number of guesses are
   chosen.
2. All audited models together are one mechanism, whose input is the coins. A coin decides about one record of one
   model, and no two models share random numbers. So the mechanism is (epsilon, delta)-differentially private in each
   coin if each model is. The scores of the audited models never use an audited model's own membership mask.
3. Theorem 3.1 of Steinke, Nasr and Jagielski (2023) then holds, with each pair of a model and a record as a canary: if
   the k pairs with the highest scores are guessed to be members, the number of right guesses exceeds a binomial
   variable of k trials and probability e^epsilon / (1 + e^epsilon) in distribution by no more than a term in delta. No
   correction for multiple testing is needed: k is fixed before the coins are seen, ties are broken by position, and no
   threshold is chosen on the scores that are judged.

So the bound is above the true epsilon with probability at most 1 - level. If the attack is weak, it is far below. It
can refute a claim of differential privacy, but never prove one. Other random designs (a fixed number of records per
model or of models per record) violate the first point. Where a coin decides about a whole group of records, such as the
texts of an author, a group stands in place of a record in all of this: the bound is then on the epsilon of adding or
removing one group. It is user-level epsilon if no user has records in two groups, or in the calibration set.

The binomial bound is `jax_privacy.auditing.CanaryScoreAuditor.epsilon_one_run` at one explicit threshold. Three other
functions of that library are not used: `epsilon_from_gdp`, which in version 2.0.0 gives a bound of 3 and more for
scores without any signal; its Bonferroni correction, which divides by the number of thresholds that the scores
themselves chose; and `epsilon_one_run_fdp`, which holds for Gaussian noise only.

Epsilon is bounded on models whose coins nobody saw. The first half of a bank attacks the second half, and chooses the
attack and the number of guesses on its own; so nothing is chosen on the scores that are judged, and nothing has to be
corrected for. All audited models are one mechanism with a coin for each model and record, so there is one bound, and no
maximum over models. It holds for independent fair coins alone: rows whose sizes, columns or overlaps vary too little or
too much for coins are refused. The package is an extra, imported where it is used.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from jaxaudit.errors import InputError
from jaxaudit.json_types import Count, StrictStruct

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
    """A lower bound on epsilon; 0 if no epsilon is refuted.

    Attributes:
        bound: the lower bound in nats, for one record added or removed; for one group, where coins deal groups.
        level: the bound is above the true epsilon with a probability of at most 1 - level.
        delta: the delta for which epsilon is bounded.
        guesses, right: how many pairs of a model and a record (or group) were guessed to be members, and how many of
            these are.
        references, audited: numbers of models.
        members, non_members: pairs of an audited model and a record that is, or is not, in the model's training set.
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
    """Two-sided p-values of "the membership masks are independent fair coins", from three statistics.

    They are the number of records of each model, the number of models of each record, and the largest deviation, over
    all pairs of models, of the number of records on which their masks agree.
    """

    models: float
    records: float
    alike: float


def coins(membership: Bool[np.ndarray, "models n"]) -> Coins:
    """Three two-sided p-values of "every entry is an independent fair coin"; a small one speaks against fair coins.

    `models` tests the number of records of each model, and `records` the number of models of each record. `alike` tests
    the largest deviation of the number of records on which two models agree. Counts that vary too much are evidence
    against fair coins, and so are counts that vary too little, as when each model has exactly half of the records.

    >>> random = np.random.default_rng(1)
    >>> fair, fixed = random.random((8, 500)) < 0.5, random.permuted(np.tile([True, False], (8, 250)), axis=1)
    >>> min(coins(fair)) > 0.01, coins(fixed).models, min(coins(fixed)[1:]) > 0.01
    (True, 0.0, True)
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


def refuse_unless_coins(membership: Bool[np.ndarray, "models n"], unit: str = "record") -> None:
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
    """A lower bound on the epsilon of a recipe (Steinke, Nasr & Jagielski 2023, theorem 3.1).

    Args:
        scores, membership: of each record under each audited model, larger for a member, computed without any audited
            model's membership mask; NaN counts as minus infinity. And these masks, drawn as independent fair coins.
        reference_scores, reference_membership: the same of the references; used only to choose the number of guesses.
        delta: the delta of differential privacy, above 0 and below 1.
        level: the one-sided confidence level of the bound.

    Raises:
        InputError: the extra `dp` is not installed, or delta or level is out of range.
    """
    if not 0 < delta < 1 or not 0.5 < level < 1:
        raise InputError(f"delta must be above 0 and below 1, and level above 0.5; got {delta:g} and {level:g}.")
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
    try:
        return import_module("jax_privacy.auditing")
    except ImportError as error:
        raise InputError(f"`delta`: a bound on epsilon needs jax_privacy 2.0.0: {INSTALL}.") from error
