"""A million records' outputs of ten classes, read: `python -m bench.outputs` (a minute on two cores).

Promised, on two CPU cores: a file of 1,000,000 x 10 outputs is read, recognised (probabilities or logits, how finely
printed) and checked in at most twice the time in which NumPy (.npy) or pyarrow (.csv, .parquet) merely reads it.

The content hash, and the probabilities that a softmax makes of logits, are made when they are first asked for: their
times are listed, and so is that of a .npy file of rounded probabilities, of which every number must be looked at. Files
lie in the page cache, so that the disk counts for nothing. pyarrow uses all cores, as it does when nobody says
otherwise.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from bench.harness import Bench, Claim, interleave, report
from jaxaudit.data.outputs.outputs import Outputs, load_outputs

RECORDS, CLASSES, ROUNDS = 1_000_000, 10, 10
READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    ".npy": ("numpy", np.load),
    ".csv": ("pyarrow", lambda path: csv.read_csv(path, csv.ReadOptions(autogenerate_column_names=True))),
    ".parquet": ("pyarrow", parquet.read_table),
}


def write_files(folder: Path) -> dict[str, Path]:
    """The same model's outputs in every kind of file, by what a table calls them."""
    logits = np.random.default_rng(20).normal(0, 3, (RECORDS, CLASSES)).astype(np.float32)
    powers = np.exp(logits.astype(np.float64))
    probabilities = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    arrays = {"probabilities": probabilities, "logits": logits, "rounded": np.round(probabilities, 6)}
    paths = {f"{name}.npy": folder / f"{name}.npy" for name in arrays}
    for path, array in zip(paths.values(), arrays.values(), strict=True):
        np.save(path, array)
    table = pa.table({str(column): probabilities[:, column] for column in range(CLASSES)})
    paths["probabilities.parquet"] = folder / "probabilities.parquet"
    parquet.write_table(table, paths["probabilities.parquet"])
    for name, form in (("6 decimals.csv", "%.6f"), ("9 digits.csv", "%.9g")):
        paths[name] = folder / name
        np.savetxt(paths[name], probabilities, fmt=form, delimiter=",")
    return paths


def read(path: Path) -> Outputs:
    """As the command line reads it."""
    return load_outputs(path, CLASSES, RECORDS)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder))
        timings, claims = [], []
        for name, path in paths.items():
            other, their_read = READERS[path.suffix]
            contenders = {
                "jaxaudit": lambda path=path: read(path),
                other: lambda path=path, their_read=their_read: their_read(path),
            }
            if path.suffix == ".npy":
                contenders["jaxaudit, hash and probabilities"] = lambda path=path: (
                    (outputs := read(path)).content_hash,
                    outputs.probabilities,
                )
            timings.append(interleave(name, contenders, ROUNDS, untimed_before=True))
            if name != "rounded.npy":
                claims.append(
                    Claim(f"{name}: jaxaudit / {other}", timings[-1].ratio("jaxaudit", other), 2, at_least=False)
                )
    report(Bench("outputs", timings, claims), ["numpy", "pyarrow"])


if __name__ == "__main__":
    main()
