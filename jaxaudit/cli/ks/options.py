"""The options of `jaxaudit ks`, and the meaning of their values. Imports nothing heavy, so that `--help` is instant.

Among them are the tests that they mean, named by `--tests` or not.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from jaxaudit.audits.ks.tests_of_use import BUILT_IN, usual_tests
from jaxaudit.cli.groups import (
    AUDIT,
    DATA,
    GIVEN,
    MODEL,
    MOST,
    OUTPUT,
    TRAINING,
    Effort,
    Held,
    Level,
    Output,
    SetsFlags,
    ShadowNetwork,
    ShadowRecipe,
    bank_of_shadows,
    dealt_groups,
    effort_of_plan,
    failing,
    shadow_count,
)
from jaxaudit.cli.options import ModelSource, bank_option, group, option, refuse_options, training_option
from jaxaudit.cli.own_code import OwnCode, parse_field, parse_own_names
from jaxaudit.cli.parsers import parse_target_data, share_check
from jaxaudit.errors import InputError

ALL = "all"


def parse_tests(text: str, further: tuple[str, ...] = (ALL,)) -> dict[str, OwnCode | None]:
    """The tests of `--tests` in order, each with the location of your own code; may contain the `further` words."""
    return parse_own_names("--tests", text, (*BUILT_IN, *further), "your own test", "Test")


def with_all(names: Iterable[str], possible: Sequence[str]) -> tuple[str, ...]:
    """The names, with `all` replaced by the possible built-in tests.

    >>> with_all(["rho", "all", "mine.py:Test"], ["shadow", "rho"])
    ('shadow', 'rho', 'mine.py:Test')
    """
    requested = tuple(names)
    if ALL not in requested:
        return requested
    before, after = requested[: requested.index(ALL)], requested[requested.index(ALL) :]
    return (*filter(is_own, before), *possible, *filter(is_own, after))


def is_own(name: str) -> bool:
    """Whether a name of a list is that of your own test."""
    return ":" in name


def check_chosen(names: Sequence[str], flags_by_role: Mapping[str, str], used: Collection[str]) -> None:
    """Refuses an input that no test of these names asks for, and a test before the one that decides.

    Args:
        names: the tests. What one of your own asks for is not known.
        flags_by_role: the option that gives the input of a role; empty if none is given.
        used: the roles that the tests ask for.
    """
    if not any(map(is_own, names)):
        useless = {flag: role not in used for role, flag in flags_by_role.items() if flag}
        refuse_options(useless, f"no test of --tests {','.join(names)} uses it; name its test, or --tests all, or")
    first = next((name for name in ("members", "holdout") if name in names and flags_by_role.get(name)), names[0])
    if names[0] != first:
        further_names = ",".join(name for name in names if name != first)
        raise InputError(
            f"--tests {','.join(names)}: the {first} test decides where it is made; give {first},{further_names}."
        )


TARGET = "Target"
SHADOW_MODELS = 39


@dataclass(frozen=True)
class KSData(Held, SetsFlags):
    """The data."""

    sample: int | None = training_option(
        "Use at most this many records of each set, drawn at random (with --groups, whole groups of about as many). "
        "[default: all, if the effort allows]",
        minimum=20,
        maximum=MOST * 1000,
    )
    members: str | None = option(
        "Records that the target is known to have used, sampled like the query set, such as those that the provider "
        "shared and does not withdraw. They show how much the target remembers, whatever its network: the way to "
        "`forgotten`. Needs --holdout; without --calibration no shadow model is trained.",
        names="data",
    )
    members_groups: str | None = dealt_groups("The group of each record of --members, with --groups.")
    challenge: Path | None = option(
        "key.json of `jaxaudit deal --blind`, in the folder of its deal. In place of --query, --holdout, --members and "
        "their groups: --target is then one file of outputs on challenge.npz, in its order. A column of text, or "
        "an array `record`, that carries the names of its records back is checked, and orders the rows.",
        metavar="KEY",
        names="file",
        of=GIVEN,
    )
    commitment: str | None = option(
        "The commitment of --challenge that was published before the outputs arrived: another key is refused.",
        metavar="SHA256",
        of=GIVEN,
    )


@dataclass(frozen=True)
class Targets:
    """The targets."""

    target: tuple[Path, ...] = option(
        "A target's outputs on the query set, in its order: .npz, .npy, .csv or .parquet. Repeatable.",
        default=(),
        names="file",
    )
    holdout_target: tuple[Path, ...] = option(
        "The same target's outputs on the holdout, in its order. Repeatable: one per --target, in the same order.",
        default=(),
        names="file",
    )
    members_target: tuple[Path, ...] = option(
        "The same target's outputs on --members, in its order. Repeatable, as above.",
        default=(),
        names="file",
    )
    calibration_target: tuple[Path, ...] = option(
        "The same target's outputs on the calibration set, in its order, if it used none of it. Repeatable, as above. "
        "The shadow test is then far firmer.",
        default=(),
        names="file",
        of=~ModelSource.ANSWERS,
    )
    before: tuple[Path, ...] = option(
        "The same target's outputs on the query set before the deletion, in its order. Without --calibration and "
        "--members: how much of that memory is left. With shadow models: how much less is used now. Repeatable: one "
        "per --target, in the same order. Needs --holdout-before.",
        default=(),
        names="file",
    )
    holdout_before: tuple[Path, ...] = option(
        "The same on the holdout. Repeatable: one per --before, in the same order.",
        default=(),
        names="file",
    )
    target_kind: Literal["auto", "probabilities", "logits", "log-odds"] = option(
        "Content of the files. log-odds (nats) of each record's own class only with --shadows and a bank of log-odds.",
        default="auto",
        choices=("auto", "probabilities", "logits", "log-odds"),
    )
    target_data: tuple[str, ...] = training_option(
        "Simulate a target trained on this data. Repeatable: one target is trained on all of it.",
        default=(),
        metavar="NAME[:FRACTION]",
        check=parse_target_data,
        names="data",
        place=lambda text: parse_target_data(text)[0],
    )
    allow_unrelated_target: bool = option(
        "Also judge outputs that are no better than guessing, or that fit the labels far better with other columns.",
        default=False,
    )


def renamed(text: str) -> tuple[str, str]:
    """A column's name in the table, and its name here.

    >>> renamed("target.loss=nll (mine)")
    ('nll (mine)', 'target.loss')
    """
    column_name, sign, new_name = text.partition("=")
    if not (column_name and sign and new_name):
        raise InputError(f"--column {text!r}: write NAME=COLUMN, such as target.loss=my_loss.")
    return new_name, column_name


@dataclass(frozen=True)
class ScoreTableFlags:
    """A table of scores in place of sets, outputs and shadow models."""

    scores: Path | None = option(
        "Judge by this table and train nothing: one row a record, .csv or .parquet. Columns: set (query, "
        "holdout; members, reference), target.SCORE or target.MODEL.SCORE, and where there are any: baseline. (models "
        "that used neither set), unused. and used. (models trained like the target without and with the query set), "
        "before., covariate.NAME, group, pair, text.",
        metavar="TABLE",
        names="file",
    )
    column: tuple[str, ...] = option(
        "The name of a column of --scores in the file, if it differs: target.loss=my_loss. Repeatable.",
        default=(),
        metavar="NAME=COLUMN",
        check=renamed,
    )
    lower: tuple[str, ...] = option(
        "A score that is lower for records that were used, like loss. Repeatable.", default=(), metavar="SCORE"
    )
    higher: tuple[str, ...] = option(
        "A score that is higher for records that were used, like log_likelihood. Repeatable.",
        default=(),
        metavar="SCORE",
    )
    by: Literal["group"] | None = option(
        "Also a verdict for each group of the query set, such as an author: which are still remembered, with p-values "
        "adjusted for all of them. The column group has the group of each record.",
        choices=("group",),
    )
    show_words: bool = option(
        "If the texts themselves tell query set and holdout apart: print the words that do. They are words of records, "
        "and are never written.",
        default=False,
        decides=False,
    )


@dataclass(frozen=True)
class KSFlags(Level):
    """Options of the tests, and of their shadow models."""

    shadows: Path | None = bank_of_shadows(
        "Judge by the shadow models of this bank (`jaxaudit shadows`) and train none. It has the sets already: give "
        "--target, and --holdout-target or --calibration-target.",
    )
    leave_one_out: bool = bank_option(
        "With --shadows: also judge each shadow model by the others, as a target of known truth. Gives the error rates "
        "of this audit on these data.",
        default=False,
    )
    tests: str | None = option(
        f"Tests: {', '.join(BUILT_IN)}, or all that the data allow; or your own, as "
        "package.module:Test or file.py:Test. The first gives the verdict. [default: members with --members, holdout "
        "with --holdout, and shadow with --calibration-target or with none of these. Without --calibration: members, "
        "and deletion with --before]",
        metavar="NAME,...",
        check=lambda text: parse_tests(text),
        names="codes",
        of=~ModelSource.SCORES,
    )
    test_option: tuple[str, ...] = option(
        "Set an option of a test, also of your own: its name, a field, and a value. holdout.mixed: its models, each "
        "trained on random records of query set and holdout (19 or more; 40). rho.replicates: its pairs of models, "
        "each with its own seed (5; 0 leaves out rho). rho.controls: its models trained on both sets (1). "
        "rho.subsample: the share of the calibration set that each replicate draws (0.9). Repeatable. It counts more "
        "than other options and the effort.",
        default=(),
        metavar="NAME.FIELD=VALUE",
        check=partial(parse_field, "--test-option"),
        of=~(ModelSource.ANSWERS | ModelSource.SCORES),
    )
    shadow_models: int | None = shadow_count(
        SHADOW_MODELS,
        "Shadow test: models trained without the query set. Half as many (19 or more) are trained on half of it, and "
        "as many on all of it.",
    )
    question: Literal["used", "left"] | None = option(
        "With --members or --before: how much of the query set was used, as the members were, or how much memory of it "
        "is left in a model that was trained on after the use to unlearn it. The numbers are the same. [default: left "
        "of what --before shows, else used]",
        choices=("used", "left"),
    )
    same_recipe: bool = option(
        "The shadow models have the target's own network and recipe. Without this word, "
        "--model of your own code or --members, nobody knows how much a target remembers, and none is called "
        "`forgotten`. With --scores: the models unused. and used. have the target's recipe, where no data show it.",
        default=False,
        of=~ModelSource.ANSWERS,
    )
    stated_share: float = option(
        "`forgotten` requires that the upper limit of the used fraction (one-sided, 95%) is at most this.",
        default=0.25,
        check=share_check("stated_share"),
    )
    effort: Effort = effort_of_plan("Models of tests, records, the network, then epochs")


@dataclass(frozen=True)
class KSOutput(Output):
    """Options of what is printed and written."""

    fail_on: tuple[str, ...] = failing(
        "forgotten", "not forgotten", "inconclusive", "group remembered", "group suspected"
    )


@dataclass(frozen=True)
class KSOptions:
    """All options of the command."""

    data: KSData = group(DATA, KSData(), of=~ModelSource.SCORES)
    target: Targets = group(TARGET, Targets(), of=~ModelSource.SCORES)
    scores: ScoreTableFlags = group("Scores", ScoreTableFlags(), of=ModelSource.SCORES)
    model: ShadowNetwork = group(MODEL, ShadowNetwork(), of=~ModelSource.SCORES)
    recipe: ShadowRecipe = group(TRAINING, ShadowRecipe(), of=~ModelSource.SCORES)
    audit: KSFlags = group(AUDIT, KSFlags())
    output: KSOutput = group(OUTPUT, KSOutput())

    @property
    def source(self) -> ModelSource:
        """The origin of the models with which targets are compared."""
        if self.scores.scores is not None:
            return ModelSource.SCORES
        if self.audit.shadows is not None:
            return ModelSource.BANK
        data, asks_before = self.data, self.data.holdout is not None and bool(self.target.before)
        answers = data.members is not None or data.challenge is not None or asks_before
        return ModelSource.ANSWERS if answers and data.calibration is None else ModelSource.TRAINING

    @property
    def has_set_alone(self) -> bool:
        """Whether a query set is given at most, and no target, other set or test."""
        data, target = self.data, self.target
        sets = data.calibration, data.holdout, data.members, data.groups, data.challenge
        choices = (*sets, self.audit.tests, self.audit.shadows)
        return not (target.target or target.target_data) and all(choice is None for choice in choices)


OF_OUTPUTS = ("members", "deletion")
"""Tests that need no models, but the target's own outputs alone."""


def tests_named(options: KSOptions) -> tuple[str, ...]:
    """The tests that these options name; for `all`, every test that they allow, in the usual order."""
    data = options.data
    has_set = {
        "members": data.members is not None,
        "holdout": data.holdout is not None,
        # A target that is simulated here has nothing from before.
        "before": bool(options.target.before) and not options.target.target_data,
    }
    by_outputs = [name for name in OF_OUTPUTS if all(has_set[need] for need in BUILT_IN[name])]
    if options.source is ModelSource.ANSWERS:
        return with_all(parse_tests(options.audit.tests or ALL), by_outputs)
    if options.audit.tests is None:
        roles = [role for role, is_present in has_set.items() if is_present]
        return usual_tests(roles, on_calibration=bool(options.target.calibration_target))
    possible = [name for name, roles in BUILT_IN.items() if all(has_set[role] for role in roles)]
    return with_all(parse_tests(options.audit.tests), possible)
