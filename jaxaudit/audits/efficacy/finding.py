"""The finding of the `efficacy` audit, which gives measurements and no verdict."""

import math
from collections.abc import Mapping, Sequence

from jaxaudit.audits.efficacy.result import WeightsExposure
from jaxaudit.audits.finding import Checked, Confidence, Finding, assumed, in_order
from jaxaudit.metrics.efficacy import EfficacyByLayer

CONTRACTED = "contracted"
"""How gradient norms of a parameter were computed if gradients of single examples were not needed."""
NAMED = 3


def efficacy_finding(
    models: Sequence[WeightsExposure],
    measured: Sequence[EfficacyByLayer],
    *,
    draws: bool,
    notes: Sequence[str],
) -> Finding:
    """The finding `no verdict`: the measurements of the judged weights, compared with those of the references.

    `draws`: the network has layers that are random in training, which were switched off. `notes`: further limitations.
    """
    judged, *references = models
    reference_numbers = ", ".join(f"{reference.name}: {_number(reference.efficacy)}" for reference in references)
    sentence = (
        f"Efficacy of the judged weights: {_number(judged.efficacy)} (information {_number(judged.information)})"
        f"{f'; {reference_numbers}' if reference_numbers else ''}."
    )
    checks = _checks(models, any(of_weights.short for of_weights in measured))
    caveats = (*_caveats(measured[0].paths, draws), *notes)
    if not references:
        reasons = ("there is no reference to compare with",)
        confidence = Confidence("none", "A single efficacy cannot be interpreted.")
        more = "Compare with the same network untrained, original, or retrained without the records."
    else:
        reasons = tuple(_compared(judged, reference) for reference in references)
        confidence = Confidence("weak", "One model per reference: variation between seeds is not shown.")
        if all(reference.efficacy == judged.efficacy for reference in references):
            confidence = Confidence("none", "No reference differs from the judged weights.")
        more = "Compare with many retrained models (jaxaudit unlearn)."
    return Finding("no verdict", "open", sentence, reasons, confidence, checks, caveats, (more,))


def _compared(judged: WeightsExposure, reference: WeightsExposure) -> str:
    judged_efficacy, reference_efficacy = judged.efficacy, reference.efficacy
    relation = (
        "equal to"
        if judged_efficacy == reference_efficacy
        else "below"
        if judged_efficacy < reference_efficacy
        else "above"
    )
    return f"efficacy {relation} that of {reference.name}"


def _checks(models: Sequence[WeightsExposure], short: bool) -> tuple[Checked, ...]:
    count = len(models) - 1
    perfect = [model.name for model in models if math.isinf(model.efficacy)]
    compared = f"{count} other {'set' if count == 1 else 'sets'} of weights to compare with"
    alone = "there is no reference, and every model that fits the records has a large efficacy"
    infinite = (
        f"infinite efficacy of {', '.join(perfect)}: every gradient is 0 in float32, as for any model that fits the "
        "records perfectly"
    )
    coarse = (
        "the network computes in floats of 16 bits or fewer: the numbers are accurate to some percent, and small "
        "gradients may be lost"
    )
    finite = "every set of weights has gradients that could be measured"
    return in_order(
        (
            assumed("references", count > 0, compared, alone),
            assumed("finite efficacies", not perfect, finite, infinite),
            assumed("32-bit arithmetic", not short, "the network computes in floats of 32 bits or more", coarse),
        )
    )


def _caveats(paths: Mapping[str, str], draws: bool) -> tuple[str, ...]:
    caveats = ["Efficacy is large for every model that fits the records well, whether it was trained on them or not."]
    if draws:
        caveats.append("The network is random in training (such as dropout). It was judged in evaluation mode.")
    slow = [name for name, path in paths.items() if path != CONTRACTED]
    if slow:
        some = ", ".join(slow[:NAMED]) + (f" and {len(slow) - NAMED} more" if len(slow) > NAMED else "")
        caveats.append(f"Per-example gradients were materialised (vmap(grad)), where no rule matched: {some}.")
    return tuple(caveats)


def _number(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.4g}"
