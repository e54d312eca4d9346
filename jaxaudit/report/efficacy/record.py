"""The `efficacy` answer as JSON: what `jaxaudit efficacy --json` prints and `--out` writes."""

from typing import Literal

import msgspec
import numpy as np

from jaxaudit.audits.efficacy.result import EfficacyAudit, JudgedWeights
from jaxaudit.audits.finding import Finding
from jaxaudit.kernels.likelihoods import Categorical
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
    accuracy: float | None
    mean_log_probability: Number
    layers: list[Layer]
    conversion_error: float | None = None
    mean_gradient_norm: float | None = None
    true_information: float | None = None


class Exposed(Part):
    """One record: the squared norm of its gradient and its cosine with the mean gradient, by name of the weights.

    `class` is empty where records have no class; a cosine is none where a gradient is 0.
    """

    index: int
    class_name: str = msgspec.field(name="class")
    information: dict[str, float]
    similarity: dict[str, float | None] = msgspec.field(default_factory=dict)


class EfficacyRecord(Record, kw_only=True):
    """The object.

    `models` begins with the weights in question. `records` is in the order of the data and complete up to
    `MOST_RECORDS`, beyond that those with the smallest gradients, which the weights in question fit best. `caveats` are
    those of the finding. `log_likelihood` is the formula of the likelihood: z are the outputs, y is the label.
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
    likelihood: str = "categorical"
    log_likelihood: str = Categorical.statement
    conversion_error: float | None = None


def efficacy_record(
    audit: EfficacyAudit, class_names: tuple[str, ...], notes: tuple[str, ...], provenance: Provenance
) -> EfficacyRecord:
    """The record of an audit.

    Args:
        audit: what was found.
        class_names: of the network's outputs; none where a record has no class.
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
        likelihood=audit.likelihood.name,
        log_likelihood=audit.likelihood.statement,
        conversion_error=max((each for each in errors if each is not None), default=None),
        models=[_model(model, "reference" if index else "judged") for index, model in enumerate(audit.models)],
        paths=audit.judged.measured.paths,
        records=[
            Exposed(
                index,
                class_names[audit.labels[index]] if class_names else "",
                {model.name: float(model.measured.per_example[index]) for model in audit.models},
                {m.name: _cosine(m, index) for m in audit.models if m.measured.similarity is not None},
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
    similarities = {
        f"similarity of {model.name}": model.measured.similarity
        for model in audit.models
        if model.measured.similarity is not None
    }
    classes = {"class": np.array(class_names)[audit.labels]} if class_names else {}
    return {"index": np.arange(len(audit.labels)), **classes, **informations, **similarities}


def _cosine(model: JudgedWeights, index: int) -> float | None:
    found = model.measured.similarity
    return None if found is None or np.isnan(found[index]) else float(found[index])


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
        model.measured.mean_gradient_norm,
        model.true_information,
    )


def _layer(name: str, found: Efficacy) -> Layer:
    return Layer(name, extended(found.efficacy), float(found.information), extended(found.bound))
