"""Reads the outputs of many models of a bank, each file once, and hashes what was read."""

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.outputs import open_outputs
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.errors import InputError

Found = TypeVar("Found")
READERS = 4
"""Number of files read at the same time; fewer if they would take too much memory."""
BLOCK = 1 << 19


def read_models(
    bank: Bank, models: Sequence[int], use: Callable[[int, Float[np.ndarray, "n views values"]], Found]
) -> tuple[list[Found], str]:
    """Applies a function to the outputs of these models of a bank, and computes the hash of the bank.

    The hash covers the labels of all records, and the numbers, masks and outputs of these models, so reading the same
    models always gives the same hash.

    Files are opened only by the calling thread, because threads that parse headers at the same time sometimes fail
    (CPython 3.11), and only a few are open at once. Several threads read their numbers.

    Returns:
        The results of `use`, in the order of the models, and the hash `blake2b:...`.
    """
    digests = [b""] * len(models)

    def read(index: int, outputs: Callable[[], np.ndarray]) -> Found:
        with _naming(bank, models[index]):
            values = outputs()
            digests[index] = _digest(models[index], bank.membership[models[index]], values)
            return use(index, values)

    read_so_far: list[Found] = []
    together = max(1, min(READERS, MAX_BYTES // (8 * math.prod(bank.description.shape))))
    with ThreadPoolExecutor(together) as threads:
        waiting: deque[Future[Found]] = deque()
        for index, model in enumerate(models):
            with _naming(bank, model):
                opened = open_outputs(bank.directory, model, bank.description)
            waiting.append(threads.submit(read, index, opened))
            if len(waiting) > together:
                read_so_far.append(waiting.popleft().result())
        read_so_far.extend(future.result() for future in waiting)
    whole = hashlib.blake2b(np.where(bank.dropped, -1, bank.labels).astype("<i4").tobytes(), digest_size=16)
    for index in np.argsort(np.asarray(models, int)):
        whole.update(digests[index])
    return read_so_far, f"blake2b:{whole.hexdigest()}"


@contextmanager
def _naming(bank: Bank, model: int) -> Iterator[None]:
    """Within this context an `InputError` also names the model of the bank that it concerns."""
    try:
        yield
    except InputError as error:
        raise InputError(
            f"{bank.directory.name}, model {model} of {len(bank)}: {error} Make these outputs again, or use the bank "
            "without that file."
        ) from error


def _digest(model: int, row: Bool[np.ndarray, " n"], values: Float[np.ndarray, "n views values"]) -> bytes:
    """The digest of a model's number, membership mask and outputs as stored."""
    stored = values.dtype.newbyteorder("<")
    digest = hashlib.blake2b(f"{model} {stored.name} {values.shape}".encode(), digest_size=16)
    digest.update(np.packbits(row).tobytes())
    rows = max(1, BLOCK // max(1, values.shape[1] * values.shape[2]))
    for start in range(0, len(values), rows):
        digest.update(np.ascontiguousarray(values[start : start + rows], stored).tobytes())
    return digest.digest()
