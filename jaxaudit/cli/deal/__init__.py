"""`jaxaudit deal`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from pathlib import Path

from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import DATA, PLAIN, SHARES, option, refuse_options
from jaxaudit.cli.parsers import is_texts, share_check
from jaxaudit.cli.shared_options import Columns, dealt_groups
from jaxaudit.errors import InputError

SEED_BITS = 63
LEAST_BLIND = 2**60
"""Smaller seeds than this can be tried: a few records that somebody remembers tell which one was taken."""


@dataclass(frozen=True)
class DealOptions(Columns):
    """All options of the command."""

    data: str = option(
        DATA,
        "The provider's records: NAME[@SPLIT] or a path. Of several splits, say which, or @all. Texts are JSON "
        "Lines of messages, prompt and completion, instruction and output, question and "
        "answer, or text.",
        default=...,
        argument=True,
        names="data",
    )
    groups: str | None = dealt_groups(
        DATA,
        "Group of each record, such as its patient, to deal groups whole: .npy, or the name of an array in the .npz, "
        "of a column in the .csv or of a key in the lines that DATA names.",
    )
    by: str | None = dealt_groups(
        DATA,
        "As --groups, but the records of each group are dealt over all sets, at random within the group: for a verdict "
        "on each group (`jaxaudit ks --scores --by group`).",
    )
    holdout_share: float | None = option(
        SHARES,
        "Share of the records, or groups, to keep at home as the holdout. [default: 0.5]",
        check=share_check("holdout_share"),
    )
    members_share: float | None = option(
        SHARES,
        "Share of the records, or groups, to share that stay in training. [default: none]",
        check=share_check("members_share"),
    )
    withdraw: float | None = option(
        SHARES,
        "DATA was shared before, and all of it trained on: share of it, or of its groups, to withdraw; the rest stays.",
        check=share_check("withdraw"),
    )
    blind: bool = option(
        SHARES,
        "Also write challenge.npz (as a table where the sets are tables), which has all records in a random order and "
        "no mark of their set, for whoever holds the model; and key.json, which tells them apart and stays at home.",
        default=False,
    )
    seed: int | None = option(
        SHARES,
        "Random seed, to repeat a deal: it tells the set of each record of DATA; with --blind 2^60 or more. [default: "
        "a new one that nobody can guess]",
        minimum=0,
        maximum=2**SEED_BITS - 1,
    )
    out: Path = option(
        PLAIN,
        "Write query.npz, holdout.npz, members.npz (if members are dealt; of a .csv or .parquet files like it), "
        "deal.json, groups.csv (if there are groups), and what --blind adds, into this new directory.",
        default=...,
        metavar="DIR",
        decides=False,
    )

    @property
    def names_of_groups(self) -> str | None:
        """What has the group of each record, however groups are dealt."""
        return self.by if self.groups is None else self.groups

    @property
    def flag_of_groups(self) -> str:
        """The option that says so."""
        return "--groups" if self.by is None else "--by"

    @property
    def held(self) -> float:
        """The share of the holdout; there is none where records are withdrawn."""
        return 0.5 if self.holdout_share is None else self.holdout_share


def _check_shares(options: DealOptions) -> None:
    if options.withdraw is not None:
        refuse_options(
            {"--holdout-share": options.holdout_share, "--members-share": options.members_share},
            "--withdraw is of records that were shared before, whose holdout was kept then, and what is not "
            "withdrawn stays in training",
        )
        refuse_options(
            {"--blind": options.blind}, "needs a holdout to hide among the other records, and --withdraw deals none"
        )
    if options.blind and options.seed is not None and options.seed < LEAST_BLIND:
        raise InputError(
            f"--blind with --seed {options.seed}: whoever has the records finds it by trying, and so every set; leave "
            "out --seed, or give that of the deal to repeat (2^60 or more)."
        )
    if options.members_share is not None and options.held + options.members_share >= 1:
        raise InputError(
            f"--members-share {options.members_share:g} and --holdout-share {options.held:g} (0.5 if not given) leave "
            "no records to withdraw; their sum must be below 1."
        )


def _check_by(options: DealOptions) -> None:
    if options.by is None:
        return
    refuse_options({"--groups": options.groups}, "deals groups whole, and --by the records of each over all sets")
    refuse_options(
        {"--withdraw": options.withdraw}, "deals no holdout, and a group is found by its records in both sets"
    )
    refuse_options({"--blind": options.blind}, "asks for outputs without groups, and groups are found by scores")


def _check_texts(options: DealOptions) -> None:
    if is_texts(options.data):
        refuse_options({"--blind": options.blind}, "is of records with outputs, and texts get scores")


DEAL = Command(
    "deal",
    DealOptions,
    "deal.run:deal_records",
    """Splits records at random into a query set to share and a holdout to keep, before anything is shared.

    The holdout later makes an exact test of deletion possible: `jaxaudit ks --deal`. With `--members-share`, some
    shared records are to stay in training: these known members make a calibration set unnecessary. Copies of a record
    are dealt together, and so are the records of a group; the array or column of `--groups` or `--by` is not written,
    but random numbers in its place. Inputs are written as x, labels as y, with every value as it was given, and class
    names; further arrays stay at home. deal.json has the seed and hashes, and no record: keep
    it until the deal must be shown. groups.csv says which records of DATA each random number stands for, and stays at
    home.

    Whole groups (`--groups`) answer whether a set was forgotten. To find the single groups that a model still
    remembers (`jaxaudit ks --scores --by group`), deal the records of each group over all sets (`--by`): by whole
    groups that takes hundreds of them in the holdout. What is printed says what a deal allows.

    query.npz and members.npz are what was shared for training. With `--blind`, challenge.npz is what is sent when the
    model's outputs are asked for: the inputs of all records, with random names and without labels, in an order that
    follows from a random salt in key.json, not from the seed. Whoever holds the model answers with one file of outputs
    in that order, for `jaxaudit ks --deal`. Publish the printed commitment before the outputs arrive: it
    fixes which record is of which set, and does not show it. Anybody who kept the shared records can still recognise
    them.

    A .csv or .parquet is dealt as files like it: query.csv has rows of the source, with the names of its columns in
    their order and the text of every cell of inputs and label, and a first column group where groups or copies were
    dealt; commands that read tables know its numbers, which are no input. Each set is read again and must
    be the same records as in the source. Where a set lacks a class, or DATA has a @SPLIT, arrays are written as of
    anything else.

    Texts, also chats (messages, instruction and output), are written as query.jsonl and so on, lines with the keys of
    their texts alone.

    Examples:

    `jaxaudit deal records.npz --out deal`

    `jaxaudit deal records.npz --members-share 0.4 --holdout-share 0.3 --groups patient --out deal`

    `jaxaudit deal records.npz --members-share 0.4 --holdout-share 0.3 --blind --out deal`

    `jaxaudit deal shared.npz --withdraw 0.3 --out deal`

    `jaxaudit deal texts.jsonl --groups author --members-share 0.4 --holdout-share 0.3 --out deal`

    `jaxaudit deal chat.jsonl --by author --members-share 0.4 --holdout-share 0.3 --out deal`
    """,
    (_check_shares, _check_by, _check_texts),
    first=("out", "groups", "by", "holdout_share", "members_share", "withdraw", "blind"),
    compiles=False,
)
