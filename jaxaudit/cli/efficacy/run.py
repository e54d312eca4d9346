"""What `jaxaudit efficacy` does between its options and its result."""

import datetime
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import RenderableType

from jaxaudit.audits.efficacy.audit import EfficacyAudit, NamedWeights, audit_efficacy
from jaxaudit.cli.network_inputs import label_outputs, read_inputs
from jaxaudit.cli.own_model import source_hash
from jaxaudit.cli.progress import say
from jaxaudit.cli.recipe import make_factory
from jaxaudit.cli.repeat import Options, command_line, plain
from jaxaudit.cli.show import as_text
from jaxaudit.cli.words import check_weights, parse_hidden, parse_reference
from jaxaudit.data import Examples
from jaxaudit.data.weights.weights import Weights, read_weights
from jaxaudit.errors import InputError
from jaxaudit.models import RUN_ONCE, pure_module
from jaxaudit.models.restore import load_weights, name_weights
from jaxaudit.places import without_folders
from jaxaudit.report.efficacy.record import efficacy_columns, efficacy_json
from jaxaudit.runs.directory import write
from jaxaudit.runs.provenance import describe_examples, describe_machine
from jaxaudit.runs.row_files import record_files

NAMES_SHOWN = 10


class Answer(NamedTuple):
    """What the command found.

    Attributes:
        audit: of all weights.
        class_names: of the outputs.
        notes: what else a reader should know.
        provenance: what repeats the run.
    """

    audit: EfficacyAudit
    class_names: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    def json(self) -> dict[str, Any]:
        """As one JSON object."""
        return efficacy_json(*self)


def run(options: Options) -> Answer:
    """The answer of `jaxaudit efficacy` with these options."""
    started = time.time()
    if options["params"] is None and options["model"] is None and options["data"] is None:
        from jaxaudit.cli.efficacy.demonstration import demonstration

        shown = demonstration(jax.random.key(options["seed"]))
        say(f"judging the three about {shown.examples.name}")
        net, judged, references, examples, notes = shown
    else:
        net, judged, references, examples, notes = _given(options)
    audit = audit_efficacy(net, judged, examples, references=references, chunk=options["chunk"])
    return Answer(audit, examples.class_names, notes, _provenance(options, examples, judged, references, started))


def save(directory: Path, answer: Answer, table: RenderableType) -> None:
    """Writes the run directory: the JSON result, the table, and a row a record as CSV and as Parquet."""
    files = record_files(efficacy_columns(answer.audit, answer.class_names))
    write(directory, answer.json(), files, as_text(table))
    say(f"written: {directory}/result.json, records.csv and records.parquet")


def _given(options: Options) -> Any:
    # What can be refused without reading data is refused first.
    check_weights(options)
    hidden = parse_hidden(options["hidden"])
    sources = [parse_reference(text) for text in options["reference"] or ()]
    weights = {path: read_weights(path) for path in [options["params"], *(path for _, path in sources if path)]}
    examples = label_outputs(read_inputs(options["data"], options), options["classes"])
    factory, classes = make_factory(options["model"], hidden), len(examples.class_names)
    net = pure_module(factory, examples.inputs.shape[1:], classes)
    notes = outputs_note(examples)

    def restore(name: str, path: Path) -> NamedWeights:
        try:
            restored = load_weights(net, weights[path], without_folders(str(path)), options["model"])
        except InputError as error:
            raise InputError(f"{error}{_hint(options, weights[path], classes)}") from error
        notes.extend(restored.notes)
        return NamedWeights(name, restored.params, restored.state)

    judged = restore(options["params"].resolve().name, options["params"])
    references = [
        restore(name, path)
        if path
        else NamedWeights(name, *jax.jit(net.init, compiler_options=RUN_ONCE)(jax.random.key(options["seed"])))
        for name, path in sources
    ]
    if any(path is None for _, path in sources):
        notes.append("untrained: new initial weights of this seed, not those the model began with")
    return net, judged, references, examples, tuple(notes)


def outputs_note(examples: Examples) -> list[str]:
    """Which output each class is taken for, where its name does not say so.

    >>> outputs_note(Examples(np.zeros((2, 1)), np.array([0, 1]), ("cat", "dog"), "pets"))
    ['outputs of the network are taken to be, in this order from 0: cat, dog']
    >>> outputs_note(Examples(np.zeros((1, 1)), np.array([1]), ("0", "1"), "numbers"))
    []
    """
    names = examples.class_names
    if names == tuple(map(str, range(len(names)))):
        return []
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return [f"outputs of the network are taken to be, in this order from 0: {', '.join(names[:NAMES_SHOWN])}{more}"]


def _hint(options: Options, weights: Weights, classes: int) -> str:
    """What else may be wrong where weights do not fit a network of so many outputs."""
    sizes = {values.shape[-1] for values in weights.values() if values.ndim}
    if options["classes"] is None and classes not in sizes:
        return f" The network was made for {classes} outputs, as the data say; --classes gives their number."
    return ""


def _provenance(
    options: Options, examples: Examples, judged: NamedWeights, references: Sequence[NamedWeights], started: float
) -> dict[str, Any]:
    return {
        **describe_machine(),
        "command": command_line("efficacy", options),
        "model_hash": source_hash(options["model"] or ""),
        "seed": options["seed"],
        "options": plain(options),
        "data": describe_examples(examples),
        "weights_hash": _hash(judged),
        "reference_hashes": {each.name: _hash(each) for each in references},
        "started": datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
    }


def _hash(named: NamedWeights) -> str:
    weights = name_weights(named.params, named.state)
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(weights):
        digest.update(f"{name}\0{weights[name].dtype}{weights[name].shape}\0".encode())
        digest.update(np.ascontiguousarray(weights[name]).tobytes())
    return f"blake2b:{digest.hexdigest()}"
