"""Runs `jaxaudit unlearn`: from its options to its result."""

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxaudit.audits.unlearn.audit import compare_unlearning
from jaxaudit.audits.unlearn.result import AMNESIAC, RETRAINING, UNTRAINED, UnlearnAudit
from jaxaudit.cli.harness import Job, Outcome
from jaxaudit.cli.own_model import OF_TEXTS, UNSEEDED, is_of_texts, parse_model
from jaxaudit.cli.parsers import is_texts, parse_hidden, parse_names
from jaxaudit.cli.recipe import make_factory, make_learner
from jaxaudit.cli.unlearn.command import METHODS, USUAL, USUAL_OF_TEXTS, UnlearnOptions
from jaxaudit.cli.unlearn.inputs import Parts, check_kind, make_methods, read_parts
from jaxaudit.data.sequences import vocabulary_of
from jaxaudit.data.weights.weights import safetensors_bytes
from jaxaudit.ensemble import Execution, measure_models_per_batch
from jaxaudit.errors import InputError
from jaxaudit.learners import NetworkLearner
from jaxaudit.models.restore import name_weights
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.directory import Writer, arrays
from jaxaudit.runs.provenance import describe_examples
from jaxaudit.unlearning import Unlearn

DESIGN, HIDDEN, SEEDS, ATTACK_EPOCHS = "mlp", "512,256,128", 20, 100
DEMO_DATA, DEMO_CLASS, DEMO_HIDDEN, DEMO_SEEDS, DEMO_ATTACK_EPOCHS = "digits", "3", "128,64", 10, 20
"""Defaults without --data."""


def prepare(options: UnlearnOptions) -> Job[UnlearnAudit]:
    """The work for these options."""
    check_kind(options)
    options = _filled(options)
    asked, recipe, design = options.audit, options.recipe, options.model.model or DESIGN
    # Checks that need no data come first.
    names = parse_names(asked.methods or "", METHODS, "--methods")
    of_texts = is_texts(options.data.data or "")
    if parse_model(design) is None and of_texts is not is_of_texts(design):
        what = "records of classes, and texts have none" if of_texts else "texts, and the records are not"
        raise InputError(f"--model {design} is for {what}; use {OF_TEXTS if of_texts else DESIGN}.")
    factory = make_factory(design, parse_hidden(options.model.hidden or ""), recipe.dropout)
    parts = read_parts(options)
    train, test, seeds = parts.train, parts.test, asked.seeds or SEEDS
    classes = vocabulary_of(train) or len(train.class_names)
    learner = make_learner(factory, recipe, train.inputs.shape[1:], classes, len(train), of_texts)
    methods = make_methods(names, asked, recipe.batch_size, learner.net)
    if learner.batch_coupled and AMNESIAC in names:
        others = ",".join(name for name in names if name != AMNESIAC) or RETRAINING
        raise InputError(
            f"--methods amnesiac undoes updates of parameters, but {design} also has running statistics (batch "
            f"normalisation), which would keep the forgotten records; leave it out: --methods {others}."
        )
    key = jax.random.key(asked.seed)

    def audit(execution: Execution) -> UnlearnAudit:
        return compare_unlearning(
            key,
            train,
            test,
            learner,
            parts.forget[None],
            amnesiac=AMNESIAC in names,
            methods=methods,
            seeds=seeds,
            nonmembers=asked.nonmembers,
            attack_epochs=asked.attack_epochs or ATTACK_EPOCHS,
            level=asked.level,
            forgotten=[parts.forgotten],
            other_answers=None if parts.answers is None else [parts.answers],
            notes=_notes(options, parts, learner, methods),
            execution=execution,
        )

    def outcome(found: UnlearnAudit, provenance: Provenance) -> Outcome:
        return Outcome(recorded("unlearn", found.result, found.sources, provenance), {}, _files(found, parts))

    attacks = f" and {seeds} attack networks" if asked.nonmembers != 0 and not of_texts else ""
    return Job(
        options=options,
        data={"train": describe_examples(train), "test": describe_examples(test)},
        hashes={
            "training set": train.content_hash,
            "test set": test.content_hash,
            "forgotten": hashlib.blake2b(np.packbits(parts.forget).tobytes(), digest_size=16).hexdigest(),
            **_hash_of_answers(parts),
        },
        audit=audit,
        outcome=outcome,
        models=lambda _: 2 * seeds,
        line=f"unlearning {parts.forgotten} among {len(train):,}{attacks}, {design} on {jax.default_backend()}",
        label="unlearning",
        record_shape=train.inputs.shape[1:],
        classes=len(train.class_names),
        measure=partial(_measured, key, parts, learner, seeds),
    )


def _hash_of_answers(parts: Parts) -> dict[str, str]:
    if parts.answers is None:
        return {}
    return {"other answers": hashlib.blake2b(np.ascontiguousarray(parts.answers).data, digest_size=16).hexdigest()}


def _filled(options: UnlearnOptions) -> UnlearnOptions:
    """The options with defaults filled in."""
    demo = options.data.data is None
    data = options.data
    if demo:
        data = replace(data, data=DEMO_DATA, class_name=data.class_name or DEMO_CLASS)
    of_texts = is_texts(data.data or "")
    design = options.model.model or (OF_TEXTS if of_texts else DESIGN)
    hidden = (DEMO_HIDDEN if demo else HIDDEN) if options.model.hidden is None else options.model.hidden
    audit = replace(
        options.audit,
        methods=options.audit.methods or ",".join(USUAL_OF_TEXTS if of_texts else USUAL),
        seeds=options.audit.seeds or (DEMO_SEEDS if demo else SEEDS),
        attack_epochs=options.audit.attack_epochs or (DEMO_ATTACK_EPOCHS if demo else ATTACK_EPOCHS),
    )
    return replace(options, data=data, model=replace(options.model, model=design, hidden=hidden), audit=audit)


def _notes(
    options: UnlearnOptions, parts: Parts, learner: NetworkLearner, methods: Mapping[str, Unlearn]
) -> tuple[str, ...]:
    """Limitations of the inputs."""
    asked = options.audit
    notes = [f"Trained on {parts.described}, tested on {parts.test.name} ({len(parts.test):,} records).", *parts.notes]
    if "fisher" in methods:
        notes.append(
            f"fisher: {asked.fisher_variant} noise of strength alpha {asked.alpha:g}. If the noise is too weak, "
            "nothing is forgotten; if it is too strong, everything is."
        )
    settings = {name: inspect.signature(method).parameters for name, method in methods.items()}
    trained_on = {name: each for name, each in settings.items() if "epochs" in each}
    if trained_on:
        epochs = max(each["epochs"].default for each in trained_on.values())
        rates = [f"{each['learning_rate'].default:g}" for each in trained_on.values()]
        notes.append(
            f"{', '.join(trained_on)}: {epochs:,} epochs, learning rate {', '.join(rates)}. "
            "They were not tuned to your data, and what a method forgets depends on them (--unlearn-epochs, "
            "--unlearn-rate)."
        )
    if "ssd" in methods and asked.ssd_alpha * parts.forget.sum() >= len(parts.train):
        notes.append(
            f"ssd: nothing changes, because Fisher information of {int(parts.forget.sum()):,} of "
            f"{len(parts.train):,} records cannot be {asked.ssd_alpha:g} times that of all; give a smaller --ssd-alpha."
        )
    if learner.batch_coupled:
        notes += [
            f"{name}: running statistics of batch normalisation still contain the forgotten records."
            for name in methods
        ]
    if not learner.net.seeded:
        notes.append(f"{UNSEEDED[:1].upper()}{UNSEEDED[1:]}.")
    if learner.net.draws:
        notes.append("The network is random in training (such as dropout). It was judged in evaluation mode.")
    return tuple(notes)


def _files(audit: UnlearnAudit, parts: Parts) -> dict[str, Writer]:
    """The forgotten records, and every trained model."""
    train, forget = parts.train, parts.forget
    records = {"x": train.inputs[forget], "y": train.labels[forget], "class_names": np.array(train.class_names)}
    files: dict[str, Writer] = {"forget.npz": arrays(records)}
    for name in audit.models:
        if name != UNTRAINED:
            for seed in range(audit.result.protocol.seeds):
                files[f"{name}-{seed:02d}.safetensors"] = partial(_write_weights, audit, name, seed)
    return files


def _write_weights(audit: UnlearnAudit, name: str, seed: int, file: IO[bytes]) -> None:
    leading = () if name in (UNTRAINED, "original") else (0,)
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf[(*leading, seed)]), audit.models[name].params)
    file.write(safetensors_bytes(name_weights(model.params, model.state)))


def _measured(key: Any, parts: Parts, learner: NetworkLearner, seeds: int) -> int:
    """The number of models per batch at which retrained models train fastest, by measurement."""
    rows, train = np.tile(~parts.forget, (seeds, 1)), parts.train
    return measure_models_per_batch(
        jax.random.split(key, seeds), rows, train.inputs, train.labels, learner
    ).models_per_batch
