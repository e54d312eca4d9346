"""The `ks` audit by a bank: targets are judged by shadow models that are there, and nothing is trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.ks.bank.evidence import bank_evidence, kept_records
from jaxaudit.audits.ks.bank.state import Allowed, allowed_tests
from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.judge import judge_targets
from jaxaudit.audits.ks.learned import without_unlearned
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.target import FileTarget, refuse_shape
from jaxaudit.audits.ks.tests import HoldoutTest, KSTest, MembersTest, ReferenceTest, ShadowTest
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import Sizes
from jaxaudit.data.examples import Examples
from jaxaudit.data.groups import numbered
from jaxaudit.data.overlap import MEMBERS, refuse_held
from jaxaudit.data.stacking import concatenate
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import MIN_ACCURACY
from jaxaudit.metrics.usage import STATED_FRACTION
from jaxaudit.shadow_models import OF_QUERY, Kind

BY_CLASSES = (
    "Whether the known members are like query set and holdout was measured on their classes alone, and whether they "
    "share records with these was not looked at: the bank has no records. Give --query and --holdout, too."
)


def audit_bank(
    key: Key[Array, ""],
    bank: Bank,
    targets: Sequence[FileTarget],
    *,
    tests: Sequence[KSTest] | None = None,
    members: Examples | None = None,
    sets: Mapping[str, Examples] = MappingProxyType({}),
    own_recipe: bool = False,
    level: float = 0.95,
    min_accuracy: float = MIN_ACCURACY,
) -> KSAudit:
    """Has each target forgotten the query set? The tests of `audit_ks`, by the models of a bank; none is trained.

    A bank that `jaxaudit shadows plan` dealt with a seed, and whose models are trained as `audit_ks` trains its own,
    gives the numbers of `audit_ks` with that seed, but for the holdout test's `p_never`: a bank has no inputs, and so
    no neighbours that tell how difficult a record is.

    Args:
        key: random key; every test uses the stream of its name.
        bank: the shadow models; those without outputs are left out.
        targets: what is judged; files have a row per record of the bank's sets, dropped records included.
        tests: the tests to make, the deciding one first; by default `default_bank_tests`.
        members: records that the targets are known to have used, with the bank's classes; as for `audit_ks`.
        sets: the bank's own sets by role (`query`, `holdout`, `calibration`), as far as they are at hand: whether the
            members are like query set and holdout is then measured on their inputs, too.
        own_recipe: whether the bank's models have the targets' own network and recipe; as for `audit_ks`.
        level: confidence level of the intervals.
        min_accuracy: minimum training accuracy of a shadow model that counts as well trained.

    Returns:
        One result per target, in their order. None has rho: a bank has no models for it.

    Raises:
        InputError: there is no target, outputs do not fit the bank, no test can be made, or a test is asked for that
            the bank has too few models for, with what it lacks; or as `evidence_for`.
    """
    evidence = evidence_for(bank, targets, min_accuracy=min_accuracy, members=members, sets=sets, own_recipe=own_recipe)
    tests = default_bank_tests(bank, evidence, targets) if tests is None else tests
    return judge_by_bank(key, bank, evidence, targets, tests, level=level)


def evidence_for(
    bank: Bank,
    targets: Sequence[FileTarget],
    *,
    min_accuracy: float = MIN_ACCURACY,
    members: Examples | None = None,
    member_groups: np.ndarray | None = None,
    sets: Mapping[str, Examples] = MappingProxyType({}),
    own_recipe: bool = False,
) -> Evidence:
    """What the finished models of a bank say, as these targets are compared with them.

    Args:
        bank: the bank.
        targets: what is judged.
        min_accuracy: minimum training accuracy of a model that fits its data.
        members: records that the targets are known to have used; the bank has no outputs on them.
        member_groups: the group of each, where the bank dealt whole groups.
        sets: the bank's own sets by role; the members are compared with those that are there.
        own_recipe: whether its models are said to have the targets' own network and recipe.

    Raises:
        InputError: members are records of another set; or as `Bank.outputs`.
    """
    referred = bool(targets) and all(target.on_reference is not None for target in targets)
    found = bank_evidence(bank, with_reference=referred, min_accuracy=min_accuracy)
    found = replace(found, own_recipe=own_recipe, targets=len(targets))
    by_rank = [(test.title, OF_QUERY) for test in (ReferenceTest, ShadowTest)]
    found = without_unlearned(found, [(HoldoutTest.title, (Kind.MIXED,)), *by_rank])
    if members is None:
        return found
    _refuse_shared(bank, members, sets)
    found = _with_members(found, members, member_groups)
    if not {"query", "holdout"} <= sets.keys():
        return replace(found, limitations=(*found.limitations, BY_CLASSES))
    return replace(found, at_hand=_at_hand(bank, members, sets))


def _refuse_shared(bank: Bank, members: Examples, sets: Mapping[str, Examples]) -> None:
    """Refuses members that are records of a set of the bank, as far as that can be told."""
    for role in Sizes._fields:
        if members.content_hash == getattr(bank.description.hashes, role):
            raise InputError(
                f"the known members {members.name} are the {role} records of the bank: give records that the target "
                "did use, and that are in no set of the bank (--members)."
            )
    for role, own in sets.items():
        refuse_held(own, members, f"{role} records", "leave them out, and the target's outputs on them", MEMBERS)


def _at_hand(bank: Bank, members: Examples, sets: Mapping[str, Examples]) -> Examples:
    """The members, and the records of query set and holdout that tests use."""
    kept = kept_records(bank)
    own = [sets[role].take(kept[role]) for role in ("query", "holdout")]
    return concatenate([members, *(replace(each, class_names=members.class_names) for each in own)], "records")


def _with_members(evidence: Evidence, members: Examples, groups: np.ndarray | None) -> Evidence:
    """The evidence with known members behind the bank's records; no model was trained on one."""
    pool, models = evidence.pool, evidence.models
    known = replace(members, inputs=np.zeros((len(members), 0), np.float32), class_names=pool.examples.class_names)
    end = len(pool.examples)
    wider = pool._replace(
        examples=concatenate([pool.examples, known], "records"),
        members=slice(end, end + len(members)),
        # None of them has a record in another set.
        member_groups=None if groups is None or pool.groups is None else numbered(groups) + int(pool.groups.max()) + 1,
    )
    none = np.zeros((len(models), len(members)), bool)
    unknown = np.full(none.shape, np.nan, np.float32)
    wide = replace(
        models,
        pool=wider,
        membership=np.concatenate([models.membership, none], axis=1),
        log_odds=np.concatenate([models.log_odds, unknown], axis=1),
        correct=np.concatenate([models.correct, unknown], axis=1),
    )
    return replace(evidence, models=wide)


def default_bank_tests(
    bank: Bank, evidence: Evidence, targets: Sequence[FileTarget], stated: float = STATED_FRACTION
) -> tuple[KSTest, ...]:
    """The tests that the finished models and the targets' outputs allow: holdout, then reference; else shadow.

    Raises:
        InputError: none can be made, with what each lacks.
    """
    allowed = {each.test: each for each in allowed_tests(bank, bank.finished().tolist())}
    lacking = {name: _lacks(allowed[name], targets) for name in allowed}
    made = bank_tests(evidence, stated)
    known = evidence.known.stop > evidence.known.start and not lacking[HoldoutTest.name]
    named = (*((MembersTest.name,) if known else ()), HoldoutTest.name, ReferenceTest.name)
    first = tuple(made[name] for name in named if not lacking.get(name))
    if first or not lacking[ShadowTest.name]:
        return first or (made[ShadowTest.name],)
    raise InputError(f"no test can be made: {'; '.join(f'{name}: {why}' for name, why in lacking.items())}.")


def bank_tests(evidence: Evidence, stated: float = STATED_FRACTION) -> dict[str, KSTest]:
    """The tests of use by name, with the numbers of models that there are."""
    mixed, never, half, fully = map(evidence.count, (Kind.MIXED, *OF_QUERY))
    counts = {"never": never, "half": half, "fully": fully}
    by_rank = {**counts, "stated": stated, "targets": evidence.targets}
    return {
        MembersTest.name: MembersTest(stated=stated),
        HoldoutTest.name: HoldoutTest(mixed=mixed, stated=stated),
        ReferenceTest.name: ReferenceTest(**by_rank),
        ShadowTest.name: ShadowTest(**by_rank),
    }


def judge_by_bank(
    key: Key[Array, ""],
    bank: Bank,
    evidence: Evidence,
    targets: Sequence[FileTarget],
    tests: Sequence[KSTest],
    *,
    level: float = 0.95,
) -> KSAudit:
    """What these tests conclude of each target; see `audit_bank`."""
    if not targets:
        raise InputError("there is no target: give a file of its outputs on the bank's query set (--target).")
    names = [test.name for test in tests]
    if not names or len(set(names)) < len(names):
        raise InputError(f"tests are {', '.join(names) or 'none'}: give each once, at least one.")
    if not 0 < level < 1:
        raise InputError(f"the level of an interval must be between 0 and 1; got {level:g}.")
    allowed = {each.test: each for each in allowed_tests(bank, bank.finished().tolist())}
    holding = any(test.name in (HoldoutTest.name, MembersTest.name) for test in tests)
    examples, pool = evidence.pool.examples, evidence.pool
    holdout = examples.take(pool.holdout, "holdout") if holding and bank.description.sizes.holdout else None
    for test in tests:
        if test.name == MembersTest.name:
            test.draw(key, pool)
            continue
        why = _lacks(allowed[test.name], targets) if test.name in allowed else "a bank has no models for it"
        if why:
            raise InputError(f"the {test.title} cannot be made: {why}.")
        test.refuse(evidence.query, holdout)
    own = [_on_kept(bank, evidence, target, held=holdout is not None) for target in targets]
    for target in own:
        target.refuse(evidence.query, holdout)
    heard = [target.says(evidence, holdout, "", with_signals=False) for target in own]
    return judge_targets(key, evidence, heard, tests, level=level)


def _lacks(test: Allowed, targets: Sequence[FileTarget]) -> str:
    """Why this test cannot be made; empty if it can."""
    outputs: dict[str, tuple[Callable[[FileTarget], object], str]] = {
        HoldoutTest.name: (lambda each: each.on_holdout, "the holdout (--holdout-target)"),
        ReferenceTest.name: (lambda each: each.on_reference, "the calibration set (--calibration-target)"),
    }
    if test.lacks:
        return f"{test.lacks[:1].lower()}{test.lacks[1:].removesuffix('.')}"
    if not test.possible:
        few = (
            f"{test.finished[kind]} of at least {count} models {kind.words}"
            for kind, count in test.least.items()
            if test.finished[kind] < count
        )
        return f"the bank has {' and '.join(few)}"
    if test.test in outputs:
        read, place = outputs[test.test]
        if not all(read(each) is not None for each in targets):
            return f"it needs the target's outputs on {place}"
    return ""


def _on_kept(bank: Bank, evidence: Evidence, target: FileTarget, *, held: bool) -> FileTarget:
    """The target's outputs on the records that tests use."""
    sizes, classes = bank.description.sizes, bank.description.classes
    target = target if held else target._replace(on_holdout=None, before=None, before_on_holdout=None)
    files = (
        (target.outputs, sizes.query, "query set"),
        (target.on_holdout, sizes.holdout, "holdout"),
        (target.on_reference, sizes.calibration, "calibration set"),
        (target.before, sizes.query, "query set"),
        (target.before_on_holdout, sizes.holdout, "holdout"),
    )
    for file, records, of in files:
        if file is not None:
            refuse_shape(file, records, classes, of)
    kept = kept_records(bank)
    return target.taken(kept["query"], kept["holdout"], kept["calibration"])
