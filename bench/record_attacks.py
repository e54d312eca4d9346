"""Attacks on every record by a bank: `python -m bench.record_attacks [--privacy-meter FOLDER]` (3 minutes).

Promised: LiRA of 64 models on 5,000 records at least 5 times as fast as the same medians and widths computed anew for
each model, all records at once; RMIA of one target on 3,000 records with as many z at least 5 times as fast as the
matrix of their ratios; Privacy Meter at least as slow for one target, and 5 times as slow for 64 models that are
attacked by each other; and beyond inputs and scores, 4 times the models take at most 1.5 times the memory (one target).

The rival of LiRA is NumPy's: it masks, sorts and takes the middle of the other models, once a model. That of RMIA forms
the 9 million ratios that the formula names. The notes have the time of every attack a record, target and shadow model,
and the largest memory that NumPy held meanwhile.

FOLDER is `git clone https://github.com/privacytrustlab/ml_privacy_meter` at e384af8, with PyTorch installed; without
it these cases are left out. Its RMIA is `run_rmia` of `attacks.py`, offline and with gamma 1. It no longer has a LiRA:
that is `aggregate_signals` of its `research/2024_rmia/main.py` at d327341, to which its page points. Both attack one
model a call, here 4 of the 64, times 16; RMIA's coefficient is given and not tuned, signals are as its tools make them,
and what the files import but do not need is replaced. Before that, of models of paired halves:

- Scores of a target beside the bank must be ours, LiRA's to rounding, and RMIA's exactly where records z have the same
  probability by all models. Else its mean for z is that of the larger half of the models' probabilities, which moves
  all scores and not their order.
- Of a model of the bank, LiRA leaves out another partner than we (the last), RMIA the pair: areas must agree to .01.

The limit is the least that NumPy can do for the same scores: LiRA's, to sort each side of the bank once and take one
log-density of each score and side; RMIA's, to take the bank's probabilities once, sort each target's z and search its
ratios there.
"""

import argparse
import importlib.util
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
from scipy import special
from sklearn.metrics import roc_auc_score

from bench.harness import Bench, Claim, Spread, Timings, interleave, report
from jaxaudit.attacks.records import RECORD_ATTACKS, RMIA, LiRA, ShadowScores
from jaxaudit.attacks.records.attack import fixed_design
from jaxaudit.attacks.records.lira import log_normal
from jaxaudit.attacks.records.rmia import share_exceeded

MODELS, RECORDS, PAIRS, ROUNDS = 64, 5000, 3000, 7
FEW, MANY = 64, 256
RIVAL, LIMIT, RIVAL_ROUNDS, POPULATION, PART, SCALE = "Privacy Meter", "limit", 5, 2500, 16, 0.3
OF_2024 = "d32734161a3395211fe5f3cd461932290b1fafbe:research/2024_rmia/main.py"
AGREE = 0.01
"""The largest difference of two areas under the curve."""
UNNEEDED = ("signals", "plot", "seaborn", "memory_profiler", "pandas", "yaml", "matplotlib.pyplot")
OURS = {"LiRA": LiRA(), "RMIA": RMIA(online=False, gamma=1.0, scale=SCALE)}


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


def paired_world(models: int, records: int, population: int) -> tuple[ShadowScores, np.ndarray]:
    """Models of halves, each with its complement; one target of a random half; then records that no model used.

    Also what the target was trained on.
    """
    random = np.random.default_rng(0)
    drawn = random.random((models // 2 + 1, records)) < 0.5
    used = np.zeros((models + 1, records + population), bool)
    used[:-1:2, :records], used[1:-1:2, :records], used[-1, :records] = drawn[1:], ~drawn[1:], drawn[0]
    gap = np.abs(random.normal(0, 2, records + population))
    odds = random.normal(2, 2, records + population) + random.normal(size=used.shape) + gap * used
    parts = [fixed_design(used[:-1, part]) for part in (slice(records), slice(records, None))]
    design = np.concatenate(parts, axis=1)
    unused = np.arange(records + population) >= records
    return ShadowScores(odds[:-1, None], used[:-1], odds[-1:, None], design, unused), used[-1]


def of_records(world: ShadowScores, records: int) -> ShadowScores:
    """The same of the first records alone, without any that no model used."""
    of_design = None if world.design is None else world.design[:, :records]
    models, targets = world.models[:, :, :records], world.attacked[:, :, :records]
    return ShadowScores(models, world.membership[:, :records], targets, of_design)


class PrivacyMeter:
    """The rival's functions, on signals of one bank and target in the form that each wants."""

    def __init__(self, folder: Path, world: ShadowScores, precision: type = np.float32) -> None:
        import torch

        spec = importlib.util.spec_from_file_location("privacy_meter_attacks", folder / "attacks.py")
        assert spec is not None
        assert spec.loader is not None
        attacks = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(attacks)
        shown = subprocess.run(["git", "-C", str(folder), "show", OF_2024], capture_output=True, text=True, check=True)
        self._lira: dict[str, Any] = {"__name__": "privacy_meter_2024"}
        with patch.dict(sys.modules, {name: MagicMock() for name in UNNEEDED}):
            exec(compile(shown.stdout, OF_2024, "exec"), self._lira)
        assert world.unused is not None
        bank, self._models, self._run_rmia = ~world.unused, len(world.models), attacks.run_rmia
        odds = np.concatenate([world.models, world.attacked]).astype(precision)
        # The target is a model of the bank's form: with a pair, which no attack uses.
        signals = special.expit(np.concatenate([odds, odds[-1:]])[:, 0]).T
        self._signals, self._population = (np.ascontiguousarray(signals[part]) for part in (bank, ~bank))
        used = np.concatenate([world.membership, np.zeros((2, len(bank)), bool)])
        self._membership = np.ascontiguousarray(used[:, bank].T)
        self._odds = torch.from_numpy(odds[:, 0, bank, None].copy())
        self._used = torch.from_numpy(used[:-1, bank].copy())

    def rmia(self, model: int) -> np.ndarray:
        """Of a model of the bank by the others but its pair; beyond them, of the target by the bank."""
        pairs = self._models // 2 - (model < self._models)
        signals = self._signals, self._population, self._membership
        return self._run_rmia(model, *signals, pairs, SCALE)

    def lira(self, model: int) -> np.ndarray:
        others = [other for other in range(self._models) if other != model]
        records, count = self._odds.shape[1], len(others) // 2 * 2
        options = {"num_ref_models": count, "nb_augmentation": 1, "augmentation": "none"}
        configs = {"audit": {**options, "fix_variance": False, "offline": False}}
        signals = self._odds[model], np.arange(records), self._used[others], self._odds[others]
        member = self._used[model].numpy()
        found, _ = self._lira["aggregate_signals"]("loss_logit_rescaled", member, *signals, ~member, configs)
        return -found

    def attack(self, name: str, model: int) -> np.ndarray:
        return {"LiRA": self.lira, "RMIA": self.rmia}[name](model)


def check_scores(folder: Path) -> None:
    """Refuses other scores of a target beside the bank than the rival's."""
    world, _ = paired_world(8, 300, 100)
    models = world.models.copy()
    models[:, :, 300:] = models[0, :, 300:]
    world = world._replace(models=models)
    rival = PrivacyMeter(folder, world, np.float64)
    np.testing.assert_allclose(OURS["LiRA"].scores(of_records(world, 300))[0], rival.lira(8), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(OURS["RMIA"].scores(world)[0, :300], rival.rmia(8))


def least_of_lira(world: ShadowScores) -> Any:
    """Each side's models sorted by record, and two log-densities of every score."""
    models, scores = world.models[:, 0], world.attacked[:, 0]
    sides = [np.sort(np.where(own, models, np.inf), axis=0) for own in (world.membership, ~world.membership)]
    return [log_normal(scores, side[0], np.ones(scores.shape)) for side in sides]


def least_of_rmia(world: ShadowScores) -> Any:
    """The bank's probabilities, and each target's z sorted and searched by its ratios."""
    special.expit(world.models)
    ratios = special.expit(world.attacked[:, 0])
    return [np.searchsorted(np.sort(each[world.unused]), each) for each in ratios]


LEAST = {"LiRA": least_of_lira, "RMIA": least_of_rmia}


def beside_privacy_meter(folder: Path) -> tuple[list[Timings], list[Claim], list[str]]:
    """LiRA and RMIA of a target beside the bank, and of each model of the bank."""
    check_scores(folder)
    world, used = paired_world(MODELS, RECORDS, POPULATION)
    rival = PrivacyMeter(folder, world)
    timings, claims, notes = [], [], []
    for name, attack in OURS.items():
        beside = world if name == "RMIA" else of_records(world, RECORDS)
        for targets, shadowed, bound in (("one target", beside, 1), ("each model", beside._replace(targets=None), 5)):
            alone = targets == "one target"
            asked = [MODELS] if alone else list(range(0, MODELS, PART))
            truth = used[None, :RECORDS] if alone else world.membership[asked, :RECORDS]
            found = attack.scores(shadowed)[[0] if alone else asked, :RECORDS]
            theirs = np.stack([rival.attack(name, model) for model in asked])
            ours_area, their_area = (
                float(np.mean([roc_auc_score(*pair) for pair in zip(truth, scores, strict=True)]))
                for scores in (found, theirs)
            )
            if abs(ours_area - their_area) > AGREE:
                raise SystemExit(f"{name}, {targets}: areas {ours_area:.4f} and {their_area:.4f}")
            case = interleave(
                f"{name}, {targets} by a bank of {MODELS}",
                {
                    "jaxaudit": partial(attack.scores, shadowed),
                    RIVAL: lambda name=name, asked=asked: [rival.attack(name, model) for model in asked],
                    LIMIT: partial(LEAST[name], shadowed),
                },
                RIVAL_ROUNDS,
            )
            case.seconds[RIVAL][:] = [len(shadowed.attacked) / len(asked) * taken for taken in case.seconds[RIVAL]]
            timings.append(case)
            claims.append(Claim(f"{case.case}: {RIVAL} / jaxaudit", case.ratio(RIVAL, "jaxaudit"), bound))
            share = case.ratio(LIMIT, "jaxaudit")
            notes.append(
                f"{case.case}: areas {ours_area:.4f} (jaxaudit) and {their_area:.4f} ({RIVAL}); share of the limit "
                f"{share.median:.2f} ({share.low:.2f}..{share.high:.2f})"
            )
    return timings, claims, notes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--privacy-meter", type=Path, metavar="FOLDER", help="a checkout of Privacy Meter")
    folder = parser.parse_args().privacy_meter
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
    timings = [lira, shares]
    if folder is None:
        notes.append(f"left out: {RIVAL}, as no --privacy-meter says where it is")
    else:
        for every, more in zip((timings, claims, notes), beside_privacy_meter(folder), strict=True):
            every += more
    report(Bench("record_attacks", timings, claims, notes), ("jaxaudit", "numpy", "scipy", "torch"))


if __name__ == "__main__":
    main()
