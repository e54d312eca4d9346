"""What `jaxaudit unlearn` does between its options and its result."""

import datetime
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import RenderableType

from jaxaudit.audits.unlearn.audit import audit_unlearn
from jaxaudit.audits.unlearn.result import AMNESIAC, RETRAINING, UNTRAINED, UnlearnAudit
from jaxaudit.cli.own_model import UNSEEDED, source_hash
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.recipe import make_factory, make_optimizer
from jaxaudit.cli.repeat import Options, command_line, plain
from jaxaudit.cli.show import as_text
from jaxaudit.cli.unlearn.inputs import FISHER, Parts, make_method, parse_methods, read_parts
from jaxaudit.cli.widths import recall_width, remember_width
from jaxaudit.cli.words import check_shares, parse_hidden
from jaxaudit.cli.work import Begin
from jaxaudit.data.weights.weights import safetensors_bytes
from jaxaudit.ensemble import Execution, measure_models_per_batch
from jaxaudit.errors import InputError
from jaxaudit.learners import NetworkLearner, network
from jaxaudit.models.restore import name_weights
from jaxaudit.report.unlearn.record import unlearn_json
from jaxaudit.runs.directory import arrays, write
from jaxaudit.runs.identity import run_identity
from jaxaudit.runs.provenance import describe_examples, describe_machine

USUAL = {"hidden": "512,256,128", "seeds": 20, "attack_epochs": 100}
DEMONSTRATION = {"data": "digits", "class_name": "3", "hidden": "128,64", "seeds": 10, "attack_epochs": 20}
"""Where no data are named."""


class Answer(NamedTuple):
    """What the command found.

    Attributes:
        audit: of all methods.
        forgotten: what was to be forgotten, in words.
        notes: what else a reader should know.
        provenance: what repeats the run.
        parts: the records it is about.
    """

    audit: UnlearnAudit
    forgotten: str
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    parts: Parts

    def json(self) -> dict[str, Any]:
        """As one JSON object."""
        return unlearn_json(self.audit, self.forgotten, self.notes, self.provenance)


def run(options: Options, begin: Begin) -> Answer:
    """The answer of `jaxaudit unlearn` with these options; see `lasting_work` for `begin`."""
    started = time.time()
    usual = {**USUAL, **DEMONSTRATION} if options["data"] is None else USUAL
    options = {name: usual.get(name) if value is None else value for name, value in options.items()}
    # What can be refused without reading data is refused first.
    names, hidden = parse_methods(options["method"]), parse_hidden(options["hidden"])
    optimizer = make_optimizer(options["optimizer"], options["learning_rate"])
    check_shares(options)
    methods = {FISHER: make_method(options["fisher_variant"], options["alpha"])} if FISHER in names else {}
    parts = read_parts(options)
    train, test = parts.train, parts.test
    learner = network(
        make_factory(options["model"], hidden),
        train.inputs.shape[1:],
        len(train.class_names),
        optimizer=optimizer,
        epochs=options["epochs"],
        batch_size=options["batch_size"],
    )
    if learner.batch_coupled and AMNESIAC in names:
        others = ",".join(name for name in names if name != AMNESIAC) or RETRAINING
        raise InputError(
            f"--method amnesiac takes back updates of parameters, but {options['model']} also keeps running statistics "
            f"(batch normalisation), in which forgotten records would stay; leave it out: --method {others}."
        )
    if not learner.batch_coupled:
        learner = replace(learner, batch_size=min(learner.batch_size, len(train)))
    key, seeds = jax.random.key(options["seed"]), options["seeds"]
    work = {**plain(options), "command": "unlearn", "shape": train.inputs.shape}
    if options["width"] is None:
        options["width"] = recall_width(work)
        if options["width"] is None:
            options["width"] = _settle_width(key, parts, learner, seeds)
            remember_width(work, options["width"])
    forgotten = f"{int(parts.forget.sum()):,} of the {int(parts.of_class):,} records of class {options['class_name']}"
    line = (
        f"unlearning {forgotten} among {len(train):,}: {2 * seeds} {options['model']} models"
        f"{f' and {seeds} attack networks' if options['nonmembers'] != 0 else ''} on {jax.default_backend()}"
    )
    identity = run_identity(
        "unlearn",
        {name: value for name, value in plain(options).items() if name not in ("data_dir", "data", "test_data")},
        {"training set": train.content_hash, "test set": test.content_hash},
        {"model": source_hash(options["model"])},
    )
    checkpoints = begin(identity, 2 * seeds, line)
    with progress_on_stderr("unlearning") as progress:
        audit = audit_unlearn(
            key,
            train,
            test,
            learner,
            parts.forget[None],
            amnesiac=AMNESIAC in names,
            methods=methods,
            seeds=seeds,
            nonmembers=options["nonmembers"],
            attack_epochs=options["attack_epochs"],
            level=options["level"],
            execution=Execution(options["width"], progress, checkpoints),
        )
    notes = [f"trained on {parts.described}, tested on {test.name} ({len(test):,} records)", *parts.notes]
    if methods:
        notes.append(
            f"fisher: {options['fisher_variant']} noise of strength alpha {options['alpha']:g}; too weak a noise "
            "forgets nothing, too strong a one everything"
        )
    if methods and learner.batch_coupled:
        notes.append("fisher: running statistics of batch normalisation are as they were, with the forgotten records")
    if not learner.net.seeded:
        notes.append(UNSEEDED)
    if learner.net.draws:
        notes.append("the network is random in training (dropout or the like); it was judged in evaluation mode")
    return Answer(audit, forgotten, tuple(notes), _provenance(options, parts, started), parts)


def save(directory: Path, answer: Answer, table: RenderableType) -> None:
    """Writes the run directory: the JSON result, the table, the forgotten records, and every model of any kind."""
    train, forget = answer.parts.train, answer.parts.forget
    records = {"x": train.inputs[forget], "y": train.labels[forget], "class_names": np.array(train.class_names)}
    files = {"forget.npz": arrays(records)}
    for method in answer.audit.methods:
        if method.name == UNTRAINED:
            continue
        for seed in range(answer.audit.seeds):
            files[weights_name(method.name, seed)] = partial(_write_weights, answer.audit, method.name, seed)
    write(directory, answer.json(), files, as_text(table))
    say(
        f"written: {directory}/result.json, forget.npz and {len(files) - 1} weights such as "
        f"{weights_name(RETRAINING, 0)}"
    )


def weights_name(method: str, seed: int) -> str:
    """The file of a method's model of one seed."""
    return f"{method}-{seed:02d}.safetensors"


def _write_weights(audit: UnlearnAudit, name: str, seed: int, file: IO[bytes]) -> None:
    leading = () if name in (UNTRAINED, "original") else (0,)
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf[(*leading, seed)]), audit[name].params)
    file.write(safetensors_bytes(name_weights(model.params, model.state)))


def _settle_width(key: Any, parts: Parts, learner: NetworkLearner, seeds: int) -> int:
    """The width at which so many retrained models train fastest, by a measurement."""
    rows = np.tile(~parts.forget, (seeds, 1))
    keys, train = jax.random.split(key, seeds), parts.train
    return measure_models_per_batch(keys, rows, train.inputs, train.labels, learner).models_per_batch


def _provenance(options: Options, parts: Parts, started: float) -> dict[str, Any]:
    # The word `class` belongs to Python, so the option has another name inside.
    named = {"class" if name == "class_name" else name: value for name, value in options.items()}
    return {
        **describe_machine(),
        "command": command_line("unlearn", named),
        "model_hash": source_hash(options["model"]),
        "seed": options["seed"],
        "options": plain(named),
        "data": {"train": describe_examples(parts.train), "test": describe_examples(parts.test)},
        "started": datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
    }
