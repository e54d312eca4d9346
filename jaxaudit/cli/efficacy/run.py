"""Runs `jaxaudit efficacy`: from its options to its result, for classifiers, or language models from folders."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxaudit.audits.efficacy.audit import NamedWeights, measure_efficacy, measure_sequence_efficacy
from jaxaudit.audits.efficacy.result import EfficacyAudit
from jaxaudit.cli.efficacy import EfficacyOptions
from jaxaudit.cli.own_code import pretrained_config
from jaxaudit.cli.parsers import UNTRAINED, is_texts, parse_reference, parse_template
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.read_sets import label_outputs, outputs_for, read_inputs, read_told, tell_of_chats
from jaxaudit.cli.recipe import make_factory
from jaxaudit.cli.show import Job, Outcome
from jaxaudit.data import Examples, load, prepare_images
from jaxaudit.data.paths import exists, expanded
from jaxaudit.data.records import Records, must_be_opened, open_records
from jaxaudit.data.sequences import padded
from jaxaudit.data.weights import read_weights
from jaxaudit.ensemble import Execution, fit_many
from jaxaudit.errors import InputError, few, without_folders
from jaxaudit.json_types import hash_of
from jaxaudit.kernels.likelihoods import SEQUENCE
from jaxaudit.learners import network
from jaxaudit.learners.learner import init_key
from jaxaudit.metrics.efficacy import SOURCE
from jaxaudit.models import MLP, RUN_ONCE, PureModule, pure_module
from jaxaudit.models.causal import Causal, causal_model
from jaxaudit.models.language_model import LanguageModel
from jaxaudit.models.pretrained import TransformersClassifier
from jaxaudit.models.restore import load_weights, name_weights
from jaxaudit.randomness import OneKey
from jaxaudit.runs.directory import record_files
from jaxaudit.runs.provenance import describe_examples

NAMES_SHOWN = 10
RECORDS, CLASS = 1000, 3
EPOCHS, BATCH_SIZE, LEARNING_RATE = 50, 32, 0.1
"""Of the example without options."""


def prepare(options: EfficacyOptions) -> Job[EfficacyAudit]:
    """The work for these options."""
    if is_texts(options.data):
        return _of_language_model(options)
    if options.params is None and options.model is None and options.data is None:
        return _demonstration(options)
    return _of_classifier(options)


def _job(
    options: EfficacyOptions,
    judged: NamedWeights,
    references: Sequence[NamedWeights],
    examples: Examples | Records,
    audit: Callable[[], EfficacyAudit],
    config_hash: str | None = None,
) -> Job[EfficacyAudit]:
    """The work of measuring weights by `audit`; `config_hash` is of the configuration that builds the network."""
    return Job(
        options=options,
        data=describe_examples(examples),
        audit=lambda _: audit(),
        outcome=lambda audit: Outcome(audit.result, [SOURCE], files=record_files(audit.columns)),
        label="measuring",
        extra={
            "weights_hash": _hash(judged),
            "reference_hashes": {reference.name: _hash(reference) for reference in references},
            **({"model_hash": config_hash} if config_hash else {}),
        },
    )


def _demonstration(options: EfficacyOptions) -> Job[EfficacyAudit]:
    """A model trained with, and one without, half of a class of digits, by the recipe of Becker & Liebig (2022)."""
    key = jax.random.key(options.seed)
    digits = prepare_images(load("digits"), (8, 8)).take(slice(RECORDS), f"digits@train[:{RECORDS}]")
    of_class = np.flatnonzero(digits.labels == CLASS)
    forget = of_class[: len(of_class) // 2]
    rows = np.ones((2, len(digits)), bool)
    rows[1, forget] = False
    shape, classes = digits.inputs.shape[1:], len(digits.class_names)
    learner = network(MLP, shape, classes, optimizer=optax.sgd(LEARNING_RATE), epochs=EPOCHS, batch_size=BATCH_SIZE)
    say(f"training 2 mlp models on {jax.default_backend()}, {EPOCHS} epochs each: with {len(forget)} digits, without")
    with progress_on_stderr("training") as progress:
        execution = Execution(models_per_batch=1, progress=progress)
        trained = fit_many(jnp.stack([key, key]), rows, digits.inputs, digits.labels, learner, execution=execution)
    original, retrained = (jax.tree.map(lambda leaf, m=m: jnp.asarray(leaf[m]), trained) for m in (0, 1))
    references = (
        NamedWeights("retrained", *retrained),
        _untrained(learner.net, init_key(key)),
    )
    judged, examples = NamedWeights("original", *original), digits.take(forget, f"{len(forget)} of the digits {CLASS}")
    notes = ("jaxaudit trained original on all records, retrained without these, both from the weights of untrained.",)
    say(f"evaluating three models on {examples.name}")
    audit = partial(measure_efficacy, learner.net, judged, examples, references=references, notes=notes)
    return _job(options, judged, references, examples, audit)


def _untrained(net: PureModule, key: OneKey) -> NamedWeights:
    """The initial weights of a network."""
    return NamedWeights(UNTRAINED, *jax.jit(net.init, compiler_options=RUN_ONCE)(key))


def _of_classifier(options: EfficacyOptions) -> Job[EfficacyAudit]:
    config = pretrained_config(options.model)
    params = options.params or (config if config and config.is_dir() else None)
    assert params is not None, "the command refuses what lacks one of the three"
    assert options.model is not None
    pretrained = TransformersClassifier(config) if config else None
    sources = [parse_reference(text) for text in options.reference]
    paths = [params, *(path for _, path in sources if path)]
    weights = {path: read_weights(path) for path in paths}
    outputs = pretrained.classes if pretrained and options.classes is None else options.classes
    examples = _read(options, outputs)
    if isinstance(examples, Examples):
        classes, fields, notes = len(examples.class_names), None, outputs_note(examples)
    else:
        classes, fields, notes = outputs or _outputs_of(examples), examples.fields, []
    factory = pretrained or make_factory(options.model, options.hidden)
    net = pure_module(factory, examples.inputs.shape[1:], classes, fields)
    if pretrained:
        notes.append(f"The network is {pretrained}, built from its configuration with eager attention.")
        for path in paths:
            source = without_folders(str(path))
            kinds = {array.dtype for array in weights[path].values()}
            halved = sorted(str(kind) for kind in kinds if kind.itemsize < 4 and kind.kind in "fV")
            notes += [f"{source}: converted from {', '.join(halved)} to float32"] if halved else []
            weights[path] = pretrained.as_named_here(weights[path], source)

    def restore(name: str, path: Path) -> NamedWeights:
        restored = load_weights(net, weights[path], without_folders(str(path)), options.model or "")
        notes.extend(restored.notes)
        return NamedWeights(name, restored.params, restored.state)

    judged = restore(params.resolve().name, params)
    references = [
        restore(name, path) if path else _untrained(net, jax.random.key(options.seed)) for name, path in sources
    ]
    if any(path is None for _, path in sources):
        notes.append(
            "untrained: new initial weights from this seed, not those that the model started from."
            if net.seeded
            else "untrained: the initial weights that the network is built with, whatever the seed."
        )
    audit = partial(measure_efficacy, net, judged, examples, references=references, notes=tuple(notes))
    return _job(options, judged, references, examples, audit, pretrained and pretrained.content_hash)


def _read(options: EfficacyOptions, outputs: int | None) -> Examples | Records:
    """The records: read into memory or, if possible or necessary, opened on disk."""
    name = options.data or ""
    path = expanded(name)
    opened = open_records(path) if exists(path) and must_be_opened(path) else None
    return opened or label_outputs(read_inputs(name, options), outputs)


def _outputs_of(records: Records) -> int:
    """The least number of outputs of a network with these labels."""
    if records.labels.dtype.kind not in "iu" or records.labels.ndim != 1 or records.labels.min() < 0:
        raise InputError(
            f"{records.name}: labels of type {records.labels.dtype} and shape {records.labels.shape} are no classes; "
            "give one whole number for each record, from 0."
        )
    return outputs_for(int(records.labels.max()), records.name)


def outputs_note(examples: Examples) -> list[str]:
    """A note on which output each class is assigned to, unless the class names show it.

    >>> outputs_note(Examples(np.zeros((2, 1)), np.array([0, 1]), ("cat", "dog"), "pets"))
    ['Assumed order of the network outputs, from 0: cat, dog.']
    >>> outputs_note(Examples(np.zeros((1, 1)), np.array([1]), ("0", "1"), "numbers"))
    []
    """
    names = examples.class_names
    if names == tuple(map(str, range(len(names)))):
        return []
    return [f"Assumed order of the network outputs, from 0: {few(names, NAMES_SHOWN)}."]


def _hash(named_weights: NamedWeights) -> str:
    weights = name_weights(named_weights.params, named_weights.state)

    def contents() -> Iterator[bytes]:
        for name in sorted(weights):
            yield f"{name}\0{weights[name].dtype}{weights[name].shape}\0".encode()
            yield np.ascontiguousarray(weights[name]).tobytes()

    return hash_of(contents())


def _of_language_model(options: EfficacyOptions) -> Job[EfficacyAudit]:
    folder = pretrained_config(options.model)
    if folder is None or folder.suffix == ".json" or options.params is not None:
        raise InputError(
            f"--data {options.data}: texts need a causal language model of transformers; name the folder with its "
            "weights and its tokenizer (--model), and leave out --params."
        )
    sources = [parse_reference(text) for text in options.reference]
    if any(path is None for _, path in sources):
        raise InputError("--reference untrained is of other networks; give a language model's as NAME=FOLDER.")
    texts, tokenizer = read_told(options.data or ""), LanguageModel(folder, "float32")
    template = options.template and parse_template(options.template)
    for note in tokenizer.notes:
        say(note)
    tell_of_chats([texts], template, [tokenizer])
    (examples,) = padded([texts], [tokenizer.encode_texts(texts, template)], tokenizer.end, tokenizer.positions)
    say(f"reading {len(sources) + 1} language model{'s' if sources else ''}")
    judged = causal_model(folder)
    references: list[NamedWeights] = []
    for name, path in sources:
        assert path is not None
        reference = causal_model(path)
        if reference.model.network != judged.model.network:
            raise InputError(
                f"--reference {name}: its config.json or its tokenizer is not that of {judged.model.name}; weights are "
                "compared in one network."
            )
        references.append(_named(name, reference))
    judged_weights = _named(judged.model.name, judged)

    def log_likelihood(params: dict[str, Array], tokens: Array, rest: dict[str, Array] | None = None) -> Array:
        tensors = {name.replace("/", "."): tensor for name, tensor in params.items()} | (rest or {})
        return SEQUENCE.log_prob(judged.apply(tensors, jnp.where(tokens < 0, ~tokens, tokens)), tokens)

    audit = partial(
        measure_sequence_efficacy,
        log_likelihood,
        judged_weights,
        examples.inputs,
        references=references,
        vocabulary=judged.model.vocabulary,
        framework="torch",
        notes=("A record's own tokens are its labels; of a prompt or question, the answer's alone count.",),
    )
    return _job(options, judged_weights, references, examples, audit)


def _named(name: str, model: Causal) -> NamedWeights:
    """The weights of a model; a layer's name ends where that of its parameter begins."""
    return NamedWeights(
        name, {"/".join(weight.rsplit(".", 1)): values for weight, values in model.weights.items()}, model.rest
    )
