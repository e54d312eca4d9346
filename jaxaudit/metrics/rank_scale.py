"""A scale for scores of any unit: the log-odds of a score's rank among the scores of all shadow models.

Tests and attacks are made for log-odds in nats: they cut them, and shrink variances of records towards one another. A
loss, a compression length or a distance has another unit, so its rank takes its place: any other increasing function of
the score gives the same ranks. They are taken among all models and records together: between two scores that shadow
models give a record there is always a step, so no order of models is lost, and records that all models find hard stay
hard. The scale does not use memberships or sets, so exact tests stay exact.

A score has no unit. Where records have no classes, a model gives each a number (`outputs` of a bank: `score`), and
tests that cut log-odds in nats would cut it anywhere. So scores are brought to one scale when a bank is opened
(`metrics/rank_scale.py`): the log-odds of a score's rank among the scores of all models on all records. It depends on
no membership mask and on no set, so exact p-values stay exact; any increasing function of the score gives the same
numbers, bit for bit; and between any two scores of shadow models on a record there is a step, so no model loses its
place, as it would in ranks record by record or of one model. Log-likelihoods keep their nats: they are probabilities,
which RMIA compares. What needs classes finds none in the pool (`Pool.classless`), and says so.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32
from scipy import special

from jaxaudit.errors import InputError

MOST_STEP = 0.25
"""The largest step between scores of a target, as a share of the deviation of a record's scores over shadow models."""


@dataclass(frozen=True, eq=False)
class RankScale:
    """The scale of a bank of scores; larger scores mean more likely used.

    Attributes:
        known_scores: the scores of all models on all records, in ascending order.
        spread: the standard deviation of a record's score over models: its median over records.
        step: the step between neighbouring scores in the files of the models.

    >>> scale = RankScale(np.float32([-3.0, -2.0, -1.0]), 1.0, 0.0)
    >>> scale(np.array([-3.0, -2.0, -1.0, -0.5])).round(2)
    array([-1.1 ,  0.  ,  1.1 ,  1.95])
    """

    known_scores: Float32[np.ndarray, " n"]
    spread: float
    step: float

    def __call__(self, scores: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
        """The log-odds of the share of known scores that are smaller; equal ones count half."""
        # In ascending order each search begins where the last one ended: far faster for many scores.
        order = np.argsort(scores, axis=None)
        ascending = scores.ravel()[order].astype(np.float32)
        twice = np.searchsorted(self.known_scores, ascending, "left") + np.searchsorted(
            self.known_scores, ascending, "right"
        )
        log_odds_of_ranks = np.empty(scores.size)
        log_odds_of_ranks[order] = special.logit((twice + 1) / (2 * len(self.known_scores) + 2))
        return log_odds_of_ranks.reshape(scores.shape)

    def refuse_coarse(self, step: float, name: str) -> None:
        """Refuses (`InputError`) scores in the file `name` whose `step` of rounding decides how they compare."""
        if step > self.step and step > MOST_STEP * self.spread:
            raise InputError(
                f"{name}: its scores are rounded to about {step:.1g}, while the scores of a record differ by "
                f"{self.spread:.1g} between shadow models; save them with as many digits as those of the bank."
            )


def rank_scale(scores: Float[np.ndarray, "models views n"], step: float = 0.0) -> RankScale:
    """The scale of these models' scores; see `RankScale`."""
    return RankScale(np.sort(scores, axis=None).astype(np.float32), float(np.median(scores.std(axis=0))), step)
