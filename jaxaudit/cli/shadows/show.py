"""Runs `jaxaudit shadows show`: describes a bank, the tests that it allows, and what is missing."""

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.audits.ks.train import Available, available_tests
from jaxaudit.audits.open_bank import Usable, kinds_of, pool_of, usable_models
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


class Found(NamedTuple):
    """A bank, and its usable outputs."""

    bank: Bank
    path: Path
    usable: Usable
    tests: tuple[Available, ...]

    @property
    def missing(self) -> list[int]:
        """The models without usable outputs."""
        return [model for model in range(len(self.bank)) if model not in self.usable.accuracy]


def show_bank(options: ShowOptions) -> Summary:
    """A description of the bank."""
    path, bank = options.bank, load_bank(options.bank)
    usable = usable_models(bank)
    kinds = kinds_of(bank)
    tests = available_tests(pool_of(bank)[0], [kinds[model] for model in usable.accuracy], kinds)
    view = Found(bank, path, usable, tests)
    return Summary(tuple(_lines(view)), _facts(view))


def _facts(view: Found) -> dict[str, Any]:
    accuracy = {
        str(model): None if math.isnan(accuracy) else accuracy for model, accuracy in view.usable.accuracy.items()
    }
    return {
        "schema": SCHEMA,
        "bank": without_folders(str(view.path)),
        "models": len(view.bank),
        "finished": len(accuracy),
        "missing": view.missing,
        "refused": {str(model): why for model, why in view.usable.refused.items()},
        "training_accuracy": accuracy,
        "tests": {answer.test.name: {"possible": answer.possible, "lacks": answer.lacks} for answer in view.tests},
        "next": _next(view),
    }


def _lines(view: Found) -> Iterator[str]:
    bank, description, sizes = view.bank, view.bank.description, view.bank.description.sizes
    kind = description.outputs.replace("_", "-")
    views = "" if description.queries == 1 else f", {description.queries} views of each record"
    outputs_text = f"{kind} of {description.classes} classes"
    if description.outputs in SCORED:
        outputs_text = f"{kind}, {description.direction} for records that a model was trained on"
    yield (f"{view.path}: {len(view.usable.accuracy)} of {len(bank)} shadow models finished; {outputs_text}{views}")
    names = {"query set": sizes.query, "holdout": sizes.holdout, "calibration set": sizes.calibration}
    yield f"  records: {', '.join(f'{count:,} {name}' for name, count in names.items() if count)}"
    if bank.dropped.any():
        yield f"  dropped: {int(bank.dropped.sum()):,} of these records, because of copies or classes"
    if bank.groups is not None:
        of_sets = Sets(query=bank.groups[bank.query], holdout=bank.groups[bank.holdout])
        yield f"  groups: {groups_in_words(of_sets)}"
    if description.recipe:
        yield f"  recipe: {description.recipe}"
    yield f"  seed: {'not dealt by jaxaudit' if description.seed is None else description.seed}"
    accuracy = {model: accuracy for model, accuracy in view.usable.accuracy.items() if not math.isnan(accuracy)}
    if accuracy:
        worst = min(accuracy, key=lambda model: accuracy[model])
        mean = float(np.mean(list(accuracy.values())))
        yield f"  accuracy on own training records: mean {mean:.1%}, lowest {accuracy[worst]:.1%} (model {worst})"
    yield "Tests that the finished models allow:"
    for answer in view.tests:
        yield f"  {answer.test.title}: {_answer(answer)}"
    for model, why in list(view.usable.refused.items())[:LISTED]:
        yield f"Not usable, model {model}: {why}"
    missing = view.missing
    if missing:
        more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        yield f"Missing: {', '.join(map(str, missing[:LISTED]))}{more}. To add one:"
        yield f"  {_next(view)}"


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


def _next(view: Found) -> str:
    """The command that adds what is missing; empty if nothing is."""
    if view.missing and view.bank.description.models_per_batch is not None:
        return "(repeat the `jaxaudit shadows train` command that trained this bank)"
    bank = shlex.quote(str(view.path))
    return f"jaxaudit shadows add {bank} FILE --model {view.missing[0]}" if view.missing else ""
