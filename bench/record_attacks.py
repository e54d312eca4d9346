"""Attacks on every record by a bank, each model attacked by the others: `python -m bench.record_attacks` (3 minutes).

Promised: LiRA of 64 models on 5,000 records at least 5 times as fast as the same medians and widths computed anew for
each model, all records at once; RMIA of one target on 3,000 records with as many z at least 5 times as fast as the
matrix of their ratios; and beyond inputs and scores, 4 times the models take at most 1.5 times the memory (one target).

The rival of LiRA is NumPy's: it masks, sorts and takes the middle of the other models, once a model. That of RMIA forms
the 9 million ratios that the formula names. The notes have the time of every attack a record, target and shadow model,
and the largest memory that NumPy held meanwhile.
"""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from bench.harness import Bench, Claim, Spread, interleave, report
from jaxaudit.attacks.records import RECORD_ATTACKS, RMIA, LiRA, ShadowScores
from jaxaudit.attacks.records.lira import log_normal
from jaxaudit.attacks.records.rmia import share_exceeded

MODELS, RECORDS, PAIRS, ROUNDS = 64, 5000, 3000, 7
FEW, MANY = 64, 256


def world(models: int, records: int, targets: int | None = None) -> ShadowScores:
    """Log-odds of models of random halves."""
    random = np.random.default_rng(0)
    membership = random.random((models, records)) < 0.5
    gap = np.abs(random.normal(0, 2, records))
    odds = random.normal(2, 2, records) + random.normal(size=(models, 1, records)) + gap * membership[:, None]
    others = None if targets is None else random.normal(2, 2, (targets, 1, records))
    return ShadowScores(odds, membership, others)


def lira_by_loop(shadowed: ShadowScores) -> np.ndarray:
    """The scores of `LiRA()`, each model's from scratch."""
    models, found = shadowed.models[:, 0], []
    for model, x in enumerate(models):
        rest = np.arange(len(models)) != model
        densities = []
        for own in (shadowed.membership[rest], ~shadowed.membership[rest]):
            count = own.sum(axis=0)
            ordered = np.sort(np.where(own, models[rest], np.inf), axis=0)
            middle = [np.take_along_axis(ordered, place[None], axis=0)[0] for place in ((count - 1) // 2, count // 2)]
            width = np.std(models[rest], axis=0, where=own)
            densities.append(log_normal(x, (middle[0] + middle[1]) / 2, width))
        found.append(densities[0] - densities[1])
    return np.stack(found)


def exceeded_by_matrix(ratios: np.ndarray, gamma: float) -> np.ndarray:
    return (ratios[:, None] / ratios > gamma).mean(axis=1)


def peak(call: Callable[[], Any]) -> int:
    """Bytes that NumPy held at most during a call, beyond what it held before."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    call()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most - before


def main() -> None:
    shadowed = world(MODELS, RECORDS)
    ratios = special.expit(np.random.default_rng(1).normal(2, 2, PAIRS))
    np.testing.assert_allclose(LiRA().scores(shadowed), lira_by_loop(shadowed), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(share_exceeded(ratios, ratios, 2.0), exceeded_by_matrix(ratios, 2.0))
    ours, theirs = "jaxaudit", "anew for each model"
    lira = interleave(
        f"LiRA, {MODELS} models, {RECORDS:,} records",
        {ours: lambda: LiRA().scores(shadowed), theirs: lambda: lira_by_loop(shadowed)},
        ROUNDS,
    )
    matrix = "matrix of ratios"
    shares = interleave(
        f"RMIA's shares, {PAIRS:,} records",
        {ours: lambda: share_exceeded(ratios, ratios, 2.0), matrix: lambda: exceeded_by_matrix(ratios, 2.0)},
        ROUNDS,
    )
    few, many = world(FEW, RECORDS, 1), world(MANY, RECORDS, 1)
    grown, notes = [], []
    for attack in RECORD_ATTACKS:
        start = time.perf_counter()
        attack.scores(shadowed)
        each = (time.perf_counter() - start) / (MODELS * RECORDS * MODELS) * 1e9
        both = [peak(lambda attack=attack, some=some: attack.scores(some)) for some in (few, many)]
        sizes = f"{both[0] / 2**20:.0f} and {both[1] / 2**20:.0f} MiB"
        notes.append(f"{attack.name}: {each:.1f} ns; with {FEW} and {MANY} models, one target: {sizes}")
        grown += [both[1] / both[0]] if attack.name in ("lira", "rmia", "base") else []
    million = world(8, 1_000_000, 1)
    start = time.perf_counter()
    held = peak(lambda: RMIA().scores(million))
    took = time.perf_counter() - start
    notes.append(f"RMIA, a million records with a million z each: {took:.1f} s, {held / 2**20:.0f} MiB")
    claims = [
        Claim(f"LiRA: {theirs} / {ours}", lira.ratio(theirs, ours), 5),
        Claim(f"RMIA's shares: {matrix} / {ours}", shares.ratio(matrix, ours), 5),
        Claim(
            f"memory of lira, rmia, base: {MANY} models / {FEW} models", Spread.of(sorted(grown)), 1.5, at_least=False
        ),
    ]
    report(Bench("record_attacks", [lira, shares], claims, notes), ("jaxaudit", "numpy", "scipy"))


if __name__ == "__main__":
    main()
