"""`jaxaudit pdtp`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from typing import Literal

from jaxaudit.cli.classifiers import ClassifierOptions, TableData
from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import AUDIT, option
from jaxaudit.cli.shared_options import MOST, Output, Seeded, dealt_groups, failing


@dataclass(frozen=True)
class PDTPOptions(TableData, ClassifierOptions, Seeded, Output):
    """All options of the command."""

    measured_records: int | None = option(
        AUDIT,
        "Number of records to measure, sampled at random. [default: all]",
        minimum=1,
        maximum=MOST * 1000,
    )
    groups: str | None = dealt_groups(
        AUDIT,
        "Group of each record, such as a patient: all records of a group are left out together. A .npy, or a column "
        "of the table, which is then no input.",
    )
    bins: int = option(
        AUDIT,
        "Bins into which outputs are rounded before they are compared; 0: none.",
        default=100,
        minimum=0,
        maximum=MOST,
    )
    measurements: int = option(
        AUDIT, "Repeat the measurement with this many seeds, and take the mean.", default=1, minimum=1, maximum=MOST
    )
    floor_seeds: int = option(
        AUDIT, "Models, trained on all records, for the seed floor.", default=5, minimum=2, maximum=MOST
    )
    fail_on: tuple[Literal["records-exposed", "inconclusive"], ...] = failing()


PDTP = Command(
    "pdtp",
    PDTPOptions,
    doc="""Which records does a kind of classifier expose? (Long, Bindschaedler & Gunter 2017)

    Trains a classifier of this kind with and without each record and measures how far this moves its output on the
    record: PDTP, in nats. A record with a PDTP above 1 is exposed. The seed floor of each record is what another seed
    alone moves. The models are trained here: no model of yours is judged (for that, a bank and attack --shadows).

    How they are trained is --model, --epochs and the settings of --recipe:

    {recipe}

    Examples:

    `jaxaudit pdtp` (embedded breast cancer data, a neural network, less than a minute)

    `jaxaudit pdtp --data people.csv --label income --model sklearn.ensemble:RandomForestClassifier --recipe
    max_depth=6 --json`
    """,
    first=("data", "label", "model"),
)
