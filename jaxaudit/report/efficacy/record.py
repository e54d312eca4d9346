"""The `efficacy` answer as one JSON object; its shape is fixed by `efficacy.schema.json` beside this file."""

import math
from importlib.resources import files
from typing import Any

import numpy as np

from jaxaudit.audits.efficacy.audit import EfficacyAudit, JudgedWeights
from jaxaudit.metrics.efficacy import Efficacy

SCHEMA = "jaxaudit.efficacy/1"
MOST_RECORDS = 100_000


def efficacy_json(
    audit: EfficacyAudit, class_names: tuple[str, ...], notes: tuple[str, ...], provenance: dict[str, Any]
) -> dict[str, Any]:
    """The object `jaxaudit efficacy --json` prints; an infinite efficacy, which JSON cannot hold, is `infinity`.

    `models` begins with the weights in question. `records` is in the order of the data and complete up to
    `MOST_RECORDS`, beyond that those that the weights in question expose most.
    """
    shown = np.arange(len(audit.labels))
    if len(shown) > MOST_RECORDS:
        shown = np.sort(np.argsort(audit.judged.measured.per_example, kind="stable")[:MOST_RECORDS])
    return {
        "schema": SCHEMA,
        "records_measured": len(audit.labels),
        "outputs": audit.classes,
        "models": [_model(model, index == 0) for index, model in enumerate(audit.models)],
        "paths": audit.judged.measured.paths,
        "records": [
            {
                "index": index,
                "class": class_names[audit.labels[index]],
                "information": {model.name: float(model.measured.per_example[index]) for model in audit.models},
            }
            for index in shown.tolist()
        ],
        "caveats": list(caveats(audit, notes)),
        "provenance": provenance,
    }


def efficacy_columns(audit: EfficacyAudit, class_names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The records' part of it, of all records, for `record_files`."""
    informations = {f"information of {model.name}": model.measured.per_example for model in audit.models}
    return {"index": np.arange(len(audit.labels)), "class": np.array(class_names)[audit.labels], **informations}


def efficacy_schema() -> str:
    """The JSON Schema of that object, as text."""
    return (files("jaxaudit.report.efficacy") / "schema.json").read_text(encoding="utf-8")


def caveats(audit: EfficacyAudit, notes: tuple[str, ...]) -> tuple[str, ...]:
    """What a reader should keep in mind, in sentences."""
    said = []
    if not audit.references:
        said.append(
            "a lone efficacy is no verdict: it is large for every model that fits the records, whether it saw them or "
            "not. Put the same network's weights beside it, untrained, original, or retrained without the records "
            "(--reference)"
        )
    else:
        said.append(
            "one model a reference: chance between seeds is not shown; the unlearn command places methods in the band "
            "of many retrained models"
        )
    perfect = [model.name for model in audit.models if math.isinf(model.measured.whole.efficacy)]
    if perfect:
        said.append(
            f"infinite efficacy of {', '.join(perfect)}: every gradient is 0 in float32, which is what fitting the "
            "records perfectly looks like, too"
        )
    if audit.draws:
        said.append("the network is random in training (dropout or the like); it was judged in evaluation mode")
    if any(model.measured.short for model in audit.models):
        said.append(
            "the network computes in floats of 16 bits or fewer: these numbers are good to some percent only, and "
            "small gradients may be lost"
        )
    slow = [name for name, path in audit.judged.measured.paths.items() if path != "contracted"]
    if slow:
        some = ", ".join(slow[:3]) + (f" and {len(slow) - 3} more" if len(slow) > 3 else "")
        said.append(f"computed example by example, by vmap(grad), where no rule matched: {some}")
    return (*said, *notes)


def _model(model: JudgedWeights, judged: bool) -> dict[str, Any]:
    measured = model.measured
    return {
        "name": model.name,
        "role": "judged" if judged else "reference",
        **_efficacy(measured.whole),
        "accuracy": model.accuracy,
        "mean_log_probability": model.mean_log_prob,
        "layers": [{"name": name, **_efficacy(found)} for name, found in measured.layers.items()],
    }


def _efficacy(found: Efficacy) -> dict[str, float | str]:
    return {name: _number(value) for name, value in found._asdict().items()}


def _number(value: float) -> float | str:
    return "infinity" if math.isinf(value) else float(value)
