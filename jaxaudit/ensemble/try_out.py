"""Trains a small chunk to test a worker, and to compare its numbers with those of other workers."""

import os
import socket
import time
from typing import NamedTuple

import jax
import numpy as np
import optax

from jaxaudit.ensemble.checkpoint import digest_of
from jaxaudit.ensemble.concurrency import Machine, this_machine
from jaxaudit.ensemble.execution import Execution
from jaxaudit.ensemble.fit import fit_many
from jaxaudit.learners import network
from jaxaudit.membership import everyone
from jaxaudit.models import MLP

MODELS, RECORDS, FEATURES, CLASSES = 4, 256, 64, 10


class Tried(NamedTuple):
    """The result of testing a worker.

    Attributes:
        host, process: the worker's host name and process id.
        machine: facts about the worker that affect rounding.
        digest: the digest of the trained parameters; workers with equal digests round alike and may share a run.
        seconds: the training time, without compilation.
    """

    host: str
    process: int
    machine: Machine
    digest: str
    seconds: float


def try_out(seed: int) -> Tried:
    """Trains a chunk of four small networks in this process twice: the first training compiles."""
    random = np.random.default_rng(seed)
    inputs, labels = random.normal(size=(RECORDS, FEATURES)).astype(np.float32), np.arange(RECORDS) % CLASSES
    learner = network(MLP, (FEATURES,), CLASSES, optimizer=optax.adam(1e-3), epochs=2, batch_size=64)
    call = jax.random.split(jax.random.key(seed), MODELS), everyone(RECORDS).repeat(MODELS, axis=0), inputs
    fit_many(*call, labels.astype(np.int32), learner, execution=Execution(MODELS))
    began = time.perf_counter()
    models = fit_many(*call, labels.astype(np.int32), learner, execution=Execution(MODELS))
    seconds = time.perf_counter() - began
    digest = digest_of("", *jax.tree.leaves(models))
    return Tried(socket.gethostname(), os.getpid(), this_machine(), digest, seconds)
