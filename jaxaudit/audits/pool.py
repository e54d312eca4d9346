"""The pool of examples of an audit, and the membership masks of its models over this pool."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool

from jaxaudit.data import Examples, align_target_data, concatenate
from jaxaudit.data.groups import Groups
from jaxaudit.data.overlap import MEMBERS, refuse_held, refuse_in_reference
from jaxaudit.data.roles import Role, Sets
from jaxaudit.errors import InputError
from jaxaudit.membership import only, random_subset
from jaxaudit.shadow_models import Pool


class Part(NamedTuple):
    """A random share of a data set; of the groups of the query set, if these are kept whole."""

    examples: Examples
    fraction: float


@runtime_checkable
class Trainable(Protocol):
    """A target that is trained by the audit, on the union of its parts."""

    @property
    def name(self) -> str: ...
    @property
    def parts(self) -> tuple[Part, ...]: ...


def make_pool(sets: Sets[Examples], targets: Sequence[Trainable] = (), groups: Groups | None = None) -> Pool:
    """The pool of all sets; a record that several sets share is in it once, matched by its hash.

    The reference (known non-members) is the calibration set itself, or a separate set. Models can only be trained with
    a calibration set. Sets that must not share records, parts and groups that do not fit them are refused.
    """
    query, holdout, calibration = sets[Role.QUERY], sets.get(Role.HOLDOUT), sets.get(Role.CALIBRATION)
    members, reference = sets.get(Role.MEMBERS), sets.get(Role.REFERENCE)
    if holdout is not None:
        for role, other in sets.only(Role.QUERY, Role.CALIBRATION).items():
            refuse_held(other, holdout, role.words)
    apart = None if reference is calibration else reference
    if apart is not None:
        refuse_in_reference(apart, query, calibration or query, holdout)
    if members is not None:
        for role, other in sets.items():
            if role != Role.MEMBERS:
                refuse_held(other, members, role.words, of=MEMBERS)
    given_sets = (query, holdout, calibration, apart, members)
    ends = np.cumsum([0, *(0 if examples is None else len(examples) for examples in given_sets)]).tolist()
    query_at, holdout_at, calibration_at, apart_at, members_at = (slice(*span) for span in pairwise(ends))
    parts = [examples for examples in given_sets if examples is not None]
    record_hashes = {record for examples in parts for record in examples.record_hashes.tolist()}
    for target, part in [(trained, part) for trained in targets for part in trained.parts]:
        if not 0 < part.fraction <= 1:
            raise InputError(
                f"{target.name}: the fraction of {part.examples.name} is {part.fraction:g}; give one above 0 and at "
                "most 1, such as 0.5."
            )
        extra = align_target_data(query, part.examples)
        if holdout is not None:
            refuse_held(extra, holdout, "target's data", "remove them from one of the two")
        fresh = np.flatnonzero([record not in record_hashes for record in extra.record_hashes.tolist()])
        if len(fresh):
            parts.append(extra.take(fresh))
            record_hashes.update(parts[-1].record_hashes.tolist())
    sizes = len(query), len(holdout or ()), len(members or ())
    if groups is not None and tuple(map(len, groups)) != sizes:
        raise InputError(
            f"there are groups of {', '.join(str(len(group)) for group in groups)} records of query set, holdout and "
            f"members, but these have {', '.join(map(str, sizes))}: give each record of all of them its group."
        )
    whole, group_of_member = (None, None) if groups is None else (groups.dealt_sets, groups.members)
    reference_at = slice(0, 0) if reference is None else calibration_at if apart is None else apart_at
    examples = concatenate(parts, "pool")
    return Pool(examples, query_at, holdout_at, calibration_at, whole, reference_at, members_at, group_of_member)


def target_row(generator: np.random.Generator, pool: Pool, parts: tuple[Part, ...]) -> Bool[np.ndarray, "1 examples"]:
    """The membership mask of a simulated target: a random share of each part, by whole groups if the query set has any.

    All records of a drawn group that belong to the part are members.
    """
    unit_of_record = np.arange(len(pool.examples))
    if pool.groups is not None:
        # Numbered after the groups, so that every other record is a group of its own.
        unit_of_record += int(pool.groups.max()) + 1
        unit_of_record[pool.query] = pool.groups[: pool.query.stop]
    rows = []
    for part in parts:
        records = _indices(pool, part.examples)
        drawn = random_subset(
            generator, np.unique(unit_of_record[records]), part.fraction, int(unit_of_record.max()) + 1
        )[0]
        rows.append(only(records[drawn[unit_of_record[records]]], len(unit_of_record)))
    return np.any(rows, axis=0)


def _indices(pool: Pool, part: Examples) -> np.ndarray:
    """The indices in the pool of all records of the set of `part`."""
    for part_of_pool in (pool.query, pool.calibration):
        if np.array_equal(pool.examples.record_hashes[part_of_pool], part.record_hashes):
            return np.arange(part_of_pool.start, part_of_pool.stop)
    hashes = pool.examples.record_hashes.tolist()
    # The first index of each record.
    place = dict(zip(reversed(hashes), range(len(hashes) - 1, -1, -1), strict=True))
    return np.unique([place[record] for record in part.record_hashes.tolist()])


def share_row(
    generator: np.random.Generator, pool: Pool, part: slice, fraction: float
) -> Bool[np.ndarray, "1 examples"]:
    """The membership mask of a model trained on a random share of one set of the pool."""
    return random_subset(generator, np.arange(part.start, part.stop), fraction, len(pool.examples))
