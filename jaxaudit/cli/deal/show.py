"""What `jaxaudit deal` prints: the sides, what may be given to whom, and the command of the later test."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxaudit.cli.deal.source import DealtUnits, single_groups
from jaxaudit.cli.show import Summary
from jaxaudit.data.deals import DEAL_RECORD, HOME, KEY
from jaxaudit.data.labels import COLUMN

LABELS = {"query": "query set", "members": "members", "holdout": "holdout"}


class DealSide(NamedTuple):
    """One side of a deal: its file, the indices of its records in the source, and how many groups they are."""

    file: str
    rows: np.ndarray
    groups: int


class BlindChallenge(NamedTuple):
    """A blind challenge: its file, and the commitment of its key."""

    file: str
    commitment: str


class DealReport(NamedTuple):
    """What a deal says of itself; it has no value of a record.

    Attributes:
        source: the name of the records.
        out: the folder of the deal.
        sides: the sides, by name.
        units: what was dealt.
        further: arrays or keys that are written beside inputs and labels, or texts.
        left_out: arrays or keys that are not, since they have values of the groups or other names for them.
        has_groups: whether the groups are the user's, and not only copies.
    """

    source: str
    out: Path
    sides: Mapping[str, DealSide]
    units: DealtUnits
    further: Sequence[str]
    left_out: Sequence[str]
    has_groups: bool

    @property
    def single(self) -> tuple[tuple[str, ...], bool]:
        """As `single_groups`; nothing of records that nobody gave groups for."""
        rows = {of: side.rows for of, side in self.sides.items()}
        return single_groups(self.units, rows) if self.has_groups else ((), False)


def summary(report: DealReport, challenge: BlindChallenge | None = None) -> Summary:
    """What is printed of a deal of records with outputs; `challenge` is that of a blind deal."""
    sides, units = report.sides, report.units
    lines = [*_dealt(report, (KEY,) if challenge else ())]
    if challenge:
        lines += [
            f"To ask for outputs later: {challenge.file}. It has all these records in a random order, without labels",
            "or groups. Send it to whoever holds the model, and get one file of outputs in its order.",
            f"Commitment of {KEY}, a SHA-256 to publish before the outputs arrive:",
            f"  {challenge.commitment}",
            "Nobody can change afterwards which record is of which set: `jaxaudit ks` recomputes the",
            f"commitment, and {KEY} says how anybody can, once it is shown.",
        ]
    if units.whole:
        lines += [
            f"The files tell which records belong together ({COLUMN}), by random numbers; commands that read all of",
            "them take groups whole, and say so.",
        ]
    lines += _of_groups(report)
    lines += _of_columns(report, "arrays")
    command = shlex.join(_command(report, blind=challenge is not None))
    if challenge:
        request = [f"To test a model later, get its outputs on the records of {challenge.file}:"]
    else:
        names = [name for name in LABELS if name in sides or name == "holdout"]
        request = [
            "To test a model later, get its outputs on the records of each file, as arrays",
            f"{', '.join(names[:-1])} and {names[-1]} of one .npz or as files of these names in one folder:",
        ]
    lines += ["", *request, "", f"  {command}"]
    if units.within:
        lines += [
            "",
            f"For a verdict on each group, a table of scores with the column {COLUMN}:",
            "",
            "  jaxaudit ks --scores scores.csv --by group",
        ]
    return Summary(tuple(lines))


def texts_summary(report: DealReport) -> Summary:
    """What is printed of a deal of texts."""
    head, *lines = _dealt(report)
    if report.units.written:
        lines.append(f"The files tell which records belong together ({COLUMN}), by random numbers.")
    lines += _of_groups(report)
    lines += _of_columns(report, "keys")
    words = ["jaxaudit", "scores", "lm", "MODEL"]
    words += [str(report.out / f"{name}.jsonl") for name in LABELS if name in report.sides or name == "holdout"]
    # With records of a group in both sets, there is no test of whole groups.
    by = " --by group" if report.units.within or report.single[1] else ""
    commands = [shlex.join([*words, "--out", "scores.csv"]), f"jaxaudit ks --scores scores.csv{by}"]
    lines += ["", "To test a model later (add --baseline, --before):", "", *(f"  {command}" for command in commands)]
    return Summary((head, *lines))


def _dealt(report: DealReport, at_home: Sequence[str] = ()) -> list[str]:
    """The sides, and who may have which file; `at_home` are further files that stay there."""
    sides, units = report.sides, report.units

    def counted(side: DealSide) -> str:
        return f"{len(side.rows):,} records" + (f" in {side.groups:,} groups" if units.written else "")

    end = sides["query"].file.removeprefix("query")
    lines = [f"Dealt the records of {report.source} at random."]
    lines += [f"  {LABELS[name]}: {counted(side)} ({report.out / side.file})" for name, side in sides.items()]
    if units.copied:
        lines.append(
            f"  copies: {units.copied:,} records are copies of others; copies were dealt together, as one group"
        )
    lines.append("")
    if "members" in sides:
        lines += [
            f"For the company that trains: query{end} and members{end}. "
            "The query set is to be withdrawn later, and the",
            "members are to stay in training.",
        ]
    else:
        lines.append(f"For the company that trains: query{end}.")
    holdout = [f"holdout{end}"] if "holdout" in sides else []
    *before, last = [*holdout, *at_home, *([HOME] if report.has_groups else []), DEAL_RECORD]
    kept = f"At home: {', '.join(before)} and {last}" if before else f"At home: {last}"
    if holdout:
        lines.append(f"{kept}. Nobody may ever train on the holdout.")
    else:
        lines += [
            f"{kept}, and the holdout: put the holdout{end} of the earlier deal beside query{end}, records of",
            "the same provider that were kept.",
        ]
    return [
        *lines,
        f"{DEAL_RECORD} has the seed, which repeats the deal: keep it until the deal must be shown. Only its",
        "SHA-256 may be published now.",
    ]


def _of_groups(report: DealReport) -> list[str]:
    """Where groups can be looked up, and which of them a deal can name."""
    home = [f"{HOME} says which records of {report.source} each number stands for."] if report.has_groups else []
    return [*home, *report.single[0]]


def _of_columns(report: DealReport, kind: str) -> list[str]:
    """What was left out, and what is written beside the records."""
    lines = []
    if report.left_out:
        why = "they have values of the groups or other names for them"
        lines.append(f"Left out of the files, because {why}: {', '.join(report.left_out)}.")
    if report.further:
        lines.append(
            f"The files also have these {kind} of {report.source}; check that none is private: "
            f"{', '.join(report.further)}."
        )
    return lines


def _command(report: DealReport, blind: bool) -> list[str]:
    """The test that this deal makes possible; words in capitals are the user's to fill in."""
    words = ["jaxaudit", "ks", "--deal", str(report.out), "--target", "OUTPUTS"]
    # Without known members only the model before a deletion tells what a model remembers.
    return words if "members" in report.sides or blind else [*words, "--before", "OUTPUTS_BEFORE"]
