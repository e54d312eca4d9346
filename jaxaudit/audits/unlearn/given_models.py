"""Reads what models of your own say of the records: from arrays of outputs to log-odds and accuracies.

Arrays may be of an untrusted file: they are read one model at a time, after their shapes were held against the labels.
Log-odds of logits need no normalisation, and log-probabilities are logits.
"""

import hashlib
from collections.abc import Mapping, Sequence
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
    """The labels of each set, from one array, of the records to forget, or from arrays by set."""
    by_part = {FORGET: labels} if hasattr(labels, "shape") else dict(labels)
    _refuse_unknown("labels", by_part)
    checked: Labels = {}
    for part, array in by_part.items():
        is_row = len(array.shape) == 1 and array.shape[0] and array.dtype.kind in "iu"
        if not is_row or np.min(array[:]) < 0:
            raise InputError(
                f"labels of `{part}`: have shape {tuple(array.shape)} and type {array.dtype}, but must be the number "
                "of each record's class, from 0, at least one: save an array of integers, one for each "
                "record."
            )
        checked[part] = np.asarray(array[:], np.int64)
    return checked


def read_models_of(name: str, arrays: Mapping[str, Any], labels: Labels, kind: Kind) -> GivenModels:
    """What the models of one side say, from arrays (or stored arrays) by set, as for `score_unlearning`; `name` is for
    messages.
    """
    _refuse_unknown("labels", labels)
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
    """Refuses sides that cannot be compared: no method, a reference's name, or other classes or forms of outputs."""
    if not methods:
        raise InputError("there is no method to score; give the outputs of unlearned models under a name.")
    for name in methods:
        check_name(name)
    sides = {RETRAINED: retrained, **({} if original is None else {ORIGINAL: original}), **methods}
    for name, side in sides.items():
        if (side.classes, side.kind) != (retrained.classes, retrained.kind):
            raise InputError(
                f"{name}[{FORGET}] has {side.classes} classes and {side.kind}, but {RETRAINED}[{FORGET}] has "
                f"{retrained.classes} classes and {retrained.kind}: give the outputs of models of the same classes, "
                "all in one form, best as logits; rounding alone could distinguish them."
            )


def check_name(name: str, taken: Sequence[str] = TAKEN) -> None:
    """Refuses a method's name that is empty or a reference's."""
    if not name.strip() or name.strip().lower() in taken:
        raise InputError(
            f"a method cannot be named {name!r}: the names {', '.join(taken)} are of references; give it another."
        )


def _refuse_unknown(name: str, arrays: Mapping[str, Any]) -> None:
    names = [str(part)[:40] for part in arrays]
    if FORGET not in names or not set(names) <= set(PARTS):
        raise InputError(
            f"{name}: has the arrays {', '.join(map(repr, names[:10])) or '(none)'}; that of the records to forget is "
            f"named {FORGET!r}, others {RETAIN!r} and {TEST!r}, and no more are read. Is there a typing error?"
        )


def _check_shape(source: str, array: Any, labels: np.ndarray) -> None:
    shape = tuple(array.shape)
    classes = max(2, int(labels.max()) + 1)
    fits = len(shape) == 3 and 1 <= shape[0] <= MOST_MODELS and shape[1] == len(labels) and shape[2] >= classes
    if not fits or array.dtype.kind not in "fiu":
        raise InputError(
            f"{source}: has shape {shape} and type {array.dtype}, but outputs are numbers [models, records, classes]: "
            f"1 to {MOST_MODELS:,} models, the {len(labels)} labelled records in their order, and at least {classes} "
            "classes, as their labels have; for two classes save both columns, of a single logit 0 and the logit."
        )


def _of_model(array: Any, model: int, source: str, kind: Kind) -> tuple[np.ndarray, Found]:
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
    has_shares = len(array.shape) == 1
    if not has_shares and part not in labels:
        raise InputError(
            f"{source}: has outputs, but there are no labels of `{part}`: give labels as an .npz with `{FORGET}` and "
            f"`{part}`, or save the accuracy of each model, [models], in place of the outputs."
        )
    if not has_shares:
        _check_shape(source, array, labels[part])
    if array.shape[0] != models or array.shape[2:] not in ((), (classes,)):
        raise InputError(
            f"{source}: has shape {tuple(array.shape)}, but {name}[{FORGET}] has {models} models and {classes} "
            "classes; give the same models in the same order."
        )
    if has_shares:
        shares = np.asarray(array[:])
        if shares.dtype.kind != "f" or not ((shares >= 0) & (shares <= 1)).all():
            raise InputError(f"{source}: has one number a model, which must be its accuracy, from 0 to 1.")
        return shares.astype(np.float64)
    outputs = (_of_model(array, model, f"{source}, model {model}", kind)[0] for model in range(models))
    return np.array([(values.argmax(axis=1) == labels[part]).mean() for values in outputs])
