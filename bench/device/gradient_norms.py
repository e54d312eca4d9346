"""Squared gradient norms of a network of real size beside PyTorch's libraries; see `bench.large_networks_torch`."""

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.device.measuring import ABSENT, Asked, Contender, Outcome, in_turns, library
from bench.large_networks import AGREE, NETWORKS
from bench.large_networks_torch import OURS, RIVALS, contender

GOAL = 1.2
GPU_BATCH, CPU_BATCH = 16, 4


def piece(asked: Asked, outcome: Outcome, name: str) -> None:
    batch = 1 if asked.reduced else GPU_BATCH if asked.gpu else CPU_BATCH
    network = NETWORKS[name](batch)
    torch = library("torch")
    if torch is None:
        outcome.leave_out("PyTorch", ABSENT)
    else:
        # Ours are in full float32 on every device.
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    made: dict[str, np.ndarray] = {}

    def build(which: str) -> Contender:
        norms: Callable[[], np.ndarray] = contender(name, which, network)
        made[which] = np.asarray(norms())
        if not np.allclose(made[which], made[OURS], rtol=AGREE):
            raise RuntimeError(f"the norms are {made[OURS]}, and {made[which]} by {which}")
        return Contender(lambda times: [np.asarray(norms()) for _ in range(times)])

    names = (OURS, *RIVALS) if torch is not None else (OURS,)
    timings = in_turns(asked, outcome, f"{name}, batch {batch}", {which: partial(build, which) for which in names})
    for rival in list(timings.seconds)[1:]:
        outcome.promise(asked, f"{timings.case}: {rival} / {OURS}", timings.ratio(rival, OURS), GOAL)
