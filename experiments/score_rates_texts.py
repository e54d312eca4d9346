"""Does what else is known of a text's difficulty find more of the use of `score_rates`?

N-grams, those that `jaxaudit scores lm` adds (`jaxaudit.metrics.token_difficulty`), learn from the texts of a table but
for a fold of its groups, and small language models from those of a world: they say how difficult the texts of the fold
are. No set enters the lesson, and all sets teach: it serves any deal. What they say is a covariate of the test of
scores. Beside them, several retrained models: as baselines, whose scores are a covariate each, and as models that never
used the query set, whose mean is one.
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.score_rates_judge import (
    COUNTS,
    LARGE,
    Answer,
    Trained,
    chosen_groups,
    columns_of,
    rows_of,
    targets_of,
    usage_of,
    with_scores,
)
from experiments.score_rates_models import SIDE_BY_SIDE, learner_of, token_numbers
from experiments.score_rates_worlds import DEALS, GROUPS, PER_GROUP, USUAL, Corpus, World
from jaxaudit import fit_many
from jaxaudit.ensemble import Execution
from jaxaudit.metrics.token_difficulty import ORDERS, token_difficulty

FOLDS, TEACHERS = 10, 3
"""Of the groups of a world, and language models of a fold."""
ROLES = {"apart": "baseline", "mean": "unused"}
"""How retrained models are given."""


def folds_of_records() -> np.ndarray:
    return np.repeat(np.random.default_rng(9).permutation(GROUPS) % FOLDS, PER_GROUP)


def word_numbers(corpus: Corpus, rows: np.ndarray) -> Mapping[str, np.ndarray]:
    """By the longest context's length, how difficult the words of these records are by the others; groups are whole."""
    records = []
    for inputs in corpus.inputs[rows]:
        judged = np.flatnonzero(inputs >= 0)
        records.append((np.where(inputs < 0, ~inputs, inputs)[: judged[-1] + 1].tolist(), int(judged[0])))
    numbers = token_difficulty(records, (rows // PER_GROUP).tolist())
    return {f"words_{order}": column for order, column in zip(ORDERS, numbers.T, strict=True)}


def taught_numbers(world: World, corpus: Corpus) -> Mapping[str, np.ndarray]:
    """Loss, Min-K% and Min-K%++ of each record by language models that learned from the other folds."""
    learner, folds = learner_of(world._replace(rate=USUAL), corpus), folds_of_records()
    rows = np.repeat(np.arange(FOLDS)[:, None] != folds, TEACHERS, axis=0)

    @jax.jit
    def numbers_of(params: Any) -> Any:
        return jax.vmap(lambda model: token_numbers(learner, model, jnp.asarray(corpus.inputs)))(params)

    numbers = fit_many(
        jax.random.split(jax.random.key(world.draw + 50), len(rows)),
        rows,
        corpus.inputs,
        np.zeros(len(corpus.inputs), np.int32),
        learner,
        execution=Execution(models_per_batch=SIDE_BY_SIDE),
        summarize=lambda params, _: numbers_of(params),
    )
    of_fold = np.asarray(numbers, np.float64).reshape(FOLDS, TEACHERS, *numbers.shape[1:]).mean(axis=1)
    of_record = of_fold[folds, np.arange(len(folds))]
    return {f"taught_{place}": column for place, column in enumerate(of_record.T)}


def judged_texts(name: str, world: World, corpus: Corpus, trained: Trained) -> Iterator[Answer]:
    """The answers about the targets of a world without a lesson, and with each."""
    taught = taught_numbers(world, corpus)
    for place, deal in enumerate(DEALS):
        generator = np.random.default_rng([zlib.crc32(name.encode()), place, 2])
        for target in (target for target in targets_of(trained, place) if not target.method):
            others = [number for number, model in enumerate(trained.plan) if model.used(deal) == 0]
            retrained = [number for number in others if number != target.own][: max(COUNTS)]
            for groups, records in LARGE:
                dealt = chosen_groups(generator, trained.plan[target.own], deal, groups)
                parts = [rows_of(part, records) for part in dealt]
                key = jax.random.key(int(generator.integers(2**31)))
                facts = {"deal": place, "model": target.own, "used": target.used, "groups": groups}
                for way, sets in (("holdout", ["query", "holdout"]), ("members", ["query", "holdout", "members"])):
                    columns, rows = columns_of(trained, parts[: len(sets)], sets)
                    table = with_scores(columns, "target", target.scores[rows])
                    lessons = {
                        "none": {},
                        "words": word_numbers(corpus, rows),
                        "taught": {number: column[rows] for number, column in taught.items()},
                    }
                    tables = {
                        lesson: table | {f"covariate.{number}": column for number, column in numbers.items()}
                        for lesson, numbers in lessons.items()
                    }
                    for lesson, role in ROLES.items() if way == "holdout" else ():
                        tables[lesson] = table
                        for number in retrained:
                            scores = trained.scores[number][rows]
                            tables[lesson] = with_scores(tables[lesson], f"{role}.{number}", scores)
                    for lesson, with_lesson in tables.items():
                        yield {**facts, "way": way, "lesson": lesson, **usage_of(key, with_lesson)}
