"""Runs `jaxaudit unlearn`: from its options to its result.

With `--outputs METHOD=FILE.npz` that is from files of outputs, with no training.
"""

import hashlib
import inspect
from collections.abc import Mapping
from functools import partial
from itertools import count as count_from
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxaudit.audits.unlearn.against_retrained import threshold_of
from jaxaudit.audits.unlearn.audit import compare_unlearning
from jaxaudit.audits.unlearn.given_models import (
    RETRAINED,
    GivenModels,
    Labels,
    check_name,
    labels_by_part,
    read_models_of,
)
from jaxaudit.audits.unlearn.outputs_result import UnlearnOutputsAudit
from jaxaudit.audits.unlearn.result import AMNESIAC, ORIGINAL, UNTRAINED, UnlearnAudit
from jaxaudit.audits.unlearn.score_outputs import score_unlearning
from jaxaudit.cli.options import with_usual
from jaxaudit.cli.own_code import OF_TEXTS, UNSEEDED, is_of_texts, parse_model
from jaxaudit.cli.parsers import is_texts, parse_hidden, parse_names, parse_outputs
from jaxaudit.cli.progress import say
from jaxaudit.cli.recipe import make_factory, make_learner, refuse_other_network
from jaxaudit.cli.show import Job, Outcome
from jaxaudit.cli.unlearn import METHODS, USUAL, USUAL_OF_TEXTS, UnlearnOptions
from jaxaudit.cli.unlearn.inputs import Parts, check_kind, fields_of_methods, make_methods, read_unlearn_sets
from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.formats.parsing import refuse_pickle
from jaxaudit.data.paths import exists
from jaxaudit.data.sequences import vocabulary_of
from jaxaudit.data.weights import safetensors_bytes
from jaxaudit.ensemble import Execution, count_step, usual_models_per_batch
from jaxaudit.errors import InputError
from jaxaudit.learners import NetworkLearner
from jaxaudit.metrics.over_models import least_p_value
from jaxaudit.models.restore import name_weights
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.directory import arrays
from jaxaudit.runs.provenance import describe_examples
from jaxaudit.unlearning import Unlearn

NETWORK, HIDDEN, SEEDS, ATTACK_EPOCHS = "mlp", "512,256,128", 20, 100
DEMO_DATA, DEMO_CLASS, DEMO_HIDDEN, DEMO_SEEDS, DEMO_ATTACK_EPOCHS = "digits", "3", "128,64", 10, 20
"""Defaults without --data."""


def _tell_of_few(seeds: int, of_texts: bool) -> None:
    """Prints on stderr, before any work, that so many seeds cannot show a difference."""
    threshold = threshold_of(of_texts)
    if least_p_value(seeds) > threshold:
        enough = next(count for count in count_from(seeds) if least_p_value(count) <= threshold)
        say(
            f"--seeds {seeds}: too few to tell any method from retraining, whatever the models do; {enough} are the "
            "fewest that can"
        )


def prepare(options: UnlearnOptions) -> Job[UnlearnAudit]:
    """The work for these options."""
    check_kind(options)
    options = _filled(options)
    audit_flags, recipe, network = options.audit, options.recipe, options.model.model or NETWORK
    # Checks that need no data come first.
    names = parse_names(audit_flags.methods or "", METHODS, "--methods")
    method_fields = fields_of_methods(names, audit_flags.method_option)
    of_texts = is_texts(options.data.data or "")
    if parse_model(network) is None:
        refuse_other_network(network, is_of_texts(network), of_texts)
    factory = make_factory(network, parse_hidden(options.model.hidden or ""), recipe.dropout)
    parts = read_unlearn_sets(options)
    train, test, seeds = parts.train, parts.test, audit_flags.seeds or SEEDS
    classes = vocabulary_of(train) or len(train.class_names)
    learner = make_learner(factory, recipe, train.inputs.shape[1:], classes, len(train), of_texts)
    methods = make_methods(method_fields, recipe.batch_size, learner.net)
    options = with_usual(
        options, models_per_batch=usual_models_per_batch(learner, count_step(learner, train.inputs, train.labels))
    )
    _tell_of_few(seeds, of_texts)
    key = jax.random.key(audit_flags.seed)

    def audit(execution: Execution) -> UnlearnAudit:
        return compare_unlearning(
            key,
            train,
            test,
            learner,
            parts.forget,
            amnesiac=AMNESIAC in names,
            methods=methods,
            seeds=seeds,
            nonmembers=audit_flags.nonmembers,
            attack_epochs=audit_flags.attack_epochs or ATTACK_EPOCHS,
            forgotten=parts.forgotten,
            other_answers=parts.answers,
            notes=_notes(parts, learner, methods, method_fields),
            execution=execution,
        )

    def outcome(audit: UnlearnAudit, provenance: Provenance) -> Outcome:
        forgotten = {"x": train.inputs[parts.forget], "y": train.labels[parts.forget]}
        files = {"forget.npz": arrays({**forgotten, "class_names": np.array(train.class_names)})}
        for name in (name_of_method for name_of_method in audit.models if name_of_method != UNTRAINED):
            for seed in range(audit.result.protocol.seeds):
                files[f"{name}-{seed:02d}.safetensors"] = partial(_write_weights, audit, name, seed)
        return Outcome(recorded("unlearn", audit.result, audit.sources, provenance), {}, files)

    attacks = f" and {seeds} attack networks" if audit_flags.nonmembers != 0 and not of_texts else ""
    return Job(
        options=options,
        data={"train": describe_examples(train), "test": describe_examples(test)},
        hashes={
            "training set": train.content_hash,
            "test set": test.content_hash,
            "forgotten": _digest(np.packbits(parts.forget).tobytes()),
            **({} if parts.answers is None else {"other answers": _digest(np.ascontiguousarray(parts.answers).data)}),
        },
        audit=audit,
        outcome=outcome,
        models=lambda _: 2 * seeds,
        line=f"unlearning {parts.forgotten} among {len(train):,}{attacks}, {network} on {jax.default_backend()}",
        label="unlearning",
    )


def _filled(options: UnlearnOptions) -> UnlearnOptions:
    demo, of_texts = options.data.data is None, is_texts(options.data.data or "")
    if demo:
        options = with_usual(options, data=DEMO_DATA, class_name=DEMO_CLASS)
    return with_usual(
        options,
        model=OF_TEXTS if of_texts else NETWORK,
        hidden=DEMO_HIDDEN if demo else HIDDEN,
        methods=",".join(USUAL_OF_TEXTS if of_texts else USUAL),
        seeds=DEMO_SEEDS if demo else SEEDS,
        attack_epochs=DEMO_ATTACK_EPOCHS if demo else ATTACK_EPOCHS,
    )


def _notes(
    parts: Parts, learner: NetworkLearner, methods: Mapping[str, Unlearn], method_fields: Mapping[str, Any]
) -> tuple[str, ...]:
    notes = [f"Trained on {parts.described}, tested on {parts.test.name} ({len(parts.test):,} records).", *parts.notes]
    fisher, ssd = method_fields.get("fisher"), method_fields.get("ssd")
    if fisher is not None:
        notes.append(
            f"fisher: {fisher.variant} noise of strength alpha {fisher.alpha:g}. If the noise is too weak, nothing is "
            "forgotten; if it is too strong, everything is."
        )
    settings = {name: inspect.signature(method).parameters for name, method in methods.items()}
    trained_on = {name: parameters for name, parameters in settings.items() if "epochs" in parameters}
    if trained_on:
        epochs = max(parameters["epochs"].default for parameters in trained_on.values())
        rates = [f"{parameters['learning_rate'].default:g}" for parameters in trained_on.values()]
        notes.append(
            f"{', '.join(trained_on)}: {epochs:,} epochs, learning rate {', '.join(rates)}. "
            "They were not tuned to your data, and what a method forgets depends on them (--method-option)."
        )
    if ssd is not None and ssd.selection * parts.forget.sum() >= len(parts.train):
        notes.append(
            f"ssd: nothing changes, because Fisher information of {int(parts.forget.sum()):,} of "
            f"{len(parts.train):,} records cannot be {ssd.selection:g} times that of all; give a smaller "
            "ssd.selection (--method-option)."
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


def _write_weights(audit: UnlearnAudit, name: str, seed: int, file: IO[bytes]) -> None:
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf[seed]), audit.models[name].params)
    file.write(safetensors_bytes(name_weights(model.params, model.state)))


def _digest(values: Any) -> str:
    return hashlib.blake2b(values, digest_size=16).hexdigest()


KIND = "unlearn_outputs"


def prepare_given(options: UnlearnOptions) -> Job[UnlearnOutputsAudit]:
    """The work for these options."""
    files, audit_flags = options.files, options.audit
    paths = dict(map(parse_outputs, files.outputs))
    for name in paths.keys() - {RETRAINED, ORIGINAL}:
        check_name(name)
    labels = _read_labels(files.labels or Path())
    sides = {name: read_models_of(name, _read_arrays(path), labels, files.outputs_kind) for name, path in paths.items()}
    data = {name: _described(paths[name], side) for name, side in sides.items()}
    retrained, original = sides.pop(RETRAINED), sides.get(ORIGINAL)
    methods = {name: side for name, side in sides.items() if name != ORIGINAL}

    def audit(execution: Execution) -> UnlearnOutputsAudit:
        return score_unlearning(
            jax.random.key(audit_flags.seed), methods, retrained, original=original, execution=execution
        )

    def outcome(audit: UnlearnOutputsAudit, provenance: Provenance) -> Outcome:
        return Outcome(recorded(KIND, audit.result, audit.sources, provenance), {}, {}, kind=KIND)

    return Job(options=options, data=data, audit=audit, outcome=outcome, label="comparing")


def _read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of an .npz by name; rows of uncompressed ones are read when they are needed."""
    refuse_pickle(path)
    if not (exists(path) and path.is_file()):
        raise InputError(f"{path}: there is no such file; is the path right?")
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: outputs of several models are read from .npz files; save them with np.savez.")
    archive = NpzArrays(path, opened=True)
    return {name: archive.open(name) for name in archive.names}


def _read_labels(path: Path) -> Labels:
    """The labels in an .npz by set, or in a .npy of the records to forget."""
    if path.suffix.lower() == ".npy" and exists(path) and path.is_file():
        return labels_by_part(read_npy(path))
    return labels_by_part(_read_arrays(path))


def _described(path: Path, side: GivenModels) -> dict[str, Any]:
    return {
        "name": path.name,
        "models": len(side),
        "records": side.log_odds.shape[1],
        "classes": side.classes,
        "outputs": f"{side.kind}, {side.dtype}",
        "content_hash": side.content_hash,
    }
