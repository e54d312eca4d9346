"""LiRA exactly as the authors' code computes it (`tensorflow/privacy`, `research/mi_lira_2021/plot.py`)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.attacks.records.attack import Least, ShadowScores
from jaxaudit.attacks.records.lira import log_normal


@dataclass(frozen=True)
class LiRACode:
    """LiRA as the authors' code computes it, to compare with published numbers; for other purposes prefer `LiRA`.

    - Of the models with a record, and of those without it, the first k are used, the smallest number over records.
    - The standard deviation that all records share (`fixed`) is that of all log-odds, so that it includes the
      differences between records. Online, that of models with a record is used for both sides.
    - The offline score is two-sided: minus the log-density. Log-odds far below those of models without the record score
      as high as log-odds far above them.
    """

    online: bool = True
    fixed: bool = False
    meaning = "The same as its authors' code computes it, to compare with published numbers."
    source = "Carlini et al. 2022, code"

    @property
    def name(self) -> str:
        return "lira" + ("" if self.online else "-offline") + ("-fixed" if self.fixed else "") + "-code"

    @property
    def least(self) -> Least:
        return Least(int(self.online), 1)

    def scores(self, shadowed: ShadowScores) -> Float[np.ndarray, "targets n"]:
        """See `RecordAttack`; all NaN if some record has too few shadow models."""
        if shadowed.targets is not None:
            return np.stack([self._of(x, shadowed.models, shadowed.membership) for x in shadowed.targets])
        rows = np.arange(len(shadowed.models))
        # The others are copied for one model at a time.
        other_models = ((shadowed.models[rows != row], shadowed.membership[rows != row]) for row in rows)
        return np.stack([self._of(model, *rest) for model, rest in zip(shadowed.models, other_models, strict=True)])

    def _of(
        self,
        x: Float[np.ndarray, "views n"],
        models: Float[np.ndarray, "models views n"],
        membership: Bool[np.ndarray, "models n"],
    ) -> Float[np.ndarray, " n"]:
        outer = _first(models, ~membership)
        inner = _first(models, membership) if self.online else outer
        if not len(outer) or not len(inner):
            return np.full(x.shape[1], np.nan)
        of_in, of_out = (inner.std(), inner.std()) if self.fixed else (inner.std(axis=0), outer.std(axis=0))
        density = log_normal(x, np.median(outer, axis=0), of_out)
        if not self.online:
            # Add the constant that `log_normal` leaves out.
            return (np.log(2 * np.pi) / 2 - density).mean(axis=0)
        return (log_normal(x, np.median(inner, axis=0), of_in) - density).mean(axis=0)


def _first(models: np.ndarray, membership: np.ndarray) -> Float[np.ndarray, "k views n"]:
    """Per record, the log-odds of the first k models for which `membership` is true; k is the least of any."""
    count = int(membership.sum(axis=0).min())
    order = np.argsort(~membership, axis=0, kind="stable")[:count]
    return np.take_along_axis(models, order[:, None], axis=0)


ATTACKS = tuple(LiRACode(online, fixed) for online in (True, False) for fixed in (False, True))
