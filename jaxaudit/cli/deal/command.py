"""`jaxaudit deal`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from pathlib import Path

from jaxaudit.cli.groups import DATA, Columns, dealt_groups
from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import group, option
from jaxaudit.cli.parsers import TEXTS, is_texts, share_check
from jaxaudit.errors import InputError

SEED_BITS = 63
VIEWS = (1, 3, 5, 9)
"""Views of each image that a challenge may have."""


@dataclass(frozen=True)
class DealData(Columns):
    """The records."""

    data: str = option(
        "The provider's records: NAME[@SPLIT] or a path. Of several splits, say which, or @all. Texts are JSON "
        "Lines, a JSON array or Parquet of messages, conversations, prompt and completion, instruction and output, "
        "question and answer, or text.",
        default=...,
        argument=True,
        names="data",
        usual="The records: NAME[@SPLIT] or a path.",
    )
    groups: str | None = dealt_groups(
        "Group of each record, such as its patient, to deal groups whole: .npy, .csv, or the name of an array in the "
        ".npz, of a column in the .csv or of a key in the lines that DATA names.",
        usual="Group of each record, such as its patient.",
    )
    by: str | None = dealt_groups(
        "As --groups, but the records of each group are dealt over all sets, at random within the group: for a verdict "
        "on each group (`jaxaudit ks --scores --by group`).",
        usual="Deal each group's records over all sets.",
    )
    pairs: Path | None = option(
        "Texts: another version of each record of DATA, line by line. Which of the two is shared is drawn for each.",
        names="file",
        usual="Texts: another version of each record.",
    )

    @property
    def names_of_groups(self) -> str | None:
        """What has the group of each record, however groups are dealt."""
        return self.by if self.groups is None else self.groups

    @property
    def flag_of_groups(self) -> str:
        """The option that says so."""
        return "--groups" if self.by is None else "--by"


def _check_views(views: int) -> None:
    if views not in VIEWS:
        raise InputError(f"--views must be one of {', '.join(map(str, VIEWS))}, got {views}.")


@dataclass(frozen=True)
class Deal:
    """How records are dealt."""

    holdout_share: float | None = option(
        "Share of the records, or groups, to keep at home as the holdout. [default: 0.5]",
        check=share_check("holdout_share"),
        usual="Share of the records to keep at home.",
    )
    members_share: float | None = option(
        "Share of the records, or groups, to share that stay in training. [default: none]",
        usual="Share of the records to share as members.",
    )
    withdraw: float | None = option(
        "DATA was shared before, and all of it trained on: share of it, or of its groups, to withdraw; the rest stays.",
        usual="DATA was shared before: withdraw this share of it.",
    )
    blind: bool = option(
        "Also write challenge.npz (as a table where the sets are tables), which has all records in a random order and "
        "no mark of their set, for whoever holds the model; and key.json, which tells them apart and stays at home.",
        default=False,
        usual="Also write one mixed file, and its secret key.",
    )
    views: int = option(
        "Of images; needs --blind and --members-share. How many views of each image the challenge has: the image and "
        "copies that are shifted by one pixel, up and down (3), left and right, too (5), and along the diagonals (9). "
        "The answer then has as many times the rows.",
        default=1,
        check=_check_views,
    )
    seed: int | None = option(
        "Random seed, to repeat a deal: it tells the set of each record of DATA. [default: a new one that nobody can "
        "guess]",
        minimum=0,
        maximum=2**SEED_BITS - 1,
        usual="Random seed, to repeat a deal. Keep it secret.",
    )

    @property
    def held(self) -> float:
        """The share of the holdout; there is none where records are withdrawn."""
        return 0.5 if self.holdout_share is None else self.holdout_share

    def check(self) -> None:
        """Refuses shares that are out of range or do not go together."""
        for flag, share in (("--members-share", self.members_share), ("--withdraw", self.withdraw)):
            if share is not None and not 0 < share < 1:
                raise InputError(f"{flag} must be above 0 and below 1, such as 0.3, got {share:g}.")
        if self.withdraw is not None and (self.holdout_share, self.members_share) != (None, None):
            raise InputError(
                "--withdraw is of records that were shared before, whose holdout was kept then, and what is not "
                "withdrawn stays in training; leave out --holdout-share and --members-share, or --withdraw."
            )
        if self.blind and self.withdraw is not None:
            raise InputError(
                "--blind needs a holdout to hide among the other records, and --withdraw deals none; leave one out."
            )
        if self.views > 1 and not (self.blind and self.members_share is not None):
            raise InputError(
                f"--views {self.views} needs --blind and --members-share: only the members test uses views, and only a "
                "challenge has them."
            )
        if self.members_share is not None and self.held + self.members_share >= 1:
            raise InputError(
                f"--members-share {self.members_share:g} and --holdout-share {self.held:g} (0.5 if not given) leave no "
                "records to withdraw; their sum must be below 1."
            )


@dataclass(frozen=True)
class DealOptions:
    """All options of the command."""

    data: DealData = group(DATA, DealData())
    deal: Deal = group("Deal", Deal())
    out: Path = option(
        "Write query.npz, holdout.npz, members.npz (if members are dealt; of a .csv or .parquet files like it), "
        "deal.json, groups.csv (if there are groups), and what --blind adds, into this new directory.",
        default=...,
        metavar="DIR",
        decides=False,
        usual="Write the sets into this new directory.",
    )
    as_json: bool = option("Print one JSON object.", "--json", default=False, decides=False)


def _check_by(options: DealOptions) -> None:
    if options.data.by is None:
        return
    reasons = {
        "--groups": (options.data.groups, "deals groups whole, and --by the records of each over all sets"),
        "--pairs": (options.data.pairs, "deals the versions of each record, whoever's it is"),
        "--withdraw": (options.deal.withdraw, "deals no holdout, and a group is found by its records in both sets"),
        "--blind": (options.deal.blind or None, "asks for outputs without groups, and groups are found by scores"),
    }
    for flag, (value, why) in reasons.items():
        if value is not None:
            raise InputError(f"{flag} {why}: leave out {flag}, or --by.")


def _check_pairs(options: DealOptions) -> None:
    deal, texts = options.deal, is_texts(options.data.data)
    if deal.blind and texts:
        raise InputError("--blind is of records with outputs, and texts get scores: leave it out.")
    if options.data.pairs is None:
        return
    if not (texts and is_texts(options.data.pairs)):
        raise InputError(f"--pairs and DATA must be texts ({', '.join(TEXTS)}).")
    if options.data.groups is not None:
        raise InputError("--pairs draws for each record on its own, so groups mean nothing: leave out --groups.")
    if (deal.holdout_share, deal.members_share, deal.withdraw) != (None, None, None):
        raise InputError(
            "--pairs shares one version of each record and keeps the other, so there is no share of records: leave out "
            "--holdout-share, --members-share and --withdraw."
        )


DEAL = Command(
    "deal",
    DealOptions,
    "deal.run:deal_given",
    """Splits records at random into a query set to share and a holdout to keep, before anything is shared.

    The holdout later makes an exact test of deletion possible: `jaxaudit ks --holdout`. With `--members-share`, some
    shared records are to stay in training: these known members make a calibration set unnecessary. Copies of a record
    are dealt together, and so are the records of a group; the array or column of `--groups` or `--by` is not written,
    nor any other that has its values or another name for each group, but random numbers in its place. Inputs are
    written as x, labels as y, with every value as it was given. deal.json has the seed and hashes, and no record: keep
    it until the deal must be shown. groups.csv says which records of DATA each random number stands for, and stays at
    home.

    Whole groups (`--groups`) answer whether a set was forgotten. To find the single groups that a model still
    remembers (`jaxaudit ks --scores --by group`), deal the records of each group over all sets (`--by`): by whole
    groups that takes hundreds of them in the holdout. What is printed says what a deal allows.

    query.npz and members.npz are what was shared for training. With `--blind`, challenge.npz is what is sent when the
    model's outputs are asked for: the inputs of all records, with random names and without labels, in an order that
    follows from a random salt in key.json, not from the seed. Whoever holds the model answers with one file of outputs
    in that order, for `jaxaudit ks --challenge key.json`. Publish the printed commitment before the outputs arrive: it
    fixes which record is of which set, and does not show it. Anybody who kept the shared records can still recognise
    them.

    A network that was trained with shifted images may remember more of an image than its output on it shows. With
    `--views 5` the challenge has five views of each image, among all others, and the members test of `jaxaudit ks` uses
    the answers on them. That takes five times as many answers and brought little where it was measured: use of all of
    300 records by small convolutional networks trained with shifts was found in 65% of deals in place of 62%, by other
    networks no more often.

    A .csv or .parquet is dealt as files like it: query.csv has rows of the source, with the names of its columns in
    their order and every cell as it was written. Only inputs and label are written, and a column group where groups or
    copies were dealt; commands that read tables know its numbers, which are no input. Each set is read again and must
    be the same records as in the source. Where a set lacks a class, or DATA has a @SPLIT, arrays are written as of
    anything else.

    Texts, also chats (messages, conversations, prompt and completion, instruction and output), are written as
    query.jsonl and so on, lines with all of their keys but those that tell the groups. With
    `--pairs`, query.jsonl has one version of each record, drawn by a fair coin, and holdout.jsonl the other one, with
    the same number at pair: a difference within a pair is free of the record's own difficulty.

    Examples:

    `jaxaudit deal records.npz --out deal`

    `jaxaudit deal records.npz --members-share 0.4 --holdout-share 0.3 --groups patient --out deal`

    `jaxaudit deal records.npz --members-share 0.4 --holdout-share 0.3 --blind --out deal`

    `jaxaudit deal images.npz --members-share 0.4 --holdout-share 0.3 --blind --views 5 --out deal`

    `jaxaudit deal shared.npz --withdraw 0.3 --out deal`

    `jaxaudit deal texts.jsonl --groups author --members-share 0.4 --holdout-share 0.3 --out deal`

    `jaxaudit deal chat.jsonl --by author --members-share 0.4 --holdout-share 0.3 --out deal`

    `jaxaudit deal texts.jsonl --pairs rephrased.jsonl --out deal`
    """,
    (_check_by, _check_pairs),
    first=("out", "groups", "by", "holdout_share", "members_share", "withdraw", "blind"),
    compiles=False,
)
