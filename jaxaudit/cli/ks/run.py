"""What `jaxaudit ks` does between its options and its result."""

import datetime
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
from rich.console import RenderableType

from jaxaudit.audits.ks.audit import audit_ks
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.pool import Part, SimulatedTarget
from jaxaudit.cli.ks.budget import Planned, parse_budget, plan_within, take_records
from jaxaudit.cli.ks.inputs import (
    Given,
    default_targets,
    read_given,
    reader,
    simulate,
)
from jaxaudit.cli.ks.method import asked_of, named, settle_method
from jaxaudit.cli.own_model import UNSEEDED, source_hash
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.recipe import make_factory, make_optimizer
from jaxaudit.cli.repeat import Options, command_line, plain
from jaxaudit.cli.show import as_text
from jaxaudit.cli.widths import recall_width, remember_width
from jaxaudit.cli.words import check_pair, check_shares, other_split, parse_hidden, parse_image_size, parse_target_data
from jaxaudit.cli.work import Begin
from jaxaudit.data import Examples, align_target_data, concatenate, is_image
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.learners import NetworkLearner, network
from jaxaudit.report.ks.record import ks_json
from jaxaudit.runs.directory import arrays, write
from jaxaudit.runs.identity import Identity, run_identity
from jaxaudit.runs.provenance import describe_examples, describe_machine

USUAL = {"hidden": "512,256,128", "epochs": 15, "image_size": "28x28"}
MODELS = {"replicates": 5, "shadows": 39, "holdout_shadows": 31}
DEMONSTRATION = {
    "query": "digits",
    "calibration": "printed-digits",
    "model": "mlp",
    "hidden": "256",
    "epochs": 40,
    "image_size": "8x8",
}
"""What a run without data uses: both sets come with the package, and 8x8 is how the digits are stored."""


def run(options: Options, begin: Begin, dry_run: bool) -> tuple[dict[str, Any], KSAudit] | Planned:
    """The result of `jaxaudit ks` with these options, as a JSON object and as it is; for a dry run, the plan alone.

    Args:
        options: as they stand on the command line; those that a person gave no plan changes.
        begin: see `lasting_work`.
        dry_run: whether to stop where the work would begin.
    """
    started = time.time()
    by_hand = {name for name, value in options.items() if value is not None}
    options = with_defaults(options)
    # What can be refused without reading data is refused first.
    size = parse_image_size(options["image_size"])
    parse_hidden(options["hidden"])
    optimizer = make_optimizer(options["optimizer"], options["learning_rate"])
    check_shares(options)
    settle_method(options)
    seconds = parse_budget(options["budget"])
    target_data = [parse_target_data(text) for text in options["target_data"]]
    whole = _read(options, target_data, reader(options, size))
    options["model"] = options["model"] or ("liu-cnn" if is_image(whole.query) else "mlp")
    key = jax.random.key(options["seed"])

    def learner_of(sets: Given, model: str, hidden: str) -> NetworkLearner:
        most = len(sets.query) + len(sets.calibration) + len(sets.holdout or ())
        most += sum(len(part.examples) for target in sets.simulated for part in target.parts)
        recipe = {**options, "model": model}
        return make_learner(recipe, parse_hidden(hidden), optimizer, sets.query, most)

    sets, plan = take_records(whole, options["records"], key), None
    if seconds is not None or dry_run:
        shadows = asked_of(options).shadows
        plan = plan_within(seconds, options, by_hand, sets, shadows, partial(learner_of, sets))
        if dry_run:
            return plan
        for line in plan.lines:
            say(line)
        sets = take_records(whole, options["records"], key)
    # What was planned is spelled out from here on, so that the command that repeats the run plans nothing.
    options["budget"] = "none"
    learner = learner_of(sets, options["model"], options["hidden"])
    work = {**plain(options), "query": sets.query.inputs.shape, "classes": len(sets.query.class_names)}
    asked = asked_of(options)
    models = 2 * options["replicates"] + options["controls"] + len(sets.simulated) + sum(asked.shadows)
    line = f"training {models} {options['model']} models on {jax.default_backend()}, {options['epochs']} epochs each"
    checkpoints = begin(identity(options, sets), models, line)
    with progress_on_stderr("training", f"comparing the outputs of {models} models") as progress:
        audit = audit_ks(
            key,
            sets.query,
            sets.calibration,
            learner,
            holdout=sets.holdout,
            outputs=sets.outputs,
            holdout_outputs=sets.on_holdout,
            simulated=sets.simulated,
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
    return ks_json(audit, _provenance(options, sets, plan, started)), audit


def save(directory: Path, result: dict[str, Any], audit: KSAudit, table: RenderableType) -> None:
    """Writes the run directory: the JSON result, the table, and every model's confidences on the query set."""
    write(directory, result, {"confidences.npz": arrays(arrays_of(audit))}, as_text(table))
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
    check_pair(options)
    if options["calibration"] is None and options["query"] is not None:
        options["calibration"] = other_split(options["query"])
        say(f"no --calibration was given: {options['calibration']} is used")
    # The medical network takes its crops from images of their own size.
    usual = {**USUAL, "image_size": "none"} if options["model"] == "medical-cnn" else USUAL
    defaults = {
        "target": [],
        "target_data": [],
        "holdout_target": [],
        **MODELS,
        **(DEMONSTRATION if options["query"] is None else usual),
    }
    return {name: defaults.get(name) if value is None else value for name, value in options.items()}


def _read(options: Options, target_data: list[tuple[str, float]], read: Callable[[str], Examples]) -> Given:
    """All that the options name."""
    given = read_given(options, read)
    return given._replace(simulated=_simulated(options, target_data, given.query, given.calibration, read))


def _simulated(
    options: Options,
    target_data: list[tuple[str, float]],
    query: Examples,
    calibration: Examples,
    read: Callable[[str], Examples],
) -> tuple[SimulatedTarget, ...]:
    if not target_data:
        return () if options["target"] else tuple(default_targets(query, calibration))
    own = {options["query"]: query, options["calibration"]: calibration}
    parts = [Part(own[name] if name in own else read(name), fraction) for name, fraction in target_data]
    for part in parts:
        # What cannot be stacked with the query set is refused now rather than in training; one record shows it.
        concatenate([query.take(slice(1)), align_target_data(query, part.examples.take(slice(1)))], "pool")
    return (simulate(parts),)


def make_learner(
    options: Options, hidden: tuple[int, ...], optimizer: Any, query: Examples, records: int
) -> NetworkLearner:
    """The shadow models' design and recipe, for training sets of at most this many records."""
    learner = network(
        make_factory(options["model"], hidden),
        query.inputs.shape[1:],
        len(query.class_names),
        optimizer=optimizer,
        epochs=options["epochs"],
        batch_size=options["batch_size"],
    )
    if not learner.net.seeded:
        say(UNSEEDED)
    if learner.batch_coupled:
        return learner
    # What would fill a minibatch up beyond all records weighs nothing; batch normalisation alone would see it.
    return replace(learner, batch_size=min(learner.batch_size, records))


def identity(options: Options, sets: Given) -> Identity:
    """What must be the same for the work of a run that was stopped to be taken up."""
    data = {name: examples.content_hash for name, examples in _named_sets(sets).items()}
    data |= {f"target data {index}": examples.content_hash for index, examples in enumerate(_others(sets))}
    data |= {f"target {index}": file.content_hash for index, file in enumerate(sets.outputs)}
    data |= {f"holdout target {index}": file.content_hash for index, file in enumerate(sets.on_holdout)}
    # Where the data lie does not matter, only what they are.
    settled = {name: value for name, value in plain(options).items() if name not in ("data_dir", "field_strength")}
    return run_identity("ks", settled, data, {"model": source_hash(options["model"])})


def _named_sets(sets: Given) -> dict[str, Examples]:
    return {"query": sets.query, "calibration": sets.calibration, **named(sets.holdout)}


def _others(sets: Given) -> list[Examples]:
    """The sets that only simulated targets use."""
    extra = {part.examples.content_hash: part.examples for target in sets.simulated for part in target.parts}
    return [examples for examples in extra.values() if examples not in (sets.query, sets.calibration)]


def _provenance(options: Options, sets: Given, plan: Planned | None, started: float) -> dict[str, Any]:
    def described(files: list[Outputs]) -> list[dict[str, Any]]:
        return [{"name": file.name, "kind": file.kind, "content_hash": file.content_hash} for file in files]

    return {
        **describe_machine(),
        "command": command_line("ks", options),
        "model_hash": source_hash(options["model"]),
        "seed": options["seed"],
        "options": plain(options),
        "data": {
            **{name: describe_examples(examples) for name, examples in _named_sets(sets).items()},
            "target_data": [describe_examples(examples) for examples in _others(sets)],
        },
        "targets": described(sets.outputs),
        "holdout_targets": described(sets.on_holdout),
        "plan": None if plan is None else plan.numbers,
        "started": datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
    }
