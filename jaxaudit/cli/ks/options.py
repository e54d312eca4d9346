"""The options of `jaxaudit ks`, and the meaning of their values. Imports nothing heavy, so that `--help` is instant."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from jaxaudit.audits.ks.tests_of_use import BUILT_IN, BY_MODELS, usual_tests
from jaxaudit.cli.options import (
    AUDIT,
    DATA,
    SCORE_TABLE,
    TARGET,
    ModelSource,
    again,
    bank_option,
    option,
    training_option,
)
from jaxaudit.cli.own_code import parse_field
from jaxaudit.cli.parsers import parse_names
from jaxaudit.cli.shared_options import (
    MOST,
    DealtFlags,
    Effort,
    Images,
    Output,
    Seeded,
    SetsFlags,
    ShadowNetwork,
    bank_of_shadows,
    effort_of_plan,
    failing,
    named_sets,
)
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.data.deals import ModelPlaces, NamedSets

ALL = "all"


def parse_tests(text: str | None, possible: Sequence[str] = (ALL,)) -> tuple[str, ...]:
    """The tests of `--tests` in order; for `all`, and by default, the possible ones."""
    names = parse_names(ALL if text is None else text, (*BUILT_IN, ALL), "--tests")
    return tuple(possible) if ALL in names else names


def check_first(names: Sequence[str], sets: Collection[str]) -> None:
    """Refuses (`InputError`) a test before the one that decides where these sets are there."""
    first = next((name for name in ("members", "holdout") if name in names and name in sets), names[0])
    if names[0] != first:
        further_names = ",".join(name for name in names if name != first)
        raise InputError(
            f"--tests {','.join(names)}: the {first} test decides where it is made; give {first},{further_names}."
        )


def parse_direction(text: str) -> tuple[str, str]:
    """A score, and whether it is lower or higher for records that were used.

    >>> parse_direction("my=score=lower")
    ('my=score', 'lower')
    """
    score, _, way = text.rpartition("=")
    if not score or way not in ("lower", "higher"):
        raise InputError(f"--direction {text}: write SCORE=lower or SCORE=higher: what a record has that was used.")
    return score, way


@dataclass(frozen=True)
class KSOptions(DealtFlags, SetsFlags, ShadowNetwork, Seeded, Output):
    """All options of the command."""

    goes_with: ClassVar = dict.fromkeys((DealtFlags, SetsFlags), ~ModelSource.SCORES)

    sample: int | None = training_option(
        DATA,
        "Use at most this many records of each set, drawn at random (with --groups, whole groups of about as many). "
        "[default: all, if the effort allows]",
        minimum=20,
        maximum=MOST * 1000,
    )
    images: str | None = again(Images, "images", None)
    target: tuple[Path, ...] = option(
        TARGET,
        "A model's outputs, a row a record in the order of its set: a folder with query.*, holdout.* and so on; a .npz "
        "with arrays of these names; a table with a column `set`; or one file, on the query set or a blind challenge. "
        "Repeatable.",
        default=(),
        metavar="MODEL",
        names="file",
        of=~ModelSource.SCORES,
    )
    before: Path | None = option(
        TARGET,
        "The outputs of the model before the deletion, on query set and holdout: how much of its memory is left.",
        metavar="MODEL",
        names="file",
        of=~ModelSource.SCORES,
    )
    target_kind: Literal["auto", "probabilities", "logits", "log-odds"] = option(
        TARGET,
        "Content of the files. log-odds (nats) of each record's own class only with --shadows and a bank of log-odds.",
        default="auto",
        of=~ModelSource.SCORES,
    )
    allow_unrelated_target: bool = option(
        TARGET,
        "Also judge outputs that are no better than guessing, or that fit the labels far better with other columns.",
        default=False,
        of=~ModelSource.SCORES,
    )
    scores: Path | None = option(
        SCORE_TABLE,
        "Judge by this table, one row a record. Columns: set (query, holdout; members, reference), target.SCORE or "
        "target.MODEL.SCORE, and where there are any: baseline. (models that used neither set), unused. and used. "
        "(models trained like the target without and with the query set), before., covariate.NAME, group, pair, text.",
        metavar="TABLE",
        names="file",
        of=ModelSource.SCORES,
    )
    direction: tuple[str, ...] = option(
        SCORE_TABLE,
        "Whether a score is lower for records that were used, as a loss is, or higher, where its name does not say it. "
        "Repeatable.",
        default=(),
        metavar="SCORE=lower|higher",
        check=parse_direction,
        of=ModelSource.SCORES,
    )
    by: Literal["group"] | None = option(
        SCORE_TABLE,
        "Also a verdict for each group of the query set, such as an author (column group).",
        of=ModelSource.SCORES,
    )
    shadows: Path | None = bank_of_shadows(
        "Judge by the shadow models of this bank (`jaxaudit shadows`); it has the sets.",
    )
    leave_one_out: bool = bank_option(
        AUDIT,
        "With --shadows: also judge each shadow model by the others, which gives error rates on these data.",
        default=False,
    )
    tests: str | None = option(
        AUDIT,
        f"{', '.join(BUILT_IN)}, or all that the data allow. The first gives the verdict. [default: the strongest that "
        "the data allow]",
        metavar="NAME,...",
        check=parse_tests,
        of=~ModelSource.SCORES,
    )
    test_option: tuple[str, ...] = option(
        AUDIT,
        "Set a field of a test. Numbers of models: holdout.mixed (40), rho.replicates (5 pairs), rho.controls (1), "
        "shadow.never, shadow.half and shadow.fully (39, 19, 19: trained on none, half and all of the query set). "
        "rho.subsample: the share of the calibration set that each replicate draws (0.9). stated, of all but rho: "
        "`forgotten` requires an upper limit of the used fraction (one-sided, 95%) of at most this (0.25). Repeatable.",
        default=(),
        metavar="NAME.FIELD=VALUE",
        check=partial(parse_field, "--test-option"),
    )
    question: Literal["used", "left"] | None = option(
        AUDIT,
        "How much of the query set was used, or how much memory of it is left in a model that was trained on to "
        "unlearn it? The numbers are the same. [default: left of what --before shows, else used]",
    )
    same_recipe: bool = option(
        AUDIT,
        "The shadow models have the target's own network and recipe, which `forgotten` rests on where there are no "
        "known members. With --scores: the models unused. and used. have the target's recipe, where no data show it.",
        default=False,
        of=~ModelSource.ANSWERS,
    )
    effort: Effort = effort_of_plan("Models of tests, records, the network, then epochs")
    fail_on: tuple[
        Literal["forgotten", "not-forgotten", "inconclusive", "group-remembered", "group-suspected"], ...
    ] = failing()

    @property
    def source(self) -> ModelSource:
        """The origin of the models with which targets are compared."""
        if self.scores:
            return ModelSource.SCORES
        if self.shadows:
            return ModelSource.BANK
        return ModelSource.TRAINING if trains(self) else ModelSource.ANSWERS

    @cached_property
    def inputs(self) -> "KSInputs":
        """The sets and models that the options name, as far as they fit each other; read once."""
        return _inputs(self)

    @property
    def can_be_read(self) -> bool:
        """Whether there is anything to read, and all of it is there: what is missing is an error of its own."""
        paths = (self.deal, *self.target, self.before)
        return not self.has_set_alone and all(os.path.exists(path) for path in paths if path)

    @property
    def has_set_alone(self) -> bool:
        """Whether a query set is given at most, and no target, other set or test."""
        choices = self.calibration, self.deal, self.groups, self.tests, self.shadows
        return not self.target and all(choice is None for choice in choices)


class KSInputs(NamedTuple):
    """The sets in use, the models to be judged and the one before the deletion, and what is `left_out`, in words."""

    sets: "NamedSets"
    targets: "tuple[ModelPlaces, ...]"
    before: "ModelPlaces | None" = None
    left_out: tuple[str, ...] = ()


def _inputs(options: KSOptions) -> KSInputs:
    # Imported here because NumPy takes a tenth of a second.
    from jaxaudit.data.deals import ModelPlaces, model_places
    from jaxaudit.data.examples import Role
    from jaxaudit.data.paths import exists

    banked = bool(options.shadows)
    sets, models = named_sets(options), [model_places(path) for path in options.target if exists(path)]
    before = [model_places(path) for path in (options.before,) if path and exists(path)]

    def roles(model: ModelPlaces) -> set[Role]:
        return {*sets.key.rows} if sets.key and not model.has_roles else {*model.places}

    whole = [] if banked or sets.key or Role.CALIBRATION in sets.names else [*models, *before]
    if Role.HOLDOUT in sets.names and (bare := [model.name for model in whole if not model.has_roles]):
        raise InputError(
            f"{bare[0]}: is one file of outputs, and does not say which of its rows are on which set. Give a folder "
            f"with {' and '.join(f'{role}.csv' for role in sets.names)}, an .npz with arrays of these names, or add a "
            "column `set`."
        )
    for model in () if banked else (*models, *before):
        for role in sorted(roles(model) - {*sets.names}):
            sets_of = options.deal or "the data of this run, without --deal FOLDER,"
            raise InputError(f"{model.name}: has outputs on {role}, and {sets_of} has no {role}.*.")
    for model in (*before, *models) if before else ():
        if not {Role.QUERY, Role.HOLDOUT} <= roles(model):
            raise InputError(
                f"--before: {model.name} has no outputs on the query set or none on the holdout, by which what the "
                "models remember is compared; give outputs on both, as of --target."
            )
    common = {*Role}.intersection(*map(roles, models))
    anywhere = {role for model in models for role in roles(model)}
    anywhere |= {*sets.names.only(Role.HOLDOUT, Role.MEMBERS)} if models else set()
    left_out = [
        f"{model.name}: has no outputs on the {role.words}, and is judged without"
        for model in models
        for role in sorted(anywhere - roles(model))
    ]
    if banked and Role.MEMBERS in common - {*sets.names}:
        common.remove(Role.MEMBERS)
        left_out.append(f"outputs on the {Role.MEMBERS.words} are not used: a bank has none, and no --deal names them")
    names = sets.names if not models or banked else sets.names.only(Role.QUERY, Role.CALIBRATION, *common)
    return KSInputs(
        sets._replace(names=names),
        tuple(model._replace(places=model.places.only(*common)) for model in models),
        next(iter(before), None),
        tuple(left_out),
    )


def used_inputs(options: KSOptions) -> KSInputs:
    """The same without the holdout, known members and outputs that no test of these options uses."""
    from jaxaudit.data.examples import Role

    inputs, names = options.inputs, tests_named(options)
    if options.has_set_alone:
        return inputs
    used = {Role.QUERY, *(Role(role) for name in names for role in BUILT_IN[name] if role != "before")}
    # Known members teach how difficult records are, whichever tests are made beside.
    if Role.HOLDOUT in used:
        used.add(Role.MEMBERS)
    with_calibration = {*used, Role.CALIBRATION}
    of_targets = with_calibration if "shadow" in names else used
    return inputs._replace(
        sets=inputs.sets._replace(names=inputs.sets.names.only(*with_calibration)),
        targets=tuple(model._replace(places=model.places.only(*of_targets)) for model in inputs.targets),
    )


def trains(options: KSOptions) -> bool:
    """Whether shadow models are trained: where there is no holdout, and where they are asked for."""
    names = parse_tests(options.tests)
    if not (options.deal and options.target and options.can_be_read):
        return True
    # Imported here because NumPy takes a tenth of a second.
    from jaxaudit.data.examples import Role

    sets = options.inputs.sets.names
    asked_for = any(name in BY_MODELS for name in names) and Role.CALIBRATION in sets
    by_choice = options.calibration is not None and any(name in (ALL, "holdout", *BY_MODELS) for name in names)
    return Role.HOLDOUT not in sets or by_choice or asked_for


def tests_named(options: KSOptions) -> tuple[str, ...]:
    """The tests that these options name; for `all`, every test that they allow, in the usual order."""
    inputs = options.inputs
    present = {*inputs.sets.names, *(["before"] if inputs.before else [])}
    possible = [name for name, roles in BUILT_IN.items() if present.issuperset(roles)]
    if options.source is ModelSource.ANSWERS:
        return parse_tests(options.tests, usual_tests(possible, trained=False))
    if options.tests is None:
        on_calibration = inputs.targets and all("calibration" in {*model.places} for model in inputs.targets)
        return usual_tests(possible, on_calibration=bool(on_calibration))
    return parse_tests(options.tests, possible)
