"""What `jaxaudit deal --blind` writes beside the sides: the challenge, and the key that stays at home."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
from jaxtyping import Array
from jaxtyping import Key as KeyArray
from pyarrow import csv

from jaxaudit.cli.deal.show import Side
from jaxaudit.data.challenge import CHALLENGE, RECORD, Key, Role, file_hash, key_as_json, record_names, rows_in_order
from jaxaudit.data.formats.named_arrays import CLASS_NAMES
from jaxaudit.randomness import generator_of, stream
from jaxaudit.runs.directory import Writer


def challenge_arrays(
    key: KeyArray[Array, ""], sides: Mapping[str, Side], arrays: Mapping[str, np.ndarray], inputs: str, salt: str
) -> tuple[dict[str, np.ndarray], dict[Role, list[int]]]:
    """The arrays of a challenge, and the rows in it of the records of each side.

    It has the inputs of all records in a random order, random names, and class names. It has no labels, which outputs
    do not need, no groups, and no further array: each could tell which set a record is of.

    Args:
        key: of the deal.
        sides: they have each record once.
        arrays: of all records, as the sides are written.
        inputs: the name of the inputs among them.
        salt: of the names, unknown to others.
    """
    order = generator_of(stream(key, CHALLENGE)).permutation(len(arrays[inputs]))
    named = {name: arrays[name] for name in CLASS_NAMES if name in arrays}
    made = {RECORD: np.array(record_names(salt, len(order))), inputs: arrays[inputs][order], **named}
    return made, rows_in_order(order, {name: side.rows for name, side in sides.items()})


def new_salt() -> str:
    """256 bits of the system's entropy, whatever the seed: from a commitment nobody can find a seed by trying."""
    return secrets.token_hex(32)


def key_writer(out: Path, names: list[str], salt: str, seed: int, whole: bool, rows: dict[Role, list[int]]) -> Writer:
    """Writes the key, with the hashes of these files, which are in their place by then."""

    def save(file: IO[bytes]) -> None:
        files = {name: file_hash(out / name) for name in names}
        file.write(key_as_json(Key(salt=salt, seed=seed, groups=whole, files=files, rows=rows)))

    return save


def as_csv(arrays: Mapping[str, np.ndarray], inputs: str) -> Writer:
    """Writes the names and the columns of the inputs as a table: each number with as many digits as it needs."""
    columns = {f"{inputs}{place}": column for place, column in enumerate(arrays[inputs].T)}
    table = pa.table({RECORD: arrays[RECORD], **columns})
    return lambda file: csv.write_csv(table, file)
