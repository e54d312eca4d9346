"""Draws the training sets of a bank: the membership masks that `ks` draws with the same key."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, UInt32

from jaxaudit.audits.ks.models import Rows
from jaxaudit.audits.ks.tests_of_use import HoldoutTest, KSTest, ShadowTest
from jaxaudit.data import Examples
from jaxaudit.data.groups import Groups
from jaxaudit.data.roles import Sets
from jaxaudit.errors import InputError
from jaxaudit.randomness import generator_of, stream
from jaxaudit.shadow_models import BUILT_IN_KINDS, OF_QUERY, Kind, Pool, examples_of, pool_of_sets

TURNS = (Kind.NEVER, Kind.FULLY, Kind.NEVER, Kind.HALF)
"""Without a holdout, the kinds of successive models: in the proportions of `ShadowTest` for any number of models."""
HOLDOUT_MODELS, SHADOW_MODELS = 40, 77
"""The default numbers of models of `HoldoutTest`, and of `ShadowTest` in all."""


class BankPlan(NamedTuple):
    """The training sets of a bank: columns are the query set, the holdout, the calibration set.

    Attributes:
        seeds: of the training of each model.
        places: number of each model among those of its kind, from 0; it determines the model's design.
        own_kinds: numbers of models by kind, of the kinds of the given tests; these models come first.
    """

    membership: Bool[np.ndarray, "models n"]
    seeds: UInt32[np.ndarray, " models"]
    places: Int[np.ndarray, " models"]
    own_kinds: Mapping[str, int]


def plan_bank(
    key: Key[Array, ""],
    models: int,
    query: int,
    *,
    holdout: int = 0,
    calibration: int = 0,
    groups: Groups | None = None,
    dropped: Bool[np.ndarray, " n"] | None = None,
    coins: bool = False,
    tests: Sequence[KSTest] = (),
    labels: Int[np.ndarray, " n"] | None = None,
) -> BankPlan:
    """Draws the training sets of a bank of shadow models.

    - With a holdout: each model is trained on as many records as the query set has, drawn from query set and holdout
      together; with groups, on as many whole groups.
    - Without a holdout: of every four models, the first and the third are trained on none of the query set, the second
      on all of it, the fourth on half of it.
    - Each model is also trained on a random two thirds of the calibration set, if there is one.
    - With `coins`: each model is trained on each record of any set with probability 1/2, independently; with groups, on
      each whole group of query and holdout records.
    - With `tests`: before these `models` come those of the kinds that these tests define, as each test draws them.

    Guarantee: the mask and the seed of a model depend only on the key and its number, so a larger plan begins with the
    same models. Without `coins`, the masks are those that `train_shadows` draws with this key and these sets.

    Args:
        query, holdout, calibration: numbers of records.
        groups: of query and holdout records, if groups are kept whole; without a holdout, with `coins` alone.
        dropped: records that no model is trained on.
        coins: whether inclusion is independent, as a bound on epsilon requires.
        tests: tests with kinds of models of their own, such as your own tests. They see labels and no inputs.
        labels: class of each record, for `tests` whose draw depends on it.

    Raises:
        InputError: without `coins`, there is neither a holdout nor a calibration set; no record of a set is left; there
            are groups without a holdout, or too few groups; a test refuses the sets, has no kind of its own, draws
            models of another test's kind or without any record, or is given with `coins`.

    >>> plan = plan_bank(jax.random.key(7), 3, 4, holdout=4, calibration=6)
    >>> plan.membership[:, :8].sum(axis=1), plan.membership[:, 8:].sum(axis=1)
    (array([4, 4, 4]), array([4, 4, 4]))
    """
    if not holdout and not calibration and not coins:
        raise InputError(
            "shadow models are trained on random records, but there is only the query set: give a holdout (`holdout`), "
            "a calibration set (`calibration`), or both."
        )
    ends = np.cumsum([query, holdout, calibration])
    left = np.ones(ends[-1], bool) if dropped is None else ~dropped
    columns = [
        np.flatnonzero(part) + end - len(part) for part, end in zip(np.split(left, ends[:-1]), ends, strict=True)
    ]
    sizes_by_name = {"query set": query, "holdout": holdout, "calibration set": calibration}
    for (name, size), kept in zip(sizes_by_name.items(), columns, strict=True):
        if size and not len(kept):
            raise InputError(f"all {size} records of the {name} are copies: is it the same data set as another?")
    seeds = _seeds(stream(key, "seeds"), models)
    if coins:
        if tests:
            raise InputError("`coins` deals the records of every model, and a test those of its own: give one.")
        draw, units = stream(key, "draw", "coins"), np.arange(len(left))
        if groups is not None:
            # A coin for each group, and for each record of the calibration set.
            numbers = groups.dealt_sets
            units = np.concatenate([numbers, numbers.max() + 1 + np.arange(len(left) - len(numbers))])
        tossed = [generator_of(stream(draw, model)).random(units.max() + 1) < 0.5 for model in range(models)]
        return BankPlan(np.stack(tossed)[:, units] & left, seeds, np.arange(models), {})
    if groups is not None:
        if not holdout:
            raise InputError("groups are of query set and holdout, but there is no holdout (`holdout`).")
        groups = groups.take(columns[0], columns[1] - query)
    sizes = [len(column) for column in columns]
    # Masks of built-in kinds depend only on the sizes of the sets.
    classes = np.zeros(sum(sizes), int) if labels is None else labels[left]
    names = tuple(map(str, range(int(classes.max()) + 1)))
    records = Examples(np.zeros((sum(sizes), 0), np.float32), classes, names, "records")
    pool = pool_of_sets(records, sizes, groups=None if groups is None else groups.dealt_sets)
    kinds = np.array([Kind.MIXED if holdout else TURNS[model % len(TURNS)] for model in range(models)])
    never, half, fully = (int((kinds == kind).sum()) for kind in OF_QUERY)
    test = HoldoutTest(mixed=models) if holdout else ShadowTest(never=never, half=half, fully=fully)
    own_rows = _own_rows(stream(key, "draw"), pool, tests)
    own_kinds = {kind: len(masks) for kind, masks in own_rows.items()}
    rows = {**own_rows, **test.draw(stream(key, "draw"), pool)}
    kinds = np.array([*(kind for kind, count in own_kinds.items() for _ in range(count)), *kinds], object)
    membership, places = np.zeros((len(kinds), len(left)), bool), np.zeros(len(kinds), int)
    for kind in set(kinds.tolist()):
        of_kind = np.flatnonzero(kinds == kind)
        places[of_kind] = np.arange(len(of_kind))
        membership[np.ix_(of_kind, np.flatnonzero(left))] = rows[kind]
    # A stream for each kind, so that a test moves no seed of another model.
    own_seeds = [_seeds(stream(key, "seeds", kind), count) for kind, count in own_kinds.items()]
    return BankPlan(membership, np.concatenate([*own_seeds, seeds]), places, own_kinds)


def _seeds(key: Key[Array, ""], models: int) -> UInt32[np.ndarray, " models"]:
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(models))
    return np.asarray(jax.vmap(lambda one: jax.random.bits(one, dtype=jnp.uint32))(keys))


def _own_rows(key: Key[Array, ""], pool: Pool, tests: Sequence[KSTest]) -> Rows:
    """The membership masks of the kinds that these tests define; those of built-in kinds are dealt by number."""
    rows: Rows = {}
    parts = {"query": pool.query, "holdout": pool.holdout, "calibration": pool.calibration}
    sets = Sets(**{role: examples_of(pool, part) for role, part in parts.items()})
    for test in tests:
        test.refuse(sets)
        test.refuse_pool(pool)
        drawn = {
            kind: masks for kind, masks in test.draw(key, pool).items() if kind not in BUILT_IN_KINDS and len(masks)
        }
        if not drawn:
            raise InputError(f"the {test.title} draws no models of a kind of its own: a bank is planned without it.")
        twice = sorted(drawn.keys() & rows.keys())
        if twice:
            raise InputError(f"two tests draw models of one kind ({', '.join(twice)}): rename those of one.")
        empty = [kind for kind, masks in drawn.items() if not masks.any(axis=1).all()]
        if empty:
            raise InputError(
                f"the {test.title} draws models without any record ({', '.join(empty)}): give the sets that it draws "
                "from, such as a calibration set."
            )
        rows |= drawn
    return rows
