"""How often `attack` on a bank says another grade than many more models say.

    export JAXAUDIT_DATA=DATA
    python -m experiments.attack_grades

Four tables and ten recipes each, from regularised to grown in full, make 40 worlds. In each, 128 models are trained on
fair coins, of records or of whole people, and make four banks of 32. The truth of a world are the rates of all banks
together: 32 models a bank, so that each is attacked by as many as a user has. Its grade is by these rates themselves,
while that of a bank is by intervals.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import jaxaudit as ja
from experiments.figures import write
from experiments.paper_tables import paper_table
from experiments.rates import interval, table
from experiments.record import RESULTS, Row, describe_run
from jaxaudit.attacks.records import Stacked
from jaxaudit.audits import AttackResult
from jaxaudit.metrics import clopper_pearson

BANKS, MODELS, SEED = 4, 32, 65
AWAY, SOME, GUESSING, OPEN = "gives records away", "gives some away", "no better than guessing", "inconclusive"
GRADES = (AWAY, SOME, GUESSING, OPEN)
RECIPES: dict[str, Callable[[int], Any]] = {
    "logistic regression, C = 0.001": lambda _: scaled(LogisticRegression(C=0.001)),
    "logistic regression, C = 100": lambda _: scaled(LogisticRegression(C=100, max_iter=300)),
    "tree of depth 2": lambda seed: DecisionTreeClassifier(max_depth=2, random_state=seed),
    "tree of depth 6": lambda seed: DecisionTreeClassifier(max_depth=6, random_state=seed),
    "tree in full": lambda seed: DecisionTreeClassifier(random_state=seed),
    "forest, leaves of 100": lambda seed: RandomForestClassifier(20, min_samples_leaf=100, random_state=seed),
    "forest, leaves of 20": lambda seed: RandomForestClassifier(20, min_samples_leaf=20, random_state=seed),
    "forest, leaves of 5": lambda seed: RandomForestClassifier(20, min_samples_leaf=5, random_state=seed),
    "forest in full": lambda seed: RandomForestClassifier(20, random_state=seed),
    "15 nearest neighbours": lambda _: scaled(KNeighborsClassifier(15)),
}


class Table(NamedTuple):
    """Records and whose they are; `people` counts from 0."""

    inputs: np.ndarray
    labels: np.ndarray
    people: np.ndarray


def scaled(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


def tables() -> dict[str, Table]:
    """The tables by name."""
    digits, cancer = (tuple(map(np.asarray, of(return_X_y=True))) for of in (load_digits, load_breast_cancer))
    adult = ja.one_hot(paper_table("adult").take(np.random.default_rng(SEED).permutation(32_000)[:2_000]))
    random = np.random.default_rng(1)
    of_person = np.repeat(np.arange(400), random.integers(1, 4, 400))
    visits = random.normal(size=(400, 6))[of_person] + 0.3 * random.normal(size=(len(of_person), 6))
    ill = (visits[:, 0] + random.normal(size=len(visits)) > 0).astype(int)
    alone = {"digits": digits, "breast-cancer": cancer, "adult": (np.asarray(adult.inputs), np.asarray(adult.labels))}
    return {
        **{name: Table(inputs, labels, np.arange(len(labels))) for name, (inputs, labels) in alone.items()},
        "people, made up": Table(visits, ill, of_person),
    }


def bank(folder: Path, data: Table, recipe: Callable[[int], Any], random: np.random.Generator) -> AttackResult:
    """A bank by a script of one's own, and what `attack` says of it."""
    grouped = len(np.unique(data.people)) < len(data.people)
    coins = (random.random((MODELS, data.people.max() + 1)) < 0.5)[:, data.people]
    classes = int(data.labels.max()) + 1
    about = {"format": 1, "outputs": "probabilities", "classes": classes, "records": len(data.labels)}
    (folder / "outputs").mkdir()
    (folder / "bank.json").write_bytes(msgspec.json.encode({**about, "models": MODELS, "groups": grouped}))
    np.save(folder / "labels.npy", data.labels)
    np.save(folder / "membership.npy", coins)
    if grouped:
        np.save(folder / "groups.npy", data.people)
    for model, row in enumerate(coins):
        fitted = recipe(int(random.integers(2**31))).fit(data.inputs[row], data.labels[row])
        outputs = np.zeros((len(data.labels), classes), np.float32)
        outputs[:, fitted.classes_] = fitted.predict_proba(data.inputs)
        np.save(folder / "outputs" / f"{model:05}.npy", outputs)
    return ja.attack(folder, attacks=[Stacked()]).result


def grade(results: Sequence[AttackResult]) -> tuple[str, float, float]:
    """The grade by the rates of all banks together, without intervals; the area, and the rate at 1%."""
    rates = [result.deciding for result in results]
    area = float(np.mean([rate.auc.value for rate in rates]))
    ratios, at_hundredth = [], float("nan")
    for place in range(len(rates[0].tpr_at_fpr)):
        measured = [rate.tpr_at_fpr[place] for rate in rates]
        measured = [rate for rate in measured if rate.resolvable and rate.holds]
        if measured:
            right, wrong = np.mean([(rate.value, rate.realised.value) for rate in measured], axis=0).tolist()
            limit = measured[0].fpr
            ratios.append((limit, right / max(wrong, limit)))
            at_hundredth = right if limit == 0.01 else at_hundredth
    if any(ratio >= 10 for limit, ratio in ratios if limit in (0.01, 0.001)):
        return AWAY, area, at_hundredth
    single = np.median([result.exposure.surely_named if result.exposure else 0 for result in results]) >= 1
    some = area > 0.51 or any(ratio > 2 for _, ratio in ratios) or single
    return SOME if some else GUESSING, area, at_hundredth


def page(result: dict[str, Any]) -> list[str]:
    """The page of a result."""
    called = Counter((world["truth"], said) for world in result["worlds"] for said in world["said"])
    totals = {truth: sum(called[truth, said] for said in GRADES) for truth in GRADES[:3]}

    def share(truth: str, said: str) -> str:
        ends = clopper_pearson(called[truth, said], totals[truth], 0.95)
        return interval({"share": ends.value, "low": ends.low, "high": ends.high})

    return [
        "# How often `attack` on a bank says another grade than many more models",
        "",
        f"{len(result['worlds'])} worlds, {BANKS} banks of {MODELS} models each; the truth are the rates of all banks "
        "of a world. With 95% intervals, somewhat too narrow since banks of a world share its records.",
        "",
        *table(
            ["truth", "banks", *(f"called `{said}`" for said in GRADES)],
            ([truth, str(total), *(share(truth, said) for said in GRADES)] for truth, total in totals.items() if total),
        ),
        "",
        "## World by world",
        "",
        *table(
            ["table", "recipe", "AUC", "TPR at 1%", "truth", "said"],
            (
                [
                    world["table"],
                    world["recipe"],
                    f"{world['auc']:.3f}",
                    "-" if world["tpr"] is None else f"{world['tpr']:.1%}",
                    world["truth"],
                    ", ".join(f"{count} x {said}" for said, count in Counter(world["said"]).items()),
                ]
                for world in result["worlds"]
            ),
        ),
    ]


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""
    called = Counter((world["truth"], said) for world in result["worlds"] for said in world["said"])
    total = {truth: sum(called[truth, said] for said in GRADES) for truth in GRADES[:3]}
    stricter = called[SOME, AWAY] + called[GUESSING, AWAY] + called[GUESSING, SOME]
    milder = called[AWAY, SOME] + called[AWAY, GUESSING] + called[SOME, GUESSING]
    return [
        Row(
            "none",
            "Grades of `attack` on banks",
            "called a stricter grade than the truth; a milder one; `no better than guessing` where some is given away",
            "none given",
            f"{stricter / sum(total.values()):.1%}; {milder / sum(total.values()):.1%}; "
            f"{called[AWAY, GUESSING] + called[SOME, GUESSING]} of {total[AWAY] + total[SOME]} banks",
            f"{sum(total.values())} banks of {MODELS} models in {len(result['worlds'])} worlds; most differ where the "
            "truth is near a limit.",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--recipes", nargs="*", choices=RECIPES, default=[*RECIPES])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments, started, worlds = parser.parse_args(), time.monotonic(), []
    for name, data in tables().items():
        for place, recipe in enumerate(RECIPES):
            if recipe not in arguments.recipes or name not in (arguments.tables or [name]):
                continue
            results = []
            for index in range(BANKS):
                with tempfile.TemporaryDirectory() as folder:
                    random = np.random.default_rng([SEED, len(data.labels), place, index])
                    results.append(bank(Path(folder), data, RECIPES[recipe], random))
            truth, area, rate = grade(results)
            said = [result.finding.verdict for result in results]
            worlds.append({"table": name, "recipe": recipe, "truth": truth, "auc": area, "said": said})
            worlds[-1]["tpr"] = None if np.isnan(rate) else rate
            print(f"{time.monotonic() - started:.0f} s", worlds[-1], flush=True)
    run = describe_run({"banks": BANKS, "models": MODELS}, time.monotonic() - started)
    result = {"experiment": "attack_grades", "worlds": worlds, **run}
    print(write(arguments.out, "attack_grades", result, page(result)).read_text())


if __name__ == "__main__":
    main()
