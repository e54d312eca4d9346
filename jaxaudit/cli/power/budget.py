"""`--budget` of `power`: plans the measurement that fits a time limit on this machine, and reports what it reduces."""

from dataclasses import replace
from typing import Any

from jaxaudit.audits.power.plan import Free, Pace, Work, choose, least, reduced, seconds_of
from jaxaudit.cli.harness import Summary
from jaxaudit.cli.ks.budget import FIXED_SECONDS, TRAINING_SHARE, USUAL, speed_of
from jaxaudit.cli.networks import mean_cost
from jaxaudit.cli.options import plain
from jaxaudit.cli.own_code import source_hashes
from jaxaudit.cli.power.command import SHADOW_MODELS, PowerOptions
from jaxaudit.cli.progress import duration
from jaxaudit.cli.tuning import recall_models_per_batch, remember_models_per_batch
from jaxaudit.data import Examples
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner


def plan_within(
    budget: float | None,
    given: PowerOptions,
    options: PowerOptions,
    sets: tuple[Examples, Examples],
    learner: SteppedLearner,
    designs: int,
) -> tuple[PowerOptions, Summary]:
    """The options for a measurement of at most `budget` seconds, and the plan; given options are not changed.

    Args:
        budget: seconds in total; None for no limit.
        given: the options of the command line; None where not given.
        options: the same with defaults.
        sets: query and calibration set, or a sample of them if one was requested.
        learner: of the guessed design.
        designs: number of designs.
    """
    work = work_of(options, *sets)
    pace = _pace(options, sets[0], learner, designs)
    free = Free(
        models=given.audit.holdout_shadow_models is None,
        records=given.data.sample is None,
        epochs=given.recipe.epochs is None,
    )
    room = float("inf") if budget is None else TRAINING_SHARE * budget - FIXED_SECONDS
    chosen = choose(work, pace, room, free)
    if chosen is None:
        needed = (seconds_of(least(work, free), pace) + FIXED_SECONDS) / TRAINING_SHARE
        raise InputError(
            f"--budget {given.audit.budget or USUAL} is too short for these options: the smallest measurement takes "
            f"about {duration(needed)}. Give --budget {int(needed // 60) + 1}m or more, or --budget none, or fewer of "
            "--holdout-shadow-models, --sample and --epochs."
        )
    fewer = chosen[:2] != work[:2]
    planned = replace(
        options,
        data=replace(options.data, sample=max(chosen[:2]) if fewer else options.data.sample),
        recipe=replace(options.recipe, epochs=chosen.epochs),
        audit=replace(options.audit, holdout_shadow_models=chosen.models),
    )
    return planned, _told(work, chosen, pace, budget)


def work_of(options: PowerOptions, query: Examples, calibration: Examples) -> Work:
    """The training that these options require, on the whole sets."""
    return Work(
        len(query), len(calibration), options.audit.holdout_shadow_models or SHADOW_MODELS, options.recipe.epochs or 1
    )


def _pace(options: PowerOptions, query: Examples, learner: SteppedLearner, designs: int) -> Pace:
    """The training speed on this machine, measured once as for `ks`."""
    model, recipe = options.model, options.recipe
    speed = speed_of((model.model or "", model.hidden or ""), options, query, learner)
    facts = {**plain(options), "command": "power"}
    facts |= {
        "record": list(query.inputs.shape[1:]),
        "classes": len(query.class_names),
        "source": source_hashes(options).get("model"),
    }
    number = recipe.models_per_batch or recall_models_per_batch(facts)
    if number is None:
        # So that a run without a budget uses the same number of models per batch and gets the same results.
        number = speed.models_per_batch
        remember_models_per_batch(facts, number)
    cost = mean_cost(options.audit.designs, model, recipe, query.inputs.shape[1:])
    return Pace(speed._replace(models_per_batch=number), recipe.batch_size, designs, cost)


def _told(full: Work, work: Work, pace: Pace, budget: float | None) -> Summary:
    seconds, whole = (seconds_of(each, pace) + FIXED_SECONDS for each in (work, full))
    less = reduced(full, work)
    within = "no time limit" if budget is None else f"of a budget of {duration(budget)}"
    lines = [
        f"Plan: {work.models} models, {work.query:,} query records, {work.calibration:,} calibration records, "
        f"{work.epochs} epochs",
        f"  time: about {duration(seconds)}, {within}",
    ]
    if less:
        lines += [f"  reduced: {'; '.join(less)}", f"  in full: --budget none, about {duration(whole)}"]
    numbers: dict[str, Any] = {
        "budget_seconds": budget,
        "seconds": round(seconds, 1),
        "full_seconds": round(whole, 1),
        "models": work.models,
        "reduced": list(less),
        "seconds_a_model_step": pace.speed.step,
    }
    return Summary(tuple(lines), numbers)
