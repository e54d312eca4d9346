"""`--effort` of `ks` and `power`: plans an audit of a named size, and says what was left out and how long it takes.

The plan is a function of shapes and options (`audits/ks/train.py`). The time that is said is not: it follows from how
fast this machine is now, and is not kept in the result.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import jax
import numpy as np

from jaxaudit.audits.ks.taught import lesson_operations
from jaxaudit.audits.ks.tests_of_use import KSTest
from jaxaudit.audits.ks.train import Free, Plan, Work, choose, no_lesson, sizes_of
from jaxaudit.cli.ks.inputs import Case
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.networks import time_of
from jaxaudit.cli.options import Options, with_usual
from jaxaudit.cli.own_code import parse_field, with_fields
from jaxaudit.cli.progress import say
from jaxaudit.cli.show import Summary
from jaxaudit.data import Examples
from jaxaudit.data.examples import Role
from jaxaudit.data.groups import groups_by_role
from jaxaudit.ensemble import StepCost, count_step, usual_models_per_batch
from jaxaudit.learners import SteppedLearner
from jaxaudit.metrics.deal import groups_in_sample
from jaxaudit.randomness import generator_of, stream

SETS = ("query", "calibration", "holdout", "member")
"""Roles of sets, in the order of `Work.records`."""
LIGHTER = {"liu-cnn": (("mlp", "512,256,128"), ("mlp", "128")), "mlp": (("mlp", "128"),)}
"""Replacements for a model that is too slow, the most similar first."""


def planned_sets(
    given_options: Options,
    options: Options,
    whole: Case,
    work_of: Callable[[Case], Work],
    networks: Sequence[tuple[str, str]],
    learner_of: Callable[[Case, str, str], SteppedLearner],
    of_tests: Callable[[Options, Work, Work], Mapping[str, Any]],
    *,
    epochs_last: bool = False,
) -> tuple[Options, Case, Summary | None]:
    """The options with what their plan chose, the sets as far as it uses them, and what is said of it, if anything.

    `work_of` is what the options ask for, `networks` are the requested one and those that may replace it, `of_tests`
    the options by which the tests of a plan differ.
    """
    key, in_full = jax.random.key(options.seed), options.effort == "full"
    sets = take_records(whole, options.sample, key)
    if in_full and options.models_per_batch is not None:
        return options, sets, None
    full, free = work_of(sets), Free(given_options.sample is None, given_options.epochs is None, epochs_last)

    @cache
    def learner(network: tuple[str, str]) -> SteppedLearner:
        return learner_of(sets, *network)

    @cache
    def cost_of_network(network: tuple[str, str]) -> StepCost:
        return count_step(learner(network), sets.query.inputs, sets.query.labels)

    def plan_of_effort(effort: str) -> Plan:
        return choose(full, map(cost_of_network, networks), effort, free)

    plan = plan_of_effort(options.effort)
    network, work = networks[plan.network], plan.work
    number = options.models_per_batch or usual_models_per_batch(learner(network), plan.cost)
    chosen = {"model": network[0], "hidden": network[1], "epochs": work.epochs, **of_tests(options, work, full)}
    if max(work.records) < max(full.records):
        chosen["sample"] = max(work.records)
    options = with_usual(replace(options, **chosen), models_per_batch=number)
    if in_full:
        return options, take_records(whole, options.sample, key), None
    kinds = {**models_by_test(work), "targets": len(work.targets)}
    models = sum(kinds.values())
    counts_text = ", ".join(f"{count} for {name}" for name, count in kinds.items() if count)
    sizes = zip(SETS, work.records, full.records, strict=True)
    of = [f"{now:,}{f' of {all_:,}' if now < all_ else ''} {name} records" for name, now, all_ in sizes if all_]
    instead = f"{_named(network)} instead of {_named(networks[0])} (--model prevents this)"
    reduced = (*([] if network == networks[0] else [instead]), *reductions(full, work))
    operations_in_full = plan_of_effort("full").operations
    lines = [
        f"Plan: {models} models ({counts_text}), {_named(network)}, {work.epochs} epochs",
        f"  data: {', '.join(of)}",
        f"  time: {time_of(plan.operations, plan.cost)}",
    ]
    if reduced:
        lines.append(f"  reduced: {'; '.join(reduced)}")
        lines.append(f"  --effort full: {time_of(operations_in_full, plan.cost)}; nothing reduced")
    numbers = {
        "effort": options.effort,
        "operations": plan.operations,
        "reduced": list(reduced),
        "operations_in_full": operations_in_full,
        "models": models,
        # Reductions that change what the shadow models are like; fewer models do not.
        "unlike": [reduction for reduction in reduced if not reduction.startswith("models of ")],
    }
    for line in lines:
        say(line)
    return options, take_records(whole, options.sample, key), Summary(tuple(lines), numbers)


def networks_of(given_options: KSOptions, options: KSOptions, tests: Sequence[KSTest]) -> list[tuple[str, str]]:
    """The network of these options, and those that may replace it."""
    network = (options.model or "", options.hidden or "")
    is_free = given_options.model is None and given_options.hidden is None
    # rho is the paper's, and so is its network.
    lighter = LIGHTER.get(network[0], ()) if is_free and not any(test.name == "rho" for test in tests) else ()
    return list(dict.fromkeys([network, *lighter]))


def changed_fields(options: KSOptions, work: Work, full: Work) -> dict[str, tuple[str, ...]]:
    """The fields of tests that a plan chose, beside those that were given."""
    changed = [
        f"{test.name}.{field.name}={getattr(test, field.name)}"
        for test, before in zip(work.tests, full.tests, strict=True)
        for field in fields(test)  # pyright: ignore[reportArgumentType]
        if getattr(test, field.name) != getattr(before, field.name)
    ]
    return {"test_option": (*options.test_option, *changed)}


def take_records(sets: Case, records: int | None, key: Any) -> Case:
    """At most `records` records of each set, drawn at random, and the outputs on them.

    A larger sample contains a smaller one. The sample does not depend on outputs or labels, so query set and holdout
    stay exchangeable if they were. With groups, whole groups are drawn (`groups_in_sample`).
    """
    if not records:
        return sets
    groups = groups_by_role(sets.sets)

    def drawn(role: str, examples: Examples, of_records: np.ndarray | None) -> np.ndarray:
        generator = generator_of(stream(key, "records", role))
        if of_records is None:
            return np.sort(generator.permutation(len(examples))[:records])
        count = groups_in_sample(records, np.concatenate([*groups.only(Role.QUERY, Role.HOLDOUT).values()]))
        return np.flatnonzero(np.isin(of_records, generator.permutation(np.unique(of_records))[:count]))

    rows = sets.sets.map(lambda role, examples: drawn(role, examples, groups.get(role)))
    return sets.take(rows)


def work_of(given_options: KSOptions, options: KSOptions, sets: Case, tests: tuple[KSTest, ...]) -> Work:
    sizes, query = sets.sizes, len(sets.query)
    targets = tuple(sum(round(part.fraction * len(part.examples)) for part in one.parts) for one in sets.simulated)
    lightest = {test.name: test.lighter() for test in tests}
    # Of a rho without replicates nothing is left to set.
    set_fields = [text for text in given_options.test_option if parse_field("--test-option", text)[0] in lightest]
    return Work(
        query=query,
        calibration=sizes.get(Role.CALIBRATION, 0),
        holdout=sizes.get(Role.HOLDOUT, 0),
        targets=targets,
        whole=query,
        tests=tests,
        epochs=options.epochs or 0,
        batch_size=options.batch_size,
        members=sizes.get(Role.MEMBERS, 0),
        lightest=tuple(with_fields("--test-option", set_fields, lightest).values()),
        lesson=partial(lesson_operations, sets.query)
        if any(Role.HOLDOUT in test.roles for test in tests)
        else no_lesson,
    )


def models_by_test(work: Work) -> dict[str, int]:
    """The number of models of each test, by title."""
    return {test.title: sum(count for count, _ in models) for test, models in sizes_of(work.tests, work.sizes)}


def reductions(full: Work, work: Work) -> Iterator[str]:
    """What a work has less of than the full one, in words."""
    for name, before, after in zip(SETS, full.records, work.records, strict=True):
        if after < before:
            yield f"{name} records {before:,} to {after:,}"
    before, after = models_by_test(full), models_by_test(work)
    for name, count in after.items():
        if count < before[name]:
            yield f"models of {name if name == 'rho' else f'the {name}'} {before[name]} to {count}"
    if work.epochs < full.epochs:
        yield f"epochs {full.epochs} to {work.epochs}"


def _named(network: tuple[str, str]) -> str:
    return f"mlp ({network[1]})" if network[0] == "mlp" else network[0]
