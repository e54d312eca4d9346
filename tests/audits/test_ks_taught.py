"""Difficulty that the records of a test teach: a slow twin, no order, the level, the gain, and who teaches nothing."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from support.clouds import HOLDOUT, QUERY, examples, with_log_odds
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
MEMBERS = examples(7, 0.0, "members")
SETS = (QUERY, HOLDOUT, MEMBERS)
ALL = Examples(
    np.concatenate([each.inputs for each in SETS]),
    np.concatenate([each.labels for each in SETS]),
    QUERY.class_names,
    "",
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))


def digits(count: int = 1797) -> Examples:
    return load("digits").take(np.random.default_rng(5).permutation(1797)[:count])


@pytest.mark.parametrize("image", [False, pytest.param(True, marks=pytest.mark.outer)])
def test_it_is_what_models_say_that_are_trained_one_by_one_without_the_record(image: bool) -> None:
    """Over the same rows and keys, by the learners' own `fit`."""
    records = digits(150) if image else ALL.take(np.arange(150))
    found: Any = taught_difficulty(KEY, records)
    order = order_of_contents(records.record_hashes, records.labels)
    inputs, labels = taught._prepared(KEY, records.take(order)), records.labels[order].astype(np.int32)
    rows = taught_rows(generator_of(stream(KEY, "rows")), units_of(records.record_hashes[order].view("S16"), None))
    assert len(found.odds) == (5 if image else 3)
    for odds, (name, learner) in zip(
        found.odds, learners_of(inputs.shape[1:], int(labels.max()) + 1).items(), strict=True
    ):
        fit, said = jax.jit(learner.fit), []
        for key, row in zip(several(stream(KEY, name), len(rows)), rows, strict=True):
            params = fit(key, inputs, labels, row.astype(np.float32))
            said.append(log_odds(np.asarray(learner.log_probs(params, jax.numpy.asarray(inputs))), labels))
        assert odds[order] == pytest.approx(odds_without(np.stack(said), rows), abs=0.02)


@pytest.mark.parametrize("grouped", [False, True])
def test_no_order_of_the_records_changes_a_bit(grouped: bool) -> None:
    """So no deal does. Copies across sets, one of another class, are taught together and know nothing of each other."""
    copies = np.r_[: len(ALL), :20]
    records = ALL.take(copies)
    records = replace(records, labels=np.r_[records.labels[:-1], (records.labels[-1:] + 1) % 3])
    groups = np.arange(len(copies)) // 3 if grouped else None
    turned = np.random.default_rng(1).permutation(len(copies))
    records = replace(records, groups=groups)
    one: Any = taught_difficulty(KEY, records)
    # Groups have other numbers, too.
    turned_groups = None if groups is None else 1000 - groups[turned]
    other: Any = taught_difficulty(KEY, replace(records.take(turned), groups=turned_groups))
    assert (one.odds[:, turned] == other.odds).all()
    assert (one.order == turned[other.order])[one.order < len(ALL) - 1].mean() > 0.8
    assert (one.odds[:, :19] == one.odds[:, len(ALL) : -1]).all()
    assert taught_difficulty(jax.random.key(4), records).odds is not one.odds


def test_gaps_teach_as_the_mean_of_their_column() -> None:
    records = ALL.take(np.arange(120))
    inputs = records.inputs.copy()
    inputs[::7, 1] = np.nan
    found: Any = taught_difficulty(KEY, replace(records, inputs=inputs, gaps=("b",)))
    assert found.caveats == (
        "To teach how difficult a record is, empty cells were filled with the mean of their column.",
    )
    prepared = taught._prepared(KEY, replace(records, inputs=inputs, gaps=("b",)))
    inputs[::7, 1] = np.nanmean(inputs[:, 1])
    np.testing.assert_allclose(prepared, taught._prepared(KEY, replace(records, inputs=inputs)), atol=1e-5)
    assert np.isfinite(found.odds).all()
    assert found.odds.std() > 0.1


def test_what_was_taught_once_is_read_again_and_no_other_numbers_are_believed() -> None:
    records = ALL.take(np.arange(120))
    first: Any = taught_difficulty(KEY, records)
    (path,) = cache_dir().glob("taught-difficulty-*")
    with np.load(path) as kept:
        assert list(kept) == ["odds"]
        np.savez(path.with_suffix(""), odds=kept["odds"] + 1)
    assert (taught_difficulty(KEY, records).odds == first.odds + 1).all()
    for other in (
        replace(records, labels=(records.labels + 1) % 3),
        replace(records, inputs=records.inputs + 1),
    ):
        taught_difficulty(KEY, other)
    taught_difficulty(KEY, replace(records, groups=np.arange(120) // 2))
    taught_difficulty(jax.random.key(9), records)
    assert len(list(cache_dir().glob("taught-difficulty-*"))) == 5
    for arrays in (
        {"odds": np.full_like(first.odds, np.nan)},
        {"odds": first.odds[:, :-1]},
        {"odds": first.odds[:1]},
        {"odds": first.odds.astype(int)},
        {"odds": first.odds.sum()},
        {"other": first.odds},
        None,
    ):
        path.write_bytes(b"damaged")
        if arrays:
            np.savez(path.with_suffix(""), allow_pickle=False, **arrays)
        assert (taught_difficulty(KEY, records).odds == first.odds).all()


def test_the_operations_of_a_lesson_are_those_of_its_models() -> None:
    """Of dense models as the compiler counts them, which takes no gradient of inputs; a convolutional one's are counted
    by the time that they take.
    """
    records = ALL.take(np.arange(150))
    by_model = [
        learner.epochs * 100 / learner.batch_size * count_step(learner, records.inputs, records.labels).step
        for learner in learners_of(records.inputs.shape[1:], 3).values()
    ]
    assert lesson_operations(records, 150) == pytest.approx(9 * sum(by_model), rel=0.5)
    images = digits(150)
    flat = replace(images, inputs=images.inputs.reshape(150, -1))
    assert lesson_operations(images, 150) > 5 * lesson_operations(flat, 150)
    most = lesson_operations(records, taught.MOST_TEACHERS)
    assert most < lesson_operations(records, 2 * taught.MOST_TEACHERS) < 1.5 * most
    assert lesson_operations(replace(records, class_names=("one",), labels=np.zeros(150, int)), 150) == 0


def test_a_part_of_the_records_keeps_what_all_were_taught() -> None:
    records, places = ALL.take(np.arange(120)), np.array([7, 3, 99, 50])
    lesson: Any = taught_difficulty(KEY, records)
    some: Any = lesson.taken(places)
    assert (some.odds == lesson.odds[:, places]).all()
    # In the order in which the whole lesson has them.
    assert places[some.order].tolist() == [place for place in lesson.order if place in places]


def of(records: Examples, **changes: Any) -> Examples:
    return replace(records, **changes)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (ALL.take(np.arange(99)), "99 records are too few"),
        (of(ALL, labels=np.zeros_like(ALL.labels)), "one class"),
        (of(ALL, inputs=np.ones_like(ALL.inputs)), "the same number"),
        (of(ALL, inputs=ALL.inputs[:, :0]), ""),
        (of(ALL, class_names=("one",), labels=np.zeros_like(ALL.labels)), ""),
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


def target(seed: int) -> FileTarget:
    generator = np.random.default_rng(seed)
    query, holdout, members = (with_log_odds(generator.normal(size=len(each)), each, "t") for each in SETS)
    return FileTarget(Sets(query=query, holdout=holdout, members=members), allow_unrelated=True)


def test_the_audit_says_the_same_for_any_number_of_targets_and_that_few_records_teach_nothing() -> None:
    asked: dict[str, Any] = {"holdout": HOLDOUT, "members": MEMBERS}
    alone, beside = (
        audit_ks(KEY, QUERY, None, None, targets, **asked).targets for targets in ([target(1)], [target(1), target(2)])
    )
    (usage,), (other,) = alone[0].usage, beside[0].usage
    assert (usage.p_never, usage.upper, usage.fraction) == (other.p_never, other.upper, other.fraction)
    few = {name: one.take(np.arange(33 if name == "holdout" else 55)) for name, one in asked.items()}
    part = target(1).taken(Sets(query=np.arange(10), holdout=np.arange(33), members=np.arange(55)))
    (found,) = audit_ks(KEY, QUERY.take(np.arange(10)), None, None, [part], **few).targets
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
