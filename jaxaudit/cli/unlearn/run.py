"""Runs `jaxaudit unlearn`: from its options to its result, of texts, too, and of files of outputs with no training."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import make_dataclass
from functools import partial
from itertools import count as count_from
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from jaxaudit import unlearning
from jaxaudit.audits.unlearn.audit import compare_unlearning
from jaxaudit.audits.unlearn.evaluate import threshold_of
from jaxaudit.audits.unlearn.outputs_result import (
    RETRAINED,
    GivenModels,
    UnlearnOutputsAudit,
    check_names,
    checked_classes,
    read_models_of,
)
from jaxaudit.audits.unlearn.result import AMNESIAC, ORIGINAL, UNTRAINED, UnlearnAudit
from jaxaudit.audits.unlearn.score_outputs import score_unlearning
from jaxaudit.cli.options import fields_of, refuse_options, with_usual
from jaxaudit.cli.own_code import OF_TEXTS, UNSEEDED, is_of_texts, parse_model, with_fields
from jaxaudit.cli.parsers import MOST, TEXTS, is_texts, parse_names, parse_outputs, parse_tokens
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import read_beside_texts, read_inputs, tell_of_chats
from jaxaudit.cli.recipe import make_factory, make_learner, refuse_other_network
from jaxaudit.cli.show import Job, Outcome
from jaxaudit.cli.unlearn import METHODS, USUAL, USUAL_OF_TEXTS, UnlearnOptions
from jaxaudit.data import Examples, align_dealt, concatenate
from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.formats.parsing import refuse_pickle
from jaxaudit.data.pairs import find_overlap
from jaxaudit.data.paths import exists
from jaxaudit.data.sequences import BYTES, sequences, vocabulary_of, word_tokenizer
from jaxaudit.data.weights import safetensors_bytes
from jaxaudit.ensemble import Execution, count_step, usual_models_per_batch
from jaxaudit.errors import InputError, MissingSplit, few
from jaxaudit.json_types import hash_of
from jaxaudit.learners import NetworkLearner
from jaxaudit.metrics.over_models import least_p_value
from jaxaudit.models import PureModule, hidden_states
from jaxaudit.models.restore import name_weights
from jaxaudit.runs.directory import arrays
from jaxaudit.runs.provenance import describe_examples

TEST = "@test"


Epochs = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e300)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e300)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


FUNCTIONS: dict[str, Any] = {
    "fisher": unlearning.forget_by_noise,
    "fine-tuning": unlearning.fine_tune,
    "gradient-ascent": unlearning.gradient_ascent,
    "negative-gradient": unlearning.negative_gradient,
    "scrub": unlearning.scrub,
    "ssd": unlearning.selective_dampening,
    "gradient-difference": unlearning.gradient_difference,
    "npo": unlearning.npo,
    "simnpo": unlearning.sim_npo,
    "rmu": unlearning.rmu,
}
TRAINED = {"epochs": Epochs, "learning_rate": Positive}
"""What all methods have that train."""
KINDS: dict[str, dict[str, Any]] = {
    "fisher": {"variant": Literal["golatkar", "paper", "becker-code"], "alpha": NotNegative},
    "fine-tuning": TRAINED,
    "gradient-ascent": TRAINED,
    "negative-gradient": {"beta": Share, **TRAINED},
    "scrub": TRAINED,
    "ssd": {"selection": NotNegative, "strength": NotNegative},
    "gradient-difference": TRAINED,
    "npo": {"beta": Positive, **TRAINED},
    "simnpo": {"beta": Positive, **TRAINED},
    "rmu": {"layer": str | None, "coefficient": NotNegative, **TRAINED},
}
"""What `--method-option` sets, by method, and of which type."""
NOISES = {"golatkar": unlearning.golatkar, "paper": unlearning.paper, "becker-code": unlearning.becker_code}


def _fields(name: str) -> Any:
    """A value with the fields of a method, each of its type and with the default of the function."""
    # What `make_methods` makes an argument of comes first.
    usual: dict[str, Any] = {"variant": "golatkar", "layer": None, **unlearning.Recipe()._asdict()}
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    usual |= {field: parameter.default for field, parameter in parameters.items()}
    declared = [(field, kind, usual[field]) for field, kind in KINDS[name].items()]
    return make_dataclass("MethodFields", declared, frozen=True)()


FIELDS = {name: _fields(name) for name in KINDS}
"""The fields of each method, at their defaults."""


class Parts(NamedTuple):
    """The training and the test records, those to forget, also in words, and what to say of all."""

    train: Examples
    test: Examples
    forget: np.ndarray
    forgotten: str
    notes: tuple[str, ...]


def make_methods(fields: Mapping[str, Any], batch_size: int, net: PureModule) -> dict[str, unlearning.Unlearn]:
    """The methods with these fields, which are functions of a trained model; rmu moves a layer of `net`."""
    methods: dict[str, unlearning.Unlearn] = {}
    for name, of_method in fields.items():
        values = {**vars(of_method)}
        if TRAINED.keys() <= values.keys():
            values["batch_size"] = batch_size
        if "recipe" in inspect.signature(FUNCTIONS[name]).parameters:
            of_recipe = {field: values.pop(field) for field in unlearning.Recipe._fields if field in values}
            values["recipe"] = unlearning.Recipe(**of_recipe)
        if name == "fisher":
            values["noise"] = NOISES[values.pop("variant")]
        if name == "rmu":
            values["hidden"] = hidden_states(net, values.pop("layer"))
        methods[name] = partial(FUNCTIONS[name], **values)
    return methods


def read_unlearn_sets(options: UnlearnOptions) -> Parts:
    """The training and test records, and which to forget; test records that equal a training record are left out."""
    if is_texts(options.data):
        train, test, forget = read_text_sets(options)
        forgotten_text = f"{int(forget.sum()):,} of {len(train):,} texts"
        return _parts(train, test, forget, forgotten_text, f"{train.name} ({len(train):,} texts)")
    whole = read_inputs(options.data or "", options)
    if options.class_name is None:
        raise InputError(
            f"--class is missing: name the class whose records are forgotten, {few(whole.class_names, 10)}."
        )
    if options.class_name not in whole.class_names:
        raise InputError(
            f"--class: {whole.name} has no class {options.class_name!r}; it has {few(whole.class_names, 10)}."
        )
    of_class = [np.flatnonzero(whole.labels == label) for label in np.unique(whole.labels)]
    if len(of_class) < 2:
        raise InputError(f"{whole.name} contains a single class; at least two are required.")
    chosen = np.sort(np.concatenate([rows_of_class[: options.per_class or None] for rows_of_class in of_class]))
    train = whole if len(chosen) == len(whole) else whole.take(chosen)
    rest = np.setdiff1d(np.arange(len(whole)), chosen)
    test = _test_records(whole, rest, options)
    label = train.class_names.index(options.class_name)
    members = np.flatnonzero(train.labels == label)
    count = round(options.fraction * len(members))
    forget = np.zeros(len(train), bool)
    forget[members[:count]] = True
    first = f"the first {options.per_class} of each class, " if train is not whole else ""
    forgotten_text = f"{count:,} of the {len(members):,} records of class {options.class_name}"
    return _parts(train, test, forget, forgotten_text, f"{whole.name} ({first}{len(train):,} records)")


def _parts(train: Examples, test: Examples, forget: np.ndarray, forgotten_text: str, train_text: str) -> Parts:
    """The parts without test records that are training records, and notes on both."""
    seen, notes = find_overlap(train, test)[1], list[str]()
    if len(seen) == len(test):
        raise InputError(
            f"all {len(test):,} records of {test.name} are also training records; name others with --test-data."
        )
    if len(seen):
        counts_text = f"{len(seen):,} of the {len(test):,} records of {test.name}"
        notes.append(f"Left out of the test records, because training records equal them: {counts_text}.")
        test = test.take(np.setdiff1d(np.arange(len(test)), seen))
    used = f"Trained on {train_text}, tested on {test.name} ({len(test):,} records)."
    return Parts(train, test, forget, forgotten_text, (used, *notes))


def _test_records(whole: Examples, rest: np.ndarray, options: UnlearnOptions) -> Examples:
    if options.test_data is not None:
        return align_dealt(whole, read_inputs(options.test_data, options))
    if "@" not in (options.data or ""):
        with suppress(MissingSplit):
            return align_dealt(whole, read_inputs(f"{options.data}{TEST}", options))
    if not len(rest):
        raise InputError(
            f"{whole.name} has no test split, and all of it is trained on; name test records with --test-data, or "
            "train on fewer with --per-class."
        )
    return whole.take(rest, f"the other records of {whole.name}")


def check_kind(options: UnlearnOptions) -> None:
    """Rejects options of texts where records have classes, and the other way round."""
    if not is_texts(options.data):
        values = {"--forget": options.forget, "--recipe tokens": options.tokens}
        return refuse_options(values, f"for texts, and --data {options.data} is none ({', '.join(TEXTS)})")
    of_classes = {
        field.flag: field.value != field.default
        for field in fields_of(options)
        if field.name in ("class_name", "per_class", "fraction", "images", "label", "drop")
    }
    refuse_options(of_classes, "for records of classes, and texts have none")
    for flag, value in (("--forget", options.forget), ("--test-data", options.test_data)):
        if value is None:
            raise InputError(f"{flag} is missing: texts need it.")
    if options.optimizer == "sgd":
        raise InputError(
            "--recipe optimizer=sgd hardly trains a language model; give --recipe optimizer=adamw "
            f"--recipe learning-rate=0.001, and a number of --epochs, such as 10, for a small one such as {OF_TEXTS}."
        )


def read_text_sets(options: UnlearnOptions) -> tuple[Examples, Examples, np.ndarray]:
    """The training and the test records, and which training records to forget."""
    whole, test = (read_beside_texts(name or "") for name in (options.data, options.test_data))
    forget_text = options.forget or ""
    if is_texts(forget_text):
        removed = read_beside_texts(forget_text)
    else:
        key, equals, value = forget_text.partition("=")
        values = whole.column(key)
        if not equals or values is None:
            raise InputError(
                f"--forget must be a file of texts ({', '.join(TEXTS)}), or KEY=VALUE with a key of the lines of "
                "--data, such as author=7."
            )
        rows = [row for row, cell in enumerate(values) if str(cell) == value]
        if not rows:
            raise InputError(f"--forget: no line of {whole.source} has this value at {key!r}; is it right?")
        removed = whole.take(rows)
    tell_of_chats([whole, removed, test], None)
    words = parse_tokens(options.tokens or "bytes")
    pairs, forgotten_pairs = ([*zip(texts.prompts, texts.answers, strict=True)] for texts in (whole, removed))
    rest = _absent(pairs, forgotten_pairs)
    # Of all training records, those to forget among them, and no other: what is forgotten changes no token.
    counted = [whole, removed.take(_absent(forgotten_pairs, pairs)), test]
    tokenizer = BYTES if words is None else word_tokenizer(counted, words)
    every, forgotten, tested = sequences([whole, removed, test], tokenizer)
    if not rest:
        raise InputError("--forget is all of --data, and no record would remain; name fewer texts.")
    train = concatenate([every.take(np.array(rest)), forgotten], every.name)
    return train, tested, np.arange(len(train)) >= len(rest)


def _absent(pairs: Sequence[tuple[str, str]], other_pairs: Iterable[tuple[str, str]]) -> list[int]:
    """The places of the pairs that are not among the other ones."""
    absent = {*pairs}.difference(other_pairs)
    return [place for place, pair in enumerate(pairs) if pair in absent]


NETWORK, SEEDS, ATTACK_EPOCHS = "mlp", 20, 100
USUAL_SIZES = {"hidden": "512,256,128", "seeds": SEEDS, "attack_epochs": ATTACK_EPOCHS}
DEMONSTRATION = {"data": "digits", "class_name": "3", "hidden": "128,64", "seeds": 10, "attack_epochs": 20}
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
    network = options.model or NETWORK
    # Checks that need no data come first.
    names = parse_names(options.methods or "", METHODS, "--methods")
    method_fields = with_fields(
        "--method-option", options.method_option, {name: FIELDS[name] for name in names if name in FIELDS}
    )
    of_texts = is_texts(options.data)
    if parse_model(network) is None:
        refuse_other_network(network, is_of_texts(network), of_texts)
    factory = make_factory(network, options.hidden, options.dropout)
    parts = read_unlearn_sets(options)
    train, test, seeds = parts.train, parts.test, options.seeds or SEEDS
    classes = vocabulary_of(train) or len(train.class_names)
    learner = make_learner(factory, options, train.inputs.shape[1:], classes, len(train), of_texts)
    methods = make_methods(method_fields, options.batch_size, learner.net)
    options = with_usual(
        options, models_per_batch=usual_models_per_batch(learner, count_step(learner, train.inputs, train.labels))
    )
    _tell_of_few(seeds, of_texts)
    key = jax.random.key(options.seed)

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
            nonmembers=options.nonmembers,
            attack_epochs=options.attack_epochs or ATTACK_EPOCHS,
            forgotten=parts.forgotten,
            notes=_notes(parts, learner, method_fields),
            execution=execution,
        )

    def outcome(audit: UnlearnAudit) -> Outcome:
        forgotten = {"x": train.inputs[parts.forget], "y": train.labels[parts.forget]}
        files = {"forget.npz": arrays({**forgotten, "class_names": np.array(train.class_names)})}
        files |= {
            f"{name}-{seed:02d}.safetensors": partial(_write_weights, audit, name, seed)
            for name in audit.models
            if name != UNTRAINED
            for seed in range(audit.result.protocol.seeds)
        }
        return Outcome(audit.result, audit.sources, files=files)

    attacks = f" and {seeds} attack networks" if options.nonmembers != 0 and not of_texts else ""
    return Job(
        options=options,
        data={"train": describe_examples(train), "test": describe_examples(test)},
        hashes={
            "training set": train.content_hash,
            "test set": test.content_hash,
            "forgotten": hash_of([np.packbits(parts.forget).tobytes()]),
        },
        audit=audit,
        outcome=outcome,
        models=lambda _: 2 * seeds,
        line=f"unlearning {parts.forgotten} among {len(train):,}{attacks}, {network} on {jax.default_backend()}",
        label="unlearning",
    )


def _filled(options: UnlearnOptions) -> UnlearnOptions:
    of_texts = is_texts(options.data)
    return with_usual(
        options,
        **(DEMONSTRATION if options.data is None else USUAL_SIZES),
        model=OF_TEXTS if of_texts else NETWORK,
        methods=",".join(USUAL_OF_TEXTS if of_texts else USUAL),
    )


def _notes(parts: Parts, learner: NetworkLearner, method_fields: Mapping[str, Any]) -> tuple[str, ...]:
    notes = [*parts.notes]
    fisher, ssd = method_fields.get("fisher"), method_fields.get("ssd")
    if fisher is not None:
        notes.append(
            f"fisher: {fisher.variant} noise of strength alpha {fisher.alpha:g}. If the noise is too weak, nothing is "
            "forgotten; if it is too strong, everything is."
        )
    trained_on = {name: fields for name, fields in method_fields.items() if "epochs" in vars(fields)}
    if trained_on:
        epochs = max(fields.epochs for fields in trained_on.values())
        rates = [f"{fields.learning_rate:g}" for fields in trained_on.values()]
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
            for name in method_fields
        ]
    if not learner.net.seeded:
        notes.append(f"{UNSEEDED[:1].upper()}{UNSEEDED[1:]}.")
    if learner.net.draws:
        notes.append("The network is random in training (such as dropout). It was judged in evaluation mode.")
    return tuple(notes)


def _write_weights(audit: UnlearnAudit, name: str, seed: int, file: IO[bytes]) -> None:
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf[seed]), audit.models[name])
    file.write(safetensors_bytes(name_weights(model.params, model.state)))


def prepare_given(options: UnlearnOptions) -> Job[UnlearnOutputsAudit]:
    """The work for these options."""
    paths = dict(map(parse_outputs, options.outputs))
    check_names(paths.keys() - {RETRAINED, ORIGINAL})
    labels = checked_classes(read_npy(options.labels or Path()))
    sides = {
        name: read_models_of(name, _read_arrays(path), labels, options.outputs_kind) for name, path in paths.items()
    }
    data = {name: _described(paths[name], side) for name, side in sides.items()}
    retrained, original = sides.pop(RETRAINED), sides.pop(ORIGINAL, None)

    def audit(execution: Execution) -> UnlearnOutputsAudit:
        return score_unlearning(jax.random.key(options.seed), sides, retrained, original=original, execution=execution)

    return Job(
        options=options,
        data=data,
        audit=audit,
        outcome=lambda audit: Outcome(audit.result, audit.sources, kind="unlearn_outputs"),
        label="comparing",
    )


def _read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of an .npz by name; rows of uncompressed ones are read when they are needed."""
    refuse_pickle(path)
    if not (exists(path) and path.is_file()):
        raise InputError(f"{path}: there is no such file; is the path right?")
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: outputs of several models are read from .npz files; save them with np.savez.")
    archive = NpzArrays(path, opened=True)
    return {name: archive.open(name) for name in archive.names}


def _described(path: Path, side: GivenModels) -> dict[str, Any]:
    return {
        "name": path.name,
        "models": len(side),
        "records": side.log_odds.shape[1],
        "classes": side.classes,
        "outputs": f"{side.kind}, {side.dtype}",
        "content_hash": side.content_hash,
    }
