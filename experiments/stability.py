"""Training stability: bounds DTP over all inputs by the change of outputs at a record's own input, its PDTP.

Long, Bindschaedler & Gunter (2017), section 6 and appendix A. An algorithm is delta-training stable (definition 6.1)
if removing a record t changes no p(y | x) by a larger factor than gamma_t: the larger of delta and the factor by
which p(y_t | x_t) changes. Only records with p(y_t | x_t) > 0 with and without them count.

The paper's claims, checked by brute force over small sets (the tests contain the counter-examples):

| claim | on the outputs its proof uses | on normalised posteriors |
|---|---|---|
| 6.3 Bayes inference, 4/3 | fails; 3/2 holds, and is the least | the same: they are normalised |
| 6.4, 6.5 naive Bayes, without and with smoothing | holds for the joint, prod p(x_i | y) p(y) | fails |
| 6.7 linear queries, (4/3)^features | fails for the joint of naive Bayes; (3/2)^features holds | fails with either |
| 6.8 random trees, 4/3 | fails for the plain geometric mean; 3/2 holds | fails with either |
| k nearest neighbours: no delta | right: PDTP 0 beside an infinite DTP | the same |
| theorem 6.2 | holds where definition 6.1 does | fails where it does not: `posterior_dtp_bound` |
| theorem 6.9 | holds | the same |

The proof of 6.3 solves b / (b - 1) > (b - 1) a / (b (a - 1)) for b and gets the sign of the solution wrong. Of three
records with one input and classes 0, 0, 1, removing one of class 0 takes p(1) from 1/3 to 1/2, a factor of 3/2, and
p(0) from 2/3 to 1/2, a factor of 4/3.

All outputs here are exact, not binned: binning could hide a small change at the record that is large elsewhere.
"""

import numpy as np
from jaxtyping import Array, Float

from jaxaudit.errors import InputError
from jaxaudit.kernels import dtp_bound

BAYES_INFERENCE = 3 / 2
"""delta of Bayes inference, p(y | x) = n_xy / n_x (proposition 6.3, corrected; the least that holds)."""

RANDOM_TREES = 3 / 2
"""delta of random decision trees by the geometric mean, not normalised (proposition 6.8, corrected)."""

AS_PUBLISHED = 4 / 3
"""The paper's delta of both, which does not hold."""


def naive_bayes_delta(smallest_class: int, records: int, columns: int, *, smoothing_values: int | None = None) -> float:
    """delta of naive Bayes over categorical columns (propositions 6.4 and 6.5); nearer to 1 is more stable.

    With n_min records in the least supported class that has any, n records and m columns: without smoothing (n_min /
    (n_min - 1))^(m - 1) n / (n - 1), infinite if n_min is 1 and m is not; with Laplace's, which adds 1 to every count,
    ((n_min + v) / n_min)^(m - 1) n / (n - 1), for at most v values in a column (`smoothing_values`). It holds for the
    joint, prod p(x_i | y) p(y), not for its normalised posterior: use `posterior_dtp_bound` for that. Numeric
    (Gaussian) columns have none.

    Raises:
        InputError: there are fewer than 2 records, no column, no value, or no record in the smallest class.

    >>> naive_bayes_delta(10, 100, 3), naive_bayes_delta(10, 100, 3, smoothing_values=2)
    (1.247..., 1.454...)
    """
    if records < 2 or not 1 <= smallest_class <= records or columns < 1 or smoothing_values == 0:
        raise InputError(
            f"no stability constant for {records} records, {smallest_class} in the smallest class, {columns} columns "
            f"and {smoothing_values} values: it needs at least 2 records, and 1 of each of the others; were empty "
            "classes left out?"
        )
    largest_factor = records / (records - 1)
    if columns == 1:
        return largest_factor
    if smoothing_values is not None:
        return ((smallest_class + smoothing_values) / smallest_class) ** (columns - 1) * largest_factor
    if smallest_class == 1:
        return float("inf")
    return (smallest_class / (smallest_class - 1)) ** (columns - 1) * largest_factor


def linear_queries_delta(features: int) -> float:
    """delta of a product of `features` probabilities counted in the records (proposition 6.7, corrected): (3/2)^|X|.

    Linear statistical queries with logarithmic coefficients: naive Bayes, Bayesian networks, Markov models. For naive
    Bayes over m columns `features` is m + 1, with the prior. It holds for the product as it is, not normalised. The
    paper's (4/3)^|X| does not hold.

    >>> linear_queries_delta(2)
    2.25
    """
    return BAYES_INFERENCE**features


def posterior_dtp_bound(pdtp: Float[Array | np.ndarray, " records"], delta: float) -> Float[np.ndarray, " records"]:
    """An upper bound of DTP, in nats, for normalised outputs: max(2 PDTP, log delta).

    For naive Bayes (`naive_bayes_delta`) and the geometric mean of random trees (any smoothing; `delta=1` will do),
    whose posteriors are not stable. Not in the paper. PDTP must be exact (`bins=0`), p(y_t | x_t) above 0 with and
    without t, and that of another class too, as they always are with smoothing.

    Why: removing t changes the unnormalised outputs of all classes but y_t by one common factor, so every posterior at
    x changes by a factor of at most exp |R(x)|, where R(x) is the change of the log-odds of y_t against the others.
    Each column, or tree, adds most to R where x agrees with x_t, so R(x) <= R(x_t); and stability of the unnormalised
    outputs gives -R(x) <= max(log delta, R(x_t)). At x_t the posteriors of y_t and of another class part by R(x_t), so
    one of the two moves by at least half of it: R(x_t) <= 2 PDTP(t).

    Raises:
        InputError: as for `dtp_bound`.

    >>> posterior_dtp_bound(np.array([0.1, 2.0]), 1.5).round(3)
    array([0.405, 4.   ])
    """
    return np.maximum(dtp_bound(pdtp, delta), 2 * np.asarray(pdtp, np.float64))


def lipschitz_dtp_bound(
    lipschitz: float,
    params: Float[Array | np.ndarray, " size"],
    params_without: Float[Array | np.ndarray, "records size"],
) -> Float[np.ndarray, " records"]:
    """An upper bound of each record's DTP, in nats: L |u_T - u_{T without t}|_inf; the largest is theorem 6.9's.

    `params` holds u_T, all parameters of the model trained on T, in one row, and `params_without` those of the models
    trained without each record. L, or `lipschitz`, is such that for every input no log-probability changes by more than
    L times the largest change of a parameter; for softmax regression `softmax_regression_lipschitz`.

    Raises:
        InputError: `lipschitz` is negative or NaN, sizes differ, or a parameter is not finite.

    >>> lipschitz_dtp_bound(4.0, np.array([1.0, 2.0]), np.array([[1.0, 2.5], [1.1, 2.0]])).round(3)
    array([2. , 0.4])
    """
    ours, params_of_others = np.asarray(params, np.float64), np.asarray(params_without, np.float64)
    if not lipschitz >= 0 or params_of_others.shape[1] != len(ours):
        raise InputError(
            f"a Lipschitz bound needs a constant of at least 0 and rows of {len(ours)} parameters, got {lipschitz} and "
            f"{params_of_others.shape[1]}: flatten the parameters of all models in the same way."
        )
    change = np.abs(params_of_others - ours).max(axis=1, initial=0.0)
    if not np.isfinite(change).all():
        raise InputError("parameters are NaN or infinite; did training diverge? Try a smaller learning rate.")
    return lipschitz * change


def softmax_regression_lipschitz(largest_input: float) -> float:
    """L of theorem 6.9 for softmax regression, log_softmax(W x + b), over inputs of |x|_1 up to `largest_input`.

    2 (|x|_1 + 1): a score moves by at most (|x|_1 + 1) times the largest change of a weight or bias, and a
    log-probability by at most twice what any score does. The sums of |x| are over one record's inputs; with inputs
    scaled to [0, 1] it is at most their number.

    >>> softmax_regression_lipschitz(3.0)
    8.0
    """
    return 2 * (largest_input + 1)
