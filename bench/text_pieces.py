"""A step of a language model by pieces, beside the whole minibatch at once: `python -m bench.text_pieces`.

Promised, on two CPU cores: by pieces a step takes no more than 1/1.8 of the time, and a tenth of the memory, of all
logits and all attention at once; and training, `fit_many` as a whole, no more than 1/1.8 of the time. One model of
`gpt-2-64`, minibatches of 64 texts whose lengths are spread as TOFU's are (half of them below .42 of the longest, two
thirds of their tokens count): 144 words of 3,661, and 640 bytes. The gradients are first held against each other. Times
are of one thread of one model, memory is what the compiler reserves beside arguments and results. Training is of two
models at the same time for three minibatches each, and of the words alone: eight models of 800 texts took more than
24 GB by whole minibatches. Two minutes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxaudit as ja
from bench.harness import Bench, Claim, Spread, interleave, report
from jaxaudit.learners import LanguageModelLearner
from jaxaudit.membership import everyone
from jaxaudit.models import GPT

BATCH, ROUNDS = 64, 5
CASES = {"words": (144, 3661), "bytes": (640, 257)}
TRAINED, MODELS, STEPS = "words", 2, 3
WHOLE, PIECES = "whole minibatch", "by pieces"
AGREE, FASTER, SMALLER = 1e-5, 1.8, 10


def texts(length: int, words: int) -> np.ndarray:
    random = np.random.default_rng(1)
    inputs = random.integers(0, words, (BATCH, length)).astype(np.int32)
    ends = np.clip(length * np.exp(random.normal(np.log(0.42), 0.3, BATCH)), 8, length).astype(int)
    ends[0] = length
    for row, end in zip(inputs, ends, strict=True):
        row[: end // 3] = -1
        row[end:] = -words
    return inputs


def learner_of(length: int, words: int) -> LanguageModelLearner:
    return ja.language_model(
        partial(GPT, depth=2, width=64), length, words, optimizer=optax.adam(1e-3), epochs=1, batch_size=BATCH
    )


def contenders(length: int, words: int) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    """Both forms of a gradient, and the mebibytes that each reserves."""
    learner = learner_of(length, words)
    arguments = jnp.asarray(texts(length, words)), jnp.zeros(BATCH, jnp.int32), jnp.ones(BATCH)
    state = learner.init(jax.random.key(1))
    forms: dict[str, Callable[[], Any]] = {}
    memory: dict[str, float] = {}
    for name, form in ((WHOLE, learner.in_one_piece()), (PIECES, learner)):
        program = jax.jit(form.gradient).lower(state, *arguments).compile()
        analysis: Any = program.memory_analysis()
        memory[name] = analysis.temp_size_in_bytes / 2**20
        forms[name] = partial(program, state, *arguments)
    whole, pieces = (jax.tree.leaves(forms[name]()[0]) for name in (WHOLE, PIECES))
    for one, other in zip(whole, pieces, strict=True):
        if not np.allclose(one, other, rtol=0, atol=AGREE):
            raise RuntimeError("the forms find other gradients")
    return forms, memory


def training() -> dict[str, Callable[[], Any]]:
    """`fit_many` of two models in both forms."""
    inputs, labels = np.concatenate([texts(*CASES[TRAINED])] * STEPS), np.zeros(STEPS * BATCH, int)
    keys, all_records = jax.random.split(jax.random.key(2), MODELS), everyone(len(labels)).repeat(MODELS, axis=0)
    pieces = learner_of(*CASES[TRAINED])
    given, execution = (keys, all_records, inputs, labels), ja.Execution(models_per_batch=1)
    return {
        name: partial(ja.fit_many, *given, learner, execution=execution)
        for name, learner in ((WHOLE, pieces.in_one_piece()), (PIECES, pieces))
    }


def main() -> None:
    timings, claims, notes = [interleave(f"training, {TRAINED}", training(), ROUNDS)], [], []
    claims.append(Claim(f"training, {TRAINED}: time of {WHOLE} / {PIECES}", timings[0].ratio(WHOLE, PIECES), FASTER))
    for name, sizes in CASES.items():
        forms, memory = contenders(*sizes)
        timings.append(interleave(name, forms, ROUNDS, untimed_before=True))
        claims.append(Claim(f"{name}: time of {WHOLE} / {PIECES}", timings[-1].ratio(WHOLE, PIECES), FASTER))
        less = Spread.of([memory[WHOLE] / memory[PIECES]])
        claims.append(Claim(f"{name}: memory of {WHOLE} / {PIECES}", less, SMALLER))
        notes.append(f"{name}: {memory[WHOLE]:,.0f} MiB for the {WHOLE}, {memory[PIECES]:,.0f} MiB {PIECES}")
    report(Bench("text_pieces", timings, claims, notes), ["jax", "jaxlib", "flax"])


if __name__ == "__main__":
    main()
