"""Which records does PDTP call risky that an attack does not give away, and the other way round?"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from jaxaudit.metrics.attack import Correlation, correlation

RISKY, OFTEN = 1.0, 0.5
"""At risk: a PDTP above 1 nat (DTP-1); named in half or more of the models trained on the record."""


class BesidePDTP(NamedTuple):
    """PDTP of records beside how often the deciding attack names them.

    PDTP asks how far leaving a record out moves a model's output on it, an attack how far that is beyond what models
    differ by anyhow.

    Attributes:
        pdtp: nats, of each record; NaN where it was not measured.
        compared: the records of which both are known.
        rank_correlation: Spearman's, of PDTP and the share of models that name the record; `with_separation` of PDTP
            and the separation.
        both, pdtp_alone, attack_alone, neither: records compared, by what they are at risk by.
    """

    pdtp: Float[np.ndarray, " n"]
    compared: Bool[np.ndarray, " n"]
    rank_correlation: Correlation
    with_separation: Correlation
    both: int
    pdtp_alone: int
    attack_alone: int
    neither: int


def beside_pdtp(
    pdtp: Float[np.ndarray, " n"], named: Float[np.ndarray, " n"], separation: Float[np.ndarray, " n"]
) -> BesidePDTP:
    """PDTP of records beside the share of models that name them and their separation; NaN where one is not known."""
    compared = ~np.isnan(pdtp) & np.isfinite(named)
    values, named, separation = (each[compared] for each in (pdtp, named, separation))
    by_pdtp, by_attack = values > RISKY, named >= OFTEN
    ranks = [stats.rankdata(each) for each in (values, named, np.nan_to_num(separation, nan=0.5))]
    return BesidePDTP(
        pdtp,
        compared,
        correlation(ranks[0], ranks[1]),
        correlation(ranks[0], ranks[2]),
        int((by_pdtp & by_attack).sum()),
        int((by_pdtp & ~by_attack).sum()),
        int((~by_pdtp & by_attack).sum()),
        int((~by_pdtp & ~by_attack).sum()),
    )
