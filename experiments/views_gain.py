"""What outputs on shifted copies of each image bring to the members test.

    JAXAUDIT_DATA=DATA python -m experiments.views_gain

In each of a few worlds of MNIST (28 x 28) two targets of each of three recipes are trained on 1,500 records and on the
same half of a pool of 4n others: a small convolutional network with random shifts of up to two pixels for 3 and for 10
epochs, and an MLP for 10. For each target the pool is dealt anew many times: n query records of which it used none,
half or all, n others that it used as known members, and n that it did not use as holdout. The same deals are judged
with one output a record, and with 3, 5 and 9 views. Nothing was tuned. Deals of one target share its records and its
training, so rates are less certain than those of as many targets.
"""

import json
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, get_args

import jax
import numpy as np

from experiments.record import RESULTS, describe_run, device_slug
from experiments.summary import Row
from experiments.views_targets import NAMES, learner
from jaxaudit import load
from jaxaudit.audits.ks.taught import taught_difficulty
from jaxaudit.data import prepare_images
from jaxaudit.data.views import shifted_views
from jaxaudit.ensemble import fit_many, log_probs_many
from jaxaudit.metrics.difficulty import difficulty, residual_scores
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.members import members_test
from jaxaudit.metrics.scores import log_odds
from jaxaudit.metrics.usage import ScoreOf
from jaxaudit.metrics.views import score_by_views

SIZES = {300: 4, 1000: 2}
"""Worlds of each n."""
BASE, VIEWS, SHARES, DEALS, DRAWS = 1500, (1, 3, 5, 9), (0.0, 0.5, 1.0), 12, 499


def answers(size: int, world: int) -> Iterator[dict[Any, Any]]:
    """The answers of one world: for each target, share and deal, the numbers by views."""
    generator, key = np.random.default_rng([17, size, world]), jax.random.key(world)
    whole = load("mnist@train")
    examples = prepare_images(whole.take(generator.choice(len(whole), 4 * size + BASE, replace=False)), (28, 28))
    pool = examples.take(slice(4 * size))
    lesson, members = taught_difficulty(key, pool), np.repeat([False, True], [2 * size, size])
    views = shifted_views(pool.inputs, max(VIEWS)).reshape(-1, 28, 28, 1)
    row = np.arange(len(examples)) % 2 == 0
    row[len(pool) :] = True
    inside, outside = np.flatnonzero(row[: len(pool)]), np.flatnonzero(~row[: len(pool)])
    for recipe in NAMES:
        made, keys = learner(recipe), jax.random.split(jax.random.fold_in(key, len(recipe)), 2)
        params = fit_many(keys, np.stack([row] * 2), examples.inputs, examples.labels, made, members_only=True)
        odds = log_odds(log_probs_many(made, params, views), np.repeat(pool.labels, max(VIEWS)))
        for of_views, share, deal in product(np.float64(odds).reshape(2, len(pool), -1), SHARES, range(DEALS)):
            used, other, part = generator.permutation(inside), generator.permutation(outside), round(share * size)
            sets = (used[:part], other[: size - part], other[size : 2 * size], used[size : 2 * size])
            places = np.concatenate(sets)
            taught = None if lesson.odds is None else lesson.odds[:, places]
            predictors = difficulty(key, pool.labels[places], pool.inputs[places], None, taught)
            found: dict[Any, Any] = {"size": size, "recipe": recipe, "share": share}
            for count in VIEWS:
                scores, score_of = residual_scores(of_views[places, 0], predictors), ""
                if count > 1:
                    mean = residual_scores(of_views[places, :count].mean(axis=1), predictors)
                    scores, score_of = score_by_views(scores, mean, members)
                usage = members_test(jax.random.key(deal), scores, (size, size, size), permutations=DRAWS).usage
                found[count] = (usage, score_of)
            yield found


def rates(found: list[dict[Any, Any]], views: int) -> dict[str, float]:
    """Percent of these answers; and in how many deals use is found with views alone, and without them alone."""
    usages, before = ([each[count][0] for each in found] for count in (views, 1))
    counted = {
        "found": [usage.verdict == "not forgotten" for usage in usages],
        "forgotten": [usage.verdict == "forgotten" for usage in usages],
        "p_never": [usage.p_never <= ALPHA for usage in usages],
        "p_fully": [(usage.p_fully or 1.0) <= ALPHA for usage in usages],
        "covers": [usage.upper >= each["share"] for usage, each in zip(usages, found, strict=True)],
        **{f"score of {kind}": [each[views][1] == kind for each in found] for kind in get_args(ScoreOf)},
    }
    now, earlier = np.array(counted["found"]), np.array([usage.verdict == "not forgotten" for usage in before])
    gained, lost = (int(np.sum(each)) for each in (now & ~earlier, earlier & ~now))
    percent = {name: round(100 * float(np.mean(each)), 1) for name, each in counted.items()}
    return {"answers": len(found), "gained": gained, "lost": lost, **percent}


def lines(table: dict[tuple[int, str, int, float], Any]) -> list[str]:
    """The page."""
    head = (
        "n, target, views, all used: found (gained; lost), half used: found (gained; lost), never used: `forgotten`, "
    )
    head += (
        "never used: p (not used) <= 5%, all used: p (all used) <= 5%, limit covers half; all, score of the record; "
    )
    names = f"{head}both; the views".split(", ")
    text = ["# What views bring to the members test", "", *(__doc__ or "").split("\n\n")[2].splitlines(), ""]
    text += [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for size, recipe, views in product(SIZES, (*NAMES, "all"), VIEWS):
        none, half, whole = (table[size, recipe, views, share] for share in SHARES)
        found = [f"{each['found']} (+{each['gained']}; -{each['lost']})" for each in (whole, half)]
        shown = [size, NAMES.get(recipe, "all"), views, *found, none["forgotten"], none["p_never"], whole["p_fully"]]
        of = [
            f"{np.mean([each[f'score of {kind}'] for each in (none, half, whole)]):.0f}" for kind in get_args(ScoreOf)
        ]
        shown += [f"{half['covers']}; {whole['covers']}", "; ".join(of) if views > 1 else ""]
        text.append(f"| {' | '.join(map(str, shown))} |")
    return [*text, "", "Percent of deals; gained and lost: numbers of deals, against one output a record."]


def summary(result: dict[str, Any]) -> list[Row]:
    """What the result says of itself in `experiments/README.md`."""
    found = {tuple(each["of"]): round(each["found"]) for each in result["rates"]}
    ours = [
        f"n = {size}: {found[size, recipe, 1, 1.0]}% to {found[size, recipe, 5, 1.0]}% ({NAMES[recipe]})"
        for size, recipe in product(SIZES, NAMES)
    ]
    quantity = "targets that used all of the query set, found: with one output a record, to five views"
    sentence = "Deals of 36 targets of MNIST; other shares and numbers of views are on the page."
    return [Row("none", "Views of images", quantity, "none given", "; ".join(ours), sentence)]


def main() -> None:
    started, found, table = time.time(), list[dict[Any, Any]](), {}
    for size, world in ((size, world) for size, worlds in SIZES.items() for world in range(worlds)):
        found += answers(size, world)
        print(f"n = {size}, world {world}: {len(found)} deals, {time.time() - started:.0f} s", flush=True)
    for of in product(SIZES, (*NAMES, "all"), VIEWS, SHARES):
        size, recipe, views, share = of
        chosen = [each for each in found if (each["size"], each["share"]) == (size, share)]
        table[of] = rates([each for each in chosen if recipe in (each["recipe"], "all")], views)
    run = describe_run({"deals": DEALS}, time.time() - started)
    record = {"experiment": "views_gain", **run, "rates": [{"of": of, **each} for of, each in table.items()]}
    stem = RESULTS / f"views_gain-{device_slug()}"
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    stem.with_suffix(".md").write_text("\n".join(lines(table)) + "\n")


if __name__ == "__main__":
    main()
