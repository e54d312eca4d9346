"""Ensembled membership auditing as a test of `ks`, by rho's calibration models: see `jaxaudit.metrics.ema`."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Array, Key

from jaxaudit.audits.finding import Confidence, Finding, undecided
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs
from jaxaudit.audits.ks.models import Rows
from jaxaudit.audits.ks.tests_of_use.test import Judgement, KSTest, p_text
from jaxaudit.errors import InputError
from jaxaudit.membership import Membership
from jaxaudit.metrics.checks import CALIBRATION_LIKE_QUERY, SHADOW_ACCURACY, TARGET_OUTPUTS, Check
from jaxaudit.metrics.ema import EMA, Signals, ema_of_flags, member_flags
from jaxaudit.shadow_models import Kind, Pool

NEEDS = frozenset({CALIBRATION_LIKE_QUERY, SHADOW_ACCURACY, TARGET_OUTPUTS})


@dataclass(frozen=True, kw_only=True)
class EMATest(KSTest):
    """Does every query record look like a training record of the target? (Huang, Li & Li 2021)

    EMA never concludes `forgotten`: that would only mean that not all records were used, and the used fraction has no
    upper limit.
    """

    name: ClassVar[str] = "ema"
    title: ClassVar[str] = "EMA"
    source: ClassVar[str] = "Huang, Li & Li 2021"
    errors: ClassVar[str] = "No error rate of EMA is known in advance."
    assumes: ClassVar[str] = (
        "EMA: records that the target merely classifies well look like training records. It gives "
        "no upper limit of the used fraction, so `forgotten` is not concluded."
    )

    of_classes: ClassVar[bool] = True
    with_signals: ClassVar[bool] = True

    def refuse_rows(self, rows: Rows, pool: Pool) -> None:
        refuse_without_records(rows[Kind.CALIBRATION], pool)

    def judge(
        self, key: Key[Array, ""], outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...], level: float
    ) -> Judgement:
        return self.decide(_ema(outputs, evidence))

    def decide(self, ema: EMA) -> Judgement:
        """The judgement that follows from EMA's numbers."""
        words = f"{ema.member_share:.1%} of the query records look like training records ({p_text(ema.p_value)})"
        if ema.rule == "not forgotten":
            why = "So do the records of a model that merely classifies them well."
            sentence = f"EMA: {words}."
            finding = Finding(
                "not forgotten", "bad", sentence, (words,), Confidence("fair", why), caveats=(self.assumes,)
            )
        else:
            sentence = f"EMA: {words}, so not all of them were used. Whether a part was used is not determined."
            why = "EMA gives no upper limit of the used fraction."
            finding = undecided(sentence, (words,), why, (self.assumes,), ("Use a holdout, or the shadow test.",))
        return Judgement(self.name, self.title, finding, NEEDS, details=ema)


TEST = EMATest


def refuse_without_records(rows: Membership, pool: Pool) -> None:
    """Checks that there are calibration models, and that each leaves out records for EMA to learn from."""
    if not len(rows):
        raise InputError("EMA learns from rho's calibration models, and there are none: add RhoTest() to the tests.")
    if rows[:, pool.calibration].all(axis=1).any():
        raise InputError(
            "EMA learns from calibration records that a calibration model was not trained on, and with a subsample of "
            "1 there are none; use 0.9 (`subsample`)."
        )


def _ema(outputs: TargetOutputs, evidence: Evidence) -> EMA:
    """EMA with each replicate's calibration model."""
    models = evidence.models.take(evidence.models.of(Kind.CALIBRATION))
    refuse_without_records(models.membership, evidence.pool)
    if outputs.signals is None or models.signals is None:
        raise InputError("EMA needs the signals of the target's outputs, and there are none.")
    n, examples = evidence.queries, evidence.pool.examples
    rows, signals = models.membership[:, evidence.pool.calibration], models.signals
    return ema_of_flags(
        [
            member_flags(
                outputs.signals,
                examples.labels[:n],
                Signals(*(signal[index, n:] for signal in signals)),
                examples.labels[evidence.pool.calibration],
                members,
                len(examples.class_names),
            )
            for index, members in enumerate(rows)
        ]
    )
