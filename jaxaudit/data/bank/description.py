"""`bank.json`: what a bank contains, decoded strictly."""

import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float
from msgspec import Meta

from jaxaudit.data.examples import Role
from jaxaudit.data.formats.arrays import StoredArray, read_npy
from jaxaudit.data.formats.parsing import decoded_once, parsing, refuse_pickle
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.outputs.form import Expected, OutputsPlace, as_place, read_outputs
from jaxaudit.data.outputs.kinds import (
    are_probabilities,
    coarsest_dtype,
    decimals_of,
    inside,
    refuse_hard_labels,
    rounding_of_sums,
    significant_of,
    span_of,
)
from jaxaudit.data.outputs.outputs import load_outputs
from jaxaudit.data.paths import read_small
from jaxaudit.errors import InputError
from jaxaudit.json_types import StrictStruct

DESCRIPTION = "bank.json"
LARGEST = 16 << 20
"""The most bytes of a description: enough for the names of some 100,000 classes."""
MOST_RECORDS, MOST_CLASSES, MOST_MODELS, MOST_VIEWS = 10**9, 10**6, 10**6, 10**4
MOST_ROWS = 1 << 34
"""The most entries (models times records) of a membership matrix, however little space it takes on disk."""

PValue = Annotated[float, Meta(ge=0, le=1)]
Kind = Literal["logits", "probabilities", "log_odds", "score", "log_likelihood"]
BY_CLASS: tuple[Kind, ...] = ("logits", "probabilities")
"""Kinds of outputs with a number for each class; the others have one for each record."""
SCORED: tuple[Kind, ...] = ("score", "log_likelihood")
"""Kinds of outputs of records without classes."""
Direction = Literal["lower", "higher"]
Size = Annotated[int, Meta(ge=0, le=MOST_RECORDS)]
Hash = Annotated[str, Meta(pattern="^blake2b:[0-9a-f]{32}$")] | None


ROLES = (Role.QUERY, Role.HOLDOUT, Role.CALIBRATION)
"""The sets of a bank, in the order of its columns."""


class Counts(StrictStruct, frozen=True, kw_only=True):
    """The number of records of each set."""

    query: Size
    holdout: Size = 0
    calibration: Size = 0

    @property
    def words(self) -> str:
        """The number of records of each set that there is."""
        counts = {role: getattr(self, role) for role in ROLES}
        return ", ".join(f"{count:,} {role}" for role, count in counts.items() if count)

    @property
    def compared(self) -> int:
        """The number of query and holdout records together."""
        return self.query + self.holdout


class Hashes(StrictStruct, frozen=True, kw_only=True):
    """`Examples.content_hash` of each set as it was read; None for a set that is absent."""

    query: Hash = None
    holdout: Hash = None
    calibration: Hash = None


class SampledAlike(StrictStruct, frozen=True, kw_only=True):
    """p-values of "query set and holdout are exchangeable", one for each statistic; see `exchangeability.Alike`."""

    labels: PValue
    inputs: PValue
    copies: PValue
    clustered: PValue
    mixed: PValue

    @classmethod
    def of(cls, alikeness: Any) -> "SampledAlike":
        """From an `Alike`; 1 where nothing is compared, as labels of records without classes."""
        numbers = {name: getattr(alikeness, name) for name in cls.__struct_fields__}
        return cls(**{name: 1.0 if math.isnan(number) else number for name, number in numbers.items()})


class Description(StrictStruct, frozen=True, kw_only=True):
    """What a bank contains.

    Attributes:
        outputs: `logits` or `probabilities` of all classes; the `log_odds` (nats) of each record's own class; or, where
            records have no classes, a `score` of any unit or the `log_likelihood` (nats) of each, which is at most 0.
        direction: of scores and log-likelihoods, whether a `lower` (losses) or a `higher` number means training.
        classes: 1 for scores and log-likelihoods. `class_names`: in label order, or empty.
        queries: number of views (augmented queries) of each record, whose outputs are averaged.
        records, models: files of outputs may be missing, rows of `membership` may not.
        counts: number of records of each set; if missing, all are of the query set.
        hashes: of the sets as they were read; `images` describes how images were read, as `--images` does.
        sampled_alike: whether query set and holdout are exchangeable, tested on their records in planning.
        seed: of the random masks; None if they were not drawn by `jaxaudit shadows plan`.
        groups: whether groups are kept whole; `group_columns` of the sets hold them and are no inputs.
        recipe: how the models are trained, in free text.
        models_per_batch, form, device: how this package trains them, since other ways would round differently.
        versions: of what drew the masks and trains the models. `command`: repeats the plan.
    """

    format: Literal[1]
    outputs: Kind
    direction: Direction | None = None
    classes: Annotated[int, Meta(ge=1, le=MOST_CLASSES)] = 1
    records: Annotated[int, Meta(ge=1, le=MOST_RECORDS)]
    models: Annotated[int, Meta(ge=1, le=MOST_MODELS)]
    queries: Annotated[int, Meta(ge=1, le=MOST_VIEWS)] = 1
    class_names: tuple[str, ...] = ()
    counts: Counts | None = None
    hashes: Hashes = Hashes()
    sampled_alike: SampledAlike | None = None
    images: str = "none"
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None
    recipe: str = ""
    groups: bool = False
    group_columns: tuple[str, ...] = ()
    models_per_batch: Annotated[int, Meta(ge=1, le=MOST_MODELS)] | None = None
    form: str | None = None
    device: str = ""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    command: tuple[str, ...] = ()

    @property
    def sizes(self) -> Counts:
        return self.counts or Counts(query=self.records)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, or their numbers."""
        return self.class_names or tuple(map(str, range(self.classes)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a file of outputs; without an axis of views where there is one view."""
        views = () if self.queries == 1 else (self.queries,)
        return (self.records, *views, *((self.classes,) if self.outputs in BY_CLASS else ()))

    def __post_init__(self) -> None:
        # Decoding turns a ValueError into one that names the field.
        counted = self.sizes.compared + self.sizes.calibration
        if counted != self.records:
            raise ValueError(f"counts are of {counted} records, but there are {self.records}")
        if not self.sizes.query:
            raise ValueError("there is no query record")
        scored = self.outputs in SCORED
        if scored != (self.classes == 1) or scored != (self.direction is not None):
            raise ValueError(f"{self.outputs} go with {'a direction and no' if scored else 'two or more'} classes")
        if scored and (self.queries > 1 or self.class_names):
            raise ValueError(f"{self.outputs} is of records without classes, in one view")
        if len(self.class_names) not in (0, self.classes) or len(set(self.class_names)) < len(self.class_names):
            raise ValueError(f"class_names must be {self.classes} different names, or none")
        if self.models * self.records > MOST_ROWS:
            raise ValueError(f"{self.models} models times {self.records} records are more than {MOST_ROWS}")


def read_description(directory: Path) -> Description:
    """The description of the bank in `directory`; a link is refused."""
    path = directory / DESCRIPTION
    if not os.path.lexists(path):
        raise InputError(
            f"{directory}: is not a bank of shadow models (it has no {DESCRIPTION}); `jaxaudit shadows plan` makes one."
        )
    with parsing(f"{path}: does not describe a bank", "see `jaxaudit shadows plan`."):
        return decoded_once(read_small(path, LARGEST, links=False), Description)


def description_json(description: Description) -> bytes:
    return msgspec.json.format(msgspec.json.encode(description), indent=1) + b"\n"


FOLDER = "outputs"
WHOLE = "outputs.npy"
"""The outputs of all models in one file, in place of a folder."""
MOST_NATS = 20
"""Tests cut log-odds here, so a log-likelihood further below 0 could not be told from others."""
SPARE = 1 << 16


def outputs_path(directory: Path, model: int) -> Path:
    return directory / FOLDER / f"{model:05}.npy"


def read_model(directory: Path, model: int, description: Description) -> np.ndarray:
    """The outputs of a model, checked, `[n, views, values]` and read-only; `log_odds` have one value."""
    path, whole = outputs_path(directory, model), os.path.lexists(directory / WHOLE)
    stored = StoredArray(directory / WHOLE if whole else path)
    rows, source = (slice(model, model + 1), WHOLE) if whole else (slice(None), path.name)
    _refuse_form(stored.dtype, stored.shape, description, source, (description.models,) if whole else ())
    refuse_larger(f"{source}, of one model", math.prod(description.shape) * stored.dtype.itemsize, MAX_BYTES)
    values = stored[rows]
    values.flags.writeable = False
    return checked(values[0] if whole else values, description, source)


def load_into(path: Path | OutputsPlace, description: Description, of: str | None = None) -> np.ndarray:
    """`float32[n, views, values]`: the numbers of a file of outputs, checked for a bank. Only a .npy file has several
    views, or log-odds. Scores and log-likelihoods are one column, or the target's on the set `of` in a table of scores.
    """
    place = as_place(path)
    if description.outputs in SCORED:
        # Imported here because pyarrow takes a tenth of a second.
        from jaxaudit.data.scores.table import target_on

        expected = Expected(description.records, 1, of or "bank")
        likely = description.outputs == "log_likelihood"
        direction = 1 if likely or description.direction == "higher" else -1
        values = None if of is None else target_on(place.path, of.partition(" ")[0], likely, direction)
        if values is None:
            values = read_outputs(place, expected).values
            if values.shape[1] != 1:
                raise InputError(f"{place.name}: has {values.shape[1]} columns; give one number for each record.")
            values = values[:, 0]
        else:
            expected.check_rows(len(values), place.name)
            values = -values if likely and description.direction == "lower" else values
    elif description.queries == 1 and description.outputs in BY_CLASS:
        names = description.class_names or description.classes
        # The kind of outputs is checked below, since no option can declare it here.
        values = load_outputs(place, names, description.records, "logits", of="bank").values
    else:
        refuse_pickle(place.path)
        if place.path.suffix.lower() != ".npy":
            layout = "log-odds" if description.outputs == "log_odds" else f"{description.queries} views of a record"
            raise InputError(f"{place.name}: {layout} are read from a .npy file of shape {description.shape}.")
        values = read_npy(place.path, min(MAX_BYTES, 16 * math.prod(description.shape) + SPARE))
    with np.errstate(over="ignore"):
        outputs = checked(values.astype(np.float32), description, place.name)
    refuse_labels(outputs, description, place.name)
    return outputs


def checked(values: np.ndarray, description: Description, source: str) -> np.ndarray:
    """`[n, views, values]`: the same numbers, which must be outputs for this bank."""
    _refuse_form(values.dtype, values.shape, description, source)
    viewed = values.reshape(len(values), description.queries, -1)
    if description.outputs in BY_CLASS:
        for rows in np.moveaxis(viewed, 1, 0):
            span = span_of(rows, source)
            if (inside(span) and _sum_to_one(rows, span)) != (description.outputs == "probabilities"):
                raise InputError(
                    f"{source}: its rows are {'' if description.outputs == 'logits' else 'not '}probabilities that sum "
                    f"to 1, but this is a bank of {description.outputs}; save what the softmax is given or gives, or "
                    "plan a bank of the other `outputs`."
                )
        return viewed
    scored = description.outputs in SCORED
    bad = int((~np.isfinite(values) if scored else np.isnan(values)).sum())
    if bad:
        trouble = "numbers are NaN or infinite" if scored else "log-odds are NaN"
        raise InputError(f"{source}: {bad} {trouble}; did the model diverge?")
    if description.outputs == "log_likelihood":
        likely = -values if description.direction == "lower" else values
        if likely.max() > 0 or np.median(likely) < -MOST_NATS:
            raise InputError(
                f"{source}: has log-likelihoods above 0, of densities or of the other `direction`, or half of them "
                f"below -{MOST_NATS} nats, as sums over the parts of a record are; save the mean over tokens, or plan "
                "a bank with `outputs` score."
            )
    return viewed


def refuse_labels(outputs: Float[np.ndarray, "n views values"], description: Description, source: str) -> None:
    """Rejects predicted labels in place of numbers for each class, unless this package trained the models: what a tree
    that is grown in full is sure of are its probabilities.
    """
    if description.outputs in BY_CLASS and not description.device:
        for rows in np.moveaxis(outputs, 1, 0):
            refuse_hard_labels(rows, source)


def _refuse_form(
    dtype: np.dtype, shape: tuple[int, ...], description: Description, source: str, models: tuple[int, ...] = ()
) -> None:
    if dtype.kind != "f" or dtype.itemsize > 8 or shape != (*models, *description.shape):
        raise InputError(
            f"{source}: has values of type {dtype} and shape {shape}, but the bank's outputs are float16, float32 or "
            f"float64 of shape {(*models, *description.shape)}: one row per record, in the order of the bank's columns."
        )


def _sum_to_one(values: np.ndarray, span: tuple[float, float]) -> bool:
    """Whether all rows are probabilities, up to the precision with which they are stored or were rounded."""
    classes, dtype = values.shape[1], values.dtype.name
    if are_probabilities(values, span, rounding_of_sums(classes, None, None, dtype)):
        return True
    # Few files were rounded, and finding the rounding takes far longer.
    dtype = coarsest_dtype(values, dtype)
    decimals, significant = decimals_of(values, dtype), significant_of(values, dtype)
    return are_probabilities(values, span, rounding_of_sums(classes, decimals, significant, dtype))
