"""The `efficacy` answer as JSON: what `jaxaudit efficacy --json` prints and `--out` writes."""

from typing import Literal

import msgspec
import numpy as np

from jaxaudit.audits.efficacy.result import EfficacyAudit, JudgedWeights
from jaxaudit.audits.finding import Finding
from jaxaudit.metrics.efficacy import SOURCE, Efficacy
from jaxaudit.report.papers import cited
from jaxaudit.report.record import Extended, Number, Part, Provenance, Record, extended, number

MOST_RECORDS = 100_000


class Layer(Part):
    """Efficacy of one layer alone; information in nats squared a squared unit of parameter."""

    name: str
    efficacy: Extended
    information: float
    bound: Extended


class Model(Part):
    """One set of weights; see `jaxaudit.audits.efficacy.result.JudgedWeights`."""

    name: str
    role: Literal["judged", "reference"]
    efficacy: Extended
    information: float
    bound: Extended
    accuracy: float
    mean_log_probability: Number
    layers: list[Layer]
    conversion_error: float | None = None


class Exposed(Part):
    """One record: the squared norm of its gradient, by name of the weights."""

    index: int
    class_name: str = msgspec.field(name="class")
    information: dict[str, float]


class EfficacyRecord(Record, kw_only=True):
    """The object.

    `models` begins with the weights in question. `records` is in the order of the data and complete up to
    `MOST_RECORDS`, beyond that those that the weights in question expose most. `caveats` are those of the finding.
    `conversion_error` is the largest of all weights; see `jaxaudit.audits.efficacy.result.JudgedWeights`.
    """

    schema: Literal["jaxaudit.efficacy/2"] = "jaxaudit.efficacy/2"
    finding: Finding
    records_measured: int
    outputs: int
    models: list[Model]
    paths: dict[str, str]
    records: list[Exposed]
    caveats: list[str]
    framework: str = "jax"
    conversion_error: float | None = None


def efficacy_record(
    audit: EfficacyAudit, class_names: tuple[str, ...], notes: tuple[str, ...], provenance: Provenance
) -> EfficacyRecord:
    """The record of an audit.

    Args:
        audit: what was found.
        class_names: of the network's outputs.
        notes: further sentences, which become caveats of the finding.
        provenance: what repeats the run.
    """
    finding = msgspec.structs.replace(audit.finding, caveats=(*audit.finding.caveats, *notes))
    shown = np.arange(len(audit.labels))
    if len(shown) > MOST_RECORDS:
        shown = np.sort(np.argsort(audit.judged.measured.per_example, kind="stable")[:MOST_RECORDS])
    errors = [model.conversion_error for model in audit.models]
    return EfficacyRecord(
        finding=finding,
        records_measured=len(audit.labels),
        outputs=audit.classes,
        framework=audit.framework,
        conversion_error=max((each for each in errors if each is not None), default=None),
        models=[_model(model, "reference" if index else "judged") for index, model in enumerate(audit.models)],
        paths=audit.judged.measured.paths,
        records=[
            Exposed(
                index,
                class_names[audit.labels[index]],
                {model.name: float(model.measured.per_example[index]) for model in audit.models},
            )
            for index in shown.tolist()
        ],
        caveats=list(finding.caveats),
        papers=cited([SOURCE]),
        provenance=provenance,
    )


def efficacy_columns(audit: EfficacyAudit, class_names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """A row for every record, as columns by name: what `jaxaudit.runs.row_files.record_files` takes."""
    informations = {f"information of {model.name}": model.measured.per_example for model in audit.models}
    return {"index": np.arange(len(audit.labels)), "class": np.array(class_names)[audit.labels], **informations}


def _model(model: JudgedWeights, role: Literal["judged", "reference"]) -> Model:
    whole = model.measured.whole
    return Model(
        model.name,
        role,
        extended(whole.efficacy),
        float(whole.information),
        extended(whole.bound),
        model.accuracy,
        number(model.mean_log_prob),
        [_layer(name, found) for name, found in model.measured.layers.items()],
        model.conversion_error,
    )


def _layer(name: str, found: Efficacy) -> Layer:
    return Layer(name, extended(found.efficacy), float(found.information), extended(found.bound))
