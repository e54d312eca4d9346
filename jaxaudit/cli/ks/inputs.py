"""From the options of `ks` to its sets and targets, matched record by record, and to its tests with their options."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import jax
import numpy as np

from jaxaudit.audits.bank_odds import load_log_likelihoods
from jaxaudit.audits.ks.models import LEAST, Part, refuse_shared
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.target import FileTarget, SimulatedTarget, Target
from jaxaudit.audits.ks.tests_of_use import TESTS, KSTest
from jaxaudit.audits.ks.tests_of_use.shadow import least_models
from jaxaudit.audits.ks.train import offered
from jaxaudit.cli.ks.options import KSInputs, KSOptions, tests_named, used_inputs
from jaxaudit.cli.options import ModelSource, command_line
from jaxaudit.cli.own_code import with_fields
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import (
    calibration_beside,
    group_columns,
    read_sets_of,
    tell_of_readings,
)
from jaxaudit.data import Examples
from jaxaudit.data.bank.bank import CORRECT, DROPPED, GROUPS, LABELS, MEMBERSHIP, Writer, bank_files
from jaxaudit.data.bank.description import MOST_CLASSES, ROLES, WHOLE, Counts, Description, Hashes, SampledAlike
from jaxaudit.data.deals import ModelPlaces, answers_of, load_answers
from jaxaudit.data.examples import Role, Sets
from jaxaudit.data.groups import groups_by_role, hash_of_groups
from jaxaudit.data.outputs.form import OutputsPlace, shared_record_names
from jaxaudit.data.outputs.outputs import Outputs, load_outputs
from jaxaudit.data.pairs import align_sets
from jaxaudit.data.sequences import are_texts
from jaxaudit.errors import InputError, without_folders
from jaxaudit.metrics.deal import deal_holdout, deal_members
from jaxaudit.metrics.memory import LEAST_MEMBERS
from jaxaudit.randomness import OneKey, stream
from jaxaudit.runs.provenance import describe_examples
from jaxaudit.shadow_models import OF_QUERY, Kind
from jaxaudit.version import __version__

if TYPE_CHECKING:
    from jaxaudit.data import Examples


def as_outputs(kind: str) -> Literal["auto", "probabilities", "logits"]:
    """What files of outputs of all classes contain."""
    if kind == "log-odds":
        raise InputError("--target-kind log-odds needs --shadows, a bank of log-odds: give probabilities or logits.")
    return cast("Any", kind)


class SourceSet(NamedTuple):
    """What is kept of a set as it was read, before records were dropped: its hash, those of its records, its groups."""

    content_hash: str
    record_hashes: np.ndarray
    groups: np.ndarray | None


def positions(whole: Examples | SourceSet, part: Examples) -> np.ndarray:
    """Which records of a set are in a part of it, which is in its order."""
    left = iter(enumerate(whole.record_hashes.tolist()))
    records = part.record_hashes.tolist()
    return np.array([next(index for index, record_hash in left if record_hash == record) for record in records], int)


class Case(NamedTuple):
    """The sets, matched record by record: none has a record of another. The targets are `files` of outputs, or else
    `simulated`; `read` are the sets as they were read; `commitment` is of the blind challenge that the files answer.
    """

    sets: Sets[Examples]
    files: tuple[FileTarget, ...] = ()
    read: Sets[SourceSet] = Sets()
    commitment: str | None = None

    @property
    def query(self) -> Examples:
        return self.sets[Role.QUERY]

    @property
    def simulated(self) -> tuple[SimulatedTarget, ...]:
        """Without files, three targets of known truth, trained on all, none and half of the query set. Each is also
        trained on all known members, and on two thirds of the calibration set, like the shadow models.
        """
        shares = Sets(calibration=0.67, members=1.0)
        rest = [Part(self.sets[role], share) for role, share in shares.items() if role in self.sets]
        used = {"model A": [Part(self.query, 1.0)], "model B": [], "model C": [Part(self.query, 0.5)]}
        return () if self.files else tuple(SimulatedTarget(name, (*rest, *parts)) for name, parts in used.items())

    @property
    def targets(self) -> tuple[Target, ...]:
        """All targets."""
        return self.files or self.simulated

    @property
    def sizes(self) -> Sets[int]:
        """The number of records of each set."""
        return self.sets.map(lambda _, examples: len(examples))

    @property
    def records(self) -> int:
        """The number of records of all sets together: no model is trained on more."""
        return sum(self.sizes.values())

    @property
    def facts(self) -> dict[str, Any]:
        """What the provenance of a run says of each set."""
        return {role.value: describe_examples(examples) for role, examples in self.sets.items()}

    @property
    def hashes(self) -> dict[str, str]:
        """The hash of the content of each set, and that of the groups, if there are any."""
        hashes = {role.value: examples.content_hash for role, examples in self.sets.items()}
        groups = groups_by_role(self.sets)
        return {**hashes, "groups": hash_of_groups(groups)} if groups else hashes

    def take(self, rows: Sets[np.ndarray]) -> "Case":
        """The case with these records of each set, and the outputs on them; with all of a set that is not named."""
        sets = self.sets.map(lambda role, examples: examples.take(rows[role]) if role in rows else examples)
        return self._replace(sets=sets, files=tuple(file.taken(rows) for file in self.files))


def read_case(options: KSOptions, *, set_alone: bool = False, gaps: bool = False) -> Case:
    """The sets and outputs that these options name.

    Files of outputs have one row per record of the sets as read; rows of records that are left out are, too. A set
    alone is dealt here into query set, holdout and known members. Tables have `gaps` where no network is trained.
    """
    kind, inputs = as_outputs(options.target_kind), used_inputs(options)
    key, whole = inputs.sets.key, read_sets_of(inputs.sets, options, gaps=gaps)
    query = whole[Role.QUERY]
    sets = align_sets(whole)
    if set_alone:
        needed = LEAST_MEMBERS * (3 if Role.CALIBRATION in sets else 4)
        if len(query) < needed:
            raise InputError(
                f"{query.name} has {len(query)} records, and a set alone is dealt into parts of at least "
                f"{LEAST_MEMBERS}: {needed} are needed. With outputs of a model (--target) fewer do."
            )
        key_of_deal = jax.random.key(options.seed)
        dealt_sets = dealt_set(key_of_deal, query, with_calibration=Role.CALIBRATION not in sets)
        whole, sets = whole | dealt_sets, sets | dealt_sets
    dealt_sets = sets.only(Role.QUERY, Role.HOLDOUT, Role.MEMBERS)
    if Role.CALIBRATION in sets:
        sets |= Sets(calibration=calibration_beside(sets[Role.CALIBRATION], dealt_sets))
    refuse_shared(dealt_sets)

    def one(place: OutputsPlace, role: Role, is_challenge: bool) -> Outputs:
        # Of the calibration set outputs are on all records, those that are dropped, too.
        examples = (whole if role == Role.CALIBRATION else sets)[role]
        if key and is_challenge:
            return answers_of(load_answers(place.path, key, query.class_names, kind), key, role)
        if are_texts(query):
            return load_log_likelihoods(place, len(examples), of=role.words)
        records = shared_record_names(inputs.sets.names[role], place.path, query.class_names)
        outputs = load_outputs(place, query.class_names, len(examples), kind, of=role.words, records=records)
        return outputs.take(positions(examples, sets[role])) if role == Role.CALIBRATION else outputs

    return Case(
        sets,
        file_targets(options, inputs, one),
        read=whole.only(Role.QUERY, Role.HOLDOUT, Role.CALIBRATION).map(
            lambda _, examples: SourceSet(examples.content_hash, examples.record_hashes, examples.groups)
        ),
        commitment=key and key.commitment,
    )


def file_targets(
    options: KSOptions, inputs: KSInputs, read: Callable[[OutputsPlace, Role, bool], Outputs]
) -> tuple[FileTarget, ...]:
    """The targets that are files of outputs; `read` is asked whether a file is of all records of a challenge, too."""
    models, before = inputs.targets, inputs.before

    def outputs_of(model: ModelPlaces, *roles: Role) -> Sets[Outputs]:
        key, places = None if model.has_roles else inputs.sets.key, model.places
        if key:
            places = inputs.sets.names.only(*key.rows).map(lambda _, __: model.places[Role.QUERY])
        return places.only(*roles).map(lambda role, place: read(place, role, bool(key)))

    sets = [outputs_of(model, *Role) for model in models]
    earlier = outputs_of(before, Role.QUERY, Role.HOLDOUT) if before else Sets[Outputs]()
    tell_of_readings(outputs for of_model in (*sets, earlier) for outputs in of_model.values())
    names = name_apart([model.name for model in models], [without_folders(str(path)) for path in options.target])
    return tuple(
        FileTarget(of_model, earlier, options.allow_unrelated_target).called(name)
        for name, of_model in zip(names, sets, strict=True)
    )


def name_apart(names: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Names for models: paths if names are equal, with numbers if paths are equal, too.

    >>> name_apart(["out.csv", "out.csv", "out.csv", "b.csv"], ["out.csv", "out.csv", "a/out.csv", "b.csv"])
    ['out.csv (1)', 'out.csv (2)', 'a/out.csv', 'b.csv']
    """
    return [
        name if names.count(name) == 1 else path if paths.count(path) == 1 else f"{path} ({place})"
        for place, (name, path) in enumerate(zip(names, paths, strict=True), 1)
    ]


THIRD, FOURTH = 1 / 3, 1 / 4
"""A third is held out, and another third are known members: the three means of the test are as certain."""
MANY = 3_000
"""With so many query records or more, no shadow model is trained beside the members test: limits of a model that never
used 599 digits were 7 to 25% beside 40 of them, and 24 to 28% without."""


def dealt_set(key: OneKey, whole: "Examples", *, with_calibration: bool = False) -> Sets["Examples"]:
    """The records of a set dealt at random, in thirds, into query set, holdout and known members, or in fourths with a
    calibration set. A copy of a record is left out, since it would stand in two sets.
    """
    key, calibration = stream(key, "dealt set"), None
    if with_calibration:
        whole, calibration = with_calibration_set(key, whole, FOURTH)
    else:
        whole = _without_copies(whole)
    held = deal_holdout(key, len(whole), THIRD)
    members = deal_members(key, held, THIRD)
    rows = {Role.QUERY: ~(held | members), Role.HOLDOUT: held, Role.MEMBERS: members}
    parts = {role: whole.take(part, f"{whole.name} ({role.words})") for role, part in rows.items()}
    return Sets(**parts, calibration=calibration)


def with_calibration_set(key: OneKey, whole: "Examples", share: float) -> tuple["Examples", "Examples"]:
    """The records of a set without copies, of which a random share is put aside as its calibration set."""
    whole = _without_copies(whole)
    apart = deal_holdout(stream(key, "calibration"), len(whole), share)
    return whole.take(~apart, whole.name), whole.take(apart, f"{whole.name} ({Role.CALIBRATION.words})")


def _without_copies(whole: "Examples") -> "Examples":
    first = np.sort(np.unique(whole.record_hashes, return_index=True)[1])
    if len(first) == len(whole):
        return whole
    say(f"{whole.name}: {len(whole) - len(first):,} copies of other records are left out of the deal")
    return whole.take(first, whole.name)


def built_in_tests() -> dict[str, KSTest]:
    """The built-in tests by name, without options."""
    return {test.name: test() for test in TESTS}


SHADOW_MODELS = 39
"""Models without the query set, at least."""


def default_test_fields(options: KSOptions, targets: int) -> dict[str, Any]:
    """The values that options give to every test with a field of the name."""
    # As many as adjusted p-values need.
    without_use = max(SHADOW_MODELS, least_models(targets))
    with_use = max(LEAST, without_use // 2)
    return {
        "never": without_use,
        "half": with_use,
        "fully": with_use,
        **({} if options.question is None else {"question": options.question}),
        "targets": targets,
    }


def tests_of(options: KSOptions, targets: int) -> tuple[KSTest, ...]:
    """The tests that the options name; the first gives the verdict."""
    names, tests_by_name, values = tests_named(options), built_in_tests(), default_test_fields(options, targets)
    if options.source is ModelSource.ANSWERS:
        values |= {"mixed": 0}
    tests = with_fields(
        "--test-option", options.test_option, {name: offered(tests_by_name[name], values) for name in names}
    )
    return tuple(tests.values())


OF_BANK = (Kind.MIXED, *OF_QUERY)
"""The kinds of models that a bank can hold."""


def files_of_bank(options: KSOptions, sets: Case, audit: KSAudit) -> Mapping[str, Writer]:
    """A writer for each file of the bank; empty if there is no model that a bank can hold.

    The bank also has the records that the audit dropped or did not sample: later outputs are of all given records.
    """
    shadows_kept = audit.shadows
    if not shadows_kept or len(sets.query.class_names) > MOST_CLASSES:
        return {}
    indices = np.array([index for index, kind in enumerate(shadows_kept.kinds) if kind in OF_BANK], int)
    if not len(indices):
        return {}
    shadows = shadows_kept.take(indices)
    roles = [role for role in ROLES if role in sets.read]
    counts = {role: len(sets.read[role].record_hashes) for role in roles}
    records = sum(counts.values())
    starts = np.cumsum([0, *counts.values()])
    columns = np.concatenate(
        [start + positions(sets.read[role], sets.sets[role]) for role, start in zip(roles, starts, strict=False)]
    )
    dropped = np.ones(records, bool)
    dropped[columns] = False
    labels = np.full(records, -1, np.int32)
    labels[columns] = np.concatenate([sets.sets[role].labels for role in roles])
    models, texts = len(shadows.membership), shadows.pool.classless

    def in_columns(values: np.ndarray, kind: type[Any]) -> np.ndarray:
        """The values of all models; known members, and records used only by targets, have no column in the bank."""
        array = np.zeros((models, records), kind)
        array[:, columns] = values[:, : len(columns)]
        return array

    # Of a text the log-odds are those of its mean log-likelihood.
    outputs = -np.logaddexp(0, -shadows.log_odds.astype(np.float64)) if texts else shadows.log_odds
    arrays = {MEMBERSHIP: in_columns(shadows.membership, bool), WHOLE: in_columns(outputs, np.float32)}
    arrays |= {} if texts else {LABELS: labels, CORRECT: in_columns(shadows.correct, bool)}
    groups = [source_set.groups for source_set in sets.read.values() if source_set.groups is not None]
    description = Description(
        format=1,
        outputs="log_likelihood" if texts else "log_odds",
        direction="higher" if texts else None,
        classes=len(sets.query.class_names),
        class_names=() if texts else sets.query.class_names,
        records=records,
        models=models,
        counts=Counts(**counts),
        hashes=Hashes(**{role: source_set.content_hash for role, source_set in sets.read.items()}),
        sampled_alike=audit.sampled_alike and SampledAlike.of(audit.sampled_alike),
        images=options.images or "none",
        seed=options.seed,
        groups=bool(groups),
        group_columns=group_columns(options.groups),
        versions={"jaxaudit": __version__, "numpy": version("numpy")},
        command=tuple(command_line("ks", options)),
    )
    if dropped.any():
        arrays[DROPPED] = dropped
    if groups:
        arrays[GROUPS] = np.concatenate(groups).astype(np.int64)
    return bank_files(description, arrays)
