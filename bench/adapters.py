"""Adapters side by side, beside a loop of `peft` in PyTorch: `python -m bench.adapters`.

Sixteen models each train adapters of rank 8 on all linear layers of one GPT-2 from a configuration (4 layers, width
256, 2,048 tokens), for one epoch of 64 records of 64 tokens in minibatches of 8, by AdamW. `jaxaudit` trains them one,
eight and sixteen at a time; `peft` one after another, with the fused AdamW, also compiled by `torch.compile`, on all
cores. The memory of sixteen adapters is counted, and beside the count stands what was measured. A few minutes.

The count of products says what could be gained at most: those with frozen weights are the same in both forms.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import jaxaudit as ja
from bench.harness import Bench, Claim, Spread, interleave, report
from jaxaudit.learners import LanguageModelLearner
from jaxaudit.models.causal import Adapters

MODELS, RECORDS, LENGTH, BATCH, RANK, ROUNDS = 16, 64, 64, 8, 8, 3
WORDS, WIDTH, LAYERS = 2048, 256, 4
QUIET = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
PEFT, COMPILED = "peft, a loop", "peft, compiled"


def save_base(folder: Path, width: int = WIDTH, layers: int = LAYERS, words: int = WORDS) -> None:
    """A GPT-2 with random weights, and a tokenizer of words."""
    tokenizers: Any = importlib.import_module("tokenizers")
    transformers: Any = importlib.import_module("transformers")
    known = {"<end>": 0, **{f"w{number}": number for number in range(1, words)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="<end>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>").save_pretrained(folder)
    config = transformers.GPT2Config(
        vocab_size=words,
        n_positions=LENGTH,
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        bos_token_id=0,
        eos_token_id=0,
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


def records(words: int = WORDS) -> np.ndarray:
    inputs = np.random.default_rng(1).integers(1, words, (RECORDS, LENGTH)).astype(np.int32)
    inputs[:, : LENGTH // 4] = ~inputs[:, : LENGTH // 4]
    return inputs


def learner_of(folder: Path, words: int = WORDS) -> LanguageModelLearner:
    """The learner of the adapters; one object, so that its programs are compiled once."""
    adapters = Adapters(str(folder), RANK, 2.0 * RANK)
    return ja.language_model(adapters, LENGTH, words, optimizer=optax.adamw(1e-3), epochs=1, batch_size=BATCH)


def _models(models: int = MODELS) -> tuple[Any, Any, Any, Any]:
    """Keys, training sets, records and labels of all models."""
    keys, membership = jax.random.split(jax.random.key(1), models), np.ones((models, RECORDS), bool)
    return keys, membership, records(), np.zeros(RECORDS, np.int32)


def side_by_side(learner: LanguageModelLearner, number: int, models: int = MODELS) -> "partial[Any]":
    """An epoch of all models, this many at a time."""
    return partial(ja.fit_many, *_models(models), learner, execution=ja.Execution(number), members_only=True)


def one_by_one(folder: Path, compiled: bool, models: int = MODELS) -> Callable[[], None]:
    """The same epoch of all models by `peft`; on a GPU with products in TF32, as JAX has them."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    peft: Any = importlib.import_module("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    config = peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=["c_attn", "c_proj", "c_fc"], bias="none")
    module = peft.get_peft_model(base, config).eval()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    module.to(device)
    params = [each for each in module.parameters() if each.requires_grad]
    start = [each.detach().clone() for each in params]
    inputs = records(base.config.vocab_size)
    tokens = torch.from_numpy(np.where(inputs < 0, ~inputs, inputs)).long().to(device)
    counts = torch.from_numpy(inputs >= 0)[:, 1:].to(device)

    def loss_of(own: Any, counted: Any) -> Any:
        logits = module(input_ids=own, use_cache=False).logits[:, :-1]
        each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), own[:, 1:], reduction="none")
        return ((each * counted).sum(1) / counted.sum(1)).mean()

    loss = torch.compile(loss_of) if compiled else loss_of

    def train() -> None:
        for seed in range(models):
            with torch.no_grad():
                for each, first in zip(params, start, strict=True):
                    each.copy_(first)
            optimizer = torch.optim.AdamW(params, 1e-3, weight_decay=1e-4, fused=True)
            order = torch.from_numpy(np.random.default_rng(seed).permutation(RECORDS)).to(device)
            for own in order.split(BATCH):
                optimizer.zero_grad(set_to_none=True)
                loss(tokens[own], counts[own]).backward()
                optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return train


def serve(folder: str, compiled: str, models: int) -> None:
    """Trains by `peft` once for each line on stdin, and answers with a line."""
    train = one_by_one(Path(folder), compiled == COMPILED, models)
    for _ in sys.stdin:
        train()
        print("done", flush=True)


class Beside:
    """`one_by_one` in a process of its own: once torchax is imported, `torch.compile` fails."""

    def __init__(self, folder: Path, compiled: str, models: int = MODELS) -> None:
        code = f"from bench.adapters import serve; serve({str(folder)!r}, {compiled!r}, {models})"
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=QUIET
        )

    def __call__(self) -> None:
        ask, answer = self.process.stdin, self.process.stdout
        assert ask is not None
        assert answer is not None
        ask.write("train\n")
        ask.flush()
        assert answer.readline() == "done\n", "peft could not train"

    def end(self) -> None:
        """Ends the process, which gives its memory back."""
        self.process.kill()
        self.process.communicate()


def counted_mebibytes(learner: LanguageModelLearner) -> float:
    """One base model, and sixteen adapters with both moments of the optimiser."""
    base = sum(each.nbytes for each in jax.tree.leaves(learner.shared))
    params, _ = jax.eval_shape(learner.net.init, jax.random.key(1))
    adapters = sum(each.size * each.dtype.itemsize for each in jax.tree.leaves(params))
    return (base + 3 * MODELS * adapters) / 2**20


def counted_limit(learner: LanguageModelLearner) -> float:
    """How many times the frozen products' work is the whole: the thin products of adapters come on top of them."""
    params, _ = jax.eval_shape(learner.net.init, jax.random.key(1))
    thin = sum(each.size for each in jax.tree.leaves(params))
    frozen = sum(each.size for name, each in learner.shared[0].items() if each.ndim == 2 and "wpe" not in name)
    # Forward and the gradient of inputs for frozen weights; the gradient of the weights, too, for adapters.
    return (2 * frozen + 3 * thin) / (2 * frozen)


def memory() -> None:
    """Prints the memory of all arrays while sixteen adapters train, beside the count; in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        save_base(Path(folder))
        learner = learner_of(Path(folder))
    seen: list[int] = []
    execution = ja.Execution(MODELS, progress=lambda done, total: seen.append(_live()))
    ja.fit_many(*_models(), learner, execution=execution, members_only=True)
    print(json.dumps({"counted": counted_mebibytes(learner), "arrays": max(seen) / 2**20}))


def _live() -> int:
    return sum(each.nbytes for each in jax.live_arrays())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_base(Path(folder))
        learner = learner_of(Path(folder))
        contenders: dict[str, Callable[[], Any]] = {
            PEFT: Beside(Path(folder), PEFT),
            COMPILED: Beside(Path(folder), COMPILED),
        }
        contenders |= {f"jaxaudit, {number} at a time": side_by_side(learner, number) for number in (1, 8, 16)}
        timings = interleave(f"{MODELS} models, {RECORDS // BATCH} steps each", contenders, ROUNDS)
    ours = list(contenders)[3:]
    claims = [
        Claim(f"{theirs} / {own}", timings.ratio(theirs, own), 1.0) for theirs in (PEFT, COMPILED) for own in ours
    ]
    said = subprocess.run(
        [sys.executable, "-c", "from bench.adapters import memory; memory()"],
        capture_output=True,
        text=True,
        check=True,
        env=QUIET,
    )
    found = json.loads(said.stdout.splitlines()[-1])
    claims.append(Claim("memory of arrays / counted", Spread.of([found["arrays"] / found["counted"]]), 1.2, False))
    notes = [
        f"work of the adapters beside the frozen products: {counted_limit(learner):.2f} times these alone",
        f"memory in MiB: {', '.join(f'{name} {value:.0f}' for name, value in found.items())}",
    ]
    report(Bench("adapters", [timings], claims, notes), ["jax", "torch", "peft", "transformers"])


if __name__ == "__main__":
    main()
