"""PDTP of every one of 1.6 million census-like records: `python -m bench.naive_bayes` (five minutes, two cores).

Promised, on two CPU cores: the naive Bayes models with and without each of 1,600,000 records (age, marital status,
race, sex; two classes), and the PDTP of each, in under 5 seconds and 2 GiB; at least 1,000 times as fast as a
scikit-learn refit a record; and as fast again each time after the riskiest record is removed.

The records are drawn at random, in proportions like a census's; nobody's data is used. scikit-learn's time is
extrapolated from 200 refits: each counts the other 1,599,999 records anew and asks for the one left out. Copying them
without that record is not timed. Before anything is timed, three refits must agree with the closed form. Memory is the
largest resident set of a fresh process that makes the records and does the work once, Python and its libraries
included.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator

import jax
import numpy as np
from sklearn.naive_bayes import CategoricalNB

from bench.harness import Bench, Claim, Spread, Timings, interleave, report
from jaxaudit.learners import naive_bayes
from jaxaudit.metrics.pdtp import pdtp

RECORDS, ROUNDS, REFITS = 1_600_000, 10, 20
CATEGORIES = (100, 6, 9, 2)
LEARNER = naive_bayes(CATEGORIES, classes=2)
SIZES = (100_000, 200_000, 400_000, 800_000, RECORDS)


def census(records: int) -> tuple[np.ndarray, np.ndarray]:
    """Ages, marital statuses, races and sexes with rare combinations, and an income class that leans on all four."""
    random = np.random.default_rng(20)
    age = np.minimum(random.gamma(9, 4.5, records) + 16, 99).astype(int)
    marital = np.where(
        random.random(records) < 0.5 * (age < 28), 5, random.choice(5, records, p=[0.6, 0.2, 0.1, 0.06, 0.04])
    )
    race = random.choice(9, records, p=[0.78, 0.1, 0.008, 0.0003, 0.002, 0.05, 0.0015, 0.03, 0.0282])
    sex = random.integers(0, 2, records)
    score = -2.5 + 0.03 * np.minimum(age, 60) + 0.8 * (marital == 0) - 0.5 * sex - 0.1 * (race > 0)
    labels = (random.random(records) < 1 / (1 + np.exp(-score))).astype(np.int32)
    return np.stack([age, marital, race, sex], axis=1).astype(np.float32), labels


def riskiest(inputs: np.ndarray, labels: np.ndarray) -> tuple[int, float]:
    """The record with the largest exact PDTP, and that number."""
    left_out = LEARNER.leave_one_out(jax.random.key(1), inputs, labels, np.arange(len(labels)))
    values = pdtp(*left_out, bins=0).values
    return int(values.argmax()), float(values.max())


def remove_and_measure(inputs: np.ndarray, labels: np.ndarray, record: int) -> tuple[int, float]:
    """One step of section 8: without this record, all others again."""
    return riskiest(np.delete(inputs, record, axis=0), np.delete(labels, record))


def refits(inputs: np.ndarray, labels: np.ndarray, chosen: np.ndarray) -> Iterator[tuple[float, np.ndarray]]:
    """Seconds of a refit without each of `chosen`, and what it says of that record."""
    for record in chosen:
        others, theirs = np.delete(inputs, record, axis=0), np.delete(labels, record)
        start = time.perf_counter()
        model = CategoricalNB(min_categories=np.array(CATEGORIES)).fit(others, theirs)
        said = model.predict_log_proba(inputs[record : record + 1])[0]
        yield time.perf_counter() - start, said


def peak_bytes() -> int:
    """Largest resident set of this process, after the work."""
    riskiest(*census(RECORDS))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used


def main() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as fresh:
        peak = fresh.apply(peak_bytes)
    inputs, labels = census(RECORDS)
    first, largest = riskiest(inputs, labels)
    codes, random = inputs.astype(np.int64), np.random.default_rng(4)
    check(inputs, labels, codes, np.array([first, 0, RECORDS // 2]))
    sizes = [
        interleave(
            f"{size:,} records", {"all records": lambda size=size: riskiest(inputs[:size], labels[:size])}, ROUNDS
        )
        for size in SIZES[:-1]
    ]
    whole = interleave(
        f"{RECORDS:,} records",
        {
            "all records": lambda: riskiest(inputs, labels),
            "remove one, all others again": lambda: remove_and_measure(inputs, labels, first),
        },
        ROUNDS,
    )
    each = [seconds for seconds, _ in refits(codes, labels, random.choice(RECORDS, ROUNDS * REFITS, replace=False))]
    by_round = [sum(each[turn * REFITS : (turn + 1) * REFITS]) / REFITS for turn in range(ROUNDS)]
    extrapolated = [RECORDS * seconds for seconds in by_round]
    ours = whole.seconds["all records"]
    linear = [
        (mine / RECORDS) / (theirs / SIZES[0])
        for mine, theirs in zip(ours, sizes[0].seconds["all records"], strict=True)
    ]
    claims = [
        Claim("seconds for all records", Spread.of(ours), 5, at_least=False),
        Claim("seconds for a removal", Spread.of(whole.seconds["remove one, all others again"]), 5, at_least=False),
        Claim(f"seconds a record, of {RECORDS:,} / of {SIZES[0]:,}", Spread.of(linear), 2, at_least=False),
        Claim("peak GiB", Spread.of([peak / 2**30]), 2, at_least=False),
        Claim(
            "scikit-learn, a refit a record (extrapolated) / jaxaudit",
            Spread.of([theirs / mine for theirs, mine in zip(extrapolated, ours, strict=True)]),
            1000,
        ),
    ]
    notes = [
        f"scikit-learn: {ROUNDS * REFITS} refits in {ROUNDS} rounds; all {RECORDS:,} would take "
        f"{np.median(extrapolated) / 86_400:.1f} days",
        f"largest exact PDTP {largest:.3f}, without that record {remove_and_measure(inputs, labels, first)[1]:.3f}",
    ]
    single = Timings(f"{RECORDS:,} records", {"scikit-learn, one refit": by_round})
    report(Bench("naive_bayes", [*sizes, whole, single], claims, notes), ["jax", "numpy", "scikit-learn"])


def check(inputs: np.ndarray, labels: np.ndarray, codes: np.ndarray, chosen: np.ndarray) -> None:
    """The closed form says what refits say."""
    ours = LEARNER.leave_one_out(jax.random.key(1), inputs, labels, chosen).without_record
    np.testing.assert_allclose(ours, [said for _, said in refits(codes, labels, chosen)], rtol=0, atol=1e-10)


if __name__ == "__main__":
    main()
