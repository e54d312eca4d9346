"""Shadow models for a bank: `fit_many` against PyTorch, `python bench/bench_bank_training.py --device cuda --bank 256`.

Promised, on a GPU, in model-steps a second: no slower than the fastest PyTorch form. Adam; every model on its own half
of 8,192 records in minibatches of 128, for a 784-512-256-128-10 network (MLP), two convolutions and two dense layers
(CNN) and ResNet-8 with group normalisation (ResNet), both on 32x32 pixels in three colours; and on 20,000 of 200,000
binary records in minibatches of 256 for a 600-1024-512-100 network (Purchase). With `--bank MODELS`, so many of the
last for 100 epochs from nothing, compiling and choosing the models a batch included: 256 in an hour at most. Records
are random, of these shapes.

PyTorch trains one model after another: records on the device, no data loader, fused Adam, as it is and compiled, on a
GPU also with each step as one CUDA graph, one graph for all models. Both sides multiply as their libraries do on a GPU
when asked for speed (TF32). `fit_many` is timed as it is called; compiling and choosing the models a batch are left out
on both sides, but for `--bank`. Before anything is timed, both train the same weights on the same minibatches in full
float32 and must end with the same loss.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np
import optax
import torch

from bench import two_sided
from bench.harness import Bench, Claim, Spread, Timings, interleave, report
from bench.torch_loops import FORMS, LEARNING_RATE, Loop, eager_loop, forms, shuffled, torch_pool, train
from bench.training import Job
from jaxaudit.ensemble import Execution, fit_many, log_probs_many, measure_models_per_batch
from jaxaudit.ensemble.concurrency import concurrent_chunks
from jaxaudit.learners import network
from jaxaudit.learners.batch_order import epoch_bits, own_batches
from jaxaudit.membership import subsets

UNIT = 1000  # model-steps; timings are seconds for so many
CHOSEN_FOR = 256, 100
"""Models and epochs of the bank for which the models a batch are chosen, however few are timed."""
MINUTES = 60
OURS = "jaxaudit"
AGREE, FEWER = 0.01, 8
"""The largest relative difference of the two losses, after an epoch of so many times fewer records."""


@dataclass(frozen=True)
class Case:
    """A network, and the pool and the members of its models.

    Attributes:
        net: of a record's shape and the number of classes.
        epochs: of what is timed.
    """

    net: Callable[[tuple[int, ...], int], two_sided.Network]
    shape: tuple[int, ...]
    classes: int
    records: int
    members: int
    batch_size: int
    epochs: int

    def shrunk(self, factor: int) -> "Case":
        """The same with so many times fewer records, in whole minibatches."""
        members = max(1, self.members // factor // self.batch_size) * self.batch_size
        return replace(self, records=max(self.records // factor, 2 * members), members=members)


PURCHASE = "Purchase"
CASES = {
    "MLP": Case(lambda *of: two_sided.mlp(of[0], (512, 256, 128), of[1]), (784,), 10, 8192, 4096, 128, 8),
    "CNN": Case(two_sided.cnn, (32, 32, 3), 10, 8192, 4096, 128, 2),
    "ResNet": Case(two_sided.resnet, (32, 32, 3), 10, 8192, 4096, 128, 2),
    # 19,968 of 20,000: whole minibatches, which a CUDA graph wants.
    PURCHASE: Case(lambda *of: two_sided.mlp(of[0], (1024, 512), of[1]), (600,), 100, 200_000, 19_968, 256, 2),
}


def make_job(name: str, case: Case, models: int, epochs: int) -> tuple[Job, two_sided.Network]:
    """The models to train, and their network as either library reads it."""
    net = case.net(case.shape, case.classes)
    learner = network(
        lambda rngs: two_sided.FlaxNetwork(net, rngs),
        case.shape,
        case.classes,
        optimizer=optax.adam(LEARNING_RATE),
        epochs=epochs,
        batch_size=case.batch_size,
    )
    inputs, labels = _records(case)
    rows = subsets(np.random.default_rng(2), models, case.members, case.records)
    return Job(name, learner, inputs, labels, jax.random.split(jax.random.key(1), models), rows), net


def _records(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Noisy copies of one binary pattern a class."""
    random = np.random.default_rng(0)
    labels = random.integers(0, case.classes, case.records).astype(np.int32)
    patterns = random.random((case.classes, *case.shape), dtype=np.float32) < 0.3
    flipped = random.random((case.records, *case.shape), dtype=np.float32) < 0.2
    return (patterns[labels] ^ flipped).astype(np.float32), labels


def train_ours(job: Job, models_per_batch: int | None) -> Any:
    """`fit_many` as it is called; of each model one number is kept."""
    return fit_many(
        *(job.keys, job.membership, job.inputs, job.labels, job.learner),
        execution=Execution(models_per_batch=models_per_batch),
        summarize=lambda params, rows: jax.tree.leaves(params)[0].reshape(len(rows), -1)[:, :1],
    )


def final_losses(job: Job, net: two_sided.Network, device: str) -> tuple[float, float]:
    """Mean loss of the first model on its own records after the job: `fit_many`, PyTorch."""
    members = np.flatnonzero(job.membership[0])
    theirs = two_sided.TorchNetwork(net)
    two_sided.copy_initial(job, 0, theirs)
    pool = torch_pool(job, device)
    with full_float32():
        loop = eager_loop(theirs, pool, job.learner.batch_size)
        order, _ = own_batches(np.asarray(epoch_bits(job.keys[0], 0, len(members))), members, job.learner.batch_size)
        loop.epoch(torch.from_numpy(order.reshape(-1)).to(device))
        chosen = torch.from_numpy(members[:UNIT]).to(device)
        with torch.no_grad():
            torch_loss = torch.nn.functional.cross_entropy(loop.net(pool.inputs[chosen]), pool.labels[chosen])
        params = fit_many(job.keys, job.membership, job.inputs, job.labels, job.learner)
        log_probs = log_probs_many(job.learner, params, job.inputs[members[:UNIT]])[0]
    return float(-log_probs[np.arange(len(log_probs)), job.labels[members[:UNIT]]].mean()), float(torch_loss)


@contextmanager
def full_float32() -> Iterator[None]:
    """Products in float32 on both sides; afterwards as fast as the device has them."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        jax.config.update("jax_default_matmul_precision", None)


def compare(
    name: str, case: Case, device: str, rounds: int, numbers: Sequence[int]
) -> tuple[Timings, Claim, list[str]]:
    """Seconds for 1,000 model-steps of each side, the ratio to PyTorch's fastest form, and what to know of it."""
    whole, net = make_job(name, case, *CHOSEN_FOR)
    # Few steps: the two round otherwise, and Adam amplifies that.
    ours, theirs = final_losses(make_job(name, case.shrunk(FEWER), 1, 1)[0], net, device)
    if abs(ours - theirs) > AGREE * theirs:
        raise SystemExit(f"{name}: final losses differ, {ours:.4g} and {theirs:.4g}: the sides do not train alike")
    choice = measure_models_per_batch(whole.keys, whole.membership, whole.inputs, whole.labels, whole.learner)
    plain, pool = whole.first(2, case.epochs), torch_pool(whole, device)
    jobs, contenders, notes = {}, {}, []
    for number, ours_at in ((choice.models_per_batch, OURS), *((each, f"{OURS}, {each} a batch") for each in numbers)):
        jobs[ours_at] = whole.first(number * concurrent_chunks(), case.epochs)
        contenders[ours_at] = lambda job=jobs[ours_at], number=number: train_ours(job, number)
    for form in forms(device):
        try:
            loop = FORMS[form](two_sided.TorchNetwork(net), pool, case.batch_size)
            train(loop, [iter([torch.arange(case.batch_size, device=device)])])
        except Exception as error:  # a machine without a compiler, say: the other forms still count
            notes.append(f"{name}: {form} does not run here: {type(error).__name__}: {str(error).strip()[:200]!r}")
            continue
        jobs[form] = plain
        contenders[form] = lambda loop=loop: train_theirs(plain, loop, device)
    took = interleave(name, contenders, rounds).seconds
    each = {form: [UNIT * once / jobs[form].model_steps for once in took[form]] for form in took}
    timings = Timings(name, each)
    fastest = min((form for form in each if form in FORMS), key=lambda form: median(each[form]))
    tried = ", ".join(f"{number}: {1e6 * seconds:.3g}" for number, seconds in choice.seconds.items())
    minutes = {form: whole.model_steps / UNIT * median(each[form]) / 60 for form in (OURS, fastest)}
    of = " and ".join(f"{took:.3g} minutes ({form})" for form, took in minutes.items())
    notes.append(f"{name}: {len(whole.keys)} models, {whole.learner.epochs} epochs, extrapolated: {of}")
    notes.append(
        f"{name}: {choice.models_per_batch} models a batch; microseconds a model-step when choosing: {tried or '-'}; "
        f"losses {ours:.4g} and {theirs:.4g}; fastest form: {fastest}"
    )
    return timings, Claim(f"{name}: {fastest} / {OURS}", timings.ratio(fastest, OURS), 1), notes


def train_theirs(job: Job, loop: Loop, device: str) -> None:
    """All models of the job, one after another."""
    train(loop, (shuffled(job, model, device) for model in range(len(job.keys))))


def whole_bank(case: Case, models: int, epochs: int, models_per_batch: int | None) -> tuple[Timings, Claim]:
    """A bank from nothing, once."""
    job, _ = make_job(PURCHASE, case, models, epochs)
    start = time.perf_counter()
    train_ours(job, models_per_batch)
    took = time.perf_counter() - start
    text = f"minutes for {models} models of {PURCHASE}, {epochs} epochs of {case.members:,} records"
    return Timings("whole bank", {OURS: [took]}), Claim(text, Spread.of([took / 60]), MINUTES, at_least=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cases", nargs="*", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--bank", type=int, default=0, metavar="MODELS", help="also train a whole bank of so many models"
    )
    parser.add_argument("--epochs", type=int, default=CHOSEN_FOR[1], help="of the whole bank")
    parser.add_argument(
        "--shrink", type=int, default=1, metavar="TIMES", help="so many times fewer records, for a trial"
    )
    parser.add_argument(
        "--models-per-batch",
        nargs="*",
        type=int,
        default=[],
        help="further numbers to time; the bank takes the last",
    )
    parser.add_argument("--out", type=Path, help="the JSON file; by default in results/")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", arguments.device)
    # The rest of the memory of a GPU is PyTorch's.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".6")
    torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    cases = {name: case.shrunk(arguments.shrink) for name, case in CASES.items()}
    numbers = arguments.models_per_batch
    found = [compare(name, cases[name], arguments.device, arguments.rounds, numbers) for name in arguments.cases]
    last = numbers[-1] if numbers else None
    banks = [whole_bank(cases[PURCHASE], arguments.bank, arguments.epochs, last)] if arguments.bank else []
    bench = Bench(
        "bench_bank_training",
        [*(timings for timings, _, _ in found), *(timings for timings, _ in banks)],
        [*(claim for _, claim, _ in found), *(claim for _, claim in banks)],
        [f"Times are for {UNIT:,} model-steps, but for the whole bank.", *(note for *_, own in found for note in own)],
    )
    report(bench, ["jax", "jaxlib", "flax", "optax", "numpy", "torch"], arguments.out)


if __name__ == "__main__":
    main()
