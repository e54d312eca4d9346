"""The language models of `score_rates`: trained side by side, unlearned, and asked for a number of each record."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.score_rates_worlds import DEALS, PART, PER_GROUP, WRONG, Corpus, Deal, Planned, World, planned
from jaxaudit import fit_many, models
from jaxaudit.ensemble import Execution, log_probs_many
from jaxaudit.learners.counted_tokens import following_tokens
from jaxaudit.learners.language_model import LanguageModelLearner, language_model, mean_log_likelihood
from jaxaudit.metrics.tofu import truth_ratio
from jaxaudit.models import hidden_states
from jaxaudit.unlearning import gradient_difference, npo, rmu

WIDTH, LAYERS, EPOCHS, BATCH, SIDE_BY_SIDE = 40, 2, 2, 8, 6
LOWEST, LEAST_VARIANCE = 0.2, 1e-6
SCORES = ("loss", "min_k", "min_k_plus_plus", "zlib", "truth_ratio")
STRENGTHS = (1e-4, 4e-4, 1.6e-3)
"""Learning rates of unlearning, at the methods' default number of passes."""


def learner_of(world: World, corpus: Corpus) -> LanguageModelLearner:
    steps = EPOCHS * (2 * PART * PER_GROUP // BATCH)
    rule = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, world.rate, steps // 10, steps), weight_decay=0.01)
    return language_model(
        partial(models.GPT, depth=LAYERS, width=WIDTH),
        corpus.inputs.shape[1],
        corpus.vocabulary,
        optimizer=rule,
        epochs=EPOCHS,
        batch_size=BATCH,
    )


def token_numbers(learner: LanguageModelLearner, params: Any, inputs: Any) -> Any:
    """Loss, Min-K% and Min-K%++ of each record, `[n, 3]`, as `jaxaudit.models.token_scores` has them."""

    def one(record: Any) -> Any:
        logits, _ = learner.net.apply(params.params, params.state, jnp.where(record < 0, ~record, record)[None], False)
        log_p, following = jax.nn.log_softmax(logits[0]), following_tokens(record[None])[0]
        counts = following >= 0
        of_token = jnp.take_along_axis(log_p, jnp.maximum(following, 0)[:, None], axis=1)[:, 0]
        p = jnp.exp(log_p)
        mean = (p * log_p).sum(-1)
        variance = (p * log_p**2).sum(-1) - mean**2
        normal = (of_token - mean) / jnp.sqrt(jnp.maximum(variance, LEAST_VARIANCE))
        count = counts.sum()
        # Both Min-K% leave out the token that ends an answer.
        inner = counts & (jnp.cumsum(counts) < count)
        most = jnp.maximum(1, jnp.floor(LOWEST * (count - 1) + 1e-6))

        def lowest(values: Any) -> Any:
            ordered = jnp.sort(jnp.where(inner, values, jnp.inf))
            return -jnp.sum(jnp.where(jnp.arange(len(ordered)) < most, ordered, 0)) / most

        loss = -jnp.sum(jnp.where(counts, of_token, 0)) / count
        return jnp.stack([loss, lowest(of_token), lowest(normal)])

    return jax.lax.map(one, inputs, batch_size=2)


@partial(jax.jit, static_argnums=0)
def _numbers(learner: LanguageModelLearner, params: Any, inputs: Any) -> Any:
    return jax.vmap(partial(token_numbers, learner), in_axes=(0, None))(params, inputs)


def asked(learner: LanguageModelLearner, params: Any, corpus: Corpus) -> np.ndarray:
    """The scores of all records under these models, `[models, records, SCORES]`."""
    numbers = np.asarray(_numbers(learner, params, jnp.asarray(corpus.inputs)), np.float64)
    right = log_probs_many(learner, params, corpus.paraphrased)[..., 0]
    wrong = log_probs_many(learner, params, corpus.wrong)[..., 0].reshape(len(right), WRONG, -1)
    ratios = truth_ratio(np.stack([right, *np.moveaxis(wrong, 1, 0)], axis=-1))
    columns = [numbers, (numbers[..., 0] / corpus.packed)[..., None], ratios[..., None]]
    return np.concatenate(columns, axis=-1).astype(np.float32)


def train(name: str, world: World, corpus: Corpus, folder: Path) -> None:
    """Trains the models of a world and unlearns some; their scores are kept in `folder`, as are finished chunks."""
    path = folder / f"{name}.npz"
    if path.exists():
        return
    learner, plan = learner_of(world, corpus), planned(world)
    keys = jax.random.split(jax.random.key(world.draw + 100 * (world.corpus == "notes")), len(plan))
    rows = np.repeat(np.stack([model.groups for model in plan]), PER_GROUP, axis=1)
    execution = Execution(models_per_batch=SIDE_BY_SIDE, checkpoints=folder / name)

    def said(params: Any, _: Any) -> tuple[Any, ...]:
        return asked(learner, params, corpus), *jax.tree.leaves(params)

    labels = np.zeros(len(corpus.inputs), np.int32)
    scores, *leaves = fit_many(keys, rows, corpus.inputs, labels, learner, execution=execution, summarize=said)
    shape = jax.tree.structure(jax.eval_shape(lambda key: learner.finish(learner.init(key)), keys[0]))
    starts = np.array([start_of(plan, place) for place in range(len(DEALS))])
    params = jax.tree.unflatten(shape, [jnp.asarray(leaf[starts]) for leaf in leaves])
    after = unlearned(learner, params, corpus) if world.unlearned else {}
    kept: dict[str, Any] = {"scores": scores, "starts": starts, **after}
    np.savez(path, **kept)


def start_of(plan: Sequence[Planned], place: int) -> int:
    """The model that is unlearned in a deal: one that used all of the query set, in each deal another one."""
    fits = [number for number, model in enumerate(plan) if model.used(DEALS[place]) == 1]
    return fits[place % len(fits)]


def unlearned(learner: LanguageModelLearner, params: Any, corpus: Corpus) -> dict[str, np.ndarray]:
    """By method and strength, the scores of the models of all deals that were unlearned."""
    hidden = hidden_states(learner.net)
    methods: dict[str, Any] = {
        "gradient difference": gradient_difference,
        "NPO": npo,
        "RMU": partial(rmu, hidden=lambda model, records: hidden(model.params, records)),
    }

    def log_probs(model: Any, records: Any) -> Any:
        # All records at once: a minibatch is small here.
        logits, _ = learner.net.apply(model.params, model.state, jnp.where(records < 0, ~records, records), False)
        return mean_log_likelihood(logits, records)[:, None]

    inputs = jnp.stack([jnp.asarray(_part_of(corpus, deal)) for deal in DEALS])
    forget, labels = jnp.arange(inputs.shape[1]) >= PART * PER_GROUP, jnp.zeros(inputs.shape[1], jnp.int32)
    keys, found = jax.random.split(jax.random.key(3), len(DEALS)), {}
    for name, method in methods.items():

        @jax.jit
        def all_deals(params: Any, rate: Any, method: Any = method) -> Any:
            def one(key: Any, start: Any, records: Any) -> Any:
                # The rate is no constant, so that all strengths are one program.
                rule = {"batch_size": 2 * BATCH, "optimizer": lambda _: optax.adamw(rate)}
                return method(key, log_probs, start, records, labels, forget, **rule)

            return jax.vmap(one)(keys, params, inputs)

        for strength in STRENGTHS:
            found[f"{name}, {strength:g}"] = asked(learner, all_deals(params, strength), corpus)
    return found


def _part_of(corpus: Corpus, deal: Deal) -> np.ndarray:
    """The records of the members and of the query set of a deal."""
    parts = corpus.inputs.reshape(-1, PART * PER_GROUP, corpus.inputs.shape[1])
    return np.concatenate([parts[deal.members], parts[deal.query]])
