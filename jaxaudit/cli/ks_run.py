"""What `jaxaudit ks` does between its options and its result."""

import datetime
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from jaxaudit.audits.ks import audit_ks
from jaxaudit.audits.ks_result import KSAudit
from jaxaudit.audits.pool import Part, SimulatedTarget
from jaxaudit.cli.inputs import (
    default_targets,
    match_holdout,
    name_apart,
    parse_image_size,
    parse_target_data,
    read_sets,
    reader,
    simulate,
)
from jaxaudit.cli.ks_method import asked_of, named, settle_method
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.recipe import check_shares, make_factory, make_optimizer, parse_hidden, source_hash
from jaxaudit.cli.repeat import Options, command_line, plain
from jaxaudit.cli.widths import recall_width, remember_width
from jaxaudit.cli.work import Begin
from jaxaudit.data import Examples, align_target_data, concatenate, is_image
from jaxaudit.data.outputs import Outputs, load_outputs
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner, network
from jaxaudit.report.identity import Identity, run_identity
from jaxaudit.report.ks_json import ks_json
from jaxaudit.report.provenance import describe_examples, describe_machine
from jaxaudit.report.run_directory import arrays, write

USUAL = {"hidden": "512,256,128", "epochs": 15, "image_size": "28x28"}
DEMONSTRATION = {
    "query": "digits",
    "calibration": "printed-digits",
    "model": "mlp",
    "hidden": "256",
    "epochs": 40,
    "image_size": "8x8",
}
"""What a run without data uses: both sets come with the package, and 8x8 is how the digits are stored."""


def run(options: Options, begin: Begin) -> tuple[dict[str, Any], KSAudit]:
    """The result of `jaxaudit ks` with these options, as a JSON object and as it is; see `lasting_work` for `begin`."""
    started = time.time()
    options = with_defaults(options)
    # What can be refused without reading data is refused first.
    size, hidden = parse_image_size(options["image_size"]), parse_hidden(options["hidden"])
    optimizer = make_optimizer(options["optimizer"], options["learning_rate"])
    check_shares(options)
    settle_method(options)
    target_data = [parse_target_data(text) for text in options["target_data"]]
    read = reader(options, size)
    query, calibration = read_sets(options, read)
    holdout = match_holdout(query, calibration, read(options["holdout"])) if options["holdout"] else None
    outputs = _outputs(options, "target", query, "query set")
    on_holdout = [] if holdout is None else _outputs(options, "holdout_target", holdout, "holdout")
    simulated = _simulated(options, target_data, query, calibration, read)
    options["model"] = options["model"] or ("liu-cnn" if is_image(query) else "mlp")
    most = len(query) + len(calibration) + sum(len(part.examples) for target in simulated for part in target.parts)
    most += len(holdout) if holdout is not None else 0
    learner = make_learner(options, hidden, optimizer, query, most)
    work = {**plain(options), "query": query.inputs.shape, "calibration": len(calibration), "targets": len(simulated)}
    asked = asked_of(options)
    models = 2 * options["replicates"] + options["controls"] + len(simulated) + sum(asked.shadows)
    line = f"training {models} {options['model']} models on {jax.default_backend()}, {options['epochs']} epochs each"
    extra = {part.examples.content_hash: part.examples for target in simulated for part in target.parts}
    others = [examples for examples in extra.values() if examples not in (query, calibration)]
    sets = {"query": query, "calibration": calibration, **named(holdout)}
    checkpoints = begin(identity(options, sets, others, outputs, on_holdout), models, line)
    with progress_on_stderr("training") as progress:
        audit = audit_ks(
            jax.random.key(options["seed"]),
            query,
            calibration,
            learner,
            holdout=holdout,
            outputs=outputs,
            holdout_outputs=on_holdout,
            simulated=simulated,
            replicates=options["replicates"],
            controls=options["controls"],
            shadows=asked.shadows,
            ema=asked.ema,
            subsample=options["subsample"],
            level=options["level"],
            min_accuracy=options["min_accuracy"],
            allow_unrelated_target=options["allow_unrelated_target"],
            width=options["width"] or recall_width(work),
            progress=progress,
            checkpoints=checkpoints,
        )
    if options["width"] is None:
        options["width"] = audit.width
        remember_width(work, audit.width)
    return ks_json(audit, _provenance(options, sets, others, outputs, on_holdout, started)), audit


def save(directory: Path, result: dict[str, Any], audit: KSAudit) -> None:
    """Writes the run directory: the JSON result, and every model's confidences on the query set."""
    write(directory, result, {"confidences.npz": arrays(arrays_of(audit))})
    say(f"written: {directory}/result.json and {directory}/confidences.npz")


def arrays_of(audit: KSAudit) -> dict[str, Any]:
    """What stands beside the result: every model's confidences on the query set."""
    targets = {f"target_{index}": target.confidences[0] for index, target in enumerate(audit.targets)}
    shadows = {f"log_odds_{role}": odds for role, odds in audit.shadow_log_odds.items()}
    confidences = {
        "query": audit.query_confidences,
        "calibration": audit.calibration_confidences,
        "control": audit.control_confidences,
        "labels": audit.labels,
        **targets,
        **shadows,
    }
    return confidences


def with_defaults(options: Options) -> Options:
    """The options with what a run without them uses."""
    if (options["query"] is None) != (options["calibration"] is None):
        given, missing = ("query", "calibration") if options["calibration"] is None else ("calibration", "query")
        raise InputError(f"--{given} needs --{missing}: shadow models are trained on both sets.")
    # The medical network takes its crops from images of their own size.
    usual = {**USUAL, "image_size": "none"} if options["model"] == "medical-cnn" else USUAL
    defaults = {
        "target": [],
        "target_data": [],
        "holdout_target": [],
        **(DEMONSTRATION if options["query"] is None else usual),
    }
    return {name: defaults.get(name) if value is None else value for name, value in options.items()}


def _outputs(options: Options, option: str, examples: Examples, of: str) -> list[Outputs]:
    """The files that this option names, as outputs on these records; messages call them `of`."""
    paths, kind = options[option], options["target_kind"]
    files = [load_outputs(path, examples.class_names, len(examples), kind, of=of) for path in paths]
    return name_apart(files, paths)


def _simulated(
    options: Options,
    target_data: list[tuple[str, float]],
    query: Examples,
    calibration: Examples,
    read: Callable[[str], Examples],
) -> list[SimulatedTarget]:
    if not target_data:
        return [] if options["target"] else default_targets(query, calibration)
    own = {options["query"]: query, options["calibration"]: calibration}
    parts = [Part(own[name] if name in own else read(name), fraction) for name, fraction in target_data]
    for part in parts:
        # What cannot be stacked with the query set is refused now rather than in training; one record shows it.
        concatenate([query.take(slice(1)), align_target_data(query, part.examples.take(slice(1)))], "pool")
    return [simulate(parts)]


def make_learner(options: Options, hidden: tuple[int, ...], optimizer: Any, query: Examples, records: int) -> Learner:
    """The shadow models' design and recipe, for training sets of at most this many records."""
    learner = network(
        make_factory(options["model"], hidden),
        query.inputs.shape[1:],
        len(query.class_names),
        optimizer=optimizer,
        epochs=options["epochs"],
        batch_size=options["batch_size"],
    )
    if learner.batch_coupled:
        return learner
    # What would fill a minibatch up beyond all records weighs nothing; batch normalisation alone would see it.
    return replace(learner, batch_size=min(learner.batch_size, records))


def identity(
    options: Options,
    sets: dict[str, Examples],
    others: list[Examples],
    outputs: list[Outputs],
    on_holdout: list[Outputs],
) -> Identity:
    """What must be the same for the work of a run that was stopped to be taken up."""
    data = {name: examples.content_hash for name, examples in sets.items()}
    data |= {f"target data {index}": examples.content_hash for index, examples in enumerate(others)}
    data |= {f"target {index}": file.content_hash for index, file in enumerate(outputs)}
    data |= {f"holdout target {index}": file.content_hash for index, file in enumerate(on_holdout)}
    # Where the data lie does not matter, only what they are.
    settled = {name: value for name, value in plain(options).items() if name not in ("data_dir", "field_strength")}
    return run_identity("ks", settled, data, {"model": source_hash(options["model"])})


def _provenance(
    options: Options,
    sets: dict[str, Examples],
    others: list[Examples],
    outputs: list[Outputs],
    on_holdout: list[Outputs],
    started: float,
) -> dict[str, Any]:
    def described(files: list[Outputs]) -> list[dict[str, Any]]:
        return [{"name": file.name, "kind": file.kind, "content_hash": file.content_hash} for file in files]

    return {
        **describe_machine(),
        "command": command_line("ks", options),
        "directory": str(Path.cwd()),
        "model_hash": source_hash(options["model"]),
        "seed": options["seed"],
        "options": plain(options),
        "data": {
            **{name: describe_examples(examples) for name, examples in sets.items()},
            "target_data": [describe_examples(examples) for examples in others],
        },
        "targets": described(outputs),
        "holdout_targets": described(on_holdout),
        "started": datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
    }
