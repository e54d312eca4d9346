"""The result of the `efficacy` audit, which is its JSON, and the measurements that it follows from; no verdict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta, field

from jaxaudit.audits.finding import Checked, Confidence, Finding, assumed, in_order
from jaxaudit.errors import few
from jaxaudit.json_types import Number, StrictStruct, demand
from jaxaudit.metrics.efficacy import Efficacy, EfficacyByLayer

LISTED = 100_000
"""The most records that a result lists."""


class WeightsExposure(Efficacy, frozen=True, kw_only=True):
    """How much one set of weights exposes of the records; see `jaxaudit.metrics.EfficacyByLayer`.

    Attributes:
        layers: efficacy of each layer alone, by its name.
        accuracy: share of records that are classified correctly; None for texts.
        mean_log_probability: of the label, in nats.
        conversion_error: the largest distance of a record's outputs from those computed by the network's own framework,
            relative to the root mean square norm of the latter; None for a network written in JAX.
    """

    name: str
    accuracy: float | None
    mean_log_probability: Number
    layers: dict[str, Efficacy]
    conversion_error: float | None = None


class Exposed(StrictStruct, frozen=True):
    """One record, and how much each set of weights, by name, exposes of it: the squared norm of the gradient at the
    record. `class_name`, empty without classes, is `class` in JSON.
    """

    index: int
    class_name: str = field(name="class")
    information: dict[str, float]


class EfficacyResult(StrictStruct, frozen=True, kw_only=True):
    """The result of the `efficacy` audit.

    Attributes:
        finding: what was measured, and how far it can be interpreted.
        models: the judged weights, then the references.
        paths: how the gradient of each parameter was computed; see `jaxaudit.metrics.EfficacyByLayer`.
        records: all records in the order of the data, up to `LISTED`; of more, those with the smallest gradients under
            the judged weights, which fit them best.
        framework: what the network is written in: `flax.nnx`, `flax.linen` or `torch`.
        likelihood: what the outputs mean. `log_likelihood`: its formula, with outputs z and label y.
    """

    finding: Finding
    records_measured: int
    outputs: int
    models: Annotated[tuple[WeightsExposure, ...], Meta(min_length=1)]
    paths: dict[str, str]
    records: tuple[Exposed, ...]
    framework: str
    likelihood: str
    log_likelihood: str

    @property
    def conversion_error(self) -> float | None:
        """The largest of all weights; see `WeightsExposure`."""
        return max(
            (model.conversion_error for model in self.models if model.conversion_error is not None), default=None
        )


@dataclass(frozen=True, eq=False)
class EfficacyAudit:
    """The result of the `efficacy` audit, and each record's measurements by the judged weights, then references."""

    result: EfficacyResult
    measured: tuple[EfficacyByLayer, ...]
    labels: np.ndarray
    class_names: tuple[str, ...] = ()

    @property
    def finding(self) -> Finding:
        """What was measured, and how far it can be interpreted."""
        return self.result.finding

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A table with one row for each record."""
        models = list(zip(self.result.models, self.measured, strict=True))
        informations = {f"information of {model.name}": by_layer.per_example for model, by_layer in models}
        classes = {"class": np.array(self.class_names)[self.labels]} if self.class_names else {}
        return {"index": np.arange(len(self.labels)), **classes, **informations}


def exposed(
    models: Sequence[WeightsExposure],
    measured: Sequence[EfficacyByLayer],
    labels: np.ndarray,
    class_names: tuple[str, ...],
) -> tuple[Exposed, ...]:
    """The records as a result lists them: see `EfficacyResult.records`."""
    shown = np.arange(len(labels))
    if len(shown) > LISTED:
        shown = np.sort(np.argsort(measured[0].per_example, kind="stable")[:LISTED])
    by_name = [(model.name, by_layer) for model, by_layer in zip(models, measured, strict=True)]
    return tuple(
        Exposed(
            index,
            class_names[labels[index]] if class_names else "",
            {name: float(by_layer.per_example[index]) for name, by_layer in by_name},
        )
        for index in shown.tolist()
    )


def check_efficacy_result(result: EfficacyResult) -> None:
    names = [model.name for model in result.models]
    demand(len({*names}) == len(names), "two sets of weights have one name")
    layers = {tuple(model.layers) for model in result.models}
    demand(len(layers) == 1 and layers != {()}, "its weights have different layers, or none")


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
    """The finding `no verdict`: the measurements of the judged weights, compared with those of the references."""
    judged, *references = models
    reference_numbers = ", ".join(f"{reference.name}: {_number(reference.efficacy)}" for reference in references)
    sentence = (
        f"Efficacy of {judged.name}: {_number(judged.efficacy)} (information {_number(judged.information)})"
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
    relation = "below" if judged.efficacy < reference.efficacy else "above"
    relation = "equal to" if judged.efficacy == reference.efficacy else relation
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
        some = few(slow, NAMED)
        caveats.append(f"Per-example gradients were materialised (vmap(grad)), where no rule matched: {some}.")
    return tuple(caveats)


def _number(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.4g}"
