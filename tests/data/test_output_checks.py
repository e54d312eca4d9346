"""Rows of outputs in line, scales, copies of one model and models of another kind."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special
from scipy.stats import spearmanr

from jaxaudit.data import (
    OutputsBySet,
    exchanged_rows,
    knows_members_alone,
    on_two_scales,
    refuse_odd_models,
    rows_out_of_line,
    same_models,
    shifted_rows,
    softmaxed_twice,
    stale_rows,
    unwritten_rows,
)
from jaxaudit.data.outputs.model_copies import pairs_within, standard_ranks, unlike_others
from jaxaudit.errors import InputError

SIZES, CLASSES = (100, 400, 1000), (2, 5, 10)


def file(random: np.random.Generator, n: int, classes: int, told: np.ndarray | float = 2.0, ordered: bool = False):
    """Probabilities of a model, and the labels; `told` is what the logit of a record's own class has more."""
    labels = random.integers(0, classes, n)
    labels = np.sort(labels) if ordered else labels
    told = np.broadcast_to(told, (n,)) * (0.3 + 1.4 * labels / classes if ordered else 1)
    logits = 1.5 * random.normal(size=(n, classes))
    logits[np.arange(n), labels] += told
    return special.softmax(logits, axis=1), labels


@pytest.mark.outer
@pytest.mark.parametrize(
    ("ordered", "last"), [(False, 2.0), (True, 2.0), (False, 0.7)], ids=["random", "by class", "by time, with a drift"]
)
def test_rows_in_line_pass(ordered: bool, last: float) -> None:
    """100 files each; the level is 1 in 10,000, and holds for records in random order and for files sorted by class."""
    random = np.random.default_rng(1)
    for _ in range(100):
        n, classes = int(random.choice(SIZES)), int(random.choice(CLASSES))
        outputs, labels = file(random, n, classes, np.linspace(2.0, last, n), ordered)
        assert shifted_rows(outputs, labels) is None
        assert stale_rows(outputs, labels) is None
        assert exchanged_rows(outputs, labels) == 0


@pytest.mark.parametrize(("shift", "n"), [(1, 400), (-1, 2000), (3, 400), (-20, 2000)])
def test_a_shifted_part_is_found_with_its_rows(shift: int, n: int) -> None:
    """A record was left out (or came twice) in the middle, and the end was padded, in 40 of 40 files."""
    random = np.random.default_rng(2)
    for _ in range(40):
        outputs, labels = file(random, n, 5)
        start = n // 2
        rows = np.clip(np.arange(n) + np.where(np.arange(n) >= start, shift, 0), 0, n - 1)
        found = shifted_rows(outputs[rows], labels)
        assert found is not None
        assert found.shift == shift
        assert abs(found.start - start) <= 20 + abs(shift)
        assert found.stop >= n - 20 - abs(shift)


@pytest.mark.parametrize(
    ("size", "n", "classes", "share"), [(1, 400, 2, 0.3), (3, 1000, 5, 0.1), (8, 400, 10, 0.15), (16, 1000, 5, 0.1)]
)
def test_rows_exchanged_in_short_runs_are_found(size: int, n: int, classes: int, share: float) -> None:
    """Neighbours, or neighbouring blocks, in 38 of 40 files; without them in none of 40."""
    random, distances = np.random.default_rng(6), []
    for _ in range(40):
        outputs, labels = file(random, n, classes, 4.0)
        assert exchanged_rows(outputs, labels) == 0
        starts = 2 * size * random.choice(n // (2 * size), round(share * n / (2 * size)), replace=False)
        first, rows = (starts[:, None] + np.arange(size)).ravel(), np.arange(n)
        rows[first], rows[first + size] = first + size, first
        distances.append(exchanged_rows(outputs[rows], labels))
    assert distances.count(size) >= 38


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_a_few_rows_tell_nothing_of_their_order(n: int) -> None:
    outputs, labels = file(np.random.default_rng(n), n, 3)
    assert rows_out_of_line(OutputsBySet({"query set": outputs}, {"query set": labels})) == {}


@pytest.mark.outer
@pytest.mark.parametrize("kind", ["errors in spells", "classes that are confused", "repeated classes"])
def test_rows_in_line_are_not_taken_for_exchanged_ones(kind: str) -> None:
    """Of 100 files with a skill that ends in nothing, with pairs of alike classes, and sorted in time, none."""
    random = np.random.default_rng(8)
    for _ in range(100):
        n, classes = int(random.choice(SIZES)), int(random.choice(CLASSES))
        outputs, labels = file(random, n, classes, np.linspace(4.0, 0.0 if kind == "errors in spells" else 4.0, n))
        if kind == "classes that are confused":
            logits = np.log(outputs)
            logits[np.arange(n), labels ^ 1 if classes % 2 == 0 else labels] += 3 * (random.random(n) < 0.5)
            outputs = special.softmax(logits, axis=1)
        elif kind == "repeated classes":
            blur = 0.4 * np.eye(classes)
            labels = np.repeat(labels, 8)[:n]
            logits = 1.5 * random.normal(size=(n, classes)) + 10 * (blur[labels] + blur[np.roll(labels, 1)])
            outputs = special.softmax(logits, axis=1)
        assert exchanged_rows(outputs, labels) == 0


@pytest.mark.parametrize("kind", ["exchanged", "of another file", "shuffled", "all one row"])
def test_a_stale_part_is_found(kind: str) -> None:
    """A quarter of 1,000 rows, in 20 of 20 files."""
    random = np.random.default_rng(3)
    for _ in range(20):
        outputs, labels = file(random, 1000, 5)
        wrong = outputs.copy()
        wrong[500:750] = {
            "exchanged": np.concatenate([outputs[625:750], outputs[500:625]]),
            "of another file": file(random, 250, 5)[0],
            "shuffled": outputs[500 + random.permutation(250)],
            "all one row": np.repeat(outputs[499:500], 250, axis=0),
        }[kind]
        found = stale_rows(wrong, labels)
        assert found is not None
        assert found.start < 560
        assert found.stop > 690


def test_a_part_of_a_query_set_that_was_not_used_is_not_stale() -> None:
    """A model that tells nothing of records it did not use, asked about a set of which it used the first half."""
    random = np.random.default_rng(4)
    for _ in range(50):
        query = file(random, 1000, 5, np.where(np.arange(1000) < 500, 5.0, 0.0))
        holdout = file(random, 1000, 5, 0.0)
        assert stale_rows(*query, holdout) is None
        assert stale_rows(*query) is not None


@pytest.mark.parametrize(
    ("bad", "place"), [("query set", "anywhere"), ("holdout", "at the end"), ("members", "anywhere")]
)
def test_rows_that_were_never_written_are_found(bad: str, place: str) -> None:
    """24 of 400, where the other sets have 4; and not where all sets have as many, nor of a model that knows members
    alone, nor of votes, which tie.
    """
    random = np.random.default_rng(5)

    def outputs_by_set(blank: dict[str, int], votes: int = 0) -> OutputsBySet:
        outputs, labels = {}, {}
        for name in ("query set", "holdout", "members"):
            outputs[name], labels[name] = file(random, 400, 2)
            count = blank.get(name, 4)
            rows = random.choice(400, count, replace=False) if place == "anywhere" else np.arange(400 - count, 400)
            outputs[name] = np.round(outputs[name] * votes) / votes if votes else outputs[name]
            outputs[name][rows] = special.softmax(np.zeros(2))
        return OutputsBySet(outputs, labels, "holdout")

    ((name, (check, words)),) = rows_out_of_line(outputs_by_set({bad: 24})).items()
    assert (name, check.name) == (bad, "rows written")
    assert words.startswith("24 of 400 rows have one number for every class, and so have 8 of 800")
    for others in (
        rows_out_of_line(outputs_by_set({})),
        rows_out_of_line(outputs_by_set({bad: 24}), by_heart=True),
        rows_out_of_line(outputs_by_set({bad: 24}, votes=20)),
    ):
        assert "rows written" not in {check.name for check, _ in others.values()}


@pytest.mark.outer
def test_rows_that_say_nothing_are_rarely_taken_for_unwritten_ones() -> None:
    """At most 1 in 10,000 exchangeable sets: of 9,000, more than 4 in 1 of 400 such tests. Rows are of any number."""
    random, failed = np.random.default_rng(6), 0
    for _ in range(3000):
        blank = random.permutation(600) < random.integers(0, 600)
        outputs = np.where(blank[:, None], 0.5, np.linspace(0.6, 0.9, 600)[:, None] * [1, 0] + [0.05, 0.1])
        sizes = random.multinomial(600, [0.5, 0.3, 0.2]).cumsum()[:2]
        parts = dict(zip("abc", np.split(outputs, sizes), strict=True))
        failed += len(unwritten_rows(OutputsBySet(parts, {})))
    assert failed <= 4


def test_a_file_of_unknown_or_single_classes_tells_nothing() -> None:
    outputs, labels = file(np.random.default_rng(5), 400, 3, 0.0)
    for find in (shifted_rows, stale_rows):
        assert find(outputs, labels) is None
        assert find(outputs, labels * 0) is None
        assert find(np.full((400, 3), 1 / 3), labels) is None
        assert find(outputs[:5], labels[:5]) is None


@pytest.mark.parametrize(("classes", "decimals"), [(2, 3), (3, 7), (10, 3), (100, 7)])
def test_a_second_softmax_is_found_and_one_softmax_is_not_taken_for_it(classes: int, decimals: int) -> None:
    """None of 200 files of one softmax, of any temperature; all of two."""
    random = np.random.default_rng(6)
    for _ in range(200):
        logits = random.normal(0, random.choice([0.1, 0.5, 2.0, 8.0]), (300, classes))
        assert not softmaxed_twice(special.softmax(logits, axis=1).round(decimals))
    sure = special.softmax(random.normal(0, 4, (300, classes)), axis=1)
    assert softmaxed_twice(special.softmax(sure, axis=1).round(decimals))
    assert not softmaxed_twice(np.full((300, classes), 1 / classes))


def test_a_second_softmax_on_all_sets_is_one_scale() -> None:
    sure = [special.softmax(np.random.default_rng(seed).normal(0, 4, (90, 4)), axis=1) for seed in (1, 2)]
    twice = [special.softmax(once, axis=1) for once in sure]

    def found(query: np.ndarray, holdout: np.ndarray) -> str | None:
        return on_two_scales(OutputsBySet({"query set": query, "holdout": holdout}, {}))

    assert found(sure[0], sure[1]) is None
    assert found(twice[0], twice[1]) is None
    assert "on the query set" in str(found(twice[0], sure[1]))
    assert "on the holdout" in str(found(sure[0], twice[1]))


@pytest.mark.outer
@pytest.mark.parametrize("memory", [0.0, 1.0, 3.0])
def test_memory_is_no_other_scale(memory: float) -> None:
    """In at most 1 of 2,000 trials each, outputs of one model are taken for those of two scales: 1 in 360 (95%)."""
    odds = np.random.default_rng(4).normal(2, 2, (2000, 2, 150))
    odds[:, 0] += memory
    own = special.expit(np.abs(odds))
    outputs = np.stack([own, 1 - own], axis=-1)
    for order in (1, -1):
        outputs_by_set = [
            OutputsBySet(dict(zip(("query set", "holdout"), sets[::order], strict=True)), {}) for sets in outputs
        ]
        assert sum(bool(on_two_scales(of_one)) for of_one in outputs_by_set) <= 1


@pytest.mark.parametrize("trees", [50, 500])
def test_votes_of_a_forest_are_on_one_scale(trees: int) -> None:
    """The trees know the records they were grown on, so that half of these get more votes than any other record."""
    random = np.random.default_rng(4)
    known, unknown = (random.binomial(trees, share, 300) / trees for share in (0.9, 0.4))
    assert known.mean() > unknown.max()

    def found(query: np.ndarray, holdout: np.ndarray) -> str | None:
        outputs = {name: of_set[:, None] for name, of_set in (("query set", query), ("holdout", holdout))}
        return on_two_scales(OutputsBySet(outputs, {}))

    assert not found(known.astype(np.float32), unknown.astype(np.float32))
    assert found(known + random.normal(0, 1e-3, 300), unknown)


def test_a_model_that_knows_its_members_alone() -> None:
    """Of 200 models that learned by heart, none that used the query set passes; of those that did not, 99 in 100 do."""
    random = np.random.default_rng(7)
    passed = []
    for _ in range(200):
        unseen = [special.softmax(0.5 * random.normal(size=(300, 3)), axis=1) for _ in range(2)]
        known = [special.softmax(4 * random.normal(size=(300, 3)), axis=1) for _ in range(2)]
        for query in (unseen[0], known[0]):
            outputs_by_set = OutputsBySet(
                {"query set": query, "holdout": unseen[1], "members": known[1]}, {}, "holdout"
            )
            passed.append(knows_members_alone(outputs_by_set, "members"))
    assert np.mean(passed[::2]) > 0.97
    assert not any(passed[1::2])


def test_every_check_of_rows_names_the_file() -> None:
    random = np.random.default_rng(9)
    good, labels = file(random, 800, 5)
    shifted = np.concatenate([good[:400], np.roll(good[400:], 1, axis=0)])
    swapped = good.reshape(400, 2, 5)[:, ::-1].reshape(800, 5)
    outputs_by_set = OutputsBySet(
        {"query set": good, "holdout": shifted, "members": swapped},
        dict.fromkeys(("query set", "holdout", "members"), labels),
    )
    messages = rows_out_of_line(outputs_by_set)
    assert {name: check.name for name, (check, _) in messages.items()} == {
        "holdout": "rows in line, none shifted",
        "members": "rows in line, none exchanged",
    }
    assert "1 row(s) before or after" in messages["members"][1]


RECORDS = 200


def models(seed: int, count: int = 6, apart: float = 0.25, records: int = RECORDS) -> np.ndarray:
    """Log-odds of models that agree on how difficult records are, and differ by what each was trained on."""
    random = np.random.default_rng(seed)
    return random.normal(0, 0.6, records) + apart * random.normal(size=(count, records))


def rounded(decimals: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(odds: np.ndarray) -> np.ndarray:
        chance = np.round(1 / (1 + np.exp(-odds)), decimals)
        return np.log(chance / (1 - chance))

    return change


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda odds: odds,
    "another batch size": lambda odds: odds + 0.003 * np.random.default_rng(9).normal(size=odds.shape),
    "bfloat16": lambda odds: odds * (1 + 2**-9 * np.random.default_rng(9).uniform(-1, 1, odds.shape)),
    "float16": lambda odds: odds.astype(np.float16).astype(float),
    "four decimals": rounded(4),
    "three decimals": rounded(3),
    "another temperature": lambda odds: odds / 3 - 1,
    "a loss": lambda odds: np.log1p(np.exp(-odds)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_copy_is_found_and_no_other_pair(change: Callable[[np.ndarray], np.ndarray]) -> None:
    of = models(1, 5)
    assert list(same_models(np.vstack([of, change(of[3])]))) == [(3, 5)]
    # Of three models, one is a copy; of more records than are compared, too.
    assert list(same_models(np.vstack([of[:2], change(of[0])]))) == [(0, 2)]
    many = models(2, 4, records=6000)
    assert list(same_models(np.vstack([many, change(many[1])]))) == [(1, 4)]


@pytest.mark.outer
@pytest.mark.parametrize("apart", [0.002, 0.05, 2.0])
def test_honest_models_however_near_each_other_are_refused_at_most_once_in_a_hundred(apart: float) -> None:
    """No alarm in 300 sets: with 95% confidence at most 1 in 100."""
    for seed in range(300):
        random = np.random.default_rng([seed, 7])
        of = models(seed, int(random.integers(3, 12)), apart, int(random.integers(60, 200)))
        assert not list(same_models(of))
        assert not list(unlike_others(of))


def test_training_sets_that_differ_by_single_records_are_left_alone_where_they_are_known() -> None:
    of = models(4)
    of[5] = of[2] + 1e-4 * np.random.default_rng(1).normal(size=RECORDS)
    rows = np.random.default_rng(2).random((6, RECORDS)) < 0.5
    with pytest.raises(InputError, match="models 12 and 15 give nearly the same"):
        refuse_odd_models(of, range(10, 16), "bank", rows)
    rows[5] = rows[2] ^ (np.arange(RECORDS) == 0)
    refuse_odd_models(of, range(6), "bank", rows)
    rows[5] = rows[2]
    with pytest.raises(InputError):
        refuse_odd_models(of, range(6), "bank", rows)


def test_few_different_numbers_and_two_models_tell_only_so_much() -> None:
    right = (models(5) > 0).astype(float)
    right[4] = right[1]
    assert not list(same_models(right))
    two = models(6, 2)
    assert not list(same_models(np.vstack([two[0], CHANGES["another batch size"](two[0])])))
    assert list(same_models(np.vstack([two[0], two[0]]))) == [(0, 1)]
    votes = (models(7) * 10).round()
    votes[4] = votes[1]
    assert list(same_models(votes)) == [(1, 4)]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda odds: 1000 * odds, True),
        (lambda odds: 1e-3 * odds, True),
        (lambda odds: 0 * odds + 2, True),
        # Ten times as many epochs, or a tenth; labels that were permuted: unlike others, and honest or not.
        (lambda odds: 10 * odds, False),
        (lambda odds: odds / 10, False),
        (lambda odds: -odds, False),
    ],
)
def test_a_model_on_another_scale_is_named(change: Callable[[np.ndarray], np.ndarray], found: bool) -> None:
    of = models(8, 16)
    of[3] = change(of[3])
    assert [model for model, _ in unlike_others(of)] == [3] * found
    assert not list(unlike_others(of[2:5]))
    infinite = np.where(np.arange(16)[:, None] == 5, np.inf, of)
    assert 5 not in [model for model, _ in unlike_others(infinite)]


def test_the_rank_correlation_is_that_of_its_definition() -> None:
    of = models(3, 4).round(1)
    twin = np.array([[float(np.asarray(spearmanr(one, other))[0]) for other in of] for one in of])
    ranks = standard_ranks(of)
    np.testing.assert_allclose(ranks @ ranks.T, twin, atol=1e-12)
    least = 1 - twin[1][2]
    assert (1, 2) in list(pairs_within(ranks, least + 1e-9))
    assert (1, 2) not in list(pairs_within(ranks, least - 1e-9))
    assert not standard_ranks(np.ones((1, 5))).any()
