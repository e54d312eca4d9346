"""A lower bound on the epsilon of a recipe, from models whose training records were chosen by fair coins.

Why it is sound. Call a model's outputs (epsilon, delta)-differentially private if adding or removing one record changes
the probability of anything they show by a factor of at most e^epsilon, with an allowance of delta.

1. The first models of a bank are *references*: their outputs and their records are known to the attack. The others are
   *audited*. All coins are independent, so the coins of the audited models are fair whatever the references show. Which
   attack is made, and how many guesses, is chosen by references alone.
2. All audited models together are one mechanism, whose input is one coin for each pair of a model and a record. A coin
   decides one record of one model, and no two models share random numbers, so the mechanism is (epsilon,
   delta)-differentially private in each coin if each model is. Scores of the audited models are functions of their
   outputs and of the references; they never see an audited model's own row.
3. Theorem 3.1 of Steinke, Nasr and Jagielski (2023) then holds with as many canaries as there are such pairs: if the k
   pairs of the highest score are guessed to be members, the number of right guesses exceeds a binomial variable of k
   trials and probability e^epsilon / (1 + e^epsilon) in distribution by no more than a term in delta. k is fixed before
   the coins are seen, ties are broken by position, and no threshold is chosen on the scores that are judged, so nothing
   has to be corrected for.

So the bound lies above the true epsilon with a probability of at most 1 - level. It lies far below it where the attack
is weak: it can refute a claim of differential privacy, and proves none. Coins that were dealt in another way (as many
records to each model, as many models to each record, whole groups) break the first point.

The binomial bound is `jax_privacy.auditing.CanaryScoreAuditor.epsilon_one_run` at one explicit threshold. Not used of
it: `epsilon_from_gdp`, which in version 2.0.0 bounds scores without any signal by 3 and more; its Bonferroni
correction, which divides by thresholds that the scores themselves chose; and `epsilon_one_run_fdp`, which holds for
Gaussian noise.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.json_types import Count, StrictStruct

SOURCE = "Steinke, Nasr & Jagielski 2023"
INSTALL = "pip install 'jaxaudit[dp]'"
LEAST_MODELS = 8
"""Half of them are references."""
FALSE_ALARM = 1e-6
"""Fair coins are refused in this share of banks, by each of three checks."""
LEAST_GUESSES = 8
"""Of which all right would refute an epsilon below 0.8 at a level of 95%."""
SHARES = tuple(0.45 * 0.5 ** (power / 2) for power in range(60))
"""Of the pairs, that may be guessed to be members; half are, give or take what coins do."""
METHOD = "one run (Steinke, Nasr & Jagielski 2023), over all audited models"


class EpsilonBound(StrictStruct, frozen=True):
    """A lower bound on epsilon; 0 where no epsilon is refuted.

    Attributes:
        bound: nats, for one record added or removed.
        level: the bound is above the true epsilon with a probability of at most 1 - level.
        delta: of the (epsilon, delta) that is bounded.
        guesses: pairs of a model and a record that were guessed to be members; `right`: that are.
        references, audited: models.
        members, non_members: pairs of an audited model and a record with and without it in its training set.
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
    """p-values, two-sided, of independent fair coins.

    Attributes:
        models: by the numbers of records of each model.
        records: by the numbers of models of each record.
        alike: by the records that two models have in common, for all pairs.
    """

    models: float
    records: float
    alike: float


def coins(membership: Bool[np.ndarray, "models n"]) -> Coins:
    """Whether rows could be independent fair coins; numbers that vary too little speak against it as well.

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
    pairs = 2 * stats.norm.sf(np.abs(common).max(initial=0.0)) * len(common)
    return Coins(of_models, of_records, float(min(pairs, 1.0)))


def _spread(counts: np.ndarray, of: int) -> float:
    """The two-sided p-value of the squared distances of binomial counts from their mean."""
    squares = float(((counts - of / 2) ** 2).sum() / (of / 4))
    return float(2 * min(stats.chi2.cdf(squares, len(counts)), stats.chi2.sf(squares, len(counts))))


def refuse_unless_coins(membership: Bool[np.ndarray, "models n"]) -> None:
    """Refuses rows that are no independent fair coins.

    Raises:
        InputError: there are fewer than `LEAST_MODELS` models, or numbers of records or models vary less or more than
            those of fair coins, in which case 1 bank in 300,000 is refused wrongly.
    """
    models, records = membership.shape
    if models < LEAST_MODELS:
        raise InputError(
            f"`delta`: the bank has {models} finished models, and half of them are references for the others; finish "
            f"at least {LEAST_MODELS}, preferably 32."
        )
    found, sizes = coins(membership), membership.sum(axis=1)
    if found.models < FALSE_ALARM:
        span = f"{sizes.min():,}" if np.ptp(sizes) == 0 else f"{sizes.min():,} to {sizes.max():,}"
        what = f"its models were trained on {span} of {records:,} records"
        usual = f"about {records / 2:,.0f}, give or take {records**0.5:,.0f}"
    elif found.records < FALSE_ALARM:
        count = membership.sum(axis=0)
        what = f"its records are in {count.min()} to {count.max()} of {models} models"
        usual = f"counts with a variance of {models / 4:g}; theirs is {count.var():.3g}"
    elif found.alike < FALSE_ALARM:
        what = "two of its models have far too many, or too few, records in common"
        usual = "a quarter of all records in common"
    else:
        return
    raise InputError(
        f"`delta`: a bound on epsilon needs a fair coin for each model and record, but {what}; independent fair coins "
        f"would give {usual}. Deal a new bank with `coins`."
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
        scores: of each record under each audited model, larger for a member; computed without any audited model's
            membership. NaN is never guessed before a number.
        membership: which records each audited model was trained on, by independent fair coins.
        reference_scores: of each record under each reference; they choose the number of guesses and nothing else.
        reference_membership: the references' rows.
        delta: above 0.
        level: of the bound, one-sided.

    Raises:
        InputError: the extra `dp` is not installed, or delta or level is out of range.
    """
    if not 0 < delta < 1 or not 0.5 < level < 1:
        raise InputError(f"delta must be above 0 and below 1, and level above 0.5; got {delta:g} and {level:g}.")
    shares = [share for share in SHARES if share * scores.size >= LEAST_GUESSES] or [SHARES[0]]
    known = [_bound(reference_scores, reference_membership, share, delta, level)[0] for share in shares]
    bound, guesses, right = _bound(scores, membership, shares[int(np.argmax(known))], delta, level)
    inside = int(membership.sum())
    return EpsilonBound(
        bound,
        level,
        delta,
        guesses,
        right,
        len(reference_scores),
        len(scores),
        inside,
        membership.size - inside,
    )


def _bound(
    scores: np.ndarray, membership: np.ndarray, share: float, delta: float, level: float
) -> tuple[float, int, int]:
    """The bound where this share of the pairs is guessed to be members; guesses, and right ones."""
    flat, truth = np.nan_to_num(scores, nan=-np.inf, posinf=np.inf, neginf=-np.inf).ravel(), membership.ravel()
    guesses = max(1, int(share * len(flat)))
    guessed = np.zeros(len(flat))
    # A stable sort breaks ties by position, which no coin has a part in.
    guessed[np.argsort(-flat, kind="stable")[:guesses]] = 1.0
    right = int(guessed[truth].sum())
    if truth.all() or not truth.any():
        return 0.0, guesses, right
    theirs = auditing()
    bound = theirs.CanaryScoreAuditor(guessed[truth], guessed[~truth]).epsilon_one_run(
        1 - level, delta, threshold_strategy=theirs.Explicit(0.5)
    )
    return float(bound), guesses, right


def auditing() -> Any:
    """`jax_privacy.auditing`, of the extra `dp`.

    Raises:
        InputError: it is not installed.
    """
    try:
        return import_module("jax_privacy.auditing")
    except ImportError as error:
        raise InputError(f"`delta`: a bound on epsilon needs jax_privacy 2.0.0: {INSTALL}.") from error
