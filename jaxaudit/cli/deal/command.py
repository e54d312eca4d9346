"""`jaxaudit deal`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from pathlib import Path

from jaxaudit.cli import preflight
from jaxaudit.cli.groups import DATA, OUTPUT, DataFolder, Seeded, dealt_groups
from jaxaudit.cli.options import as_parameters, group, option
from jaxaudit.cli.words import share_check


@dataclass(frozen=True)
class DealData(DataFolder):
    """The records."""

    data: str = option(..., "The provider's records: NAME[@SPLIT] or a path.", argument=True, names="data")
    groups: str | None = dealt_groups(
        "Group of each record, such as its patient, to deal groups whole: .npy, .csv, or the name of an array in the "
        ".npz or of a column in the .csv that DATA names."
    )


@dataclass(frozen=True)
class Deal(Seeded):
    """How records are dealt."""

    holdout_share: float = option(
        0.5, "Share of the records, or groups, to hold out.", check=share_check("holdout_share")
    )


@dataclass(frozen=True)
class DealOutput:
    """What is written."""

    out: Path = option(
        ..., "Write query.npz, holdout.npz and deal.json into this new directory.", metavar="DIR", decides=False
    )


@dataclass(frozen=True)
class DealOptions:
    """All options of the command."""

    data: DealData = group(DATA, DealData())
    deal: Deal = group("Deal", Deal())
    output: DealOutput = group(OUTPUT, DealOutput())


def run(options: DealOptions) -> None:
    """Deals the records that these options name.

    Raises:
        InputError: an option or its data cannot be used.
    """
    preflight.check(options)
    from jaxaudit.cli.deal.run import run

    run(options)


deal = as_parameters(
    DealOptions,
    run,
    """Splits records at random into a query set to share and a holdout to keep, before anything is shared.

    The holdout later makes an exact test of deletion possible: `jaxaudit ks --holdout`. Copies of a record are dealt
    together, and so are the records of a group. deal.json has hashes of both sides and no record.

    Examples:

    `jaxaudit deal records.npz --out deal`

    `jaxaudit deal records.npz --holdout-share 0.3 --groups patient --seed 11 --out deal`
    """,
    ("out", "groups", "holdout_share"),
)
