"""`bank.json`: what a bank contains, decoded strictly."""

import os
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from jaxaudit.data.formats.parsing import parsing, refuse_repeated_keys
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


class Sizes(NamedTuple):
    """The number of records of each set, in the order of the columns."""

    query: int
    holdout: int
    calibration: int

    @property
    def compared(self) -> int:
        """The number of query and holdout records together."""
        return self.query + self.holdout


class Counts(StrictStruct, frozen=True, kw_only=True):
    query: Size
    holdout: Size = 0
    calibration: Size = 0


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


class Description(StrictStruct, frozen=True, kw_only=True):
    """What a bank contains.

    Attributes:
        format: version of this description: 1.
        outputs: what the files of outputs contain: `logits` or `probabilities` of all classes; the `log_odds` (nats) of
            each record's own class; or, where records have no classes, a `score` of any unit or the `log_likelihood`
            (nats) of each record, which is at most 0.
        direction: whether a `lower` or a `higher` number means that a model was trained on the record, for scores and
            log-likelihoods (`lower`: the files have losses, negative log-likelihoods); else None.
        classes: number of classes; 1 for scores and log-likelihoods. `class_names`: in label order, or empty.
        queries: number of views (augmented queries) of each record, whose outputs are averaged.
        records, models: files of outputs may be missing, rows of `membership` may not.
        counts: number of records of each set; if missing, all are of the query set.
        hashes: of the sets as they were read; `images` describes how images were read, as `--images` does.
        sampled_alike: whether query set and holdout are exchangeable, tested on their records when the bank was
            planned.
        seed: of the random masks; None if they were not drawn by `jaxaudit shadows plan`.
        recipe: how the models are trained, in free text.
        groups: whether groups are kept whole, see `groups.npy`.
        group_columns: columns of the sets that hold groups and are not inputs.
        models_per_batch: of models trained by this package, since another batch size would round differently.
        form: how their convolutions are computed, where this package trains them on an accelerator.
        device: on which they are trained; empty if another program trains them.
        versions: of jaxaudit and NumPy that drew the masks; of JAX and others if this package trains the models.
        command: the command that repeats the plan.
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
    def sizes(self) -> Sizes:
        counts = self.counts or Counts(query=self.records)
        return Sizes(counts.query, counts.holdout, counts.calibration)

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
        if sum(self.sizes) != self.records:
            raise ValueError(f"counts are of {sum(self.sizes)} records, but there are {self.records}")
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
        text = read_small(path, LARGEST, links=False)
        refuse_repeated_keys(text)
        return msgspec.json.decode(text, type=Description)


def description_json(description: Description) -> bytes:
    return msgspec.json.format(msgspec.json.encode(description), indent=1) + b"\n"
