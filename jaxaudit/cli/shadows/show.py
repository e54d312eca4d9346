"""Runs `jaxaudit shadows show`: describes a bank, the tests that it allows, and what is missing."""

import math
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.audits.ks.bank import HOLDOUT_MODELS, SHADOW_MODELS
from jaxaudit.audits.ks.train import Available, available_tests
from jaxaudit.audits.open_bank import Usable, kinds_of, pool_of, usable_models
from jaxaudit.cli.shadows import ShowOptions
from jaxaudit.cli.show import Summary
from jaxaudit.data.bank.bank import ARRAYS, Bank, load_bank
from jaxaudit.data.bank.description import DESCRIPTION, SCORED
from jaxaudit.data.bank.outputs import outputs_path
from jaxaudit.errors import visible, without_folders
from jaxaudit.shadow_models import kind_words

SCHEMA = "jaxaudit.shadows/1"
LISTED = 5
"""The most missing models that are listed."""
PLAN = ("jaxaudit", "shadows", "plan")


class Found(NamedTuple):
    """A bank, and its usable outputs."""

    bank: Bank
    path: Path
    usable: Usable
    tests: tuple[Available, ...]
    bytes: int

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
    paths = [bank.directory / name for name in (*ARRAYS, DESCRIPTION)]
    paths += [outputs_path(bank.directory, model) for model in bank.finished().tolist()]
    view = Found(bank, path, usable, tests, sum(path.lstat().st_size for path in paths if path.exists()))
    return Summary(tuple(_lines(view)), _facts(view))


def _facts(view: Found) -> dict[str, Any]:
    bank, description = view.bank, view.bank.description
    accuracy = {
        str(model): None if math.isnan(accuracy) else accuracy for model, accuracy in view.usable.accuracy.items()
    }
    return {
        "schema": SCHEMA,
        "bank": without_folders(str(view.path)),
        "outputs": description.outputs,
        "direction": description.direction,
        "classes": description.classes,
        "class_names": list(description.class_names),
        "views": description.queries,
        "records": {**description.sizes._asdict(), "dropped": int(bank.dropped.sum())},
        "hashes": {name: getattr(description.hashes, name) for name in description.sizes._fields},
        "groups": None if bank.groups is None else dict(zip(("query", "holdout"), bank.groups.counts[:2], strict=True)),
        "seed": description.seed,
        "recipe": description.recipe,
        "versions": dict(description.versions),
        "bytes": view.bytes,
        "models": len(bank),
        "finished": len(accuracy),
        "missing": view.missing,
        "refused": {str(model): why for model, why in view.usable.refused.items()},
        "training_accuracy": accuracy,
        "own_kinds": _own_kinds(view),
        "tests": {answer.test.name: _of_test(answer) for answer in view.tests},
        "next": visible(_next(view)),
    }


def _lines(view: Found) -> Iterator[str]:
    bank, description, sizes = view.bank, view.bank.description, view.bank.description.sizes
    kind = description.outputs.replace("_", "-")
    views = "" if description.queries == 1 else f", {description.queries} views of each record"
    outputs_text = f"{kind} of {description.classes} classes"
    if description.outputs in SCORED:
        outputs_text = f"{kind}, {description.direction} for records that a model was trained on"
    yield (
        f"{view.path}: {len(view.usable.accuracy)} of {len(bank)} shadow models finished; "
        f"{outputs_text}{views}; {_size(view.bytes)}"
    )
    names = {"query set": sizes.query, "holdout": sizes.holdout, "calibration set": sizes.calibration}
    yield f"  records: {', '.join(f'{count:,} {name}' for name, count in names.items() if count)}"
    if bank.dropped.any():
        yield f"  dropped: {int(bank.dropped.sum()):,} of these records, because of copies or classes"
    if bank.groups is not None:
        yield f"  groups: {bank.groups.in_words}"
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
    for kind, count in _own_kinds(view).items():
        planned = description.own_kinds[kind]
        yield visible(f"  tests of your own kind {kind}: {count} of {planned} models finished")
    for model, why in list(view.usable.refused.items())[:LISTED]:
        yield f"Not usable, model {model}: {why}"
    missing = view.missing
    if missing:
        more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        yield f"Missing: {', '.join(map(str, missing[:LISTED]))}{more}. To add one:"
    elif _next(view):
        yield "All models are finished. To plan more:"
    yield from (f"  {line}" for line in (_next(view),) if line)


def _own_kinds(view: Found) -> dict[str, int]:
    """The number of finished models of each kind that your own tests define."""
    kinds = kinds_of(view.bank)
    counts = Counter(kinds[model] for model in view.usable.accuracy)
    return {kind: counts[kind] for kind in view.bank.description.own_kinds}


def _of_test(answer: Available) -> dict[str, Any]:
    """The JSON of a test."""
    return {
        "test": answer.test.name,
        "title": answer.test.title,
        "possible": answer.possible,
        "complete": answer.complete,
        "finished": answer.finished,
        "planned": answer.planned,
        "least": dict(answer.test.least),
        "usual": answer.usual,
        "lacks": answer.lacks,
    }


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
    """The command that adds what is missing; empty if nothing is, or if the plan of the bank is unknown."""
    bank = shlex.quote(str(view.path))
    if view.missing and view.bank.description.models_per_batch is not None:
        return "(repeat the `jaxaudit shadows train` command that trained this bank)"
    if view.missing:
        return f"jaxaudit shadows add {bank} FILE --model {view.missing[0]}"
    description = view.bank.description
    number_needed = HOLDOUT_MODELS if description.sizes.holdout else SHADOW_MODELS
    words = description.command
    if (
        any(answer.will_be_complete for answer in view.tests)
        or words[: len(PLAN)] != PLAN
        or len(view.bank) - description.own_models >= number_needed
    ):
        return ""
    if any(word.startswith("--tests") for word in words):
        # `--tests` runs a file, so one that bank.json names is no part of a command to copy.
        return f"(repeat the `jaxaudit shadows plan` command that planned this bank, with --models {number_needed})"
    rest = list(words[len(PLAN) :])
    if "--models" in rest[:-1]:
        rest[rest.index("--models") + 1] = str(number_needed)
    # Whatever an untrusted bank.json contains, this command only runs the planner.
    return f"{shlex.join([*PLAN, *rest, '--out'])} {bank}"


def _size(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
