"""Runs `jaxaudit shadows train`: plans a bank and trains its models, or the missing ones."""

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Int

from jaxaudit.audits.ks.bank import train_bank
from jaxaudit.cli.networks import EPOCHS, HIDDEN, make_shadow_learner, time_of
from jaxaudit.cli.options import (
    MODEL,
    TRAINING,
    ModelSource,
    command_line,
    fields_of,
    refuse_without_effect,
    with_usual,
)
from jaxaudit.cli.own_code import OF_TEXTS, model_hash, parse_judged
from jaxaudit.cli.parsers import is_of_sklearn
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import tell_of_large_numbers, with_groups_of_sets
from jaxaudit.cli.recipe import load_estimator, refuse_other_network
from jaxaudit.cli.shadows import TrainOptions
from jaxaudit.cli.shadows.plan import (
    bank_arrays,
    bank_description,
    bank_there,
    lay,
    number_of_models,
    read_bank_sets,
    refuse_other,
)
from jaxaudit.cli.shared_options import named_sets
from jaxaudit.cli.show import Job, Summary
from jaxaudit.data import Examples, is_image
from jaxaudit.data.bank.bank import MEMBERSHIP, Bank, finished_in, load_bank
from jaxaudit.data.bank.description import Description
from jaxaudit.data.examples import gaps_of
from jaxaudit.data.sequences import are_texts
from jaxaudit.data.table import as_indices, columns_as_read
from jaxaudit.ensemble import Execution, StepCost, count_step, form_of, usual_models_per_batch
from jaxaudit.ensemble.train import whole_fits_per_batch
from jaxaudit.errors import InputError, few
from jaxaudit.learners import EstimatorLearner, Learner, SteppedLearner
from jaxaudit.learners.estimator import has_encoder
from jaxaudit.runs.unfinished import working_in

COMMAND = "shadows train"
PACKAGES = ("jaxaudit", "jax", "jaxlib", "flax", "optax", "numpy", "scikit-learn")


def prepare(options: TrainOptions) -> Job[Bank]:
    """Draws the training sets, or those of further models, and returns the work: to train all missing models."""
    options = with_groups_of_sets(options, named_sets(options))
    key = jax.random.key(options.seed)
    sets = read_bank_sets(key, options)
    query, parts = sets.parts[0], [examples.inputs for examples in sets.parts]
    columns, gaps = columns_as_read(sets.parts), gaps_of(sets.parts)
    estimator, inputs = _estimator(options, query), np.concatenate(parts)
    if estimator and columns and has_encoder(estimator.prototype):
        say(f"{estimator.kind} encodes its columns, and gets the {len(columns)} of the table as they are")
        estimator, inputs = replace(estimator, columns=columns), as_indices(inputs, columns)
    if estimator and gaps:
        say(f"{estimator.kind} gets NaN for empty cells in {few(map(repr, gaps))}")
        estimator = replace(estimator, gaps=gaps)
    elif gaps:
        raise InputError(
            f"columns {few(map(repr, gaps))} have empty cells, from which no network learns: train a pipeline of "
            "scikit-learn with an imputer (--model FILE.py:make), leave these columns out (--drop), or, with pandas, "
            "rows (frame.dropna())."
        )
    source = ModelSource.ESTIMATOR if estimator else options.source
    options = options if estimator else _filled(options, query)
    tell_of_large_numbers(None if estimator else options.model, parts)
    learner = estimator or make_shadow_learner(options, query, len(inputs))
    out = options.bank or Path()
    earlier = bank_there(out)
    done = finished_in(out, 0 if earlier is None else earlier.models)
    number, cost = _models_per_batch(options.models_per_batch, earlier, done), None
    if isinstance(learner, SteppedLearner):
        cost = count_step(learner, query.inputs, query.labels)
        number = number or usual_models_per_batch(learner, cost)
    number = number or whole_fits_per_batch(learner)
    options = replace(options, models=number_of_models(options.models, earlier, sets), models_per_batch=number)
    device = jax.local_devices()[0]
    outputs = "log-likelihood" if are_texts(query) else "probabilities" if estimator else "logits"
    description = bank_description(
        options,
        outputs,
        sets,
        command_line(COMMAND, options),
        recipe=_in_words(options, source),
        models_per_batch=number,
        form=form_of(learner),
        device=_and(earlier and earlier.device, f"{device.platform}: {device.device_kind}"),
        versions={name: _and(earlier and earlier.versions.get(name), version(name)) for name in PACKAGES},
    )
    arrays = bank_arrays(key, sets, description, options.coins)
    if earlier is not None:
        refuse_other(out, earlier, description)
    missing = np.setdiff1d(np.arange(description.models), done)
    for line in _estimate(description, arrays[MEMBERSHIP][missing].sum(axis=1), learner, cost):
        say(line)

    def train(execution: Execution) -> Bank:
        lay(out, arrays, earlier, description)
        bank = load_bank(out)
        with working_in(out):
            train_bank(key, bank, inputs, learner, bank.missing().tolist(), execution=execution)
            if lost := len(bank.missing()):
                raise InputError(
                    f"workers trained {lost} models, and their outputs are not in {bank.directory.name}: --out "
                    "must be a folder that all machines see."
                )
        return bank

    return Job(
        options=options,
        audit=train,
        outcome=lambda bank: Summary(
            (f"{out}: {len(bank)} shadow models trained.", f"What it can answer: jaxaudit shadows show {out}")
        ),
        models=lambda _: len(missing),
        kept=lambda: f"{len(finished_in(out, description.models))} of {description.models} models are trained",
    )


def _models_per_batch(requested: int | None, earlier: Description | None, done: Int[np.ndarray, " done"]) -> int | None:
    """The number of models per batch that the bank records, if any of its models is trained; None if unknown."""
    earlier_number = None if earlier is None else earlier.models_per_batch
    if earlier_number is None or not len(done):
        return requested or earlier_number
    if requested not in (None, earlier_number):
        raise InputError(
            f"--recipe models-per-batch={requested}: models of this bank were trained {earlier_number} at a time, and "
            "in batches of another size they would differ by rounding; leave it out."
        )
    return earlier_number


def _and(earlier: str | None, current: str) -> str:
    """The distinct devices, or versions, with which the models of a bank are trained."""
    return ", ".join(dict.fromkeys([*(earlier.split(", ") if earlier else []), current]))


def _filled(options: TrainOptions, query: Examples) -> TrainOptions:
    if not are_texts(query):
        usual = {"model": "liu-cnn" if is_image(query) else "mlp", "hidden": HIDDEN}
    else:
        usual = {"model": OF_TEXTS, "tokens": "bytes" if options.lora is None else None}
    return with_usual(options, **usual, epochs=EPOCHS)


def _estimator(options: TrainOptions, query: Examples) -> EstimatorLearner | None:
    """The learner of the estimator that the options name; None if they name none."""
    name = options.model
    if name is None or parse_judged(name) is None:
        return None
    if are_texts(query):
        if is_of_sklearn(name):
            refuse_other_network(name, of_texts=False, texts=True)
        return None
    learner = load_estimator(name, options.parameters, len(query.class_names))
    if learner is not None:
        refuse_without_effect(options, ModelSource.ESTIMATOR)
    return learner


def _in_words(options: TrainOptions, source: ModelSource) -> str:
    """The recipe in words: every option of the models and their training, and hashes of your own code."""
    source_hash = model_hash(options)
    facts = [
        f"{field.flag.removeprefix('--').removeprefix('recipe ').replace('-', ' ')} "
        + (" ".join(map(str, field.value)) if isinstance(field.value, tuple) else str(field.value))
        for field in fields_of(options)
        if field.declared.panel in (MODEL, TRAINING)
        and source in field.of
        and field.declared.decides
        and field.value not in (None, ())
        and field.name != "models_per_batch"
    ]
    return ", ".join([*facts, *([f"source of model {source_hash}"] if source_hash else [])])


def _estimate(
    description: Description,
    members: Int[np.ndarray, " missing"],
    learner: Learner,
    cost: StepCost | None,
) -> tuple[str, ...]:
    models = len(members)
    outputs = 4 * description.records * description.classes
    steps, time = "", "as long as its learner takes"
    if cost is not None and isinstance(learner, SteppedLearner) and models:
        counts = learner.epochs * -(-members // learner.batch_size)
        operations = counts.sum() * cost.step + models * description.records * cost.record
        steps = f": {counts.mean():,.0f} steps of {learner.batch_size} records"
        time = time_of(operations, cost)
    done = description.models - models
    have = f", {done} of them trained" if done else ""
    training_text = f" on {members.mean():,.0f} records each{steps}" if models else ""
    return (
        f"{description.models} shadow models{have}; {models} to train{training_text}",
        f"{time}, {models * outputs / 2**20:,.0f} MiB of disk for outputs",
    )
