"""Attacks on records, against the code of LiRA's authors, of RMIA's, and of two tools for audits.

    git clone https://github.com/tensorflow/privacy
    git clone https://github.com/privacytrustlab/ml_privacy_meter
    python -m experiments.crosscheck record_attacks privacy ml_privacy_meter
    git clone https://github.com/aidotse/LeakPro
    git clone https://github.com/AI-SDC/SACRO-ML
    python -m experiments.crosscheck record_attacks_tools LeakPro SACRO-ML

Only what is compared is taken from their files: `generate_global` of
`research/mi_lira_2021/plot.py`, and `run_rmia` of `modules/mia/attacks/rmia.py`; `run_attack` of LeakPro's AttackLiRA
and AttackBASE, `prepare_attack` and `_run_attack` of its AttackRMIA, and `_compute_scores` of SACRO-ML's LIRAAttack.
What methods read from their own objects is given to them. Both tools have the mean of shadow models where LiRA's
authors have the median. So the models of each record lie symmetrically there: mean and median are equal. LeakPro
averages over all models for RMIA's records z, so no model was trained on these. Its softmax, by PyTorch, is replaced by
SciPy's.
"""

import __future__

import ast
import contextlib
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.stats
from scipy import special
from scipy.stats import norm, shapiro

from experiments.crosscheck import Check
from jaxaudit.attacks.records import BASE, RMIA, AttackP, LiRA, RecordAttack, ShadowScores

MODELS, RECORDS, POPULATION = 64, 300, 200
ATTACKS = Path("leakpro/attacks/mia_attacks")
SACRO, UTILS = Path("sacroml/attacks/likelihood_attack.py"), Path("sacroml/attacks/utils.py")
BECAUSE = "float64; they go through probabilities, whose distance from 1 is rounded"
WHAT = f"scores of a target on {RECORDS} records by {MODELS} models that lie symmetrically"


def functions_of(path: Path, space: dict[str, Any], of: str | None = None) -> dict[str, Callable[..., Any]]:
    """The functions of a file, or the methods of one of its classes, that find these names."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    if of is not None:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == of)
    kept: list[ast.stmt] = [node for node in body if isinstance(node, ast.FunctionDef)]
    for node in kept:
        assert isinstance(node, ast.FunctionDef)
        node.decorator_list = []
    found = dict(space)
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(kept, []), str(path), "exec", flags, dont_inherit=True), found)
    return {node.name: found[node.name] for node in kept if isinstance(node, ast.FunctionDef)}


def with_methods(methods: dict[str, Callable[..., Any]], **given: Any) -> SimpleNamespace:
    """An object with these methods, and with what they read."""
    own = SimpleNamespace(**given)
    for name, method in methods.items():
        setattr(own, name, partial(method, own))
    return own


def world() -> ShadowScores:
    """Each record in half of the models, which lie symmetrically on both sides; behind them a population in none."""
    random = np.random.default_rng(5)
    records = RECORDS + POPULATION
    membership = np.stack([random.permutation(MODELS) < MODELS // 2 for _ in range(records)], axis=1)
    membership[:, RECORDS:] = False
    centre, gap = random.normal(1, 1, records), np.abs(random.normal(0, 1, records))
    models = centre + gap * membership
    for record, rows in enumerate(membership.T):
        for side in (np.flatnonzero(rows), np.flatnonzero(~rows)):
            noise = random.normal(size=len(side) // 2)
            models[random.permutation(side), record] += np.concatenate([noise, -noise])
    target = centre + random.normal(size=records) + gap * (random.random(records) < 0.5)
    return ShadowScores(models[:, None], membership, target[None, None], unused=np.arange(records) >= RECORDS)


def dealt(whole: ShadowScores) -> ShadowScores:
    """Without the population."""
    assert whole.targets is not None
    return ShadowScores(whole.models[:, :, :RECORDS], whole.membership[:, :RECORDS], whole.targets[:, :, :RECORDS])


def record_attacks_tools(leakpro: Path, sacro: Path) -> list[Check]:
    whole = world()
    return [*of_leakpro(leakpro, whole), *of_sacro(sacro, dealt(whole))]


# LeakPro


def of_leakpro(folder: Path, whole: ShadowScores) -> Iterable[Check]:
    some = dealt(whole)
    lira = partial(leakpro_lira, folder, some)
    yield compared(LiRA(), some, lira(online=True), "LeakPro AttackLiRA, carlini")
    # Theirs is the logarithm of the probability of which ours is that of the rest.
    offline = -np.log1p(-np.exp(lira(online=False)))
    yield compared(LiRA(online=False), some, offline, "LeakPro AttackLiRA, offline")
    for online in (True, False):
        mode = "" if online else ", offline"
        base = BASE(online)
        yield compared(base, some, leakpro_base(folder, some, online), f"LeakPro AttackBASE{mode}")
        ours = RMIA(online, gamma=2.0, scale=0.33)
        theirs = leakpro_rmia(folder, whole, online)
        yield compared(ours, whole, theirs, f"LeakPro AttackRMIA{mode}", within=RECORDS)


def told(folder: Path, file: str, of: str, **given: Any) -> SimpleNamespace:
    """An attack of theirs that was told everything, and gives its scores as they are."""
    space = {
        "np": np,
        "norm": norm,
        "tqdm": lambda values, **_: values,
        "logger": SimpleNamespace(info=lambda _: None),
        "softmax_logits": lambda logits, temperature: special.softmax(logits / temperature, axis=-1),
        "log_softmax": special.log_softmax,
        "logsumexp": special.logsumexp,
        "MIAResult": SimpleNamespace(from_full_scores=lambda signal_values, **_: signal_values[:, 0]),
        "ShadowModelHandler": lambda: SimpleNamespace(
            target_model_hash="", load_logits=lambda name="", indx=None: given["said"][-1 if indx is None else indx]
        ),
    }
    records = given["said"].shape[1]
    return with_methods(
        functions_of(folder / ATTACKS / file, space, of),
        num_shadow_models=MODELS,
        shadow_model_indices=range(MODELS),
        audit_dataset={
            "data": np.arange(records),
            "in_members": np.arange(records),
            "out_members": np.arange(0),
        },
        handler=SimpleNamespace(
            get_labels=lambda records: np.ones(len(records), int),
            train_indices=np.arange(records),
            test_indices=np.arange(0),
            target_model=None,
        ),
        configs=SimpleNamespace(model_dump=dict),
        temperature=1.0,
        **given,
    )


def logits(shadowed: ShadowScores) -> np.ndarray:
    """Two classes, of the shadow models and then of the target."""
    second = np.concatenate([shadowed.models, shadowed.attacked])[:, 0]
    return np.stack([np.zeros_like(second), second], axis=-1)


def leakpro_lira(folder: Path, some: ShadowScores, online: bool) -> np.ndarray:
    attack = told(
        *(folder, "lira.py", "AttackLiRA"),
        said=logits(some),
        online=online,
        var_calculation="carlini",
        fix_var_threshold=MODELS // 2,
        out_indices=~some.membership,
        shadow_models_logits=some.models[:, 0],
        target_logits=some.attacked[0, 0],
    )
    return attack.run_attack()


def leakpro_base(folder: Path, some: ShadowScores, online: bool) -> np.ndarray:
    attack = told(
        *(folder, "base.py", "AttackBASE"),
        said=logits(some),
        online=online,
        out_indices=~some.membership,
        offline_scale_factor=1.0,
    )
    return attack.run_attack()


def leakpro_rmia(folder: Path, whole: ShadowScores, online: bool) -> np.ndarray:
    attack = told(
        *(folder, "rmia.py", "AttackRMIA"),
        said=logits(whole),
        online=online,
        out_indices=~whole.membership,
        attack_data_indices=np.arange(RECORDS, RECORDS + POPULATION),
        z_data_sample_fraction=1.0,
        gamma=2.0,
        offline_a=0.33,
        epsilon=0.0,
        load_for_optuna=False,
        shadow_models=[None] * MODELS,
    )
    attack._prepare_shadow_models = lambda: None
    attack.prepare_attack()
    return attack.run_attack()


# SACRO-ML


def of_sacro(folder: Path, some: ShadowScores) -> Iterable[Check]:
    space = {"np": np, "shapiro": shapiro, "contextlib": contextlib, "warnings": warnings, "EPS": 1e-16}
    utils = functions_of(folder / UTILS, space)
    space |= {"utils": SimpleNamespace(**utils), "norm": norm, "logger": SimpleNamespace(info=lambda _: None)}
    methods = functions_of(folder / SACRO, space, "LIRAAttack")
    sides = [
        {n: some.models[rows, 0, n].tolist() for n, rows in enumerate(side.T)}
        for side in (~some.membership, some.membership)
    ]
    own = special.expit(some.attacked[0, 0])
    said = np.stack([1 - own, own], axis=1)

    def scores(mode: str) -> np.ndarray:
        attack = with_methods(methods, mode=mode, fix_variance=False, report_individual=False)
        return np.array(attack._compute_scores(np.ones(RECORDS, int), said, *sides)[0])[:, 1]

    yield compared(LiRA(), some, scores("online-carlini"), "SACRO-ML LIRAAttack, online-carlini")
    rest = -np.log1p(-scores("offline"))
    yield compared(LiRA(online=False), some, rest, "SACRO-ML LIRAAttack, offline")


def compared(
    attack: RecordAttack, shadowed: ShadowScores, theirs: np.ndarray, name: str, within: int = RECORDS
) -> Check:
    ours = attack.scores(shadowed)[0, :within]
    difference = np.abs(ours - theirs[:within]).max() / np.abs(theirs[:within]).max()
    of = f"{type(attack).__module__.removeprefix('jaxaudit.')}.{type(attack).__name__}, {attack.name}"
    if isinstance(attack, RMIA):
        what = f"{WHAT}, {POPULATION} further records as z, gamma 2, scale 0.33"
        most = 1 / POPULATION + 1e-12
        because = "two ratios that are equal but for rounding may be counted either way: one record"
        return Check(of, name, what, np.abs(ours - theirs[:within]).max(), most, because)
    return Check(of, name, f"{WHAT}, relative to the largest", difference, 1e-10, BECAUSE)


# LiRA's authors and RMIA's

ROUNDING, RELATIVE = 1e-10, "float64, relative to the largest score"
LIRA_MODELS, LIRA_RECORDS, VIEWS, TARGETS = 32, 400, 2, 4
LIRA, METER = Path("research/mi_lira_2021/plot.py"), Path("modules/mia/attacks/rmia.py")


def mixed_world() -> tuple[ShadowScores, np.ndarray]:
    """Models that have each record in exactly half, and targets."""
    random = np.random.default_rng(5)
    membership = np.stack([random.permutation(LIRA_MODELS) < LIRA_MODELS // 2 for _ in range(LIRA_RECORDS)], axis=1)
    centre, width = random.normal(2, 2, LIRA_RECORDS), np.exp(random.normal(0, 0.4, LIRA_RECORDS))
    gap = np.abs(random.normal(0, 2, LIRA_RECORDS))

    def odds(rows: np.ndarray) -> np.ndarray:
        noise = random.normal(size=(len(rows), VIEWS, LIRA_RECORDS))
        return centre + width * noise + gap * rows[:, None]

    truth = random.random((TARGETS, LIRA_RECORDS)) < 0.5
    return ShadowScores(odds(membership), membership, odds(truth)), truth


def record_attacks(privacy: Path, meter: Path) -> list[Check]:
    shadowed, truth = mixed_world()
    theirs = functions_of(privacy / LIRA, {"np": np, "scipy": scipy})
    # Theirs have records, models and views in this order, and score members low.
    given = shadowed.membership, np.swapaxes(shadowed.models, 1, 2), truth, np.swapaxes(shadowed.attacked, 1, 2)
    scores, _ = theirs["generate_global"](*given)
    return [
        compared_with_authors(shadowed, -np.array(scores)),
        rmia_of_authors(functions_of(meter / METER, {"np": np})["run_rmia"], shadowed),
    ]


def compared_with_authors(shadowed: ShadowScores, theirs: np.ndarray) -> Check:
    ours = AttackP().scores(shadowed).ravel()
    what = f"scores of {TARGETS} targets on {LIRA_RECORDS} records by {LIRA_MODELS} models, {VIEWS} views"
    difference = np.abs(ours - theirs).max() / np.abs(theirs).max()
    of, name = "attacks.records.rmia.AttackP, attack-p", "tensorflow/privacy plot.py generate_global"
    return Check(of, name, what, difference, ROUNDING, RELATIVE)


def rmia_of_authors(theirs: Callable[..., np.ndarray], shadowed: ShadowScores) -> Check:
    """Of one view; their population is made of our records, and of the models that do not have each."""
    signals = special.expit(shadowed.models[:, 0])
    outside = np.stack([signals[~own, n] for n, own in enumerate(shadowed.membership.T)])
    first = ShadowScores(shadowed.models[:, :1], shadowed.membership, shadowed.attacked[:, :1])
    differences = []
    for scale in (0.0, 0.3, 1.0):
        ours = RMIA(online=False, gamma=1.0, scale=scale).scores(first)
        for row, target in zip(ours, special.expit(first.attacked[:, 0]), strict=True):
            half = LIRA_MODELS // 2
            score = theirs(target, signals.T, shadowed.membership.T, target, outside, scale, half)
            differences.append(np.abs(row - score).max())
    what = (
        "shares of the records exceeded, offline, gamma 1, scales 0, 0.3 and 1; their population is given the models "
        "without each record, since their code takes the larger half of all"
    )
    because = "two ratios that are equal but for rounding may be counted either way: one record"
    most = 1 / LIRA_RECORDS + 1e-12
    return Check(
        "attacks.records.rmia.RMIA, rmia-offline", "Privacy Meter run_rmia", what, max(differences), most, because
    )
