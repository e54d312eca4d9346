"""The `unlearn` audit, end to end: train, forget by every method, judge each beside retrained models."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from jaxaudit.attacks.learned import BATCH_SIZE, EPOCHS
from jaxaudit.audits.kept_params import flat_params, params_of
from jaxaudit.audits.unlearn_checks import check_like, check_unlearn
from jaxaudit.audits.unlearn_judge import Attacker, Judged, as_scores, look_at, score
from jaxaudit.audits.unlearn_result import (
    AMNESIAC,
    COMPARED,
    ORIGINAL,
    RETRAINING,
    UNTRAINED,
    MethodResult,
    Scores,
    UnlearnAudit,
)
from jaxaudit.data.examples import Examples
from jaxaudit.ensemble import Progress, fit_many
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner, NetworkLearner, NetworkParams
from jaxaudit.learners.walk import init_key
from jaxaudit.metrics.retrained_band import place
from jaxaudit.unlearning import Recording, Unlearn, retrain, train_and_record


def audit_unlearn(
    key: Key[Array, ""],
    train: Examples,
    test: Examples,
    learner: Learner,
    forget: Bool[np.ndarray, "sets n"],
    *,
    amnesiac: bool = True,
    methods: Mapping[str, Unlearn] | None = None,
    seeds: int = 20,
    nonmembers: int | None = None,
    attack_epochs: int = EPOCHS,
    level: float = 0.95,
    width: int | None = None,
    progress: Progress | None = None,
    checkpoints: Path | None = None,
) -> UnlearnAudit:
    """How well does each method make models forget these records? Becker & Liebig (2022), section 4.

    For every seed trains a model on all of `train` and, for every set to forget, the same model without that set; every
    method then takes the trained models and gives them back without. All are judged alike, and each method's scores
    are placed among those of the retrained models, which is what forgetting should look like: a model that exposes
    less, or is attacked with less success, than a retrained one has been made to stand out.

    Memory on the host: `seeds * sets * (methods + 1)` models.

    Args:
        key: random key; everything follows from it.
        train: the training set, as the learner wants it.
        test: records of the same classes that were never trained on.
        learner: the network and its recipe, from `network`.
        forget: sets of training records to forget, each judged for itself: a row a set.
        amnesiac: whether amnesiac unlearning is judged.
        methods: further methods by name, each a pure function of the trained model (see `Unlearn`), for example
            `{"fisher": partial(forget_by_noise, noise=golatkar)}`.
        seeds: models of each kind; too few can tell nothing, see `UnlearnAudit.enough_seeds`.
        nonmembers: test records that attack networks learn from, drawn once; by default as many as there are training
            records, or all. 0 leaves the attack out, and its scores are NaN.
        attack_epochs: walks of an attack network through its records; 100 in the toolbox the paper used.
        level: the confidence at which a method is said to differ from retraining, over all its scores and sets.
        width: models trained side by side (chosen by measurement when None).
        progress: called as work is done, in thousandths of it.
        checkpoints: a directory to keep what is finished in, every trained model included, which a later call with
            the same arguments takes up; see `fit_many`. The same `learner` is the caller's word.

    Raises:
        InputError: a set is empty or everything, shapes disagree, a label is no output of the learner, a method's name
            is taken or its parameters fit no model, amnesiac unlearning of a network with batch normalisation, or a
            number out of range.
    """
    methods = dict(methods or {})
    if not isinstance(learner, NetworkLearner):
        raise InputError(
            f"unlearning is judged on networks, and a {type(learner).__name__} is none: make the learner with "
            "`network`."
        )
    check_unlearn(train, test, learner, forget, methods, seeds, nonmembers, attack_epochs, level)
    keys = jax.random.split(jax.random.fold_in(key, 0), seeds)
    inputs, labels = np.asarray(train.inputs, np.float32), train.labels
    sets, names = len(forget), [RETRAINING, *([AMNESIAC] if amnesiac else []), *methods]
    count = min(len(train), len(test)) if nonmembers is None else nonmembers
    share = _Share(progress, learner, len(train), count, attack_epochs, seeds, sets, names)
    how: dict[str, Any] = {"width": width, "checkpoints": checkpoints}
    if checkpoints is not None:
        how["then"] = flat_params
    # Originals are the very models that amnesiac unlearning starts from.
    train_originals = partial(train_and_record, forget=forget) if amnesiac else _train_all
    kind = Recording(learner, sets) if amnesiac else learner
    originals = train_originals(keys, inputs=inputs, labels=labels, learner=learner, progress=share.of("train"), **how)
    originals = params_of(kind, originals) if checkpoints is not None else originals
    removed = np.repeat(forget, seeds, axis=0)
    again = retrain(jnp.tile(keys, sets), removed, inputs, labels, learner, progress=share.of("retrain"), **how)
    again = params_of(learner, again) if checkpoints is not None else again
    params: dict[str, Any] = {
        UNTRAINED: jax.tree.map(_on_host, _untrained(learner, keys)),
        ORIGINAL: originals.original if amnesiac else originals,
        RETRAINING: jax.tree.map(lambda leaf: leaf.reshape(sets, seeds, *leaf.shape[1:]), again),
    }
    if amnesiac:
        params[AMNESIAC] = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), originals.amnesiac)
    for index, (name, method) in enumerate(methods.items()):
        noise = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 1), index), (sets, seeds))
        params[name] = _unlearned(name, method, learner, noise, params[ORIGINAL], inputs, labels, forget)

    generator = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(key, 3))))
    chosen = np.sort(generator.choice(len(test), count, replace=False))
    attacker = Attacker(jax.random.split(jax.random.fold_in(key, 2), seeds), chosen, attack_epochs) if count else None

    def judge(name: str, models: Any, members: np.ndarray, part: str) -> Judged:
        return look_at(
            learner, models, train, test, members, None if name == UNTRAINED else attacker, share.of(part), checkpoints
        )

    scores: dict[str, Scores] = {}
    everything = np.ones(len(train), bool)
    for name, models in params.items():
        rows = []
        once = judge(name, models, everything, name) if name in (UNTRAINED, ORIGINAL) else None
        for index, row in enumerate(forget):
            of_set = models if once is not None else jax.tree.map(lambda leaf, i=index: leaf[i], models)
            seen = judge(name, of_set, ~row, f"{name} {index}") if once is None else once
            rows.append(score(learner, of_set, seen, train, row, name))
        scores[name] = as_scores(rows)
    share.finished()
    return UnlearnAudit(
        methods=tuple(
            MethodResult(name, scores[name], _places(name, scores[name], scores[RETRAINING]), params[name])
            for name in params
        ),
        forget=forget,
        forgotten=forget.sum(axis=1),
        seeds=seeds,
        examples=len(train),
        test_examples=len(test),
        nonmembers=count,
        members_share=len(train) / (len(train) + count),
        level=level,
        width=width,
    )


def _train_all(keys: Any, inputs: Any, labels: Any, learner: Any, **how: Any) -> Any:
    return fit_many(keys, np.ones((len(keys), len(labels)), bool), inputs, labels, learner, **how)


@partial(jax.jit, static_argnames="learner")
def _untrained(learner: NetworkLearner, keys: Key[Array, " seeds"]) -> Any:
    return jax.vmap(lambda key: learner.finish(learner.init(init_key(key))))(keys)


def _on_host(leaf: Any) -> Any:
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)


def _unlearned(
    name: str,
    method: Unlearn,
    learner: NetworkLearner,
    keys: Key[Array, "sets seeds"],
    originals: NetworkParams,
    inputs: np.ndarray,
    labels: np.ndarray,
    forget: np.ndarray,
) -> NetworkParams:
    """The method's models: one at a time on a CPU, all of a set at once elsewhere."""
    records = jnp.asarray(inputs), jnp.asarray(labels)

    def one(key: Any, model: NetworkParams, row: Any) -> NetworkParams:
        def log_probs(params: Any, inputs: Any) -> Any:
            return learner.log_probs(NetworkParams(params, model.state), inputs)

        new = method(key, log_probs, model.params, *records, row)
        check_like(name, model.params, new)
        return NetworkParams(new, model.state)

    def of_set(keys: Any, row: Any) -> Any:
        if jax.default_backend() != "cpu":
            return jax.tree.map(_on_host, at_once(keys, originals, row))
        models = [alone(key, jax.tree.map(lambda leaf, m=m: leaf[m], originals), row) for m, key in enumerate(keys)]
        return jax.tree.map(lambda *leaves: _stacked(leaves), *models)

    alone, at_once = jax.jit(one), jax.jit(jax.vmap(one, in_axes=(0, 0, None)))
    rows = [of_set(keys[index], jnp.asarray(row)) for index, row in enumerate(forget)]
    return jax.tree.map(lambda *leaves: _stacked(leaves), *rows)


def _stacked(leaves: tuple[Any, ...]) -> Any:
    is_key = jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key)
    return jnp.stack(leaves) if is_key else np.stack([np.asarray(leaf) for leaf in leaves])


def _places(name: str, scores: Scores, retrained: Scores) -> dict[str, Any]:
    if name == RETRAINING:
        return {}
    columns = {field: (getattr(scores, field), getattr(retrained, field)) for field in COMPARED}
    return {
        field: tuple(place(mine, theirs) for mine, theirs in zip(*both, strict=True))
        for field, both in columns.items()
        if not np.isnan(both).any()
    }


class _Share:
    """Progress of the parts of an audit, in thousandths, each counted by a guess of its work."""

    def __init__(
        self,
        progress: Progress | None,
        learner: NetworkLearner,
        examples: int,
        nonmembers: int,
        attack_epochs: int,
        seeds: int,
        sets: int,
        names: list[str],
    ) -> None:
        steps = learner.epochs * -(-examples // learner.batch_size) * seeds
        attack = attack_epochs * -(-(examples + nonmembers) // BATCH_SIZE) * seeds if nonmembers else 0
        work = {"train": steps * (1.5 if AMNESIAC in names else 1.0), "retrain": steps * sets}
        work |= {UNTRAINED: 1.0, ORIGINAL: attack + 1.0}
        work |= {f"{name} {index}": attack + 1.0 for name in names for index in range(sets)}
        total, before = sum(work.values()), 0.0
        self.progress, self.spans = progress, {}
        for part, size in work.items():
            self.spans[part] = before / total, size / total
            before += size

    def of(self, part: str) -> Progress | None:
        """What a part calls as it goes on."""
        progress, (start, size) = self.progress, self.spans[part]
        if progress is None:
            return None
        return lambda done, total: progress(int(1000 * (start + size * min(done / max(total, 1), 1))), 1000)

    def finished(self) -> None:
        if self.progress is not None:
            self.progress(1000, 1000)
