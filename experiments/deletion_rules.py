"""May a rule for all answers of a model pass as a deletion, and what do models without the query set lose by the check?

    export JAXAUDIT_DATA=DATA
    python -m experiments.deletion_rules --cache FOLDER --judge  # trains and judges; call it again where it was stopped
    python -m experiments.deletion_rules --cache FOLDER          # the tables

Needs scikit-learn. A split of digits, breast cancer or Adult (1,200 women) has a quarter as query records, a quarter as
a holdout and half as others. The model before the deletion is trained on query records and others. After it, an owner
who deleted nothing answers by a rule: a function of the answer before (of the row of probabilities, some also of the
class), the same for every record; `tuned` rules are those of their kind that make both sets look most alike. An honest
owner trains anew without the query set, with the same seed or another, for longer, or with half of the query set; or
trains the model on without it. FOLDER/SET-SPLIT.json has the answers.
"""

import argparse
import json
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import special, stats
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import cross_val_predict
from sklearn.neural_network import MLPClassifier

from experiments.figures import write
from experiments.rates import percent, rate, says, share_of, shown, table
from experiments.record import RESULTS, Row, describe_run
from experiments.worlds import origins
from jaxaudit.audits.ks.taught import taught_difficulty
from jaxaudit.data.examples import Examples
from jaxaudit.json_types import number
from jaxaudit.metrics import memory
from jaxaudit.metrics.difficulty import difficulty, residual_scores
from jaxaudit.metrics.memory import RULE_LEVEL

KEY = jax.random.key(13)
LEAST = 1e-6
"""Probabilities of the own class are cut at this, and at 1 minus this."""
ADULTS, LONGER, TUNING = 1200, 1.5, 10
"""Records of Adult; how much longer a model is trained; epochs by which a network is trained on."""
Rule = Callable[[np.ndarray], np.ndarray]


def records_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and classes of a set."""
    if name == "adult":
        women = origins("adult").provider
        rows = np.random.default_rng(0).permutation(len(women.labels))[:ADULTS]
        return np.asarray(women.inputs[rows], np.float32), np.asarray(women.labels[rows], np.int64)
    inputs, labels = map(np.asarray, (load_digits if name == "digits" else load_breast_cancer)(return_X_y=True))
    return ((inputs - inputs.mean(axis=0)) / np.maximum(inputs.std(axis=0), 1e-9)).astype(np.float32), labels


def model_of(kind: str, seed: int, times: float = 1.0) -> Any:
    if kind == "forest":
        return RandomForestClassifier(round(100 * times), random_state=seed)
    if kind == "boosting":
        how = {"max_leaf_nodes": 15, "learning_rate": 0.3, "max_features": 0.5}
        return HistGradientBoostingClassifier(max_iter=round(20 * times), random_state=seed, **how)
    how: dict[str, Any] = {"max_iter": round(40 * times), "batch_size": 64}
    return MLPClassifier((128,), random_state=seed, **how)


def own_odds(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return special.logit(np.clip(rows[np.arange(len(labels)), labels], LEAST, 1 - LEAST))


def placed(rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Rows with another probability in one column each; the other columns keep their proportions."""
    at, rows = np.arange(len(rows)), np.maximum(rows, LEAST)
    values = np.clip(values, 1e-4, 1 - 1e-4)
    changed = rows * ((1 - values) / np.maximum(rows.sum(axis=1) - rows[at, columns], LEAST))[:, None]
    changed[at, columns] = values
    return changed


def of_top(rows: np.ndarray, rule: Rule) -> np.ndarray:
    """A rule of the highest probability."""
    return placed(rows, rows.argmax(axis=1), rule(rows.max(axis=1)))


def folded(values: np.ndarray, at: float, slope: float) -> np.ndarray:
    return np.where(values > at, at - slope * (values - at), values)


def rules(
    generator: np.random.Generator, rows: np.ndarray, labels: np.ndarray, size: int, predictors: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """The answers of owners who deleted nothing, by rule."""
    count, odds, logs = rows.shape[1], own_odds(rows, labels), np.log(np.maximum(rows, LEAST))

    def apart(changed: np.ndarray) -> float:
        scores = residual_scores(own_odds(changed, labels), predictors)
        return abs(float(scores[:size].mean() - scores[size:].mean()))

    for at in (0.5, 0.6, 0.7, 0.8, 0.9):
        yield f"cap {at}", of_top(rows, lambda top, at=at: np.minimum(top, at))
        for slope in (0.1, 0.3, 1.0):
            yield f"fold {at}, {slope}", of_top(rows, lambda top, at=at, slope=slope: folded(top, at, slope))
    for slope in (0.1, 0.3, 1.0):
        ends = np.linspace(0.35, 0.99, 30)
        tops = (of_top(rows, lambda top, at=at, slope=slope: folded(top, at, slope)) for at in ends)
        yield f"tuned fold, {slope}", min(tops, key=apart)
        ends = np.quantile(odds, np.linspace(0.05, 0.95, 30))
        owns = (placed(rows, labels, special.expit(folded(odds, at, slope))) for at in ends)
        yield f"tuned fold of the own class, {slope}", min(owns, key=apart)
    for power in (0.2, 0.5, 3.0):
        yield f"power {power}", special.softmax(power * logs, axis=1)
    for spread in (0.5, 1.0, 3.0):
        yield f"noise {spread}", special.softmax(logs + generator.normal(0, spread, rows.shape), axis=1)
    mixed = np.modf(np.abs(np.sin((rows * np.arange(1, count + 1)).sum(axis=1) * 1e4)) * 1e4)[0] - 0.5
    yield "noise by a hash", of_top(rows, lambda top: top + 0.3 * mixed)
    yield "fold, noise by a hash", of_top(rows, lambda top: folded(top, 0.6, 0.3) + 0.1 * mixed)
    yield "steps", of_top(rows, lambda top: np.ceil(5 * top) / 5 - 0.1)
    yield "teeth", of_top(rows, lambda top: 0.5 + 0.4 * np.modf(7 * top)[0])
    yield "one decimal", np.round(rows, 1)
    yield "two decimals", np.round(rows, 2)
    yield "clipped", np.clip(rows, 0.05, 0.95)
    yield "half uniform", 0.5 * rows + 0.5 / count
    yield "columns sorted", np.sort(rows, axis=1)
    yield "ranks", of_top(rows, lambda top: 0.5 + 0.49 * stats.rankdata(top) / len(top))
    yield "ranks reversed above", of_top(rows, lambda top: folded(stats.rankdata(top) / len(top), 0.5, 0.5))
    yield "label alone", np.eye(count)[rows.argmax(axis=1)] * 0.9 + 0.1 / count
    disorder = special.entr(np.maximum(rows, LEAST)).sum(axis=1)
    yield "by entropy", of_top(rows, lambda top: top - 0.5 * np.maximum(0.5 - disorder, 0))
    second = np.sort(rows, axis=1)[:, -2]
    yield "by the second", of_top(rows, lambda top: top - 0.5 * (top - second) ** 2)
    of_class = np.array([odds[labels == each].mean() if (labels == each).any() else 0.0 for each in range(count)])
    for slope in (0.3, 1.0):
        harder = special.expit(of_class / 2)[rows.argmax(axis=1)]
        yield f"fold by class, {slope}", of_top(rows, lambda top, by=slope * harder: folded(top, 0.6, by))
    # What the row tells of the set, learned from the sets themselves, but for each record from others.
    told = np.c_[np.sort(logs, axis=1), odds, logs[np.arange(len(labels)), labels]]
    guess = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=7, random_state=1)
    looks = cross_val_predict(guess, told, np.arange(len(labels)) < size, cv=5, method="decision_function")
    steps = np.linspace(0, 6, 31)
    yield (
        "tuned by an attack",
        min((placed(rows, labels, special.expit(odds - step * looks)) for step in steps), key=apart),
    )


def judged_split(name: str, split: int) -> Iterator[dict[str, Any]]:
    """The answers about all owners of one split."""
    inputs, labels = records_of(name)
    generator = np.random.default_rng([zlib.crc32(name.encode()), split])
    size, order = len(labels) // 4, generator.permutation(len(labels))
    query, asked, others = order[:size], order[: 2 * size], order[2 * size :]
    classes, own = int(labels.max()) + 1, labels[asked]
    records = Examples(inputs[asked], own, tuple(map(str, range(classes))), name)
    predictors = difficulty(KEY, own, records.inputs, None, taught_difficulty(KEY, records).odds)

    def said(model: Any) -> np.ndarray:
        rows = np.zeros((len(asked), classes))
        rows[:, model.classes_] = model.predict_proba(inputs[asked])
        return rows

    for kind in ("forest", "boosting", "mlp"):
        seed = int(generator.integers(2**31 - 9))

        def trained(rows: np.ndarray, kind: str, seed: int, times: float = 1.0) -> Any:
            return model_of(kind, seed, times).fit(inputs[rows], labels[rows])

        first = trained(np.r_[query, others], kind, seed)
        before = said(first)
        halves = [generator.permutation(query)[: size // 2] for _ in range(2)]
        honest = {
            "same seed": said(trained(others, kind, seed)),
            "another seed": said(trained(others, kind, seed + 1)),
            "longer": said(trained(others, kind, seed + 2, LONGER)),
            **{f"half {i}": said(trained(np.r_[half, others], kind, seed + 3 + i)) for i, half in enumerate(halves)},
        }
        if kind == "mlp":
            for _ in range(TUNING):
                first.partial_fit(inputs[others], labels[others])
            honest["trained on"] = said(first)
        ways = [*(("honest", *pair) for pair in honest.items())]
        ways += [("rule", *pair) for pair in rules(generator, before, own, size, predictors)]
        for owner, way, after in ways:
            odds = own_odds(after, own), own_odds(before, own)
            # Without the check, as no p-value is above a level of 1. It takes `forgotten` away, and no other verdict.
            memory.RULE_LEVEL = 1.0
            answer = memory.deletion_test(KEY, *odds, size, predictors, labels=own, permutations=399)
            unchecked, passes = answer.usage, answer.p_rule <= RULE_LEVEL
            limits = ("fraction", "fraction_low", "fraction_high", "upper")
            yield {
                "set": name,
                "split": split,
                "kind": kind,
                "owner": owner,
                "way": way,
                "p_rule": answer.p_rule,
                "verdict": unchecked.verdict if passes or unchecked.verdict != "forgotten" else "inconclusive",
                "unchecked": unchecked.verdict,
                "memory": round(answer.memory, 2),
                **{each: number(round(float(getattr(unchecked, each)), 4)) for each in limits},
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--judge", action="store_true", help="train and answer, rather than draw up the tables")
    parser.add_argument("--sets", nargs="*", default=["digits", "cancer", "adult"])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.judge:
        warnings.filterwarnings("ignore")  # networks that are stopped before they converge
        arguments.cache.mkdir(parents=True, exist_ok=True)
        for split in range(arguments.splits):
            for name in arguments.sets:
                path, started = arguments.cache / f"{name}-{split}.json", time.time()
                if not path.exists():
                    path.write_text(json.dumps(list(judged_split(name, split))))
                    print(f"{name}, split {split}: {time.time() - started:.0f} s", flush=True)
        return
    answers = [each for path in sorted(arguments.cache.glob("*.json")) for each in json.loads(path.read_text())]
    found = summarise(answers, RULE_LEVEL)
    record = {"experiment": "deletion_rules", **describe_run({"level": RULE_LEVEL}), "rates": found}
    print(write(arguments.out, "deletion_rules", record, lines(found)).read_text())


# The rates, their page and their picture.

Answers = Sequence[dict[str, Any]]
NONE = ("same seed", "another seed", "longer")
"""Honest models that used none of the query set."""
WORDS = {
    "without": "`forgotten` without the check",
    "with": "with it",
    "accused": "`not forgotten`",
    "passes": "passes the check",
    "shows a share": "a share is shown",
}
KINDS = {"forest": "forests", "boosting": "boosting", "mlp": "networks"}


def _verdicts(chosen: Answers) -> dict[str, Any]:
    """How often these are called forgotten, without the check of rules and with it, and how often they pass it."""
    return {
        "without": rate(chosen, lambda answer: answer["unchecked"] == "forgotten"),
        "with": rate(chosen, says("forgotten")),
        "accused": rate(chosen, says("not forgotten")),
        "shows a share": rate(chosen, lambda answer: answer["shown"]),
        "passes": rate(chosen, lambda answer: answer["p_rule"] <= answer["level"]),
    }


def summarise(answers: Answers, level: float) -> dict[str, Any]:
    """Rates by rule, by set and kind of model, of honest owners, and how far estimates of half are from half."""
    answers = [{**each, "level": level} for each in answers]
    # The check takes a share away together with the verdict, or where the limit is low and the model is accused.
    answers = [
        {**each, "shown": each["fraction"] is not None and (each["upper"] > 0.25 or each["p_rule"] <= level)}
        for each in answers
    ]
    by_rule, honest = ([each for each in answers if each["owner"] == owner] for owner in ("rule", "honest"))
    ways = list(dict.fromkeys(each["way"] for each in by_rule))
    models = {(each["set"], each["split"], each["kind"]) for each in by_rule}

    def any_rule(verdict: str) -> dict[str, Any]:
        cleared = {(each["set"], each["split"], each["kind"]) for each in by_rule if each[verdict] == "forgotten"}
        return share_of(len(cleared), len(models))

    none = [each for each in honest if each["way"] in NONE]
    return {
        "models": len(models),
        "splits": {
            name: len({each["split"] for each in by_rule if each["set"] == name})
            for name in sorted({each["set"] for each in by_rule})
        },
        "all rules": _verdicts(by_rule),
        "any rule": {"without": any_rule("unchecked"), "with": any_rule("verdict")},
        "rules": {way: _verdicts([each for each in by_rule if each["way"] == way]) for way in ways},
        "honest": {
            **{way: _verdicts([each for each in none if each["way"] == way]) for way in NONE},
            "none used": _verdicts(none),
            **{kind: _verdicts([each for each in none if each["kind"] == kind]) for kind in KINDS},
            "half used": _verdicts([each for each in honest if each["way"].startswith("half")]),
            "trained on": _verdicts([each for each in honest if each["way"] == "trained on"]),
        },
        "half": {
            kind: _half([each for each in honest if each["way"].startswith("half") and each["kind"] in kinds])
            for kind, kinds in {"all": tuple(KINDS), **{kind: (kind,) for kind in KINDS}}.items()
        },
    }


def _half(chosen: Answers) -> dict[str, Any]:
    """Of models after a deletion of half, where the model before remembers the query set: error of the estimates.

    The interval of the mean error takes the two models of one model before as one.
    """
    known = [each for each in chosen if each["fraction"] is not None]
    before = sorted({(each["set"], each["split"], each["kind"]) for each in known})
    errors = [
        np.mean([each["fraction"] - 0.5 for each in known if (each["set"], each["split"], each["kind"]) == one])
        for one in before
    ]
    mean = float(np.mean(errors))
    spread = float(stats.t.ppf(0.975, len(errors) - 1) * np.std(errors, ddof=1) / len(errors) ** 0.5)
    return {
        "error": [mean, mean - spread, mean + spread],
        "too high": rate(known, lambda answer: answer["fraction"] > 0.5),
        "covered": rate(known, lambda answer: answer["fraction_low"] <= 0.5 <= answer["fraction_high"]),
        "interval above": rate(known, lambda answer: answer["fraction_low"] > 0.5),
        "limit below": rate(known, lambda answer: answer["upper"] < 0.5),
    }


def lines(found: dict[str, Any]) -> list[str]:
    """The page."""
    some, half = found["any rule"], ("too high", "covered", "interval above", "limit below")
    of_rules, names = ("without", "with", "passes"), tuple(WORDS)
    return [
        "# A rule for all answers instead of a deletion",
        "",
        f"{found['models']} models ({', '.join(f'{name}: {count} splits' for name, count in found['splits'].items())}; "
        "forests, boosting, networks), by `experiments/deletion_rules.py`. Each model used the query set. An owner who "
        "deleted nothing answers by a rule, the same for all records. Exact 95% intervals; models of one split share "
        "its chance.",
        "",
        *table(
            ["nothing deleted; a rule", *(WORDS[name] for name in of_rules)],
            (
                [name, *(shown(row[column]) for column in of_rules)]
                for name, row in {"all": found["all rules"], **found["rules"]}.items()
            ),
        ),
        "",
        f"For at least one of these {len(found['rules'])} rules, `forgotten`: {shown(some['without'])} models without "
        f"the check, {shown(some['with'])} with it.",
        "",
        *table(
            ["honest: trained without the query set", *(WORDS[name] for name in names)],
            (
                [f"{KINDS.get(name, name)}", *(shown(row[column]) for column in names)]
                for name, row in found["honest"].items()
            ),
        ),
        "",
        "Half of the query set was removed, and the model trained anew: error of the estimated share, in points.",
        "",
        *table(
            ["models", "mean error", "too high", "interval has 50%", "interval above 50%", "upper limit under 50%"],
            (
                [
                    f"{KINDS.get(kind, kind)}",
                    "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * error for error in row["error"])),
                ]
                + [shown(row[column]) for column in half]
                for kind, row in found["half"].items()
            ),
        ),
    ]


def summary(result: dict[str, Any]) -> list[Row]:
    """What `deletion_rules` says of itself in `experiments/README.md`."""
    found = result["rates"]
    asked = {
        "a rule, nothing deleted": found["all rules"]["with"],
        "the same without the check": found["all rules"]["without"],
        "trained without the query set": found["honest"]["none used"]["with"],
        "the same without the check (2)": found["honest"]["none used"]["without"],
    }
    sentence = f"Over {len(found['rules'])} rules for the answers of {found['models']} models."
    return [
        Row(
            "none",
            'Called "forgotten" after a deletion',
            ", ".join(asked).replace(" (2)", ""),
            "none given",
            ", ".join(percent(cell, 1) for cell in asked.values()),
            sentence,
            "--cache FOLDER",
        )
    ]


if __name__ == "__main__":
    main()
