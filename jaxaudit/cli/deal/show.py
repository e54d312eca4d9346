"""What `jaxaudit deal` prints: the sides, what may be given to whom, and the command of the later test."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxaudit.data.challenge import KEY
from jaxaudit.data.group_values import COLUMN
from jaxaudit.metrics.members import LEAST_MEMBERS

RECORD = "deal.json"
TAKE_GROUPS = ("ks", "shadows plan", "shadows train")
"""The commands that take query set and holdout with their groups."""
VIEWS_TOLD = """\
It has {views} views of each image, itself and copies shifted by a pixel: {views} times as many answers are needed.
They may help if the model was trained with shifted images, and then little (`jaxaudit deal --help`)."""
LABELS = {"query": "query set", "members": "members", "holdout": "holdout"}


class DealSide(NamedTuple):
    """One side of a deal: its file, the indices of its records in the source, and how many groups they are."""

    file: str
    rows: np.ndarray
    groups: int


class BlindChallenge(NamedTuple):
    """A blind challenge: its file, the commitment of its key, and how many views of each record it has."""

    file: str
    commitment: str
    views: int


def summary(
    source: str,
    out: Path,
    sides: Mapping[str, DealSide],
    whole: bool,
    copied: int,
    further_arrays: Sequence[str] = (),
    left_out: Sequence[str] = (),
    challenge: BlindChallenge | None = None,
    texts: bool = False,
    label: str | None = None,
) -> tuple[str, ...]:
    """The lines for the terminal; they have no value of a record.

    `source` names the records, of which `copied` are copies of others, and `whole` says whether groups were dealt;
    `further_arrays` are arrays that are written beside inputs and labels, `left_out` those that have values of
    the groups or other names for them. `challenge` is that of a blind deal, and `label` the column
    of the files with the label, if it had to be named.
    """

    def counted(side: DealSide) -> str:
        return f"{len(side.rows):,} records" + (f" in {side.groups:,} groups" if whole else "")

    members, holdout = "members" in sides, "holdout" in sides
    end = sides["query"].file.removeprefix("query")
    lines = [f"Dealt the records of {source} at random."]
    lines += [f"  {LABELS[name]}: {counted(side)} ({out / side.file})" for name, side in sides.items()]
    if copied:
        lines.append(f"  copies: {copied:,} records are copies of others; copies were dealt together, as one group")
    lines.append("")
    if members:
        lines += [
            f"For the company that trains: query{end} and members{end}. "
            "The query set is to be withdrawn later, and the",
            "members are to stay in training.",
        ]
    else:
        lines.append(f"For the company that trains: query{end}.")
    if holdout:
        lines.append(
            f"At home: holdout{end}{f', {KEY}' if challenge else ''} and {RECORD}. "
            "Nobody may ever train on the holdout."
        )
    else:
        lines += [
            f"At home: {RECORD}, and the holdout: --holdout must be records of the same provider that were kept, as in",
            f"holdout{end} of the earlier deal.",
        ]
    lines += [
        f"{RECORD} has the seed, which repeats the deal: keep it until the deal must be shown. Only its",
        "SHA-256 may be published now.",
    ]
    if challenge:
        lines += [
            f"To ask for outputs later: {challenge.file}. It has all these records in a random order, without labels",
            "or groups. Send it to whoever holds the model, and get one file of outputs in its order.",
            *(VIEWS_TOLD.format(views=challenge.views).splitlines() if challenge.views > 1 else ()),
            f"Commitment of {KEY}, a SHA-256 to publish before the outputs arrive:",
            f"  {challenge.commitment}",
            "Nobody can change afterwards which record is of which set: `jaxaudit ks --challenge` recomputes the",
            f"commitment, and {KEY} says how anybody can, once it is shown.",
        ]
    if whole and texts:
        lines.append(f"The files tell which records belong together ({COLUMN}), by random numbers.")
    elif whole:
        flags = " ".join(_group_options(members=False))
        further = " ".join(_group_options(members=True)[4:])
        lines += [
            f"The files tell which records belong together ({COLUMN}), by random numbers. Commands that read them",
            f"must be told: {', '.join(TAKE_GROUPS)} by {flags}, power by --groups {COLUMN}"
            f"{f', ks also by {further}' if members else ''}.",
        ]
    if left_out:
        why = "they have values of the groups or other names for them"
        lines.append(f"Left out of the files, because {why}: {', '.join(left_out)}.")
    if further_arrays:
        kind = "keys" if texts else "arrays"
        lines.append(
            f"The files also have these {kind} of {source}; check that none is private: {', '.join(further_arrays)}."
        )
    if texts:
        words = ["jaxaudit", "scores", "lm", "MODEL"]
        for name in LABELS:
            path = str(out / sides[name].file) if name in sides else name.upper()
            words += [f"--{name}", path] if name in sides or name == "holdout" else []
        lines += ["", "To test a model later:", "", f"  {shlex.join([*words, '--out', 'scores.csv'])}"]
        return (*lines, "  jaxaudit ks --scores scores.csv")
    where = f"records of {challenge.file}" if challenge else "records of each file"
    request = f"the model's outputs on the {where}" + ("" if members else ", and give a calibration set")
    words = _of_challenge(out, members) if challenge else _command(out, sides, whole, label)
    command = shlex.join(words)
    return (*lines, "", f"To test a model later, get {request}:", "", f"  {command}")


def before_sharing(
    data: str, sides: Mapping[str, DealSide], label: str | None = None, drop: Sequence[str] = ()
) -> tuple[str, ...]:
    """How to learn what a test by this deal will be able to tell; nothing where `power` cannot measure it.

    `data` are the records as the user names them, with the options `label` and `drop`. With groups, without a holdout,
    or with too few members, it cannot.
    """
    if len(sides) < len(LABELS) or len(sides["members"].rows) < LEAST_MEMBERS:
        return ()
    sizes = [(f"--{'members' if name == 'members' else f'{name}-size'}", str(len(sides[name].rows))) for name in LABELS]
    words = ["jaxaudit", "power", "--query", data, *(word for pair in sizes for word in pair)]
    words += [*([] if label is None else ["--label", label]), *(word for name in drop for word in ("--drop", name))]
    return (
        "",
        "To learn before you share anything what the test will be able to tell, and what more members or a larger",
        "holdout would bring (it trains models on these records, for some minutes):",
        "",
        f"  {shlex.join(words)}",
    )


def _of_challenge(out: Path, members: bool) -> list[str]:
    calibration = [] if members else ["--calibration", "CALIBRATION"]
    return ["jaxaudit", "ks", "--challenge", str(out / KEY), *calibration, "--target", "OUTPUTS"]


def _command(out: Path, sides: Mapping[str, DealSide], whole: bool, label: str | None) -> list[str]:
    """The test that this deal makes possible; words in capitals are the user's to fill in."""
    paths, members = {name: str(out / side.file) for name, side in sides.items()}, "members" in sides
    held = paths.get("holdout", "HOLDOUT")
    words = ["jaxaudit", "ks", "--query", paths["query"]]
    if members:
        words += ["--holdout", held, "--members", paths["members"], "--target", "OUTPUTS"]
        words += ["--holdout-target", "HOLDOUT_OUTPUTS", "--members-target", "MEMBERS_OUTPUTS"]
    else:
        words += ["--calibration", "CALIBRATION", "--target", "OUTPUTS"]
        words += ["--holdout", held, "--holdout-target", "HOLDOUT_OUTPUTS"]
    words += [] if label is None else ["--label", label]
    return [*words, *(_group_options(members) if whole else ())]


def _group_options(members: bool) -> list[str]:
    """What tells a command of the groups of the sets that it is given."""
    words = ["--groups", COLUMN, "--holdout-groups", COLUMN]
    return [*words, "--members-groups", COLUMN] if members else words
