"""Exposure of a bank's records: which are surely recognised, which most, and which of them have a low PDTP.

PDTP: how far leaving a record out of training moves the output on it, in nats.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from jaxaudit.audits.attack.finding import SURELY
from jaxaudit.audits.attack.result import RecordArrays
from jaxaudit.audits.attack.sections import MOST_POINTS, BesidePDTP, Exposure, Riskiest
from jaxaudit.audits.attack.units import AttackUnits
from jaxaudit.audits.bank_odds import BLOCK
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import BY_CLASS
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.attack import correlation
from jaxaudit.metrics.attack_rates import AttackRates
from jaxaudit.metrics.vulnerability import Vulnerability
from jaxaudit.shadow_models import ShadowModels

NAMED_AT = 0.01
"""The false positive rate at which a record counts as named."""
NUMBERS = ("named", "named_low", "named_high", "gap", "gap_low", "gap_high", "separation")
"""What the list of the riskiest records has of `Vulnerability`."""
LISTED = 100
"""The riskiest records that the result lists; records.csv has all."""
BINS = 20
"""Number of bins of the histogram of separations."""
RISKY, OFTEN = 1.0, 0.5
"""At risk: a PDTP above 1 nat (DTP-1); named in half or more of the models trained on the record."""


def rate_named_at(rates: AttackRates) -> float:
    """The false positive rate at which records count as named; NaN if no such rate can be measured, or none holds."""
    resolved = sorted(rate.fpr for rate in rates.tpr_at_fpr if rate.resolvable and rate.holds and rate.fpr >= NAMED_AT)
    return resolved[0] if resolved else float("nan")


def surely_named(seen: Vulnerability, models: int) -> int:
    """The number of records named by at least half of their models, with outputs that differ by more than chance.

    Several calls of one record rest on the same shadow models and are not independent; outputs of different models are.
    So the rank-sum test of the outputs decides (Mann & Whitney 1947; the normal approximation gives too large p-values
    far in the tail), with Bonferroni's correction over all records.
    """
    pairs = seen.inside * seen.outside
    finite = np.isfinite(seen.named) & (pairs > 0)
    if not finite.any():
        return 0
    distance = (seen.separation[finite] - 0.5) * np.sqrt(pairs[finite] * 12 / (models + 1))
    sure = special.ndtr(-distance) * np.count_nonzero(finite) < SURELY
    return int((sure & (seen.named[finite] >= OFTEN)).sum())


def exposure_of(shadows: ShadowModels, units: AttackUnits, arrays: RecordArrays, at_fpr: float) -> Exposure:
    """The exposure of the units of a bank."""
    seen = arrays.vulnerability
    separations, often = seen.separation[np.isfinite(seen.separation)], seen.named[np.isfinite(seen.named)]
    counts, edges = np.histogram(separations, bins=BINS, range=(0, 1))
    # The riskiest first: by the share of models that name them, then by separation.
    judged = np.flatnonzero(np.isfinite(seen.named))
    separation, gap = np.nan_to_num(seen.separation[judged]), np.nan_to_num(seen.gap_low[judged], nan=-np.inf)
    order = judged[np.lexsort((-gap, -separation, -seen.named[judged]))]
    return Exposure(
        at_fpr=at_fpr,
        surely_named=surely_named(seen, len(shadows)),
        exposed=float((often >= OFTEN).mean()) if len(often) else float("nan"),
        judged=len(often),
        copies=int((arrays.copies >= 0).sum()),
        separation_edges=tuple(edges.tolist()),
        separation_counts=tuple(counts.tolist()),
        riskiest=tuple(_riskiest(shadows, units, arrays, at) for at in order[:LISTED].tolist()),
    )


def place_in_set(bank: Bank, column: int) -> tuple[str, int]:
    """The set that a record of a bank belongs to, and its index within that set."""
    for name, count in bank.description.sizes._asdict().items():
        if column < count:
            return name, column
        column -= count
    raise IndexError(column)


def _riskiest(shadows: ShadowModels, units: AttackUnits, arrays: RecordArrays, at: int) -> Riskiest:
    seen, examples, group = arrays.vulnerability, shadows.pool.examples, int(arrays.copies[at])
    assert shadows.bank is not None
    of, place = place_in_set(shadows.bank, int(shadows.pool.columns[units.first[at]]))
    label = int(units.common(examples.labels)[at])
    revealing = None if arrays.revealing is None or arrays.revealing[at] < 0 else int(arrays.revealing[at])
    return Riskiest(
        set=of,
        place=place,
        records=int(units.records[at]),
        label="" if label < 0 else examples.class_names[label],
        models=int(seen.inside[at]),
        saturated=float(arrays.saturated[at]),
        revealing=None if revealing is None else examples.class_names[revealing],
        **{name: float(getattr(seen, name)[at]) for name in NUMBERS},
        copies=0 if group < 0 else int((arrays.copies == group).sum()) - 1,
    )


def beside_pdtp(
    pdtp: Float[np.ndarray, " n"], named_shares: Float[np.ndarray, " n"], separation: Float[np.ndarray, " n"]
) -> BesidePDTP:
    """PDTP of records beside the share of models that name them and their separation; NaN where one is not known."""
    indices = np.flatnonzero(~np.isnan(pdtp) & np.isfinite(named_shares))
    listed = np.sort(indices[np.argsort(-pdtp[indices], kind="stable")[:MOST_POINTS]])
    values, shares, separations = (column[indices] for column in (pdtp, named_shares, separation))
    by_pdtp, by_attack = values > RISKY, shares >= OFTEN
    ranks = [mid_ranks(column) for column in (values, shares, np.nan_to_num(separations, nan=0.5))]
    related = correlation(ranks[0], ranks[1])
    return BesidePDTP(
        rank_correlation=related.coefficient,
        p_value=related.p_value,
        separation_correlation=correlation(ranks[0], ranks[2]).coefficient,
        both=int((by_pdtp & by_attack).sum()),
        pdtp_alone=int((by_pdtp & ~by_attack).sum()),
        attack_alone=int((~by_pdtp & by_attack).sum()),
        neither=int((~by_pdtp & ~by_attack).sum()),
        pdtp=tuple(pdtp[listed].tolist()),
        named=tuple(named_shares[listed].tolist()),
    )


def revealing_classes(shadows: ShadowModels) -> Int[np.ndarray, " n"] | None:
    """The class whose probability differs most, on average, between models with a record and models without it.

    None if the bank stores one number for each record, of no other class, or has too many classes; -1 for a record that
    all models or none were trained on.
    """
    bank, columns, inside = shadows.bank, shadows.pool.columns, shadows.membership
    assert bank is not None
    assert shadows.numbers is not None
    classes = bank.description.classes
    if bank.description.outputs not in BY_CLASS or 16 * len(columns) * classes > MAX_BYTES // 4:
        return None
    sums = np.zeros((2, len(columns), classes))
    for model, membership in zip(shadows.numbers.tolist(), inside, strict=True):
        values = bank.outputs(model)
        rows = max(1, BLOCK // (values.shape[1] * classes))
        for start in range(0, len(columns), rows):
            part = slice(start, start + rows)
            probabilities = values[columns[part]].astype(np.float64)
            if bank.description.outputs == "logits":
                probabilities = np.exp(probabilities - probabilities.max(axis=2, keepdims=True))
            probabilities = (probabilities / probabilities.sum(axis=2, keepdims=True)).mean(axis=1)
            sums[0, part] += np.where(membership[part, None], probabilities, 0.0)
            sums[1, part] += np.where(membership[part, None], 0.0, probabilities)
    times = inside.sum(axis=0)
    in_and_out = (times > 0) & (times < len(inside))
    apart = sums[0] / np.maximum(times, 1)[:, None] - sums[1] / np.maximum(len(inside) - times, 1)[:, None]
    return np.where(in_and_out, np.abs(apart).argmax(axis=1), -1)
