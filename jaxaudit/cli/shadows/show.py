"""Runs `jaxaudit shadows show`: describes a bank, the tests that it allows, and what is missing."""

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.audits.ks.available import Available, available_tests
from jaxaudit.audits.ks.bank.plan import HOLDOUT_MODELS, SHADOW_MODELS
from jaxaudit.audits.open_bank import Usable, kinds_of, pool_of, usable_models
from jaxaudit.cli.harness import Summary
from jaxaudit.cli.shadows.options import ShowOptions
from jaxaudit.data.bank.bank import ARRAYS, Bank, load_bank
from jaxaudit.data.bank.description import DESCRIPTION, SCORED
from jaxaudit.data.bank.outputs import outputs_path
from jaxaudit.errors import visible, without_folders

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


def show(options: ShowOptions) -> Summary:
    """A description of the bank."""
    path, bank = options.bank, load_bank(options.bank)
    usable = usable_models(bank)
    kinds = kinds_of(bank)
    tests = available_tests(pool_of(bank)[0], [kinds[model] for model in usable.accuracy], kinds)
    paths = [bank.directory / name for name in (*ARRAYS, DESCRIPTION)]
    paths += [outputs_path(bank.directory, model) for model in bank.finished().tolist()]
    found = Found(bank, path, usable, tests, sum(path.lstat().st_size for path in paths if path.exists()))
    return Summary(tuple(_lines(found)), _facts(found))


def _facts(found: Found) -> dict[str, Any]:
    bank, said = found.bank, found.bank.description
    accuracy = {str(model): None if math.isnan(each) else each for model, each in found.usable.accuracy.items()}
    return {
        "schema": SCHEMA,
        "bank": without_folders(str(found.path)),
        "outputs": said.outputs,
        "direction": said.direction,
        "classes": said.classes,
        "class_names": list(said.class_names),
        "views": said.queries,
        "records": {**said.sizes._asdict(), "dropped": int(bank.dropped.sum())},
        "hashes": {name: getattr(said.hashes, name) for name in said.sizes._fields},
        "groups": None if bank.groups is None else dict(zip(("query", "holdout"), bank.groups.counts[:2], strict=True)),
        "designs": list(said.designs),
        "seed": said.seed,
        "recipe": said.recipe,
        "versions": dict(said.versions),
        "bytes": found.bytes,
        "models": len(bank),
        "finished": len(accuracy),
        "missing": found.missing,
        "refused": {str(model): why for model, why in found.usable.refused.items()},
        "training_accuracy": accuracy,
        "tests": {each.test: each._asdict() for each in found.tests},
        "next": visible(_next(found)),
    }


def _lines(found: Found) -> Iterator[str]:
    bank, said, sizes = found.bank, found.bank.description, found.bank.description.sizes
    kind = said.outputs.replace("_", "-")
    views = "" if said.queries == 1 else f", {said.queries} views of each record"
    what = f"{kind} of {said.classes} classes"
    if said.outputs in SCORED:
        what = f"{kind}, {said.direction} for records that a model was trained on"
    yield (
        f"{found.path}: {len(found.usable.accuracy)} of {len(bank)} shadow models finished; "
        f"{what}{views}; {_size(found.bytes)}"
    )
    names = {"query set": sizes.query, "holdout": sizes.holdout, "calibration set": sizes.calibration}
    yield f"  records: {', '.join(f'{count:,} {name}' for name, count in names.items() if count)}"
    if bank.dropped.any():
        yield f"  dropped: {int(bank.dropped.sum()):,} of these records, because of copies or classes"
    if bank.groups is not None:
        query, holdout, _ = bank.groups.counts
        yield f"  groups: {query:,} of the query set, {holdout:,} of the holdout, dealt whole"
    if said.designs:
        yield f"  designs: {', '.join(said.designs)}"
    if said.recipe:
        yield f"  recipe: {said.recipe}"
    yield f"  seed: {'not dealt by jaxaudit' if said.seed is None else said.seed}"
    accuracy = {model: each for model, each in found.usable.accuracy.items() if not math.isnan(each)}
    if accuracy:
        worst = min(accuracy, key=lambda model: accuracy[model])
        mean = float(np.mean(list(accuracy.values())))
        yield f"  accuracy on own training records: mean {mean:.1%}, lowest {accuracy[worst]:.1%} (model {worst})"
    yield "Tests that the finished models allow:"
    for each in found.tests:
        yield f"  {each.title}: {_answer(each)}"
    for model, why in list(found.usable.refused.items())[:LISTED]:
        yield f"Not usable, model {model}: {why}"
    missing = found.missing
    if missing:
        more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        yield f"Missing: {', '.join(map(str, missing[:LISTED]))}{more}. To add one:"
    elif _next(found):
        yield "All models are finished. To plan more:"
    yield from (f"  {each}" for each in (_next(found),) if each)


def _answer(test: Available) -> str:
    if test.lacks:
        return f"no. {test.lacks}"
    if not any(test.planned[kind] for kind, count in test.least.items() if count):
        return "no. The bank has no models for it."
    have = (
        f"{test.finished[kind]} {kind.words} ({f'needed: {least}, ' if least else ''}by default {test.usual[kind]})"
        for kind, least in test.least.items()
    )
    return f"{'yes' if test.possible else 'no'}. Finished models: {', '.join(have)}."


def _next(found: Found) -> str:
    """The command that adds what is missing; empty if nothing is, or if the plan of the bank is unknown."""
    bank = shlex.quote(str(found.path))
    if found.missing and found.bank.description.models_per_batch is not None:
        return "(repeat the `jaxaudit shadows train` command that trained this bank)"
    if found.missing:
        return f"jaxaudit shadows add {bank} FILE --model {found.missing[0]}"
    wanted = HOLDOUT_MODELS if found.bank.description.sizes.holdout else SHADOW_MODELS
    words = found.bank.description.command
    if any(each.will_be_complete for each in found.tests) or words[: len(PLAN)] != PLAN or len(found.bank) >= wanted:
        return ""
    rest = list(words[len(PLAN) :])
    if "--models" in rest[:-1]:
        rest[rest.index("--models") + 1] = str(wanted)
    # Whatever an untrusted bank.json contains, this command only runs the planner.
    return f"{shlex.join([*PLAN, *rest, '--out'])} {bank}"


def _size(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
