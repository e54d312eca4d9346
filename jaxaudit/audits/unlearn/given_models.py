"""Reads what models of your own say of the records: from arrays of outputs to log-odds and accuracies.

Arrays may be of an untrusted file: they are read one model at a time, after their shapes were held against the labels.
A log-odds is the logit of a record's class minus the logarithm of the sum of exponentials of the others. So logits need
no normalisation, and log-probabilities are logits.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.audits.unlearn.result import ORIGINAL, RETRAINING, UNTRAINED
from jaxaudit.data.outputs.kinds import (
    Found,
    Kind,
    inside,
    kind_of_outputs,
    of_infinite,
    refuse_bits,
    refuse_hard_labels,
    rounding_of_sums,
    span_of,
)
from jaxaudit.data.outputs.precision import decimals_of
from jaxaudit.errors import InputError
from jaxaudit.metrics.over_models import LARGEST
from jaxaudit.metrics.scores import log_odds

FORGET, RETAIN, TEST = "forget", "retain", "test"
PARTS = (FORGET, RETAIN, TEST)
MOST_MODELS = 2_000
"""Work and memory grow with the square of their number."""
RETRAINED, AGAIN = "retrained", "retrained again"
TAKEN = (RETRAINED, AGAIN, RETRAINING, ORIGINAL, UNTRAINED)
"""Names of references, which no method may have."""
Labels = dict[str, Int[np.ndarray, " records"]]


class GivenModels(NamedTuple):
    """What the models of one file say.

    Attributes:
        log_odds: of the class of each record to forget, in nats.
        forgotten_accuracy, remaining_accuracy, test_accuracy: of each model; None without outputs on these records.
        commonest: the share of the records to forget that are of their commonest class: the accuracy of a guess.
        classes: their number.
        kind, dtype: the form of the outputs on the records to forget.
        digests: of each model's outputs on the records to forget: equal outputs have equal ones.
    """

    log_odds: Float[np.ndarray, "models records"]
    forgotten_accuracy: Float[np.ndarray, " models"]
    remaining_accuracy: Float[np.ndarray, " models"] | None
    test_accuracy: Float[np.ndarray, " models"] | None
    commonest: float
    classes: int
    kind: Literal["probabilities", "logits"]
    dtype: str
    digests: tuple[str, ...]

    def __len__(self) -> int:
        """The number of models."""
        return len(self.digests)

    @property
    def cut(self) -> float:
        """The share of log-odds that are cut at 103.6 nats, as those of a probability of 0 or 1 are."""
        return float((np.abs(self.log_odds) >= LARGEST).mean())

    @property
    def content_hash(self) -> str:
        """`blake2b:...` of all outputs on the records to forget, and of the accuracies."""
        digest = hashlib.blake2b("".join(self.digests).encode(), digest_size=16)
        for accuracies in (self.remaining_accuracy, self.test_accuracy):
            digest.update(b"none" if accuracies is None else np.ascontiguousarray(accuracies, "<f8").tobytes())
        return f"blake2b:{digest.hexdigest()}"


def labels_by_part(labels: Any) -> Labels:
    """The labels of each set, from one array, of the records to forget, or from arrays by set.

    Raises:
        InputError: there are none of the records to forget, or an array is not of whole numbers from 0.
    """
    by_part = {FORGET: labels} if hasattr(labels, "shape") else dict(labels)
    _refuse_unknown("labels", by_part)
    checked: Labels = {}
    for part, array in by_part.items():
        if len(array.shape) != 1 or array.dtype.kind not in "iu" or not array.shape[0]:
            raise InputError(
                f"labels of `{part}`: have shape {tuple(array.shape)} and type {array.dtype}, but must be the number "
                "of each record's class, from 0, at least one: save an array of integers, one for each record."
            )
        checked[part] = np.asarray(array[:], np.int64)
        if checked[part].min() < 0:
            raise InputError(f"labels of `{part}`: contain a number below 0; classes are numbered from 0.")
    return checked


def read_models_of(name: str, arrays: Mapping[str, Any], labels: Labels, kind: Kind) -> GivenModels:
    """What the models of one side say, from arrays (or stored arrays) by the name of a set.

    Args:
        name: of the side, for messages.
        arrays, kind: as for `score_unlearning`.
        labels: as `labels_by_part` returns them.

    Raises:
        InputError: as `score_unlearning`, where it concerns one side.
    """
    _refuse_unknown(name, arrays)
    forget = arrays[FORGET]
    _check_shape(f"{name}[{FORGET}]", forget, labels[FORGET])
    models, classes, digests = forget.shape[0], forget.shape[2], []
    odds = np.empty(forget.shape[:2], np.float32 if forget.dtype == np.float32 else np.float64)
    forgotten, kinds = np.empty(models), set[Found]()
    for model in range(models):
        values, found_kind = _of_model(forget, model, f"{name}[{FORGET}], model {model}", kind)
        kinds.add(found_kind)
        if found_kind == "probabilities":
            with np.errstate(divide="ignore"):
                odds[model] = log_odds(np.log(values.astype(np.float64).clip(0, 1)), labels[FORGET])
        else:
            odds[model] = log_odds(values, labels[FORGET])
        forgotten[model] = (values.argmax(axis=1) == labels[FORGET]).mean()
        digests.append(hashlib.blake2b(np.ascontiguousarray(values, "<f8").data, digest_size=16).hexdigest())
    if len(kinds) > 1:
        raise InputError(
            f"{name}[{FORGET}]: some models have probabilities and others logits; save all of them in one form."
        )
    for model, digest in enumerate(digests):
        if digest in digests[:model]:
            raise InputError(
                f"{name}[{FORGET}]: models {digests.index(digest)} and {model} have the same outputs; was one saved "
                "twice, or trained from one seed? Give models that were trained independently."
            )
    remaining, test = (
        _accuracies(name, part, arrays[part], labels, models, classes, kind) if part in arrays else None
        for part in (RETAIN, TEST)
    )
    commonest = float(np.bincount(labels[FORGET]).max() / len(labels[FORGET]))
    return GivenModels(
        odds, forgotten, remaining, test, commonest, classes, kinds.pop(), str(forget.dtype), tuple(digests)
    )


def check_together(methods: Mapping[str, GivenModels], retrained: GivenModels, original: GivenModels | None) -> None:
    """Refuses sides that cannot be compared.

    Raises:
        InputError: there is no method, a name is a reference's, or classes or forms of outputs differ.
    """
    if not methods:
        raise InputError("there is no method to score; give the outputs of unlearned models under a name.")
    for name in methods:
        check_name(name)
    sides = {RETRAINED: retrained, **({} if original is None else {ORIGINAL: original}), **methods}
    for name, side in sides.items():
        if side.classes != retrained.classes:
            raise InputError(
                f"{name}[{FORGET}] has {side.classes} classes, but {RETRAINED}[{FORGET}] has {retrained.classes}; give "
                "the outputs of models of the same classes."
            )
        if side.kind != retrained.kind:
            raise InputError(
                f"{name}[{FORGET}] has {side.kind}, but {RETRAINED}[{FORGET}] has {retrained.kind}: rounding alone "
                "could distinguish them. Save all in one form, best as logits."
            )


def check_name(name: str) -> None:
    """Refuses a method's name that is empty or a reference's."""
    if not name.strip() or name.strip().lower() in TAKEN:
        raise InputError(
            f"a method cannot be named {name!r}: the names {', '.join(TAKEN)} are of references; give it another."
        )


def _refuse_unknown(name: str, arrays: Mapping[str, Any]) -> None:
    names = [str(part)[:40] for part in arrays]
    if FORGET not in names:
        raise InputError(
            f"{name}: has the arrays {', '.join(map(repr, names[:10])) or '(none)'}, and none is {FORGET!r}; name that "
            f"of the records to forget {FORGET!r}, and others {RETAIN!r} and {TEST!r}."
        )
    unknown = [part for part in names if part not in PARTS]
    if unknown:
        raise InputError(f"{name}: has an array {unknown[0]!r}; arrays are {', '.join(PARTS)}. Is it a typing error?")


def _check_shape(source: str, array: Any, labels: np.ndarray) -> None:
    shape = tuple(array.shape)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{source}: has values of type {array.dtype}; save logits, or probabilities, as numbers.")
    if len(shape) != 3:
        advice = "one more axis, even for one model"
        if len(shape) == 2:
            advice += "; for two classes save both columns, of a single logit 0 and the logit"
        raise InputError(f"{source}: has shape {shape}; outputs are [models, records, classes]: {advice}.")
    if not shape[0]:
        raise InputError(f"{source}: has no models; did the loop that saved them run?")
    if shape[0] > MOST_MODELS:
        raise InputError(
            f"{source}: has {shape[0]:,} models, and at most {MOST_MODELS:,} are compared; are the axes [models, "
            "records, classes]?"
        )
    if shape[1] != len(labels):
        raise InputError(
            f"{source}: has {shape[1]} records, but there are {len(labels)} labels; give the outputs on the labelled "
            "records, in their order."
        )
    if shape[2] < 2:
        raise InputError(
            f"{source}: has {shape[2]} classes; for two classes save both columns, of a single logit 0 and the logit."
        )
    if labels.max() >= shape[2]:
        raise InputError(
            f"{source}: has {shape[2]} classes, but there is label {int(labels.max())}; classes are numbered from 0. "
            "Are the labels of these records?"
        )


def _of_model(array: Any, model: int, source: str, kind: Kind) -> tuple[np.ndarray, Found]:
    """One model's outputs, and what they are."""
    stored = np.asarray(array[model : model + 1])[0]
    refuse_bits(stored, source)
    values = stored if stored.dtype in (np.float32, np.float64) else stored.astype(np.float64)
    if of_infinite(values, source) is not None:
        return values, "logits"
    span = span_of(values, source)
    refuse_hard_labels(values, source)
    decimals = decimals_of(values, str(stored.dtype)) if inside(span) else None
    tolerance = rounding_of_sums(values.shape[1], decimals, None, str(stored.dtype))
    return values, kind_of_outputs(values, kind, span, tolerance, source)


def _accuracies(
    name: str, part: str, array: Any, labels: Labels, models: int, classes: int, kind: Kind
) -> Float[np.ndarray, " models"]:
    """The accuracy of each model on other records, from outputs on them or as given."""
    source = f"{name}[{part}]"
    if not array.shape or array.shape[0] != models:
        raise InputError(
            f"{source}: has shape {tuple(array.shape)}, but {name}[{FORGET}] has {models} models; give the same models "
            "in the same order."
        )
    if len(array.shape) == 1:
        shares = np.asarray(array[:])
        if shares.dtype.kind != "f" or not ((shares >= 0) & (shares <= 1)).all():
            raise InputError(f"{source}: has one number a model, which must be its accuracy, from 0 to 1.")
        return shares.astype(np.float64)
    if part not in labels:
        raise InputError(
            f"{source}: has outputs, but there are no labels of `{part}`: give labels as an .npz with `{FORGET}` and "
            f"`{part}`, or save the accuracy of each model, [models], in place of the outputs."
        )
    _check_shape(source, array, labels[part])
    if array.shape[2] != classes:
        raise InputError(
            f"{source}: has {array.shape[2]} classes, but {name}[{FORGET}] has {classes}; give outputs of one model."
        )
    outputs = (_of_model(array, model, f"{source}, model {model}", kind)[0] for model in range(models))
    return np.array([(values.argmax(axis=1) == labels[part]).mean() for values in outputs])
