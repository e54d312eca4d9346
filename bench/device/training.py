"""Training many models: `fit_many` beside PyTorch's forms, and the share of the floor."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from bench.device import counting, floors, networks
from bench.device.chunks import Choice, choose, contender
from bench.device.measuring import ABSENT, JAXAUDIT, UNIT, Asked, Contender, Outcome, compare, in_turns, library
from bench.harness import Spread
from bench.training import Job
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.learners import network
from jaxaudit.learners.learner import epoch_bits, own_batches
from jaxaudit.membership import subsets

LEARNING_RATE = 1e-3
CHOSEN_FOR = 256, 100
"""Models and epochs of the bank for which the models a batch are chosen, however few are timed."""
AGREE = 0.01
"""The largest relative difference of the two losses, after few steps: the sides round otherwise, and Adam amplifies."""
LOSS_RECORDS = 1000
SHARE = 0.4
FLOAT32_PART = 0.65
"""Of the time of a piece, so that some is left for bfloat16."""


@dataclass(frozen=True)
class Case:
    """A network, and the pool and the members of its models.

    Attributes:
        net: of a record's shape and the number of classes.
        goal: how many times as fast as PyTorch's fastest form is promised on a GPU.
        dense: of dense layers alone, of which a share of the floor is promised, too.
        sizes: of PyTorch's ensembles.
    """

    net: Callable[[tuple[int, ...], int], networks.Network]
    shape: tuple[int, ...]
    classes: int
    records: int
    members: int
    batch_size: int
    goal: float
    dense: bool
    sizes: tuple[int, ...]

    def reduced(self) -> "Case":
        """A few small minibatches."""
        return replace(self, records=128, members=64, batch_size=16, sizes=(2, 4))


CASES = {
    "MLP": Case(
        lambda *of: networks.mlp(of[0], (512, 256, 128), of[1]), (784,), 10, 8192, 4096, 128, 8, True, (32, 256)
    ),
    # An epoch of few minibatches: a model-step costs as much, and a chunk of many models does not take seconds.
    "CNN": Case(networks.cnn, (32, 32, 3), 10, 8192, 1024, 128, 1.3, False, (16, 64)),
    "ResNet": Case(networks.resnet, (32, 32, 3), 10, 8192, 512, 128, 1.3, False, (16, 64)),
    # Whole minibatches, which a CUDA graph wants.
    "Purchase": Case(
        lambda *of: networks.mlp(of[0], (1024, 512), of[1]), (600,), 100, 200_000, 19_968, 256, 8, True, (32, 128)
    ),
}


def make_job(name: str, case: Case, models: int, epochs: int, precision: str = "float32") -> Job:
    """The models to train."""
    net = case.net(case.shape, case.classes)
    learner = network(
        lambda rngs: networks.FlaxNetwork(net, rngs),
        case.shape,
        case.classes,
        optimizer=optax.adam(LEARNING_RATE),
        epochs=epochs,
        batch_size=case.batch_size,
        precision=precision,
    )
    rows = subsets(np.random.default_rng(2), models, case.members, case.records)
    return Job(name, learner, *_records(case), jax.random.split(jax.random.key(1), models), rows)


def _records(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Noisy copies of one binary pattern a class."""
    random = np.random.default_rng(0)
    labels = random.integers(0, case.classes, case.records).astype(np.int32)
    patterns = random.random((case.classes, *case.shape), dtype=np.float32) < 0.3
    flipped = random.random((case.records, *case.shape), dtype=np.float32) < 0.2
    return (patterns[labels] ^ flipped).astype(np.float32), labels


def piece(asked: Asked, outcome: Outcome, name: str) -> None:
    """Both precisions of one network."""
    case = CASES[name].reduced() if asked.reduced else CASES[name]
    models, epochs = (4, 2) if asked.reduced else CHOSEN_FOR
    job = make_job(name, case, models, epochs)
    if outcome.chosen is None:
        outcome.chosen = choose(job)._asdict()
    choice = Choice(outcome.chosen["number"], outcome.chosen["form"])
    outcome.notes += [str(choice), f"Times are for {UNIT:,} model-steps."]
    outcome.say(str(choice))
    if library("torch") is None:
        outcome.leave_out("PyTorch", ABSENT)
    else:
        check_losses(outcome, name, case, choice)
    measured = floors.measure(asked, ("float32, default", "bfloat16"))
    outcome.tables["Measured ceilings"] = floors.table(measured)
    net = case.net(case.shape, case.classes)
    for precision in ("float32", "bfloat16"):
        title = name if precision == "float32" else f"{name}, {precision}"
        models_in = job if precision == "float32" else make_job(title, case, models, epochs, precision)
        builders = {JAXAUDIT: partial(contender, models_in, choice, asked.region)}
        if library("torch") is not None:
            builders |= rivals(asked, outcome, case, models_in, precision)
        part = 1.0 if precision == "bfloat16" else FLOAT32_PART
        timings = in_turns(asked.within(part), outcome, title, builders, unit=UNIT)
        promised = precision == "float32"
        compare(asked, outcome, timings, JAXAUDIT, case.goal if promised else None)
        count = counting.of_step(net, case.shape, case.batch_size, 4 if promised else 2)
        least = measured.seconds(count, "float32, default" if promised else precision)
        outcome.notes.append(
            f"{title}: {count.flops / 1e9:.3g} GFLOP and {count.bytes / 1e6:.3g} MB a model-step, at least "
            f"{1e6 * least:.3g} microseconds"
        )
        spread = Spread.of(timings.seconds[JAXAUDIT])
        floors.share(asked, outcome, title, UNIT * least, spread, SHARE if promised and case.dense else None)


def rivals(asked: Asked, outcome: Outcome, case: Case, job: Job, precision: str) -> dict[str, Callable[[], Contender]]:
    """PyTorch's forms; in bfloat16 on a GPU those that are graphs, as all others lose to these."""
    from bench.device import torch_loops, torch_networks, torch_rivals

    torch_rivals.set_fast()
    if precision == "bfloat16" and asked.gpu:
        asked = replace(asked, rivals=tuple(form for form in asked.rivals if "graph" in form))
    pool = torch_loops.torch_pool(job, torch_rivals.device())
    members = torch_loops.torch.from_numpy(np.flatnonzero(job.membership[0])).to(pool.labels.device)
    net = case.net(case.shape, case.classes)
    return torch_rivals.contenders(
        *(asked, outcome, lambda: torch_networks.TorchNetwork(net), pool, members, case.batch_size),
        *(torch_loops.adam, case.sizes, precision),
    )


def check_losses(outcome: Outcome, name: str, case: Case, choice: Choice) -> None:
    """Both sides end with the same loss, after the same minibatches from the same weights, in full float32."""
    few = replace(case, members=4 * case.batch_size, records=min(case.records, 8192))
    by_jax, by_torch = final_losses(choice.formed(make_job(name, few, 2, 1)), case, Execution(2))
    if abs(by_jax - by_torch) > AGREE * by_torch:
        raise RuntimeError(f"{name}: the losses are {by_jax:.4g} and {by_torch:.4g}: the sides do not train alike")
    outcome.notes.append(f"{name}: losses after four minibatches {by_jax:.4g} and {by_torch:.4g}")
    outcome.say(outcome.notes[-1])


def final_losses(job: Job, case: Case, execution: Execution) -> tuple[float, float]:
    """Mean loss of the first model on its own records after the job: `fit_many`, PyTorch."""
    from bench.device import torch_loops, torch_networks, torch_rivals

    torch, device = torch_loops.torch, torch_rivals.device()
    members, size = np.flatnonzero(job.membership[0]), job.learner.batch_size
    net = torch_networks.TorchNetwork(case.net(case.shape, case.classes))
    torch_networks.copy_initial(job, 0, net)
    pool = torch_loops.torch_pool(job, device)
    with full_float32(torch):
        loop = torch_loops.single(net, pool, torch_loops.adam)
        order, _ = own_batches(np.asarray(epoch_bits(job.keys[0], 0, len(members))), members, size)
        for chosen in torch.from_numpy(order.reshape(-1, size)).to(device):
            loop.step(chosen)
        chosen = torch.from_numpy(members[:LOSS_RECORDS]).to(device)
        with torch.no_grad():
            torch_loss = torch.nn.functional.cross_entropy(net(pool.inputs[chosen]), pool.labels[chosen])
        params = fit_many(job.keys, job.membership, job.inputs, job.labels, job.learner, execution=execution)
        log_probs = log_probs_many(job.learner, params, job.inputs[members[:LOSS_RECORDS]])[0]
    return float(-log_probs[np.arange(len(log_probs)), job.labels[members[:LOSS_RECORDS]]].mean()), float(torch_loss)


@contextmanager
def full_float32(torch: Any) -> Iterator[None]:
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
