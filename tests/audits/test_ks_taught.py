"""Difficulty that the records of a test teach: a slow twin, no order, the level, the gain, and who teaches nothing."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from support.clouds import DEALT, with_log_odds
from support.ks_audits import audit_ks

from jaxaudit import FileTarget, Sets, load
from jaxaudit.audits import learners_of, lesson_operations, taught_difficulty
from jaxaudit.audits.ks import taught
from jaxaudit.data import Examples, cache_dir, cache_place
from jaxaudit.ensemble import count_step
from jaxaudit.metrics import (
    difficulty,
    log_odds,
    odds_without,
    order_of_contents,
    permutation_test,
    residual_scores,
    taught_rows,
    units_of,
)
from jaxaudit.randomness import generator_of, several, stream

KEY = jax.random.key(3)
SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
FEW = DEALT[0].take(np.r_[:100, :20])
"""So many records as most lessons here have, which so are one program; 20 are copies of others."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))


def digits(count: int = 1797) -> Examples:
    return load("digits").take(np.random.default_rng(5).permutation(1797)[:count])


@pytest.mark.parametrize("image", [False, pytest.param(True, marks=pytest.mark.outer)])
def test_it_is_what_models_say_that_are_trained_one_by_one_without_the_record(image: bool) -> None:
    """Over the same rows and keys, by the learners' own `fit`."""
    records = digits(120) if image else FEW
    found: Any = taught_difficulty(KEY, records)
    order = order_of_contents(records.record_hashes, records.labels)
    inputs, labels = taught._prepared(KEY, records.take(order)), records.labels[order].astype(np.int32)
    rows = taught_rows(generator_of(stream(KEY, "rows")), units_of(records.record_hashes[order].view("S16"), None))
    assert len(found.odds) == (5 if image else 3)
    x, y = jax.numpy.asarray(inputs), jax.numpy.asarray(labels)
    for odds, (name, learner) in zip(
        found.odds, learners_of(inputs.shape[1:], int(labels.max()) + 1).items(), strict=True
    ):
        say = jax.jit(lambda key, row, of=learner: of.log_probs(of.fit(key, x, y, row), x))
        keys = several(stream(KEY, name), len(rows))
        said = [log_odds(np.asarray(say(*each)), labels) for each in zip(keys, rows.astype(np.float32), strict=True)]
        assert odds[order] == pytest.approx(odds_without(np.stack(said), rows), abs=0.02)


@pytest.mark.parametrize("grouped", [False, True])
def test_no_order_of_the_records_changes_a_bit(grouped: bool) -> None:
    """So no deal does. Copies across sets, one of another class, are taught together and know nothing of each other."""
    labels = np.append(FEW.labels[:-1], (FEW.labels[-1] + 1) % 3)
    groups = np.arange(len(FEW)) // 3 if grouped else None
    records = replace(FEW, labels=labels, groups=groups)
    turned = np.random.default_rng(1).permutation(len(FEW))
    one: Any = taught_difficulty(KEY, records)
    # Groups have other numbers, too.
    turned_groups = None if groups is None else 1000 - groups[turned]
    other: Any = taught_difficulty(KEY, replace(records.take(turned), groups=turned_groups))
    assert (one.odds[:, turned] == other.odds).all()
    assert (one.order == turned[other.order])[one.order < 99].mean() > 0.8
    assert (one.odds[:, :19] == one.odds[:, 100:-1]).all()


def test_gaps_teach_as_the_mean_of_their_column() -> None:
    inputs = FEW.inputs.copy()
    inputs[::7, 1] = np.nan
    found: Any = taught_difficulty(KEY, replace(FEW, inputs=inputs, gaps=("b",)))
    assert found.caveats == (
        "To teach how difficult a record is, empty cells were filled with the mean of their column.",
    )
    prepared = taught._prepared(KEY, replace(FEW, inputs=inputs, gaps=("b",)))
    inputs[::7, 1] = np.nanmean(inputs[:, 1])
    np.testing.assert_allclose(prepared, taught._prepared(KEY, replace(FEW, inputs=inputs)), atol=1e-5)
    assert np.isfinite(found.odds).all()
    assert found.odds.std() > 0.1


def test_what_was_taught_once_is_read_again_and_no_other_numbers_are_believed() -> None:
    first: Any = taught_difficulty(KEY, FEW)
    (path,) = cache_dir().glob("taught-difficulty-*")
    with np.load(path) as kept:
        assert list(kept) == ["odds"]
        np.savez(path.with_suffix(""), odds=kept["odds"] + 1)
    assert (taught_difficulty(KEY, FEW).odds == first.odds + 1).all()
    for key, other in (
        (KEY, replace(FEW, labels=(FEW.labels + 1) % 3)),
        (KEY, replace(FEW, inputs=FEW.inputs + 1)),
        (KEY, replace(FEW, groups=np.arange(120) // 2)),
        (jax.random.key(9), FEW),
    ):
        taught_difficulty(key, other)
    assert len(list(cache_dir().glob("taught-difficulty-*"))) == 5
    for odds in (np.full_like(first.odds, np.nan), first.odds[:1], first.odds.astype(int), first.odds.sum()):
        np.savez(path.with_suffix(""), allow_pickle=False, odds=odds)
        assert (taught_difficulty(KEY, FEW).odds == first.odds).all()
    # A part of the records keeps what all were taught, in the order in which the whole lesson has them.
    places = np.array([7, 3, 99, 50])
    some: Any = first.taken(places)
    assert (some.odds == first.odds[:, places]).all()
    assert places[some.order].tolist() == [place for place in first.order if place in places]


def test_the_operations_of_a_lesson_are_those_of_its_models() -> None:
    """Of dense models as the compiler counts them, which takes no gradient of inputs; a convolutional one's are counted
    by the time that they take.
    """
    by_model = [
        learner.epochs * 80 / learner.batch_size * count_step(learner, FEW.inputs, FEW.labels).step
        for learner in learners_of(FEW.inputs.shape[1:], 3).values()
    ]
    assert lesson_operations(FEW, 120) == pytest.approx(9 * sum(by_model), rel=0.5)
    images = digits(120)
    flat = replace(images, inputs=images.inputs.reshape(120, -1))
    assert lesson_operations(images, 120) > 5 * lesson_operations(flat, 120)
    most = lesson_operations(FEW, taught.MOST_TEACHERS)
    assert most < lesson_operations(FEW, 2 * taught.MOST_TEACHERS) < 1.5 * most
    assert lesson_operations(replace(FEW, class_names=("one",), labels=np.zeros(120, int)), 120) == 0


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (FEW.take(np.arange(99)), "99 records are too few"),
        (replace(FEW, labels=np.zeros_like(FEW.labels)), "one class"),
        (replace(FEW, inputs=np.ones_like(FEW.inputs)), "the same number"),
        (replace(FEW, inputs=FEW.inputs[:, :0]), ""),
        (replace(FEW, class_names=("one",), labels=np.zeros_like(FEW.labels)), ""),
    ],
    ids=["few", "one class", "constant", "no inputs", "no classes"],
)
def test_who_teaches_nothing_leaves_it_to_neighbours_and_says_so(records: Examples, why: str) -> None:
    found = taught_difficulty(KEY, records)
    assert found.odds is None
    by_contents = order_of_contents(records.record_hashes, records.labels) if why else np.arange(len(records))
    assert found.order.tolist() == by_contents.tolist()
    assert [why in caveat for caveat in found.caveats] == [True] * bool(why)
    assert not cache_place().exists()


@pytest.mark.parametrize(
    ("shape", "kind", "size"),
    [
        ((512, 300), np.uint8, (28, 16)),
        ((40, 30, 4), np.uint16, None),
        ((200, 4), np.float64, None),
    ],
)
def test_huge_images_are_reduced_and_it_is_said(
    shape: tuple[int, ...], kind: Any, size: tuple[int, int] | None
) -> None:
    inputs = np.random.default_rng(1).integers(0, 2, (4, *shape)).astype(kind)
    records = Examples(inputs, np.arange(4) % 2, ("a", "b"), "images")
    prepared = taught._prepared(KEY, records)
    if shape == (200, 4):
        assert prepared.shape == (4, 800)
    else:
        assert prepared.shape == (4, *(size or shape[:2]), min(3, (*shape, 1)[2]))
        assert (prepared.min(), prepared.max()) == (0.0, 1.0)
    assert [f"{size} pixels" in caveat for caveat in taught._reductions(records)] == [False] * bool(size)
    assert bool(taught._reductions(records)) == bool(size)


def test_long_records_are_reduced_to_combinations() -> None:
    records = Examples(np.random.default_rng(1).normal(size=(5, 5_000)), np.arange(5) % 2, ("a", "b"), "long")
    assert taught._prepared(KEY, records).shape == (5, taught.MOST_COLUMNS)
    assert "4,096 random combinations" in taught._reductions(records)[0]


def test_the_audit_says_the_same_for_any_number_of_targets_and_that_few_records_teach_nothing() -> None:
    query, holdout, members = (each.take(np.arange(size)) for each, size in zip(DEALT, (30, 40, 50), strict=True))

    def target(seed: int) -> FileTarget:
        generator = np.random.default_rng(seed)
        sides = (with_log_odds(generator.normal(size=len(each)), each, "t") for each in (query, holdout, members))
        return FileTarget(Sets(**dict(zip(("query", "holdout", "members"), sides, strict=True))), allow_unrelated=True)

    asked: dict[str, Any] = {"holdout": holdout, "members": members}
    alone, beside = (
        audit_ks(KEY, query, None, None, targets, **asked).targets for targets in ([target(1)], [target(1), target(2)])
    )
    (usage,), (other,) = alone[0].usage, beside[0].usage
    assert (usage.p_never, usage.upper) == (other.p_never, other.upper)
    np.testing.assert_equal(usage.fraction, other.fraction)
    part = target(1).taken(Sets(query=np.arange(8), holdout=np.arange(40), members=np.arange(50)))
    (found,) = audit_ks(KEY, query.take(np.arange(8)), None, None, [part], **asked).targets
    assert any("98 records are too few" in caveat for caveat in found.finding.caveats)


@pytest.mark.outer
def test_without_a_lesson_ties_among_neighbours_do_not_follow_the_sets() -> None:
    """90 records of four different inputs, whose neighbours are all as near; 400 deals of a target of chance."""
    generator, deals, small = np.random.default_rng(8), 400, 0
    for number in range(deals):
        inputs, labels = generator.integers(0, 4, (90, 1)).astype(np.float32), generator.integers(0, 2, 90)
        records = Examples(inputs, labels, ("a", "b"), "ties")
        order = taught_difficulty(KEY, records).order
        predictors = difficulty(KEY, labels[order], inputs[order])[np.argsort(order)]
        odds = (2.0 * (labels == (inputs[:, 0] > 1.5)) - 1) + generator.normal(size=90)
        scores = residual_scores(odds, predictors)
        small += permutation_test(jax.random.key(number), scores[:20], scores[20:], permutations=99).p_larger <= 0.05
    assert stats.binom.sf(small - 1, deals, 0.05) > SURE
