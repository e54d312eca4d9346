"""What an attack would reach on the same models if less of their outputs were published.

The outputs of a bank are made coarser, of the shadow models and of the attacked model alike, and attacked again. An
attacker may still ask more than once: classes alone, of many inputs near a record, tell nearly as much as probabilities
of the record (Choquette-Choo, Tramèr, Carlini & Papernot 2021).
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from jaxaudit.attacks.records import RecordAttack, ShadowScores
from jaxaudit.audits.attack.exposure import AttackUnits
from jaxaudit.audits.attack.finding import GUESSING, INCONCLUSIVE, grade_of
from jaxaudit.audits.attack.result import Published
from jaxaudit.audits.bank_odds import Detail, at_resolution, coarser, detail_of
from jaxaudit.data.bank.bank import read_models
from jaxaudit.data.bank.description import BY_CLASS
from jaxaudit.metrics.attack_rates import attack_rates
from jaxaudit.metrics.scores import cut
from jaxaudit.shadow_models import ShadowModels

SOURCE = "Choquette-Choo et al. 2021"
Odds = Float[np.ndarray, "models views records"]
DIGITS = (2, 1)
"""Decimals of the probabilities that are tried."""


def with_less_published(
    shadows: ShadowModels,
    shadowed: ShadowScores,
    attack: RecordAttack,
    units: AttackUnits,
    alone: Bool[np.ndarray, " records"],
    usual: bool,
) -> tuple[Published, ...]:
    """The attack's rates on coarser outputs of the models of a bank; none of a bank without a number for each class.

    An attack that is not the `usual` one shows of no outputs that attacks are no better than guessing, unless no model
    gives other ones.
    """
    truth = units.whole(shadows.membership, "the shadow models' training sets")
    rows = []
    for outputs, odds in _coarser_outputs(shadows):
        # Outputs that no model gives otherwise tell nothing; how often others were dealt the record is no output.
        still = np.ptp(odds[..., units.attacked], axis=(0, 1)) == 0
        scores = attack.scores(shadowed._replace(models=odds[..., units.attacked]))
        scores[:, still] = 0
        scores[:, alone] = np.nan
        rates = attack_rates(units.scores(scores), truth)
        grade = GUESSING if still.all() else grade_of(rates)
        if grade is None or (grade == GUESSING and not usual and not still.all()):
            grade = INCONCLUSIVE
        rows.append(Published(outputs, grade, rates.auc, rates.tpr_at_fpr, rates.realised_fpr))
    return tuple(rows)


def _coarser_outputs(shadows: ShadowModels) -> Iterator[tuple[str, Odds]]:
    """What is published, in words, and the log-odds (nats) of each record's own class that follow from it."""
    assert shadows.bank is not None
    assert shadows.views is not None
    description, odds = shadows.bank.description, shadows.views
    if description.outputs not in BY_CLASS:
        return
    details = [detail_of(resolution) for resolution in shadows.resolutions]
    for decimals in DIGITS:
        detail = Detail(False, decimals, None, "float64", 10.0**-decimals)
        if coarser(details, [detail]):
            yield f"probabilities with {decimals} digit{'' if decimals == 1 else 's'}", at_resolution(odds, [detail])
    right = odds > 0
    if description.classes > 2:
        right, largest = _first_class(shadows)
        # Of a class that is not named an attacker knows that the others share what the first one left.
        left = np.maximum(1 - largest, 0) / (description.classes - 1)
        with np.errstate(divide="ignore"):
            yield "the first class with its probability", np.where(right, odds, cut(special.logit(left)))
    yield "the first class alone", np.where(right, 1.0, -1.0)


def _first_class(shadows: ShadowModels) -> tuple[Bool[np.ndarray, "models views records"], Odds]:
    """Whether the class with the largest probability is the record's own, and that probability."""
    bank, numbers = shadows.bank, shadows.numbers
    assert bank is not None
    assert numbers is not None
    columns, labels = shadows.pool.columns, shadows.pool.examples.labels

    def read(_: int, values: Float[np.ndarray, "n views values"]) -> tuple[np.ndarray, np.ndarray]:
        outputs = np.asarray(values[columns], np.float64)
        if bank.description.outputs == "logits":
            outputs = special.softmax(outputs, axis=2)
        return (outputs.argmax(axis=2) == labels[:, None]).T, outputs.max(axis=2).T

    outputs_of_models, _ = read_models(bank, numbers.tolist(), read)
    right, largest = zip(*outputs_of_models, strict=True)
    return np.stack(right), np.stack(largest)
