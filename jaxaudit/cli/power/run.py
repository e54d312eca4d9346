"""Runs `jaxaudit power`: from its options to its result."""

from dataclasses import replace

import jax

from jaxaudit.audits.power.audit import audit_power
from jaxaudit.audits.power.result import Power
from jaxaudit.cli.groups import Network
from jaxaudit.cli.harness import Job, Outcome
from jaxaudit.cli.ks.designs import make_designs
from jaxaudit.cli.networks import make_shadow_learner, with_defaults
from jaxaudit.cli.power.command import SHADOW_MODELS, PowerOptions
from jaxaudit.cli.read_sets import read_sets, reader, tell_of_large_numbers
from jaxaudit.cli.sets import ShadowRecipe
from jaxaudit.data import is_image
from jaxaudit.data.groups import as_groups, groups_file, load_groups
from jaxaudit.ensemble import Execution
from jaxaudit.learners import SteppedLearner
from jaxaudit.report.power.record import power_record
from jaxaudit.report.record import Provenance
from jaxaudit.runs.provenance import describe_examples


def prepare(options: PowerOptions) -> Job[Power]:
    """The work that these options mean."""
    data, model, recipe = with_defaults(options.data, options.model, options.recipe)
    # A column with groups is no input.
    named = data.groups is not None and groups_file(data.groups) is None
    query, calibration, _ = read_sets(data, reader(data, [data.groups or ""] if named else []))
    model = replace(model, model=model.model or ("liu-cnn" if is_image(query) else "mlp"))
    tell_of_large_numbers(model.model, (query.inputs, calibration.inputs))
    audited = replace(options.audit, holdout_shadow_models=options.audit.holdout_shadow_models or SHADOW_MODELS)
    groups = None
    if data.groups is not None:
        groups = load_groups(data.groups, data.query or "", len(query), "query set", data.data_dir)

    def make(network: Network, recipe: ShadowRecipe) -> SteppedLearner:
        return make_shadow_learner(network, recipe, query, len(query) + len(calibration))

    models, sets = audited.holdout_shadow_models or SHADOW_MODELS, {"query": query, "calibration": calibration}

    def audit(execution: Execution) -> Power:
        return audit_power(
            jax.random.key(audited.seed),
            query,
            calibration,
            make(model, recipe),
            designs=make_designs(audited.designs, model, recipe, query.inputs.shape[1:], make),
            groups=groups,
            holdout_size=data.holdout_size,
            fraction=audited.fraction,
            models=models,
            execution=execution,
        )

    hashes = {name: examples.content_hash for name, examples in sets.items()}
    if groups is not None:
        hashes["groups"] = as_groups(groups, groups[:0]).content_hash

    def outcome(found: Power, provenance: Provenance) -> Outcome:
        return Outcome(power_record(found, provenance), {}, {})

    return Job(
        options=replace(options, data=data, model=model, recipe=recipe, audit=audited),
        data={name: describe_examples(examples) for name, examples in sets.items()},
        hashes=hashes,
        audit=audit,
        outcome=outcome,
        models=lambda _: models,
        line=f"training {model.model} models on {jax.default_backend()}, {recipe.duration}",
        record_shape=query.inputs.shape[1:],
        classes=len(query.class_names),
    )
