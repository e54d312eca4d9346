"""`jaxaudit power`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import AUDIT, DATA, ModelSource, again, option, refuse_options, training_option
from jaxaudit.cli.parsers import check_pair, other_split, share_check
from jaxaudit.cli.shared_options import (
    MOST,
    Effort,
    Images,
    Output,
    Seeded,
    SetsFlags,
    ShadowNetwork,
    bank_of_shadows,
    dealt_groups,
    effort_of_plan,
    failing,
)

SHADOW_MODELS = 40


@dataclass(frozen=True)
class PowerOptions(SetsFlags, ShadowNetwork, Seeded, Output):
    """All options of the command."""

    goes_with: ClassVar = {SetsFlags: ModelSource.TRAINING}

    query_size: int | None = option(
        DATA,
        "Number of query records that there will be. [default: as many as --query or the pilot has; a third of them "
        "where --query is to be dealt, and there is no --calibration]",
        minimum=2,
        maximum=MOST * 1000,
        of=~ModelSource.BANK,
    )
    holdout_size: int | None = option(
        DATA,
        "Number of holdout records. [default: as many as the query set has]",
        minimum=2,
        maximum=MOST * 1000,
    )
    members_size: int | None = option(
        DATA,
        "Number of known members: records that a target is known to have used, which `ks --deal` takes; without "
        "them no target is called `forgotten`. [default: as many as the query set has]",
        minimum=50,
        maximum=MOST * 1000,
    )
    sample: int | None = training_option(
        DATA,
        "Train on at most this many records of each set, drawn at random (with --groups, whole groups of about as "
        "many); the answer is about the whole query set. [default: all, if the effort allows]",
        minimum=20,
        maximum=MOST * 1000,
    )
    groups: str | None = dealt_groups(
        DATA,
        "Group of each query record, such as its patient, if whole groups are dealt into query set and holdout: .npy, "
        ".csv, or the name of an array in the set's .npz or of a column in its .csv.",
        of=ModelSource.TRAINING,
    )
    images: str | None = again(Images, "images", None)
    shadows: Path | None = bank_of_shadows(
        "Measure on the shadow models of this bank (`jaxaudit shadows`) and train none. It has the sets already.",
    )
    scores: Path | None = option(
        AUDIT,
        "Measure on this table of scores of a pilot (as for `ks --scores`), with models of known truth, or members "
        "and a holdout, and train none.",
        metavar="TABLE",
        names="file",
        of=ModelSource.SCORES,
    )
    fraction: float = option(
        AUDIT,
        "The used fraction of the query set to detect.",
        default=0.1,
        check=share_check("fraction"),
    )
    models: int | None = training_option(
        AUDIT, f"Models, each trained on a half of the query set. [default: {SHADOW_MODELS}]", minimum=19, maximum=MOST
    )
    effort: Effort = effort_of_plan("Models, then records, then epochs")
    fail_on: tuple[Literal["insufficient"], ...] = failing()

    @property
    def source(self) -> ModelSource:
        """The origin of the models that are measured."""
        if self.scores:
            return ModelSource.SCORES
        return ModelSource.BANK if self.shadows else ModelSource.TRAINING


def _check_sets(options: PowerOptions) -> None:
    if options.query is None or options.calibration is not None:
        check_pair(options.query, options.calibration)


def _check_groups(options: PowerOptions) -> None:
    if options.query is None:
        refuse_options({"--groups": options.groups}, "is of --query, and the embedded sets have no groups")
    elif options.calibration is None and other_split(options.query) is None:
        why = "without --calibration a part of --query becomes it, and groups may not"
        refuse_options({"--groups": options.groups}, why)


POWER = Command(
    "power",
    PowerOptions,
    {
        ModelSource.TRAINING: "power.run:train",
        ModelSource.BANK: "power.run:measure_bank",
        ModelSource.SCORES: "power.run:measure_scores",
    },
    """How small a used fraction of a data set could `jaxaudit ks` detect, and what could it conclude?

    Trains shadow models, each on half of the query set and a share of the calibration set, and measures how far their
    outputs separate the halves. Gives the probability of detecting use of 1% to 100% with the records given, with fewer
    and with more; and that of each verdict, with known members and without.

    Examples:

    `jaxaudit power` (embedded data, about a minute)

    `jaxaudit power --query q.npz --calibration c.npz --holdout-size 500 --members-size 500 --fraction 0.05`

    `jaxaudit power --query records.npz` (before `deal`: the records as they are, a third of which will be withdrawn)

    `jaxaudit power --shadows bank` (trains nothing)

    `jaxaudit power --scores pilot.csv --query-size 1000` (trains nothing)
    """,
    (_check_sets, _check_groups),
    first=("query", "calibration", "fraction"),
)
