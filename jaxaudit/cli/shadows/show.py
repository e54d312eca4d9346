"""Runs `jaxaudit shadows show`: describes a bank, the tests that it allows, and what is missing."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxaudit.audits.ks.train import Available, available_tests
from jaxaudit.audits.open_bank import kinds_of, pool_of, usable_models
from jaxaudit.cli.shadows import ShowOptions
from jaxaudit.cli.show import Summary
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.data.bank.description import SCORED
from jaxaudit.data.examples import Sets
from jaxaudit.data.groups import groups_in_words
from jaxaudit.errors import without_folders
from jaxaudit.shadow_models import kind_words

SCHEMA = "jaxaudit.shadows/1"
LISTED = 5
"""The most missing models that are listed."""


def show_bank(options: ShowOptions) -> Summary:
    """A description of the bank."""
    bank = load_bank(options.bank)
    usable, kinds = usable_models(bank), kinds_of(bank)
    tests = available_tests(pool_of(bank)[0], [kinds[model] for model in usable.accuracy], kinds)
    missing = [model for model in range(len(bank)) if model not in usable.accuracy]
    facts = {
        "schema": SCHEMA,
        "bank": without_folders(str(options.bank)),
        "models": len(bank),
        "finished": len(usable.accuracy),
        "missing": missing,
        "refused": {str(model): why for model, why in usable.refused.items()},
        "training_accuracy": {
            str(model): None if math.isnan(accuracy) else accuracy for model, accuracy in usable.accuracy.items()
        },
        "tests": {answer.test.name: {"possible": answer.possible, "lacks": answer.lacks} for answer in tests},
        "next": _next(options.bank, bank, missing),
    }
    return Summary(tuple(_lines(options.bank, bank, facts, tests)), facts)


def _lines(path: Path, bank: Bank, facts: Mapping[str, Any], tests: Sequence[Available]) -> Iterator[str]:
    description, sizes = bank.description, bank.description.sizes
    kind = description.outputs.replace("_", "-")
    views = "" if description.queries == 1 else f", {description.queries} views of each record"
    outputs_text = f"{kind} of {description.classes} classes"
    if description.outputs in SCORED:
        outputs_text = f"{kind}, {description.direction} for records that a model was trained on"
    yield f"{path}: {facts['finished']} of {len(bank)} shadow models finished; {outputs_text}{views}"
    names = {"query set": sizes.query, "holdout": sizes.holdout, "calibration set": sizes.calibration}
    yield f"  records: {', '.join(f'{count:,} {name}' for name, count in names.items() if count)}"
    if bank.dropped.any():
        yield f"  dropped: {int(bank.dropped.sum()):,} of these records, because of copies"
    if bank.groups is not None:
        of_sets = Sets(query=bank.groups[bank.query], holdout=bank.groups[bank.holdout])
        yield f"  groups: {groups_in_words(of_sets)}"
    if description.recipe:
        yield f"  recipe: {description.recipe}"
    yield f"  seed: {'not dealt by jaxaudit' if description.seed is None else description.seed}"
    accuracy = {model: number for model, number in facts["training_accuracy"].items() if number is not None}
    if accuracy:
        worst, mean = min(accuracy, key=lambda model: accuracy[model]), float(np.mean(list(accuracy.values())))
        yield f"  accuracy on own training records: mean {mean:.1%}, lowest {accuracy[worst]:.1%} (model {worst})"
    yield "Tests that the finished models allow:"
    for answer in tests:
        yield f"  {answer.test.title}: {_answer(answer)}"
    for model, why in list(facts["refused"].items())[:LISTED]:
        yield f"Not usable, model {model}: {why}"
    missing = facts["missing"]
    if missing:
        more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        yield f"Missing: {', '.join(map(str, missing[:LISTED]))}{more}. To add one:"
        yield f"  {facts['next']}"


def _answer(answer: Available) -> str:
    if answer.lacks:
        return f"no. {answer.lacks}"
    least = answer.test.least
    if not any(answer.planned[field] for field, count in least.items() if count):
        return "no. The bank has no models for it."
    have = (
        f"{answer.finished[field]} {kind_words(answer.kinds[field])} "
        f"({f'needed: {count}, ' if count else ''}by default {answer.usual[field]})"
        for field, count in least.items()
    )
    return f"{'yes' if answer.possible else 'no'}. Finished models: {', '.join(have)}."


def _next(path: Path, bank: Bank, missing: Sequence[int]) -> str:
    """The command that adds what is missing; empty if nothing is."""
    if missing and bank.description.models_per_batch is not None:
        return "(repeat the `jaxaudit shadows train` command that trained this bank)"
    return f"jaxaudit shadows add {shlex.quote(str(path))} FILE --model {missing[0]}" if missing else ""
