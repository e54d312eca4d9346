"""Adapters side by side on a GPT-2-sized base, beside a loop of `peft`; see `bench.adapters`."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.adapters import BATCH, COMPILED, PEFT, RECORDS, Beside, learner_of, save_base, side_by_side
from bench.device.measuring import ABSENT, JAXAUDIT, Asked, Contender, Outcome, in_turns, library
from jaxaudit.learners import LanguageModelLearner

GOAL, GOAL_MODELS = 8, 64
WORDS = 2048
"""Few, so that the output layer, which both sides have in the same form, does not outweigh the base."""


def piece(asked: Asked, outcome: Outcome) -> None:
    for name in ("torch", "torchax", "transformers"):
        if library(name) is None:
            outcome.leave_out("the whole piece", f"{name} is {ABSENT}")
            return
    width, layers = (64, 1) if asked.reduced else (768, 12)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_base(folder, width, layers, WORDS)
        learner = learner_of(folder, WORDS)
        processes = rivals(asked, outcome, folder)
        try:
            builders = {
                f"{JAXAUDIT}, {models}": partial(by_jaxaudit, outcome, learner, models) for models in sizes(asked)
            }
            builders |= {rival: partial(_asked_for, process, count) for rival, (process, count) in processes.items()}
            # What is promised comes first, should time end.
            promised = (f"{JAXAUDIT}, {sizes(asked)[-1]}", PEFT)
            order = sorted(builders, key=lambda name: name not in promised)
            timings = in_turns(
                asked, outcome, f"a model, {RECORDS // BATCH} steps", {name: builders[name] for name in order}
            )
        finally:
            for process, _ in processes.values():
                process.end()
    for models in sizes(asked):
        for rival in processes:
            if not {rival, f"{JAXAUDIT}, {models}"} <= set(timings.seconds):
                continue
            ratio, text = timings.ratio(rival, f"{JAXAUDIT}, {models}"), f"{rival} / {JAXAUDIT}, {models} models"
            if rival == PEFT and models == GOAL_MODELS:
                outcome.promise(asked, text, ratio, GOAL)
            else:
                outcome.notes.append(f"{text}: {ratio.median:.3g} ({ratio.low:.3g} to {ratio.high:.3g})")


def sizes(asked: Asked) -> tuple[int, ...]:
    """How many models are trained."""
    return (2, 4) if asked.reduced else (16, GOAL_MODELS)


def by_jaxaudit(outcome: Outcome, learner: LanguageModelLearner, models: int) -> Contender:
    """All models side by side, or half of them, or a quarter, where memory ends before."""
    for number in (models, models // 2):
        epoch = side_by_side(learner, number, models)
        try:
            epoch()
        except RuntimeError as error:  # XLA's, when memory is exhausted
            outcome.leave_out(f"{models} models, {number} at a time", error)
            continue
        return _repeated(epoch, models, outcome, number)
    number = models // 4
    return _repeated(side_by_side(learner, number, models), models, outcome, number)


def _repeated(epoch: Callable[[], object], models: int, outcome: Outcome, number: int) -> Contender:
    outcome.notes.append(f"{models} models were trained {number} at a time")
    return Contender(lambda times: [epoch() for _ in range(times)], models)


def rivals(asked: Asked, outcome: Outcome, folder: Path) -> dict[str, tuple[Beside, int]]:
    """`peft` in processes of their own, which start at once, and how many models each trains a time."""
    if library("peft") is None:
        outcome.leave_out("peft", ABSENT)
        return {}
    models = 1 if asked.reduced else 2
    forms = [PEFT, *([COMPILED] if "compiled" in asked.rivals else [])]
    return {form: (Beside(folder, form, models), models) for form in forms}


def _asked_for(process: Beside, models: int) -> Contender:
    return Contender(lambda times: [process() for _ in range(times)], models)
