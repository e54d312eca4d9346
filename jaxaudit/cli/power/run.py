"""What `jaxaudit power` does between its options and its result."""

import datetime
import time
from typing import Any

import jax

from jaxaudit.audits.power.audit import Power, audit_power
from jaxaudit.cli.ks.inputs import read_sets, reader
from jaxaudit.cli.ks.run import make_learner, with_defaults
from jaxaudit.cli.own_model import source_hash
from jaxaudit.cli.progress import progress_on_stderr
from jaxaudit.cli.recipe import make_optimizer
from jaxaudit.cli.repeat import Options, command_line, plain
from jaxaudit.cli.widths import recall_width, remember_width
from jaxaudit.cli.words import check_share, parse_hidden, parse_image_size
from jaxaudit.cli.work import Begin
from jaxaudit.data import is_image
from jaxaudit.ensemble import Execution
from jaxaudit.report.power.record import power_json
from jaxaudit.runs.identity import run_identity
from jaxaudit.runs.provenance import describe_examples, describe_machine


def run(options: Options, begin: Begin) -> tuple[dict[str, Any], Power]:
    """The result of `jaxaudit power` with these options, as a JSON object and as it is."""
    started = time.time()
    options = with_defaults(options)
    size, hidden = parse_image_size(options["image_size"]), parse_hidden(options["hidden"])
    optimizer = make_optimizer(options["optimizer"], options["learning_rate"])
    check_share("fraction", options["fraction"])
    query, calibration = read_sets(options, reader(options, size))
    options["model"] = options["model"] or ("liu-cnn" if is_image(query) else "mlp")
    learner = make_learner(options, hidden, optimizer, query, len(query) + len(calibration))
    work = {**plain(options), "query": query.inputs.shape, "calibration": len(calibration), "command": "power"}
    models = options["holdout_shadows"]
    line = f"training {models} {options['model']} models on {jax.default_backend()}, {options['epochs']} epochs each"
    sets = {"query": query, "calibration": calibration}
    # Where the data lie does not matter, only what they are.
    settled = {name: value for name, value in plain(options).items() if name not in ("data_dir", "field_strength")}
    data = {name: examples.content_hash for name, examples in sets.items()}
    checkpoints = begin(run_identity("power", settled, data, {"model": source_hash(options["model"])}), models, line)
    with progress_on_stderr("training") as progress:
        answer = audit_power(
            jax.random.key(options["seed"]),
            query,
            calibration,
            learner,
            holdout_size=options["holdout_size"],
            fraction=options["fraction"],
            models=models,
            execution=Execution(options["width"] or recall_width(work), progress, checkpoints),
        )
    if options["width"] is None:
        options["width"] = answer.models_per_batch
        remember_width(work, answer.models_per_batch)
    provenance = {
        **describe_machine(),
        "command": command_line("power", options),
        "model_hash": source_hash(options["model"]),
        "seed": options["seed"],
        "options": plain(options),
        "data": {name: describe_examples(examples) for name, examples in sets.items()},
        "started": datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
    }
    return power_json(answer, provenance), answer
