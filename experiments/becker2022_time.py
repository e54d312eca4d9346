"""How long the MNIST protocol of Becker & Liebig (2022) takes here, and as a loop over models in PyTorch.

    JAXAUDIT_DATA=DATA python -m experiments.becker2022_time        # three minutes on two CPU cores

Both sides are timed on parts of the protocol, side by side on one machine, and extrapolated to all of it: 20 seeds x
6 sets x 3 methods, attacks included. The parts: training steps (plain, and with updates recorded for amnesiac
unlearning), steps of an attack network, Fisher forgetting of one model, the efficacy of one model, its outputs. The
PyTorch loop is one model at a time, and one gradient a record for Fisher information as in the authors' code (which in
addition carries one graph of all records through every gradient; that is not done here). Needs PyTorch (the `bench`
extra). Writes `results/becker2022_time-DEVICE.json` and `.md`.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.becker2022_data import COUNTS, forget_sets, make_learner, read
from experiments.record import RESULTS, describe_run, device_slug
from jaxaudit import fit_many
from jaxaudit.attacks.learned import BATCH_SIZE, EPOCHS, fit_learned
from jaxaudit.audits.unlearn.evaluate import _gradients
from jaxaudit.ensemble import Execution, log_probs_many
from jaxaudit.learners import NetworkParams
from jaxaudit.unlearning import becker_code, forget_by_noise, train_and_record

SEEDS, STEPS, ATTACKED = 20, 1600, 2000
WORK = {
    "training steps, updates recorded": SEEDS * STEPS,
    "training steps, retraining": SEEDS * len(COUNTS) * STEPS,
    "steps of attack networks": SEEDS * (1 + 3 * len(COUNTS)) * EPOCHS * ATTACKED // BATCH_SIZE,
    "Fisher forgetting, models": SEEDS * len(COUNTS),
    "efficacy and bound, models and 44 images": SEEDS * len(COUNTS) * 5,
    "outputs on 11,000 images, models": SEEDS * (2 + 3 * len(COUNTS)),
}
"""What the protocol asks for; sets hold 44 images on average."""
FORGOTTEN = 44


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    started = time.time()
    train, test = read("mnist")
    parts = {"jaxaudit": ours(train, test), "PyTorch loop": theirs(train, test)}
    totals = {side: sum(WORK[part] * seconds for part, seconds in each.items()) for side, each in parts.items()}
    record = {
        "experiment": "becker2022_time",
        **describe_run(vars(arguments), time.time() - started),
        "work": WORK,
        "seconds_each": parts,
        "seconds_in_all": totals,
        "ratio": totals["PyTorch loop"] / totals["jaxaudit"],
    }
    stem = arguments.out / f"becker2022_time-{device_slug()}"
    Path(f"{stem}.json").write_text(json.dumps(record, indent=1) + "\n")
    Path(f"{stem}.md").write_text("\n".join(lines(record)) + "\n")
    print("\n".join(lines(record)))


def seconds(work: Callable[[], Any], count: int) -> float:
    """Seconds for one of the `count` things that `work` does, the second time it is called."""
    work()
    started = time.perf_counter()
    jax.block_until_ready(work())
    return (time.perf_counter() - started) / count


def ours(train: Any, test: Any) -> dict[str, float]:
    """Seconds a piece, as the audit does it: many models at once."""
    keys, forget = jax.random.split(jax.random.key(1), 16), forget_sets(train, "mnist")
    learner = make_learner("mnist", train, epochs=2)
    steps = len(keys) * 2 * 32
    everyone = np.ones((len(keys), len(train)), bool)
    data = train.inputs, train.labels
    record = partial(train_and_record, keys, forget, *data, learner, execution=Execution(models_per_batch=4))
    plain = partial(fit_many, keys, everyone, *data, learner, execution=Execution(models_per_batch=4))
    params = plain()
    one = jax.tree.map(lambda leaf: leaf[0], params)
    random = np.random.default_rng(1)
    outputs = random.normal(size=(16, ATTACKED, 10)).astype(np.float32)
    labels, member = random.integers(0, 10, ATTACKED), np.tile(np.arange(ATTACKED) < ATTACKED // 2, (16, 1))
    attack = partial(fit_learned, keys, outputs, labels, member, 10, epochs=2)

    @jax.jit
    def fisher(key: Any, model: NetworkParams, row: Any) -> Any:
        def log_probs(params: Any, inputs: Any) -> Any:
            return learner.log_probs(NetworkParams(params, model.state), inputs)

        arrays = jnp.asarray(data[0]), jnp.asarray(data[1])
        return forget_by_noise(key, log_probs, model.params, *arrays, row, noise=becker_code)

    row, few = jnp.asarray(forget[3]), (jnp.asarray(data[0][:FORGOTTEN]), jnp.asarray(data[1][:FORGOTTEN]))
    everything = np.concatenate([train.inputs, test.inputs])
    times = (
        seconds(record, steps),
        seconds(plain, steps),
        seconds(attack, 16 * 2 * ATTACKED // BATCH_SIZE),
        seconds(lambda: [fisher(keys[0], one, row) for _ in range(3)], 3),
        seconds(lambda: [_gradients(learner, one, *few) for _ in range(5)], 5),
        seconds(lambda: log_probs_many(learner, params, everything), 16),
    )
    return dict(zip(WORK, times, strict=True))


def theirs(train: Any, test: Any) -> dict[str, float]:
    """Seconds a piece of the loop in PyTorch."""
    import torch
    from torch import nn

    x, y = (
        torch.from_numpy(train.inputs.reshape(len(train), -1).copy()),
        torch.from_numpy(train.labels.astype(np.int64)),
    )
    everything = torch.cat([x, torch.from_numpy(test.inputs.reshape(len(test), -1).copy())])
    sizes = (x.shape[1], 512, 256, 128)
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(128, 10))
    optimizer, loss = torch.optim.SGD(net.parameters(), lr=0.1), nn.CrossEntropyLoss()
    kept: list[Any] = []

    def training(recorded: bool) -> None:
        kept.clear()
        for batch in torch.randperm(len(x))[: 31 * 32].reshape(31, 32):
            before = [p.detach().clone() for p in net.parameters()] if recorded else []
            optimizer.zero_grad()
            loss(net(x[batch]), y[batch]).backward()
            optimizer.step()
            kept.append([p.detach() - old for p, old in zip(net.parameters(), before, strict=False)])

    def squares(records: int) -> None:
        total = [torch.zeros_like(p) for p in net.parameters()]
        for i in range(records):
            log_prob = torch.log_softmax(net(x[i : i + 1]), dim=1)[0, y[i]]
            for sum_, gradient in zip(total, torch.autograd.grad(log_prob, list(net.parameters())), strict=True):
                sum_ += gradient**2

    class Attack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            wide = (nn.Linear(10, 512), nn.ReLU(), nn.Linear(512, 100), nn.ReLU(), nn.Linear(100, 64), nn.ReLU())
            self.outputs = nn.Sequential(*wide)
            self.labels = nn.Sequential(nn.Linear(10, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU())
            self.combine = nn.Linear(128, 1)

        def forward(self, outputs: Any, labels: Any) -> Any:
            return torch.sigmoid(self.combine(torch.cat([self.outputs(outputs), self.labels(labels)], 1)))

    attacker = Attack()
    adam = torch.optim.Adam(attacker.parameters(), lr=1e-4)
    said, one_hot = torch.randn(ATTACKED, 10), torch.eye(10)[torch.randint(0, 10, (ATTACKED,))]
    member = (torch.arange(ATTACKED) < ATTACKED // 2).float()

    def attacking() -> None:
        for batch in torch.randperm(ATTACKED).reshape(-1, BATCH_SIZE):
            adam.zero_grad()
            nn.BCELoss()(attacker(said[batch], one_hot[batch])[:, 0], member[batch]).backward()
            adam.step()

    def outputs() -> None:
        with torch.no_grad():
            net(everything)

    times = (
        seconds(lambda: training(True), 31),
        seconds(lambda: training(False), 31),
        seconds(attacking, ATTACKED // BATCH_SIZE),
        seconds(lambda: squares(50), 50) * (len(x) - FORGOTTEN),
        seconds(lambda: squares(FORGOTTEN), 1),
        seconds(outputs, 1),
    )
    return dict(zip(WORK, times, strict=True))


def lines(record: dict[str, Any]) -> list[str]:
    """The table."""
    ours, theirs = record["seconds_each"].values()
    rows = [
        f"| {part} | {count:,} | {1e3 * ours[part]:.2f} | {1e3 * theirs[part]:.2f} | {theirs[part] / ours[part]:.1f} |"
        for part, count in record["work"].items()
    ]
    mine, other = record["seconds_in_all"].values()
    return [
        "# The MNIST protocol of Becker & Liebig (2022): time here and as a loop in PyTorch",
        "",
        f"{record['device']}. Milliseconds a piece, measured on parts; in all: extrapolated to {SEEDS} seeds x "
        f"{len(COUNTS)} sets x 3 methods with attacks on 1,000 members and 1,000 others.",
        "",
        "| part | pieces | jaxaudit, ms | PyTorch loop, ms | times |",
        "|---|---|---|---|---|",
        *rows,
        f"| in all | | {mine / 60:.1f} min | {other / 60:.1f} min | {record['ratio']:.1f} |",
    ]


if __name__ == "__main__":
    main()
