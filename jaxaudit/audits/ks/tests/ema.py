"""Ensembled membership auditing as a test of `ks`: see `jaxaudit.metrics.ema`. It uses rho's calibration models."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.finding import Confidence, Finding
from jaxaudit.audits.ks.evidence import Evidence, Said
from jaxaudit.audits.ks.models import Roles
from jaxaudit.audits.ks.tests.rho import CALIBRATION
from jaxaudit.audits.ks.tests.test import Judgement, failed, medians, p_text, undecided
from jaxaudit.audits.pool import Pool
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import CALIBRATION_LIKE_QUERY, SHADOW_ACCURACY, TARGET_OUTPUTS, Check
from jaxaudit.metrics.ema import EMA, Signals, ema_of_signals, ema_rule

NEEDS = frozenset({CALIBRATION_LIKE_QUERY, SHADOW_ACCURACY, TARGET_OUTPUTS})


@dataclass(frozen=True, kw_only=True)
class EMATest:
    """Does every query record look like a training record of the target? (Huang, Li & Li 2021)

    Its `forgotten` is not said: it stands for "not all of it", and nothing says how small a part would be detected.
    """

    name: ClassVar[str] = "ema"
    title: ClassVar[str] = "EMA"
    assumes: ClassVar[str] = (
        "EMA: records that the target merely classifies well look like training records. It does not say how small a "
        "used part would be detected, so `forgotten` is not said."
    )

    @property
    def references(self) -> int:
        return 0

    def training_sizes(self, query: int, calibration: int) -> tuple[tuple[int, int], ...]:
        return ()

    def lighter(self) -> "EMATest":
        return self

    def refuse(self, query: Examples, holdout: Examples | None) -> None:
        pass

    def draw(self, key: Key[Array, ""], pool: Pool) -> Roles:
        return {}

    def judge(
        self, key: Key[Array, ""], said: Said, evidence: Evidence, common: tuple[Check, ...], level: float
    ) -> Judgement:
        emas = _emas(said, evidence)
        p_value, share = medians(emas)
        words = f"{share:.1%} of the query records look like training records ({p_text(p_value)})"
        check = failed(common, NEEDS)
        if check is not None:
            finding = undecided(check, self.assumes)
        elif ema_rule(p_value) == "not forgotten":
            why = "So do the records of a model that merely classifies them well."
            sentence = f"EMA: {words}."
            finding = Finding(
                "not forgotten", "bad", sentence, (words,), Confidence("fair", why), caveats=(self.assumes,)
            )
        else:
            sentence = f"EMA: {words}, so not all of them were used. Whether a part was used is not determined."
            finding = Finding(
                "inconclusive",
                "open",
                sentence,
                (words,),
                Confidence("none", "EMA does not say how small a used part would be detected."),
                caveats=(self.assumes,),
                would_change=("Use a holdout (--holdout), or the shadow test (--tests shadow).",),
            )
        return Judgement(self.name, self.title, finding, NEEDS, ema=emas)


def _emas(said: Said, evidence: Evidence) -> tuple[EMA, ...]:
    """What EMA says with each replicate's calibration model."""
    if said.signals is None:
        raise InputError("EMA needs the signals of the target's outputs, and none were taken.")
    n, query, calibration = evidence.queries, evidence.query, evidence.calibration
    rows = np.concatenate(evidence.roles[CALIBRATION])[:, evidence.pool.calibration]
    if rows.all():
        raise InputError(
            "EMA learns from calibration records that a calibration model was not trained on, and with a subsample of "
            "1 there are none; use 0.9 (--subsample)."
        )
    theirs = evidence.trained[CALIBRATION].signals
    return tuple(
        ema_of_signals(
            said.signals,
            query.labels,
            Signals(*(each[index, n:] for each in theirs)),
            calibration.labels,
            members,
            len(query.class_names),
        )
        for index, members in enumerate(rows)
    )
